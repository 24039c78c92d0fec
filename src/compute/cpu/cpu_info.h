/// Facts about this machine's processor: its name and the sizes of its caches.
#pragma once

#include <cstddef>
#include <string>

namespace hyalite {

/// Data cache sizes in bytes as one thread sees them; 0 where a level is missing or unknown.
struct CacheSizes {
  std::size_t l1 = 0;
  std::size_t l2 = 0;
  std::size_t l3 = 0;
};

/// The processor's own name, for instance "AMD EPYC 9654 96-Core Processor"; the architecture where it has none.
const std::string& cpu_name();

/// Read once, from /sys, else from sysconf.
const CacheSizes& cache_sizes();

/// The size in bytes of the last cache before memory; 8 MiB where the system does not tell.
std::size_t last_level_cache_bytes();

}  // namespace hyalite
