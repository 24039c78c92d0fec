/// Runs independent chunks of one computation on several threads; hides the pool (oneTBB) from everything else.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

namespace hyalite {

/// What a fork left of the pool in this process.
enum class ForkState : std::uint8_t {
  usable,            ///< Never forked, or the pool was idle and has been rebuilt.
  busy,              ///< Forked while threads were inside a region: this child computes serially.
  shared_scheduler,  ///< Another library kept oneTBB alive over the fork: this child computes serially.
};

/// Asks whether the work shall stop; called only by the thread that started it, between chunks.
using InterruptPoll = bool (*)();

namespace threads_detail {

extern std::atomic<int> thread_count;              // 0 until somebody asks
extern constinit thread_local int last_threads;    // of the last region this thread began; set to 1 before asking
extern constinit thread_local bool inside_region;  // a nested region is serial
extern constinit thread_local bool is_helper;      // inside a region that another thread began

/// A reference to a callable; it must outlive the call.
struct RangeFn {
  void* object;
  void (*call)(void* object, std::int64_t begin, std::int64_t end);
  void operator()(std::int64_t begin, std::int64_t end) const { call(object, begin, end); }
};

template <class F>
RangeFn range_fn(F& fn) noexcept {
  return {const_cast<void*>(static_cast<const void*>(std::addressof(fn))),
          [](void* object, std::int64_t begin, std::int64_t end) { (*static_cast<F*>(object))(begin, end); }};
}

int first_thread_count() noexcept;
bool run(std::int64_t chunks, RangeFn body, bool polled);

}  // namespace threads_detail

/// The number of threads a region may use, the caller included; one relaxed load after the first call.
inline int num_threads() noexcept {
  const int n = threads_detail::thread_count.load(std::memory_order_relaxed);
  return n > 0 ? n : threads_detail::first_thread_count();
}

/// Sets the number of threads, the caller included. Regions already running keep theirs. `ValueError` below 1.
void set_num_threads(int n);

/// `HYALITE_NUM_THREADS`, else the CPUs this process may run on, at most its cgroup's quota rounded up.
/// `ValueError` where the variable is not a whole number from 1 to 65536.
int default_threads();

/// The CPU quota in CPUs of the cgroups listed in `proc_cgroup` (the text of /proc/self/cgroup), version 1 or 2,
/// parents included, mounted under `root`; 0 where there is none.
double cgroup_cpu_quota(const std::string& proc_cgroup, const std::string& root);

/// What the last fork left of the pool.
ForkState fork_state() noexcept;

/// True in a child forked while threads were inside a region; such a child computes serially.
inline bool forked_while_busy() noexcept { return fork_state() == ForkState::busy; }

/// Installs the question asked between chunks, null for none. The Python module's checks for signals.
void set_interrupt_poll(InterruptPoll poll) noexcept;

/// Calls `fn(begin, end)` for consecutive parts of [0, chunks) on up to `num_threads()` threads and returns when all
/// are done. The first exception of `fn` is rethrown, and parts not begun by then are left out. Serial, without
/// allocating, when chunks <= 1, inside another region and with one thread.
/// `Unsupported` in a child that `fn` itself forked while other threads were computing: their parts are lost there.
template <class F>
void parallel_for(std::int64_t chunks, F&& fn) {
  if (chunks <= 0) return;
  if (chunks == 1 || threads_detail::inside_region || num_threads() == 1) {
    fn(std::int64_t{0}, chunks);
    return;
  }
  threads_detail::run(chunks, threads_detail::range_fn(fn), /*polled=*/false);
}

/// `parallel_for` that stops early, and returns false, when the interrupt poll says so; parts begun are finished.
/// Inside another region, whose caller polls, it neither polls nor stops.
template <class F>
bool parallel_for_interruptible(std::int64_t chunks, F&& fn) {
  if (chunks <= 0) return true;
  if (chunks == 1 || threads_detail::inside_region) {
    fn(std::int64_t{0}, chunks);
    return true;
  }
  return threads_detail::run(chunks, threads_detail::range_fn(fn), /*polled=*/true);
}

}  // namespace hyalite
