/// Tests of the memory pool: alignment, reuse, threads, limits, trimming, statistics, forks, exit and poisoning.
#include "tensor/pool.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "hyalite/error.h"

#if defined(__has_feature)
#define HAS_FEATURE(x) __has_feature(x)
#else
#define HAS_FEATURE(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || HAS_FEATURE(address_sanitizer)
#define UNDER_ASAN 1
#else
#define UNDER_ASAN 0
#endif
#if UNDER_ASAN || defined(__SANITIZE_THREAD__) || HAS_FEATURE(thread_sanitizer)
#define UNDER_SANITIZER 1
#else
#define UNDER_SANITIZER 0
#endif

namespace {
// Volatile, as compilers assume that malloc changes no variable.
thread_local volatile long heap_calls = 0;  // of this thread
}  // namespace

#if UNDER_SANITIZER
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*)(const volatile void*, size_t),
                                                         void (*)(const volatile void*));
namespace {
[[maybe_unused]] const int hooks = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void*, size_t) { heap_calls = heap_calls + 1; }, [](const volatile void*) {});
}
#else
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
// Weak, so that another test file of the same program may do the same.
#define COUNTED __attribute__((weak, noinline))
COUNTED void* malloc(size_t n) { return heap_calls = heap_calls + 1, __libc_malloc(n); }
COUNTED void* calloc(size_t n, size_t m) { return heap_calls = heap_calls + 1, __libc_calloc(n, m); }
COUNTED void* realloc(void* p, size_t n) { return heap_calls = heap_calls + 1, __libc_realloc(p, n); }
}
#endif

