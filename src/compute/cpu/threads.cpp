/// The thread pool behind `parallel_for`: who computes which chunk, how many threads there are, and what a fork does.
///
/// The calling thread computes too. A dispatcher thread is its first helper and asks oneTBB for the others. The
/// dispatcher is the only thread that ever calls oneTBB: each external thread that called it once holds a reference
/// to its scheduler until that thread ends, and while one does, `tbb::finalize` leaves the workers running and a
/// forked child is without them. (Dropping the reference after each region costs 50 us on the main thread, where
/// oneTBB reads /proc/self/maps to find the stack.)
#include "compute/cpu/threads.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <cfenv>
#include <charconv>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/info.h>
#include <oneapi/tbb/task_arena.h>

#include "hyalite/error.h"

namespace hyalite {

namespace threads_detail {
std::atomic<int> thread_count{0};
constinit thread_local int last_threads = 1;
constinit thread_local bool inside_region = false;
constinit thread_local bool is_helper = false;
}  // namespace threads_detail

namespace {

using threads_detail::inside_region;
using threads_detail::is_helper;
using threads_detail::RangeFn;
using Lock = std::unique_lock<std::mutex>;

constexpr int kMostThreads = 65536;
constexpr auto kPatience = std::chrono::milliseconds(500);
constexpr int kSpins = 2000;  // some 20 us: shorter than putting a thread to sleep and waking it

/// Lets the CPU rest in a loop that waits for another thread.
inline void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

template <class Done>
bool spin_until(Done done) noexcept {
  for (int i = 0; i < kSpins; ++i) {
    if (done()) return true;
    relax();
  }
  return done();
}

/// One region, on its caller's stack. What follows the line is guarded by the pool's mutex.
struct Job {
  RangeFn body;
  std::int64_t chunks;
  std::int64_t grain;
  std::atomic<std::int64_t> next{0};
  std::atomic<bool> stop{false};
  std::atomic<int> running{0};  // helpers inside; written under the mutex
  // --
  int wanted = 0;  // helpers that may still join
  Job* following = nullptr;
  std::exception_ptr error{};
  bool entered = false;  // counted among the regions
  bool lost = false;     // this is a forked child, and helpers were inside
};

thread_local Job* current_job = nullptr;

/// Marks the thread as inside a region.
class Inside {
 public:
  Inside(Job& job, bool helper) noexcept {
    inside_region = true;
    current_job = &job;
    is_helper = helper;
  }
  ~Inside() {
    inside_region = false;
    current_job = nullptr;
    is_helper = false;
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

/// The dispatcher thread, which owns oneTBB's workers from three threads on.
struct Crew {
  explicit Crew(int n) : threads(n) {}
  const int threads;
  bool stopping = false;      // guarded by the pool's mutex
  bool workers_ended = true;  // written by the dispatcher, read after the join
  std::thread dispatcher;
};

/// oneTBB's workers: an arena and what is needed to end it.
class Workers {
 public:
  explicit Workers(int threads);
  /// Sends up to `count` of them to `Pool::join`.
  void call(int count) noexcept;
  /// Ends the threads; false where another user of oneTBB keeps them.
  bool end() noexcept;

 private:
  oneapi::tbb::task_scheduler_handle handle_{oneapi::tbb::attach{}};
  std::optional<oneapi::tbb::global_control> limit_;
  std::optional<oneapi::tbb::task_arena> arena_;
};

class Pool {
 public:
  /// Leaked: workers may outlive static destructors.
  static Pool& get() {
    static Pool* const pool = new Pool;
    return *pool;
  }

  /// Offers `job` to the other threads; where it has to stay serial, does nothing.
  void open(Job& job, int threads) noexcept;
  /// Withdraws `job` and waits for the helpers inside it.
  void close(Job& job) noexcept;
  /// Keeps the first exception of `job`.
  void fail(Job& job, std::exception_ptr error) noexcept;
  /// What one of oneTBB's workers does: helps as long as a job wants it.
  void join() noexcept;

  bool recalled() const noexcept { return recall_.load(std::memory_order_relaxed); }
  ForkState fork_state() const noexcept { return fork_state_.load(std::memory_order_relaxed); }

 private:
  Pool();
  void hire(Lock& lock, int threads) noexcept;
  bool dismiss(Lock& lock) noexcept;
  ForkState retire(Lock& lock) noexcept;
  void dispatch(Crew& crew) noexcept;
  void await_offer(Lock& lock, Crew& crew) noexcept;
  Job* claim() noexcept;
  void help(Lock& lock, Job& job) noexcept;
  void withdraw(Job& job) noexcept;

  void before_fork() noexcept;
  void after_fork() noexcept;
  void after_fork_in_child() noexcept;
  void at_exit() noexcept;

  std::mutex mutex_;
  std::condition_variable offered_;  // to the dispatcher: a job, or the end
  std::condition_variable left_;     // to callers and forks: a helper has left, or a crew is complete
  std::atomic<int> offers_{0};       // helpers wanted by all jobs
  Job* first_ = nullptr;             // jobs that want helpers
  int regions_ = 0;
  int helpers_ = 0;                  // helpers inside any job
  bool changing_ = false;            // the crew is being exchanged or the process forks: new regions are serial
  bool ended_ = false;               // the process is exiting: all further regions are serial
  std::atomic<bool> recall_{false};  // helpers leave after the part they are at
  ForkState at_fork_ = ForkState::usable;
  std::unique_ptr<Crew> crew_;
  std::atomic<ForkState> fork_state_{ForkState::usable};
};

std::atomic<InterruptPoll> interrupt_poll{nullptr};

/// Computes parts of `job` until none is left; true when `poll` asked to stop.
bool compute(Job& job, InterruptPoll poll) {
  const bool helper = is_helper;
  while (!job.stop.load(std::memory_order_relaxed) && !(helper && Pool::get().recalled())) {
    const std::int64_t begin = job.next.fetch_add(job.grain, std::memory_order_relaxed);
    if (begin >= job.chunks) break;
    const std::int64_t end = std::min(begin + job.grain, job.chunks);
    job.body(begin, end);
    // After the last part there is nothing to stop.
    if (poll && end < job.chunks && poll()) {
      job.stop.store(true, std::memory_order_relaxed);
      return true;
    }
  }
  return false;
}

Workers::Workers(int threads) {
  using oneapi::tbb::global_control;
  // The caller and the dispatcher are not oneTBB's, but it counts one external thread. Asking for more than the
  // limit makes oneTBB print a warning.
  const auto limit = global_control::max_allowed_parallelism;
  const int most = std::max(256, oneapi::tbb::info::default_concurrency());
  const int concurrency = std::min(threads - 1, most);
  if (static_cast<std::size_t>(concurrency) > global_control::active_value(limit)) limit_.emplace(limit, concurrency);
  arena_.emplace(std::min<int>(concurrency, static_cast<int>(global_control::active_value(limit))), 1);
  arena_->initialize();
}

void Workers::call(int count) noexcept {
  try {
    for (int i = 0; i < count; ++i) arena_->enqueue([] { Pool::get().join(); });
  } catch (...) {
    // Without memory for a task there are fewer helpers; the caller computes what is left.
  }
}

bool Workers::end() noexcept {
  // An arena holds a reference to the scheduler, as does this thread; finalize drops the latter.
  arena_.reset();
  const bool ended = oneapi::tbb::finalize(handle_, std::nothrow);
  limit_.reset();
  return ended;
}

Pool::Pool() {
  pthread_atfork([] { get().before_fork(); }, [] { get().after_fork(); }, [] { get().after_fork_in_child(); });
  // oneTBB's statics were constructed before this and so are destroyed after `at_exit`. A dispatcher still building
  // its workers would use them then ("pure virtual method called").
  std::atexit([] { get().at_exit(); });
}

void Pool::open(Job& job, int threads) noexcept {
  Lock lock(mutex_);
  if (changing_ || ended_ || fork_state() != ForkState::usable) return;
  if ((!crew_ || crew_->threads != threads) && regions_ == 0) hire(lock, threads);
  if (!crew_ || changing_) return;
  job.entered = true;
  ++regions_;
  // One budget: a region that is not alone leaves a thread to each of the others' callers.
  const std::int64_t parts = (job.chunks + job.grain - 1) / job.grain;
  const auto wanted = static_cast<int>(std::min<std::int64_t>(parts - 1, crew_->threads - regions_));
  if (wanted <= 0) return;
  job.wanted = wanted;
  job.following = first_;
  first_ = &job;
  offers_.fetch_add(wanted, std::memory_order_relaxed);
  lock.unlock();
  offered_.notify_one();
}

void Pool::withdraw(Job& job) noexcept {
  if (job.wanted == 0) return;
  offers_.fetch_sub(job.wanted, std::memory_order_relaxed);
  job.wanted = 0;
  for (Job** link = &first_; *link; link = &(*link)->following) {
    if (*link != &job) continue;
    *link = job.following;
    return;
  }
}

void Pool::close(Job& job) noexcept {
  if (!job.entered) return;
  Lock lock(mutex_);
  withdraw(job);
  if (job.running.load(std::memory_order_relaxed) > 0) {
    lock.unlock();
    spin_until([&] { return job.running.load(std::memory_order_relaxed) == 0; });
    lock.lock();
    left_.wait(lock, [&] { return job.running.load(std::memory_order_relaxed) == 0; });
  }
  --regions_;
}

void Pool::fail(Job& job, std::exception_ptr error) noexcept {
  Lock lock(mutex_);
  if (!job.error) job.error = std::move(error);
  job.stop.store(true, std::memory_order_relaxed);
}

Job* Pool::claim() noexcept {
  Job* const job = first_;
  if (!job) return nullptr;
  offers_.fetch_sub(1, std::memory_order_relaxed);
  if (--job->wanted == 0) first_ = job->following;
  job->running.fetch_add(1, std::memory_order_relaxed);
  ++helpers_;
  return job;
}

void Pool::help(Lock& lock, Job& job) noexcept {
  lock.unlock();
  try {
    const Inside inside(job, /*helper=*/true);
    compute(job, nullptr);
  } catch (...) {
    fail(job, std::current_exception());
  }
  lock.lock();
  --helpers_;
  // The caller may not return before it has had the mutex, so `job` lives until the unlock.
  job.running.fetch_sub(1, std::memory_order_relaxed);
  left_.notify_all();
}

void Pool::join() noexcept {
  Lock lock(mutex_);
  while (Job* const job = claim()) help(lock, *job);
}

void Pool::dispatch(Crew& crew) noexcept {
  // The creator's MXCSR is inherited; with its flush-to-zero results would depend on who computes.
  std::fesetenv(FE_DFL_ENV);
  std::optional<Workers> workers;
  if (crew.threads > 2) {
    try {
      workers.emplace(crew.threads);
    } catch (...) {
      // Without workers the caller and this thread remain.
    }
  }
  Lock lock(mutex_);
  while (true) {
    await_offer(lock, crew);
    if (crew.stopping) break;
    Job* const job = claim();
    if (!job) continue;
    if (const int more = offers_.load(std::memory_order_relaxed); workers && more > 0) {
      lock.unlock();
      workers->call(std::min(more, crew.threads - 2));
      lock.lock();
    }
    help(lock, *job);
  }
  lock.unlock();
  if (workers) crew.workers_ended = workers->end();
}

void Pool::await_offer(Lock& lock, Crew& crew) noexcept {
  if (crew.stopping || first_) return;
  lock.unlock();
  spin_until([&] { return offers_.load(std::memory_order_relaxed) > 0; });
  lock.lock();
  offered_.wait(lock, [&] { return crew.stopping || first_; });
}

void Pool::hire(Lock& lock, int threads) noexcept {
  changing_ = true;
  dismiss(lock);
  // Signals belong to the program's own threads; workers inherit the mask.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    auto crew = std::make_unique<Crew>(threads);
    crew->dispatcher = std::thread([this, &crew = *crew] { dispatch(crew); });
    crew_ = std::move(crew);
  } catch (...) {
    // No thread to be had: the region is serial, and the next one tries again.
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  changing_ = false;
  left_.notify_all();
}

/// Ends the crew's threads; false where oneTBB's go on. Gives the mutex up meanwhile, which late workers need.
bool Pool::dismiss(Lock& lock) noexcept {
  if (!crew_) return true;
  crew_->stopping = true;
  lock.unlock();
  offered_.notify_all();
  crew_->dispatcher.join();
  lock.lock();
  const bool ended = crew_->workers_ended;
  crew_.reset();
  return ended;
}

/// Sends the helpers away and ends the crew; `changing_` is set from here on, and `recall_`.
ForkState Pool::retire(Lock& lock) noexcept {
  left_.wait(lock, [&] { return !changing_; });
  changing_ = true;
  recall_.store(true, std::memory_order_relaxed);
  while (first_) withdraw(*first_);
  // Callers stay and compute the rest of their regions alone.
  const bool idle = !is_helper && left_.wait_for(lock, kPatience, [&] { return helpers_ == 0; });
  if (!idle) return ForkState::busy;
  return dismiss(lock) ? ForkState::usable : ForkState::shared_scheduler;
}

void Pool::before_fork() noexcept {
  Lock lock(mutex_);
  at_fork_ = retire(lock);
  lock.release();  // held over the fork, so that the child finds this object whole
}

void Pool::at_exit() noexcept {
  Lock lock(mutex_);
  retire(lock);
  ended_ = true;
  changing_ = false;
  left_.notify_all();
}

void Pool::after_fork() noexcept {
  changing_ = false;
  recall_.store(false, std::memory_order_relaxed);
  mutex_.unlock();
  left_.notify_all();
}

void Pool::after_fork_in_child() noexcept {
  // Threads that are gone may have been waiting on these.
  new (&offered_) std::condition_variable;
  new (&left_) std::condition_variable;
  static_cast<void>(crew_.release());  // none, or one whose threads exist no more and cannot be joined
  helpers_ = 0;
  regions_ = 0;
  if (Job* const job = current_job; job && job->entered) {
    job->lost = job->running.exchange(0, std::memory_order_relaxed) > 0;
    regions_ = 1;
  }
  if (at_fork_ != ForkState::usable) fork_state_.store(at_fork_, std::memory_order_relaxed);
  changing_ = false;
  recall_.store(false, std::memory_order_relaxed);
  mutex_.unlock();
}

/// A file's text, empty where it cannot be read.
std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// The quota in CPUs of one cgroup folder, 0 where it has none.
double folder_quota(const std::string& folder) {
  double quota = 0, period = 0;
  if (std::istringstream(read_text(folder + "/cpu.max")) >> quota >> period) {  // "max 100000" does not parse
    return quota > 0 && period > 0 ? quota / period : 0;
  }
  const bool found = std::istringstream(read_text(folder + "/cpu.cfs_quota_us")) >> quota &&
                     std::istringstream(read_text(folder + "/cpu.cfs_period_us")) >> period;
  return found && quota > 0 && period > 0 ? quota / period : 0;
}

/// The smallest quota from `mount + path` up to `mount`, 0 where there is none.
double smallest_quota(const std::string& mount, std::string path) {
  double smallest = 0;
  while (true) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    const double quota = folder_quota(mount + path);
    if (quota > 0 && (smallest == 0 || quota < smallest)) smallest = quota;
    if (path.empty()) return smallest;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

/// Whether the comma-separated `list` names the CPU controller.
bool names_cpu(std::string_view list) { return ("," + std::string(list) + ",").find(",cpu,") != std::string::npos; }

/// The number of CPUs this process may run on.
int affinity_count() {
  for (int cpus = CPU_SETSIZE; cpus <= 1 << 20; cpus *= 2) {
    const std::size_t size = CPU_ALLOC_SIZE(cpus);
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(cpus), [](cpu_set_t* s) { CPU_FREE(s); });
    if (set && sched_getaffinity(0, size, set.get()) == 0) return std::max(1, CPU_COUNT_S(size, set.get()));
  }
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

int machine_threads() {
  const int cpus = affinity_count();
  const double quota = cgroup_cpu_quota(read_text("/proc/self/cgroup"), "/sys/fs/cgroup");
  return quota > 0 && quota < cpus ? std::max(1, static_cast<int>(std::ceil(quota))) : cpus;
}

}  // namespace

double cgroup_cpu_quota(const std::string& proc_cgroup, const std::string& root) {
  double smallest = 0;
  const auto take = [&](const std::string& mount, const std::string& path) {
    const double quota = smallest_quota(mount, path);
    if (quota > 0 && (smallest == 0 || quota < smallest)) smallest = quota;
  };
  std::istringstream lines(proc_cgroup);
  for (std::string line; std::getline(lines, line);) {  // id:controllers:path
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {  // version 2, alone or beside version 1
      take(root, path);
      take(root + "/unified", path);
    } else if (names_cpu(controllers)) {
      take(root + "/" + controllers, path);
      take(root + "/cpu", path);
    }
  }
  return smallest;
}

int default_threads() {
  const char* const text = std::getenv("HYALITE_NUM_THREADS");
  if (!text || !*text) return machine_threads();
  const std::string_view value(text);
  int n = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
  if (error != std::errc() || end != value.data() + value.size() || n < 1 || n > kMostThreads) {
    throw ValueError("HYALITE_NUM_THREADS is '" + std::string(value) + "'; write a whole number from 1 to 65536",
                     {{"value", std::string(value)}});
  }
  return n;
}

void set_num_threads(int n) {
  if (n < 1 || n > kMostThreads) {
    throw ValueError("set_num_threads(): " + std::to_string(n) + " is out of range; write a number from 1 to 65536",
                     {{"n", std::int64_t{n}}});
  }
  threads_detail::thread_count.store(n, std::memory_order_relaxed);
}

ForkState fork_state() noexcept { return Pool::get().fork_state(); }

void set_interrupt_poll(InterruptPoll poll) noexcept { interrupt_poll.store(poll, std::memory_order_relaxed); }

namespace threads_detail {

int first_thread_count() noexcept {
  int n = 1;
  try {
    n = default_threads();
  } catch (...) {
    // A wrong variable is reported by default_threads(), which the Python module calls at import.
    try {
      n = machine_threads();
    } catch (...) {
      // Without memory to read a small file, one thread will do.
    }
  }
  int none = 0;
  return thread_count.compare_exchange_strong(none, n, std::memory_order_relaxed) ? n : none;
}

bool run(std::int64_t chunks, RangeFn body, bool polled) {
  const int threads = num_threads();
  last_threads = threads;
  // Several parts a thread even out a slow one; polled regions have more, so that Ctrl-C is seen soon.
  const std::int64_t parts = std::int64_t{threads} * (polled ? 64 : 8);
  Job job{.body = body, .chunks = chunks, .grain = std::max<std::int64_t>(1, chunks / parts)};
  Pool& pool = Pool::get();
  if (threads > 1) pool.open(job, threads);
  bool interrupted = false;
  try {
    const Inside inside(job, /*helper=*/false);
    interrupted = compute(job, polled ? interrupt_poll.load(std::memory_order_relaxed) : nullptr);
  } catch (...) {
    pool.fail(job, std::current_exception());
  }
  pool.close(job);
  if (job.error) std::rethrow_exception(job.error);
  if (job.lost) {
    throw Unsupported(
        "parallel_for(): this process was forked inside it while other threads computed parts of it; "
        "let such a child call exec or _exit");
  }
  return !interrupted;
}

}  // namespace threads_detail

}  // namespace hyalite
