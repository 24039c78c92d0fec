/// The least time this machine needs to read and write what a row moves: add, copy and read loops on pinned threads,
/// with streaming and with ordinary stores, over huge pages; benchmarks/native.py compiles and loads it.
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

/// One thread's part of a pass; `sink` keeps what a read computes.
struct Part {
  const float* a;
  const float* b;
  float* c;
  std::size_t n;
  float sink;
};
using Loop = void (*)(Part&);

constexpr std::size_t line = 16;  // floats in a cache line; parts start on one

// Ordinary loops: the compiler vectorises them for the baseline, and every machine has them.

void add_plain(Part& p) {
  for (std::size_t i = 0; i < p.n; ++i) p.c[i] = p.a[i] + p.b[i];
}

void copy_plain(Part& p) {
  for (std::size_t i = 0; i < p.n; ++i) p.c[i] = p.a[i];
}

void read_plain(Part& p) {
  float s[line] = {};
  for (std::size_t i = 0; i + line <= p.n; i += line)
    for (std::size_t j = 0; j < line; ++j) s[j] += p.a[i + j];
  for (float v : s) p.sink += v;
}

#if defined(__x86_64__)

#define AVX2 __attribute__((target("avx2")))
#define AVX512 __attribute__((target("avx512f")))

AVX2 void add_avx2(Part& p) {
  for (std::size_t i = 0; i < p.n; i += 8)
    _mm256_storeu_ps(p.c + i, _mm256_add_ps(_mm256_loadu_ps(p.a + i), _mm256_loadu_ps(p.b + i)));
}

AVX2 void add_avx2_stream(Part& p) {
  for (std::size_t i = 0; i < p.n; i += line) {
    _mm256_stream_ps(p.c + i, _mm256_add_ps(_mm256_loadu_ps(p.a + i), _mm256_loadu_ps(p.b + i)));
    _mm256_stream_ps(p.c + i + 8, _mm256_add_ps(_mm256_loadu_ps(p.a + i + 8), _mm256_loadu_ps(p.b + i + 8)));
  }
  _mm_sfence();
}

AVX2 void copy_avx2_stream(Part& p) {
  for (std::size_t i = 0; i < p.n; i += line) {
    _mm256_stream_ps(p.c + i, _mm256_loadu_ps(p.a + i));
    _mm256_stream_ps(p.c + i + 8, _mm256_loadu_ps(p.a + i + 8));
  }
  _mm_sfence();
}

AVX2 void read_avx2(Part& p) {
  __m256 s[4] = {};
  for (std::size_t i = 0; i + 32 <= p.n; i += 32)
    for (int j = 0; j < 4; ++j) s[j] = _mm256_add_ps(s[j], _mm256_loadu_ps(p.a + i + 8 * j));
  p.sink += _mm256_cvtss_f32(_mm256_add_ps(_mm256_add_ps(s[0], s[1]), _mm256_add_ps(s[2], s[3])));
}

AVX512 void add_avx512(Part& p) {
  for (std::size_t i = 0; i < p.n; i += line)
    _mm512_storeu_ps(p.c + i, _mm512_add_ps(_mm512_loadu_ps(p.a + i), _mm512_loadu_ps(p.b + i)));
}

AVX512 void add_avx512_stream(Part& p) {
  for (std::size_t i = 0; i < p.n; i += line)
    _mm512_stream_ps(p.c + i, _mm512_add_ps(_mm512_loadu_ps(p.a + i), _mm512_loadu_ps(p.b + i)));
  _mm_sfence();
}

AVX512 void copy_avx512_stream(Part& p) {
  for (std::size_t i = 0; i < p.n; i += line) _mm512_stream_ps(p.c + i, _mm512_loadu_ps(p.a + i));
  _mm_sfence();
}

AVX512 void read_avx512(Part& p) {
  __m512 s[4] = {};
  for (std::size_t i = 0; i + 4 * line <= p.n; i += 4 * line)
    for (std::size_t j = 0; j < 4; ++j) s[j] = _mm512_add_ps(s[j], _mm512_loadu_ps(p.a + i + line * j));
  p.sink += _mm512_cvtss_f32(_mm512_add_ps(_mm512_add_ps(s[0], s[1]), _mm512_add_ps(s[2], s[3])));
}

#endif

struct Candidate {
  const char* name;
  Loop loop;
};

/// The candidates of one pattern on this machine; the floor is the fastest, so a wrong guess cannot lower the bar.
std::vector<Candidate> candidates(int pattern) {
  std::vector<std::vector<Candidate>> table = {
      {{"plain", add_plain}}, {{"plain", copy_plain}}, {{"plain", read_plain}}};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) {
    table[0].insert(table[0].end(), {{"AVX2", add_avx2}, {"AVX2, streaming stores", add_avx2_stream}});
    table[1].push_back({"AVX2, streaming stores", copy_avx2_stream});
    table[2].push_back({"AVX2", read_avx2});
  }
  if (__builtin_cpu_supports("avx512f")) {
    table[0].insert(table[0].end(), {{"AVX-512", add_avx512}, {"AVX-512, streaming stores", add_avx512_stream}});
    table[1].push_back({"AVX-512, streaming stores", copy_avx512_stream});
    table[2].push_back({"AVX-512", read_avx512});
  }
