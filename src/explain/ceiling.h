/// What this machine can do at most, measured on it: memory bandwidth at each level, and the resolution of its clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "compute/cpu/cpu_info.h"

namespace hyalite::explain {

using hyalite::cpu_name;
using hyalite::last_level_cache_bytes;

/// A measured bandwidth: bytes read plus bytes written, in 10^9 bytes a second.
struct Ceiling {
  std::string name;  ///< For instance "DRAM, streaming stores, 2 threads".
  double gb_per_s;
};

/// The bandwidth of `c = a + b` on float arrays of 64 MiB with non-temporal stores, in the best of the
/// windows of 5 ms in a run of 0.15 s. Measured at the first call for each number of threads (some 0.2 s, 192 MiB given
/// back); `OutOfMemory` without them. `ValueError` where `threads` is not from 1 to 65536.
const Ceiling& dram_ceiling(int threads);

/// The same sum with ordinary stores and arrays in the smallest cache that holds `working_set_bytes`, all threads'
/// together (L1 and L2 are each core's own, L3 is shared); `dram_ceiling` where none does. Some 0.03 s a level, once.
const Ceiling& cache_ceiling(std::size_t working_set_bytes, int threads);

/// The clock's reading. Instructions before it have ended (stores may still be on their way to the cache), and those
/// after it have not begun. On x86-64 with an invariant time stamp counter that the kernel trusts it is the counter,
/// read by `rdtscp; lfence` (Intel SDM 4.3, RDTSCP); elsewhere `steady_clock`.
std::uint64_t ticks() noexcept;

/// Nanoseconds in a tick; calibrated against `steady_clock` over 10 ms at the first call.
double ns_per_tick();

/// The smallest nonzero difference seen between successive readings of `ticks()`, in nanoseconds.
double clock_resolution_ns();

}  // namespace hyalite::explain