namespace hyalite::pool {
namespace {

constexpr std::size_t KiB = 1 << 10;
constexpr std::size_t MiB = 1 << 20;
constexpr std::size_t all_sizes[] = {0,       1,         63,      64,      65,      1000,      1024, 1025,
                                     4000,    100 * KiB, MiB / 8, 130000,  MiB / 2, 600 * KiB, MiB,  MiB + 1,
                                     2 * MiB, 3000000,   4 * MiB, 5 * MiB, 9 * MiB, 32 * MiB};

std::uintptr_t address(const Block& block) { return reinterpret_cast<std::uintptr_t>(block.data); }
void release(const Block& block) { pool::release(block.data, block.capacity); }

/// True in processes that this file starts again with HYALITE_POISON=1.
bool poisoned() {
  const char* value = std::getenv("HYALITE_POISON");
  return value && std::string(value) == "1";
}

/// Runs `body` in a forked child and returns its exit status, 0 if it returned true.
int in_child(bool (*body)()) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

std::int64_t attribute(const OutOfMemory& error, const std::string& name) {
  for (const auto& [key, value] : error.attributes())
    if (key == name) return std::get<std::int64_t>(value);
  ADD_FAILURE() << "no attribute " << name;
  return -1;
}

struct Pool : testing::Test {
  void SetUp() override {
    set_limit(0);
    trim();
    before = stats();
  }
  void TearDown() override {
    set_limit(0);
    EXPECT_EQ(stats().allocated_bytes, before.allocated_bytes);
    EXPECT_EQ(stats().allocated_bytes + stats().cached_bytes, stats().system_bytes);
  }
  Stats before;
};

TEST_F(Pool, BlocksAreAlignedLargeEnoughAndDistinct) {
  std::vector<Block> blocks;
  for (const std::size_t bytes : all_sizes) {
    const Block block = allocate(bytes);
    EXPECT_EQ(address(block) % 64, 0u) << bytes;
    EXPECT_GE(block.capacity, std::max<std::size_t>(bytes, 64));
    if (bytes > MiB) {
      EXPECT_EQ(address(block) % (2 * MiB), 0u) << bytes;
    }
    if (bytes >= 4 * MiB) {
      EXPECT_EQ(block.capacity % (2 * MiB), 0u) << bytes;
    }
    std::memset(block.data, static_cast<int>(blocks.size()), block.capacity);
    blocks.push_back(block);
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto* bytes = static_cast<const unsigned char*>(blocks[i].data);
    EXPECT_TRUE(std::all_of(bytes, bytes + blocks[i].capacity, [&](unsigned char b) { return b == i; })) << i;
    release(blocks[i]);
  }
}

TEST_F(Pool, MediumSizesWasteAtMostAnEighth) {
  for (std::size_t bytes = KiB + 1; bytes <= MiB; bytes += bytes / 37 + 1) {
    const Block block = allocate(bytes);
    EXPECT_LE(block.capacity - bytes, block.capacity / 8) << bytes;
    release(block);
  }
}

TEST_F(Pool, EmptyRequestsAreUniqueAndAnEmptyBlockIsIgnored) {
  const Block a = allocate(0), b = allocate(0);
  EXPECT_NE(a.data, nullptr);
  EXPECT_NE(a.data, b.data);
  release(a);
  release(b);
  release(Block{});
}

TEST_F(Pool, AReleasedBlockIsReused) {
  for (const std::size_t bytes : all_sizes) {
    const Block first = allocate(bytes);
    release(first);
    const Block second = allocate(bytes);
    EXPECT_EQ(second.data, first.data) << bytes;
    EXPECT_TRUE(second.hit) << bytes;
    EXPECT_FALSE(second.zeroed) << bytes;
    release(second);
  }
  EXPECT_GE(stats().hits - before.hits, static_cast<std::int64_t>(std::size(all_sizes)));
}

TEST_F(Pool, ALargeRequestTakesTheClosestMapping) {
  const Block large = allocate(40 * MiB), medium = allocate(34 * MiB), small = allocate(20 * MiB);
  for (const Block& block : {large, medium, small}) release(block);
  const Block fits = allocate(33 * MiB), too_small = allocate(25 * MiB);
  EXPECT_EQ(fits.data, medium.data);
  EXPECT_FALSE(too_small.hit) << "a mapping more than a quarter larger must not serve";
  release(fits);
  release(too_small);
}

TEST_F(Pool, FreshMemoryIsZero) {
  for (const std::size_t bytes : {100 * KiB, 700 * KiB, 3 * MiB, 32 * MiB}) {
    const Block block = allocate(bytes);
    const auto* data = static_cast<const unsigned char*>(block.data);
    EXPECT_EQ(block.zeroed, !poisoned()) << bytes;
    if (block.zeroed) {
      EXPECT_TRUE(std::all_of(data, data + block.capacity, [](unsigned char b) { return b == 0; })) << bytes;
    }
    std::memset(block.data, 1, block.capacity);
    release(block);
    const Block again = allocate(bytes);
    EXPECT_FALSE(again.zeroed) << bytes;
    release(again);
  }
}

TEST_F(Pool, SmallBlocksAreNeverCalledZero) {
  const Block block = allocate(64);
  EXPECT_FALSE(block.zeroed);
  release(block);
}

TEST_F(Pool, ABlockMayBeReleasedByAnotherThread) {
  for (const std::size_t bytes : {32 * std::size_t{1}, 5 * KiB, 300 * KiB, 6 * MiB}) {
    const int count = bytes > MiB ? 3 : 1000;
    std::vector<Block> blocks;
    std::thread maker([&] {
      for (int i = 0; i < count; ++i) {
        blocks.push_back(allocate(bytes));
        std::memset(blocks.back().data, 7, 64);
      }
    });
    maker.join();
    std::set<void*> distinct;
    for (const Block& block : blocks) distinct.insert(block.data);
    EXPECT_EQ(distinct.size(), blocks.size());
    for (const Block& block : blocks) release(block);
    EXPECT_EQ(stats().allocated_bytes, before.allocated_bytes);
  }
}

TEST_F(Pool, AProducerAndAConsumerKeepMemoryBounded) {
  std::mutex mutex;
  std::vector<Block> queue;
  std::atomic<bool> done = false;
  std::thread consumer([&] {
    for (bool last = false; !last;) {
      last = done;
      std::vector<Block> taken;
      {
        std::lock_guard lock(mutex);
        taken.swap(queue);
      }
      for (const Block& block : taken) release(block);
    }
  });
  for (int i = 0; i < 200000; ++i) {
    const Block block = allocate(64);
    *static_cast<int*>(block.data) = i;
    std::unique_lock lock(mutex);
    while (queue.size() >= 1000) {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    }
    queue.push_back(block);
  }
  done = true;
  consumer.join();
  EXPECT_LE(stats().system_bytes - before.system_bytes, static_cast<std::int64_t>(4 * MiB));
}

TEST_F(Pool, RandomTrafficOnSeveralThreadsNeverSharesABlock) {
  const auto work = [](unsigned seed) {
    std::mt19937 random(seed);
    std::vector<std::pair<Block, unsigned char>> held;
    int wrong = 0;
    for (int step = 0; step < 6000; ++step) {
      if (held.size() < 60 && random() % 5 < 3) {
        const std::size_t bytes = random() % (std::size_t{1} << (random() % 22));
        const Block block = allocate(bytes);
        const auto mark = static_cast<unsigned char>(random());
        std::memset(block.data, mark, std::max<std::size_t>(bytes, 64));
        static_cast<unsigned char*>(block.data)[block.capacity - 1] = mark;
        held.emplace_back(block, mark);
      } else if (!held.empty()) {
        std::swap(held[random() % held.size()], held.back());
        const auto [block, mark] = held.back();
        const auto* data = static_cast<const unsigned char*>(block.data);
        wrong += data[0] != mark || data[63] != mark || data[block.capacity - 1] != mark;
        release(block);
        held.pop_back();
      }
    }
    for (const auto& [block, mark] : held) release(block);
    return wrong;
  };
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i) threads.emplace_back([&, i] { wrong += work(i); });
  for (int i = 0; i < 50; ++i) EXPECT_GE(stats().allocated_bytes, 0), trim();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(Pool, StatisticsHoldAfterThreadsEnd) {
  constexpr int threads = 8, rounds = 500;
  std::vector<std::thread> running;
  for (int t = 0; t < threads; ++t)
    running.emplace_back([] {
      for (int i = 0; i < rounds; ++i) {
        const Block a = allocate(64), b = allocate(1000);
        release(a);
        release(b);
      }
    });
  for (std::thread& thread : running) thread.join();
  const Stats after = stats();
  EXPECT_EQ(after.hits + after.misses - before.hits - before.misses, 2 * threads * rounds);
  EXPECT_EQ(after.allocated_bytes, before.allocated_bytes);
}

TEST_F(Pool, AThreadsObjectsMayReleaseWhileItEnds) {
  struct Holder {
    Block block;
    ~Holder() { release(block); }
  };
  std::thread([] {
    static thread_local Holder holder;
    holder.block = allocate(200);
  }).join();
  EXPECT_EQ(stats().allocated_bytes, before.allocated_bytes);
}

TEST_F(Pool, AKeyDestructorMayUseThePoolAfterTheListsAreGone) {
  static pthread_key_t late;  // made after the pool's key, so its destructor runs later
  ASSERT_EQ(pthread_key_create(&late,
                               [](void* data) {
                                 pool::release(data, 64);
                                 release(allocate(64));
                               }),
            0);
  std::thread([] { pthread_setspecific(late, allocate(64).data); }).join();
  pthread_key_delete(late);
  EXPECT_EQ(stats().allocated_bytes, before.allocated_bytes);
}

TEST_F(Pool, AllocatedBytesFollowEveryBlock) {
  std::int64_t expected = before.allocated_bytes;
  std::vector<Block> blocks;
  for (const std::size_t bytes : all_sizes) {
    blocks.push_back(allocate(bytes));
    expected += static_cast<std::int64_t>(blocks.back().capacity);
    EXPECT_EQ(stats().allocated_bytes, expected) << bytes;
  }
  for (const Block& block : blocks) {
    release(block);
    expected -= static_cast<std::int64_t>(block.capacity);
    EXPECT_EQ(stats().allocated_bytes, expected) << block.capacity;
  }
}

TEST_F(Pool, PeakIsTheMostInUseSinceItsReset) {
  reset_peak();
  EXPECT_EQ(stats().peak_bytes, before.allocated_bytes);
  const Block a = allocate(10 * MiB), b = allocate(20 * MiB);
  release(a);
  release(b);
  const Block c = allocate(300);
  EXPECT_EQ(stats().peak_bytes, before.allocated_bytes + static_cast<std::int64_t>(a.capacity + b.capacity));
  reset_peak();
  EXPECT_EQ(stats().peak_bytes, before.allocated_bytes + static_cast<std::int64_t>(c.capacity));
  release(c);
}

TEST_F(Pool, TrimGivesEverythingFreeBack) {
  std::vector<Block> blocks;
  for (const std::size_t bytes : all_sizes) blocks.push_back(allocate(bytes));
  for (const Block& block : blocks) release(block);
  const Stats full = stats();
  const std::size_t given = trim();
  EXPECT_EQ(full.system_bytes - stats().system_bytes, static_cast<std::int64_t>(given));
  EXPECT_EQ(stats().system_bytes, before.system_bytes);
  EXPECT_EQ(stats().huge_page_bytes, before.huge_page_bytes);
  EXPECT_GE(given, 32 * MiB);
  EXPECT_EQ(trim(), 0u);
}

TEST_F(Pool, TrimKeepsWhatIsInUse) {
  const Block small = allocate(64), medium = allocate(200 * KiB), large = allocate(8 * MiB);
  for (const Block& block : {small, medium, large}) std::memset(block.data, 5, block.capacity);
  release(allocate(8 * MiB));
  trim();
  for (const Block& block : {small, medium, large}) {
    EXPECT_EQ(static_cast<unsigned char*>(block.data)[block.capacity - 1], 5);
    release(block);
  }
}

TEST_F(Pool, TheCacheIsBoundedAndTheOldestGoesFirst) {
  set_limit(static_cast<std::size_t>(before.allocated_bytes) + 256 * MiB);
  std::vector<Block> blocks;
  for (int i = 0; i < 12; ++i) blocks.push_back(allocate(16 * MiB + 2 * MiB * (i % 2)));
  for (const Block& block : blocks) release(block);
  EXPECT_LE(stats().cached_bytes, before.cached_bytes + static_cast<std::int64_t>(65 * MiB));
  EXPECT_GE(stats().cached_bytes, static_cast<std::int64_t>(48 * MiB));
  const Block newest = allocate(18 * MiB);
  EXPECT_EQ(newest.data, blocks.back().data);
  release(newest);
  const Block giant = allocate(100 * MiB);
  release(giant);
  EXPECT_TRUE(std::invoke([] {
    const Block kept = allocate(18 * MiB);
    release(kept);
    return kept.hit;
  })) << "a block above the budget must not drive the others out";
}

TEST_F(Pool, TheLimitThrowsWithItsNumbers) {
  const Block held = allocate(20 * MiB);
  const auto used = static_cast<std::size_t>(stats().allocated_bytes);
  set_limit(used + 10 * MiB);
  for (const std::size_t bytes : {11 * MiB, 64 * MiB, 1000 * MiB}) {
    const std::int64_t mappings = stats().system_allocations;
    try {
      release(allocate(bytes));
      ADD_FAILURE() << bytes;
    } catch (const OutOfMemory& error) {
      EXPECT_EQ(attribute(error, "requested_bytes"), static_cast<std::int64_t>(bytes));
      EXPECT_EQ(attribute(error, "limit_bytes"), static_cast<std::int64_t>(used + 10 * MiB));
      EXPECT_EQ(attribute(error, "allocated_bytes"), static_cast<std::int64_t>(used));
      EXPECT_NE(std::string(error.what()).find("raise the limit"), std::string::npos) << error.what();
      EXPECT_EQ(error.kind(), ErrorKind::out_of_memory);
    }
    EXPECT_EQ(stats().system_allocations, mappings);
  }
  release(allocate(10 * MiB));
  release(held);
  release(allocate(25 * MiB));
}

TEST_F(Pool, TheLimitHoldsForMediumBlocksToo) {
  set_limit(static_cast<std::size_t>(before.allocated_bytes) + 5 * MiB);
  std::vector<Block> blocks;
  EXPECT_THROW(while (true) blocks.push_back(allocate(500 * KiB)), OutOfMemory);
  EXPECT_EQ(blocks.size(), 10u);
  for (const Block& block : blocks) release(block);
}

TEST_F(Pool, NearTheLimitTheCacheGoesFirst) {
  set_limit(static_cast<std::size_t>(before.system_bytes) + 64 * MiB);
  release(allocate(16 * MiB));
  const Block block = allocate(60 * MiB);
  EXPECT_LE(stats().system_bytes, stats().limit_bytes);
  release(block);
}

TEST_F(Pool, ImpossibleSizesThrowAtOnce) {
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  const std::int64_t mappings = stats().system_allocations;
  for (const std::size_t bytes : {std::size_t{1} << 40, std::size_t{1} << 62, most / 2, most / 2 + 1, most - 1, most}) {
    EXPECT_THROW(allocate(bytes), OutOfMemory) << bytes;
    set_limit(most);
    if (bytes > most / 4) {
      EXPECT_THROW(allocate(bytes), OutOfMemory) << bytes;
    }
    set_limit(0);
  }
  EXPECT_EQ(stats().system_allocations, mappings);
}

TEST_F(Pool, TheMessageOfAnImpossibleRequest) {
  set_limit(static_cast<std::size_t>(8192) * MiB);
  try {
    allocate(std::size_t{1} << 40);
    FAIL();
  } catch (const OutOfMemory& error) {
    EXPECT_STREQ(error.what(), ("allocate(): no room for 1.0 TiB: " + std::to_string(before.allocated_bytes) +
                                " bytes of the limit of 8.0 GiB are in use; work on smaller pieces or raise the limit")
                                   .c_str());
  }
}

TEST_F(Pool, TheDefaultLimitIsThatOfTheMachine) {
  const auto pages = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES));
  EXPECT_GT(before.limit_bytes, 0);
  EXPECT_LE(before.limit_bytes, pages * sysconf(_SC_PAGESIZE));
}