#endif
  return table[static_cast<std::size_t>(pattern)];
}

float* map_floats(std::size_t n) {
  void* p = mmap(nullptr, n * sizeof(float), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return nullptr;
#if defined(MADV_HUGEPAGE)
  madvise(p, n * sizeof(float), MADV_HUGEPAGE);
#endif
  float* f = static_cast<float*>(p);
  // Faults every page in, so that no pass pays for it; no two pages are alike, so that no host merges them.
  for (std::size_t i = 0; i < n; ++i) f[i] = static_cast<float>(static_cast<std::uint32_t>(i * 2654435761u) >> 8);
  return f;
}

void pin(int index) {
#if defined(__linux__)
  cpu_set_t allowed, one;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || index-- != 0) continue;
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    return;
  }
#else
  (void)index;
#endif
}

/// A barrier that spins, because a sleeping one adds the wake-up to a pass of a millisecond.
class SpinBarrier {
 public:
  explicit SpinBarrier(int count) : count_(count), waiting_(count) {}
  void wait() {
    const int round = round_.load(std::memory_order_acquire);
    if (waiting_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      waiting_.store(count_, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);
    } else {
      while (round_.load(std::memory_order_acquire) == round) std::this_thread::yield();
    }
  }

 private:
  const int count_;
  std::atomic<int> waiting_;
  std::atomic<int> round_{0};
};

std::int64_t now() {
  using namespace std::chrono;
  return duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

struct Buffers {
  float* a = nullptr;
  float* b = nullptr;
  float* c = nullptr;
  std::size_t n = 0;
};
Buffers buffers;

void release() {
  for (float* p : {buffers.a, buffers.b, buffers.c})
    if (p) munmap(p, buffers.n * sizeof(float));
  buffers = {};
}

bool reserve(std::size_t n) {
  if (buffers.n >= n) return true;
  release();
  buffers = {map_floats(n), map_floats(n), map_floats(n), n};
  if (buffers.a && buffers.b && buffers.c) return true;
  release();
  return false;
}

/// Nanoseconds of the fastest of `repeats` passes of one loop over all parts, each part on a thread of its own.
/// A pass lasts from the first thread's start to the last one's end, so a thread that was preempted cannot shorten it.
double fastest(Loop loop, std::vector<Part>& parts, int repeats) {
  struct Times {
    std::vector<std::int64_t> start, end;
  };
  const int threads = static_cast<int>(parts.size());
  const auto passes = static_cast<std::size_t>(repeats);
  const Times none{std::vector<std::int64_t>(passes), std::vector<std::int64_t>(passes)};
  std::vector<Times> times(parts.size(), none);
  SpinBarrier barrier(threads);
  const auto work = [&](int t) {
    pin(t);
    Times& mine = times[static_cast<std::size_t>(t)];
    for (std::size_t r = 0; r < passes; ++r) {
      barrier.wait();
      mine.start[r] = now();
      loop(parts[static_cast<std::size_t>(t)]);
      mine.end[r] = now();
    }
  };
  std::vector<std::thread> pool;  // the caller's affinity stays as it is
  for (int t = 0; t < threads; ++t) pool.emplace_back(work, t);
  for (std::thread& t : pool) t.join();
  double best = 1e300;
  for (std::size_t r = 0; r < passes; ++r) {
    std::int64_t start = times[0].start[r], end = times[0].end[r];
    for (const Times& t : times) {
      start = std::min(start, t.start[r]);
      end = std::max(end, t.end[r]);
    }
    best = std::min(best, static_cast<double>(end - start));
  }
  return best;
}

}  // namespace

/// Nanoseconds of the fastest pass over `n` floats; every candidate loop gets `repeats` passes, `winner` names the
/// best. Pattern 0 is an add (three arrays), 1 a copy (two), 2 a read (one). Returns -1 where an argument is out of
/// range or the memory is not there.
extern "C" double hyalite_floor(int pattern, std::int64_t n, int threads, int repeats, const char** winner) {
  if (pattern < 0 || pattern > 2 || n < 1 || threads < 1 || repeats < 1) return -1;
  const std::size_t share = (static_cast<std::size_t>(n) / static_cast<std::size_t>(threads) + 63) / 64 * 64;
  if (!reserve(share * static_cast<std::size_t>(threads))) return -1;
  std::vector<Part> parts;
  for (int t = 0; t < threads; ++t) {
    const std::size_t at = static_cast<std::size_t>(t) * share;
    parts.push_back({buffers.a + at, buffers.b + at, buffers.c + at, share, 0.0f});
  }
  double best = 1e300;
  for (const Candidate& candidate : candidates(pattern)) {
    const double ns = fastest(candidate.loop, parts, repeats);
    if (ns < best) {
      best = ns;
      *winner = candidate.name;
    }
  }
  volatile float keep = 0;  // or the compiler drops the reads
  for (const Part& p : parts) keep = keep + p.sink;
  return best;
}
