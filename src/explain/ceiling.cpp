/// Measures memory bandwidth with the simplest loop there is, and calibrates the clock.
#include "explain/ceiling.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

#include "hyalite/error.h"

namespace hyalite::explain {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kArrayBytes = std::size_t{64} << 20;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr int kMostThreads = 65536;
constexpr std::size_t kStep = 256;  // bytes; what a turn of the widest loop handles, and the slices' alignment

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Memory of its own, in huge pages where the kernel has them; zeroed, given back at the end.
class Mapping {
 public:
  explicit Mapping(std::size_t bytes) : bytes_(bytes + kHugePage) {
    base_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base_ == MAP_FAILED) {
      throw OutOfMemory("explain(): no " + std::to_string(bytes_) + " bytes to measure the memory's bandwidth with",
                        {{"bytes", static_cast<std::int64_t>(bytes_)}});
    }
    madvise(base_, bytes_, MADV_HUGEPAGE);  // a wish: small pages serve too
  }
  ~Mapping() { munmap(base_, bytes_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  char* data() const noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(base_);
    return static_cast<char*>(base_) + ((address + kHugePage - 1) / kHugePage * kHugePage - address);
  }

 private:
  void* base_;
  std::size_t bytes_;
};

using Add = void (*)(const float* a, const float* b, float* c, std::size_t n);

#if defined(__x86_64__)

template <bool streamed>
[[gnu::target("avx512f")]] void add_avx512(const float* a, const float* b, float* c, std::size_t n) {
  for (std::size_t i = 0; i < n; i += 64) {
    for (std::size_t j = i; j < i + 64; j += 16) {
      const __m512 sum = _mm512_add_ps(_mm512_load_ps(a + j), _mm512_load_ps(b + j));
      streamed ? _mm512_stream_ps(c + j, sum) : _mm512_store_ps(c + j, sum);
    }
  }
  if (streamed) _mm_sfence();
}

template <bool streamed>
[[gnu::target("avx2")]] void add_avx2(const float* a, const float* b, float* c, std::size_t n) {
  for (std::size_t i = 0; i < n; i += 64) {
    for (std::size_t j = i; j < i + 64; j += 8) {
      const __m256 sum = _mm256_add_ps(_mm256_load_ps(a + j), _mm256_load_ps(b + j));
      streamed ? _mm256_stream_ps(c + j, sum) : _mm256_store_ps(c + j, sum);
    }
  }
  if (streamed) _mm_sfence();
}

template <bool streamed>
void add_sse2(const float* a, const float* b, float* c, std::size_t n) {
  for (std::size_t i = 0; i < n; i += 64) {
    for (std::size_t j = i; j < i + 64; j += 4) {
      const __m128 sum = _mm_add_ps(_mm_load_ps(a + j), _mm_load_ps(b + j));
      streamed ? _mm_stream_ps(c + j, sum) : _mm_store_ps(c + j, sum);
    }
  }
  if (streamed) _mm_sfence();
}

template <bool streamed>
Add pick_add() {
  if (__builtin_cpu_supports("avx512f")) return add_avx512<streamed>;
  if (__builtin_cpu_supports("avx2")) return add_avx2<streamed>;
  return add_sse2<streamed>;
}

constexpr bool kStreams = true;

#else

void add_plain(const float* a, const float* b, float* c, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) c[i] = a[i] + b[i];
}

template <bool streamed>
Add pick_add() {
  return add_plain;
}

constexpr bool kStreams = false;

#endif

/// One thread's part of the three arrays.
struct Slice {
  float* a;
  float* b;
  float* c;
  std::size_t floats;
};

/// How one thread got on: when each of its units of `unit_bytes` was done, in seconds.
struct Progress {
  double unit_bytes = 0;
  std::vector<double> done;

  /// Bytes moved until `time`; a unit counts in proportion to the time spent on it.
  double bytes_until(double time) const {
    const auto after = std::upper_bound(done.begin(), done.end(), time);
    if (after == done.end() || after == done.begin()) return after == done.begin() ? 0 : unit_bytes * (done.size() - 1);
    const double whole = static_cast<double>(after - done.begin() - 1);
    return unit_bytes * (whole + (time - after[-1]) / (after[0] - after[-1]));
  }
};