TEST_F(Pool, WhenTheSystemRefusesTheCacheIsGivenUpAndThenItThrows) {
  EXPECT_EQ(in_child([] {
              const Block cached = allocate(64 * MiB);
              release(cached);
              long pages = 0;
              std::FILE* file = std::fopen("/proc/self/statm", "r");
              if (!file || std::fscanf(file, "%ld", &pages) != 1) return false;
              std::fclose(file);
              const rlimit limit{static_cast<rlim_t>(pages) * 4096 + 16 * MiB, RLIM_INFINITY};
              if (setrlimit(RLIMIT_AS, &limit) != 0) return false;
              release(allocate(74 * MiB));  // fits only in place of the cached mapping
              try {
                allocate(200 * MiB);
              } catch (const OutOfMemory& error) {
                return std::string(error.what()).find("the system refuses") != std::string::npos;
              }
              return false;
            }),
            0);
}

TEST_F(Pool, AForkedChildWorks) {
  static Block held[3];
  held[0] = allocate(100);
  held[1] = allocate(10 * KiB);
  held[2] = allocate(4 * MiB);
  EXPECT_EQ(in_child([] {
              const std::int64_t used = stats().allocated_bytes;
              std::vector<Block> blocks;
              for (const std::size_t bytes : all_sizes) blocks.push_back(allocate(bytes));
              for (const Block& block : blocks) std::memset(block.data, 1, block.capacity), release(block);
              if (stats().allocated_bytes != used) return false;
              std::int64_t mine = 0;
              for (const Block& block : held) release(block), mine += static_cast<std::int64_t>(block.capacity);
              return stats().allocated_bytes == used - mine;
            }),
            0);
  for (const Block& block : held) release(block);
}

TEST_F(Pool, AChildForkedWhileThreadsAllocateWorks) {
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      while (!stop) {
        const Block a = allocate(64), b = allocate(20 * KiB), c = allocate(2 * MiB);
        for (const Block& block : {a, b, c}) release(block);
      }
    });
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(in_child([] {
                for (const std::size_t bytes : all_sizes) release(allocate(bytes));
                trim();
                return stats().allocated_bytes >= 0;
              }),
              0);
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

TEST_F(Pool, WarmRequestsDoNotTouchTheHeap) {
  const long start = heap_calls;
  void* volatile counted = std::malloc(10);
  std::free(counted);
  ASSERT_GT(heap_calls, start) << "the counter does not count";
  for (const std::size_t bytes : all_sizes) {
    release(allocate(bytes));
    const long warm = heap_calls;
    for (int i = 0; i<300; i += bytes> MiB ? 30 : 1) release(allocate(bytes));
    EXPECT_EQ(heap_calls, warm) << bytes;
  }
}

TEST_F(Pool, AWarmLargeBlockCausesNoPageFaults) {
  const auto faults = [] {
    rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_minflt;
  };
  constexpr std::size_t bytes = 64 * MiB;
  const auto use = [] {
    const Block block = allocate(bytes);
    for (std::size_t i = 0; i < block.capacity; i += 4096) static_cast<volatile char*>(block.data)[i] = 1;
    release(block);
  };
  use();
  const long before_use = faults();
  for (int i = 0; i < 5; ++i) use();
  // Without reuse, five times 32 huge or 16384 small pages. The sanitizers' own shadow pages fault.
  EXPECT_LT(faults() - before_use, UNDER_SANITIZER ? 20000 : 16);
}