/// Sums over the slice, some MiB a unit, until `budget` seconds after `start`.
Progress work_through(const Slice& slice, Add add, Clock::time_point start, double budget) {
  constexpr std::size_t kUnitFloats = (std::size_t{1} << 20) / sizeof(float);
  const std::size_t floats = std::min(slice.floats, kUnitFloats);
  const std::size_t parts = slice.floats / floats;
  const std::size_t turns = kUnitFloats / floats;
  Progress progress{3.0 * sizeof(float) * static_cast<double>(floats * turns), {seconds_since(start)}};
  for (std::size_t part = 0; progress.done.back() < budget; part = (part + 1) % parts) {
    const std::size_t at = part * floats;
    for (std::size_t turn = 0; turn < turns; ++turn) add(slice.a + at, slice.b + at, slice.c + at, floats);
    progress.done.push_back(seconds_since(start));
  }
  return progress;
}

/// The most bytes a second that all threads together moved during any thirtieth of `budget` seconds. A window, not
/// passes between barriers: where other programs take the cores, waiting for the last thread would measure them.
double best_window(const std::vector<Slice>& slices, Add add, double budget) {
  std::vector<Progress> progress(slices.size());
  const Clock::time_point start = Clock::now();
  {
    std::vector<std::jthread> threads;
    threads.reserve(slices.size());
    for (std::size_t i = 1; i < slices.size(); ++i) {
      threads.emplace_back([&, i] { progress[i] = work_through(slices[i], add, start, budget); });
    }
    progress[0] = work_through(slices[0], add, start, budget);
  }
  const double window = budget / 30;
  double best = 0;
  for (double begin = 0; begin + window <= budget; begin += window / 8) {
    double bytes = 0;
    for (const Progress& p : progress) bytes += p.bytes_until(begin + window) - p.bytes_until(begin);
    best = std::max(best, bytes / window);
  }
  return best;
}

/// The best bandwidth in GB/s of a sum over three arrays of `array_bytes`, cut among `threads`.
double bandwidth(char* memory, std::size_t array_bytes, int threads, Add add, double budget) {
  const std::size_t slice = std::max(kStep, array_bytes / threads / kStep * kStep);
  const auto part = [&](int array, int i) {
    return reinterpret_cast<float*>(memory + array * array_bytes + i * slice);
  };
  std::vector<Slice> slices;
  for (int i = 0; i < threads; ++i) slices.push_back({part(0, i), part(1, i), part(2, i), slice / sizeof(float)});
  return best_window(slices, add, budget) * 1e-9;
}

std::string threads_text(int threads) { return std::to_string(threads) + (threads == 1 ? " thread" : " threads"); }

Ceiling measure_dram(int threads) {
  const Mapping memory(3 * kArrayBytes);
  std::fill_n(reinterpret_cast<float*>(memory.data()), 3 * kArrayBytes / sizeof(float), 1.0f);
  return {(kStreams ? "DRAM, streaming stores, " : "DRAM, ") + threads_text(threads),
          bandwidth(memory.data(), kArrayBytes, threads, pick_add<true>(), 0.15)};
}

/// Half of the cache is used, so that nothing else evicts the arrays.
Ceiling measure_cache(const char* level, std::size_t cache_bytes, int threads) {
  const std::size_t array_bytes = std::max(kStep * threads, cache_bytes / 2 / 3 / kStep * kStep);
  const Mapping memory(3 * array_bytes);
  std::fill_n(reinterpret_cast<float*>(memory.data()), 3 * array_bytes / sizeof(float), 1.0f);
  return {std::string(level) + ", " + threads_text(threads),
          bandwidth(memory.data(), array_bytes, threads, pick_add<false>(), 0.03)};
}

/// Measured ceilings by level (1 to 3, 0 for memory) and threads; nodes of a map stay where they are.
template <class Measure>
const Ceiling& once(int level, int threads, Measure measure) {
  static std::mutex mutex;
  static std::map<std::pair<int, int>, Ceiling> measured;
  const std::lock_guard lock(mutex);  // held while measuring: two measurements at once would halve each other
  const std::pair key(level, threads);
  if (const auto found = measured.find(key); found != measured.end()) return found->second;
  return measured.emplace(key, measure()).first->second;
}

void check_threads(const char* function, int threads) {
  if (threads >= 1 && threads <= kMostThreads) return;
  throw ValueError(std::string(function) + "(): threads is " + std::to_string(threads) + "; write a number from 1 to " +
                       std::to_string(kMostThreads),
                   {{"threads", std::int64_t{threads}}});
}

/// Whether time stamp counters tick at one rate on all cores, and the kernel itself has not given them up.
bool has_steady_counter() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool invariant = __get_cpuid(0x80000007u, &a, &b, &c, &d) && (d & (1u << 8));
  const bool rdtscp = __get_cpuid(0x80000001u, &a, &b, &c, &d) && (d & (1u << 27));
  std::string source;
  std::ifstream("/sys/devices/system/clocksource/clocksource0/current_clocksource") >> source;
  return invariant && rdtscp && source != "hpet" && source != "acpi_pm";
#else
  return false;
#endif
}

bool uses_counter() noexcept {
  static const bool uses = has_steady_counter();
  return uses;
}

double calibrate() {
  if (!uses_counter()) return 1.0;
  // Each end is the tightest of several readings of both clocks, so that an interruption between them is left out.
  const auto both = [] {
    std::pair<std::uint64_t, Clock::time_point> tightest;
    std::uint64_t narrowest = std::numeric_limits<std::uint64_t>::max();
    for (int i = 0; i < 20; ++i) {
      const std::uint64_t before = ticks();
      const Clock::time_point now = Clock::now();
      const std::uint64_t width = ticks() - before;
      if (width < narrowest) {
        narrowest = width;
        tightest = {before + width / 2, now};
      }
    }
    return tightest;
  };
  const auto start = both();
  while (seconds_since(start.second) < 0.01) {
  }
  const auto end = both();
  return std::chrono::duration<double, std::nano>(end.second - start.second).count() /
         static_cast<double>(end.first - start.first);
}

double measure_resolution() {
  std::uint64_t smallest = std::numeric_limits<std::uint64_t>::max();
  for (int i = 0; i < 10000; ++i) {
    const std::uint64_t before = ticks();
    const std::uint64_t difference = ticks() - before;
    if (difference > 0) smallest = std::min(smallest, difference);
  }
  return static_cast<double>(smallest) * ns_per_tick();
}

}  // namespace

const Ceiling& dram_ceiling(int threads) {
  check_threads("dram_ceiling", threads);
  return once(0, threads, [&] { return measure_dram(threads); });
}

const Ceiling& cache_ceiling(std::size_t working_set_bytes, int threads) {
  check_threads("cache_ceiling", threads);
  const CacheSizes& sizes = cache_sizes();
  const auto cores = static_cast<std::size_t>(threads);
  const struct {
    const char* name;
    std::size_t bytes;
  } levels[] = {{"L1", sizes.l1 * cores}, {"L2", sizes.l2 * cores}, {"L3", sizes.l3}};
  for (int i = 0; i < 3; ++i) {
    const auto& level = levels[i];
    if (level.bytes < working_set_bytes || level.bytes == 0) continue;
    return once(i + 1, threads, [&] { return measure_cache(level.name, level.bytes, threads); });
  }
  return dram_ceiling(threads);
}

std::uint64_t ticks() noexcept {
#if defined(__x86_64__)
  if (uses_counter()) {
    unsigned core;
    const std::uint64_t now = __rdtscp(&core);
    _mm_lfence();
    return now;
  }
#endif
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(Clock::now().time_since_epoch()).count());
}

double ns_per_tick() {
  static const double ns = calibrate();
  return ns;
}

double clock_resolution_ns() {
  static const double ns = measure_resolution();
  return ns;
}

}  // namespace hyalite::explain