TEST_F(Pool, LargeBlocksAskForHugePages) {
  const bool known = madvise(nullptr, 0, MADV_HUGEPAGE) == 0;
  const Block large = allocate(6 * MiB), small = allocate(64);
  EXPECT_EQ(large.huge, known);
  EXPECT_FALSE(small.huge);
  EXPECT_EQ(stats().huge_page_bytes - before.huge_page_bytes, known ? static_cast<std::int64_t>(6 * MiB) : 0);
  release(large);
  release(small);
}

/// Releases blocks after every local of `main` is gone, as a global tensor does.
struct AtExit {
  std::vector<Block> blocks;
  ~AtExit() {
    for (const Block& block : blocks) release(block);
    release(allocate(64));
    if (stats().allocated_bytes < 0) std::abort();
  }
} at_exit;

TEST(PoolAtExit, StaticObjectsMayReleaseAndAllocate) {
  EXPECT_EXIT(
      {
        for (const std::size_t bytes : all_sizes) at_exit.blocks.push_back(allocate(bytes));
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

TEST(PoolPoison, FreshAndReturnedBlocksAreFilled) {
  if (!poisoned()) {
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
      setenv("HYALITE_POISON", "1", 1);
      execl("/proc/self/exe", "test_pool", "--gtest_filter=Pool*:-*Producer*:*AChildForked*", nullptr);
      _exit(127);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    return;
  }
  for (const std::size_t bytes : all_sizes)
    for (int round = 0; round < 2; ++round) {
      const Block block = allocate(bytes);
      auto* data = static_cast<unsigned char*>(block.data);
      EXPECT_FALSE(block.zeroed);
      EXPECT_TRUE(std::all_of(data, data + block.capacity, [](unsigned char b) { return b == 0xA5; })) << bytes;
      std::memset(data, 1, block.capacity);
      release(block);
#if !UNDER_ASAN
      if (block.capacity >= 2048) {
        EXPECT_EQ(data[block.capacity - 1], 0xA5) << "a returned block must not show its old values";
      }
#endif
    }
}

#if UNDER_ASAN
TEST(PoolPoisonDeathTest, AsanSeesReadsOfReleasedBlocks) {
  for (const std::size_t bytes : {32 * std::size_t{1}, 5 * KiB, 6 * MiB})
    for (const std::size_t offset : {std::size_t{0}, bytes / 2})
      EXPECT_DEATH(
          {
            const Block block = allocate(bytes);
            release(block);
            static_cast<volatile char*>(block.data)[offset];
          },
          "use-after-poison");
}
#endif

}  // namespace
}  // namespace hyalite::pool
