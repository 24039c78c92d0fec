/// Tests of the thread pool: partition, nesting, errors, interruption, thread counts and forks.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "compute/cpu/threads.h"
#include "hyalite/error.h"

namespace {
std::atomic<long> allocations{0};
}

// Counts allocations of this program, for the promise that a serial region makes none.
[[gnu::noinline]] void* operator new(std::size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }

#if defined(__SANITIZE_THREAD__)
// oneTBB is not instrumented: its hand-over of a task to a worker looks like a race on the task's own fields.
extern "C" [[gnu::visibility("default")]] const char* __tsan_default_suppressions() { return "race:oneapi/tbb/\n"; }
#endif

namespace hyalite {
namespace {

using namespace std::chrono_literals;

/// Sets the number of threads and restores it.
class Threads : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    before_ = num_threads();
    set_num_threads(GetParam());
  }
  void TearDown() override {
    set_num_threads(before_);
    set_interrupt_poll(nullptr);
  }

 private:
  int before_ = 1;
};

std::vector<double> squares(std::int64_t n) {
  std::vector<double> out(n, 0.0);
  parallel_for(n, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) out[i] += static_cast<double>(i) * i;
  });
  return out;
}

std::vector<double> squares_oracle(std::int64_t n) {
  std::vector<double> out;
  for (std::int64_t i = 0; i < n; ++i) out.push_back(static_cast<double>(i) * i);
  return out;
}

/// The number of distinct threads of a region in which `n` parts wait for each other, for at most 5 s.
int threads_that_meet(int n) {
  std::mutex mutex;
  std::set<std::thread::id> seen;
  const auto limit = std::chrono::steady_clock::now() + 5s;
  parallel_for(n, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::unique_lock lock(mutex);
      seen.insert(std::this_thread::get_id());
      while (static_cast<int>(seen.size()) < n && std::chrono::steady_clock::now() < limit) {
        lock.unlock();
        std::this_thread::sleep_for(100us);
        lock.lock();
      }
    }
  });
  return static_cast<int>(seen.size());
}

/// Runs `body` in a forked child that may take 10 s; true when it returned true there.
bool child_agrees(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    bool agreed = false;
    try {
      agreed = body();
    } catch (...) {
    }
    _exit(agreed ? 0 : 1);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_P(Threads, EveryChunkOnce) {
  for (const std::int64_t n : {0, 1, 2, 3, 7, 8, 9, 1000, 100001}) EXPECT_EQ(squares(n), squares_oracle(n)) << n;
}

TEST_P(Threads, ManyShortRegions) {
  std::atomic<std::int64_t> sum{0};
  for (int i = 0; i < 3000; ++i) {
    parallel_for(4, [&](std::int64_t begin, std::int64_t end) { sum += end - begin; });
  }
  EXPECT_EQ(sum, 12000);
}

TEST_P(Threads, AllThreadsTakePart) { EXPECT_EQ(threads_that_meet(GetParam()), GetParam()); }

TEST_P(Threads, NestedIsSerial) {
  std::atomic<int> inner_calls{0};
  std::atomic<bool> same_thread{true};
  parallel_for(8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto outer = std::this_thread::get_id();
      parallel_for(100, [&](std::int64_t, std::int64_t) {
        ++inner_calls;
        if (std::this_thread::get_id() != outer) same_thread = false;
      });
    }
  });
  EXPECT_TRUE(same_thread);
  if (GetParam() > 1) {
    EXPECT_EQ(inner_calls, 8);
  }
}

TEST_P(Threads, ExceptionIsRethrownAndThePoolSurvives) {
  for (int i = 0; i < 50; ++i) {
    const auto fails = [](std::int64_t begin, std::int64_t end) {
      if (begin <= 500 && 500 < end) throw std::out_of_range("chunk 500");
    };
    EXPECT_THROW(parallel_for(1000, fails), std::out_of_range);
    EXPECT_THROW(parallel_for_interruptible(1000, fails), std::out_of_range);
  }
  EXPECT_EQ(squares(1000), squares_oracle(1000));
}

TEST_P(Threads, RegionsOfSeveralCallers) {
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t) {
    callers.emplace_back([&] {
      for (int i = 0; i < 50; ++i) wrong += squares(2000) != squares_oracle(2000);
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

std::atomic<int> polls{0};
std::atomic<bool> poll_elsewhere{false};
std::thread::id poller;

TEST_P(Threads, PollStopsTheRegion) {
  polls = 0;
  poll_elsewhere = false;
  poller = std::this_thread::get_id();
  set_interrupt_poll([] {
    if (std::this_thread::get_id() != poller) poll_elsewhere = true;
    return ++polls == 3;
  });
  std::atomic<std::int64_t> done{0};
  const auto count = [&](std::int64_t begin, std::int64_t end) {
    std::this_thread::sleep_for(50us);
    done += end - begin;
  };
  EXPECT_FALSE(parallel_for_interruptible(100000, count));
  EXPECT_EQ(polls, 3);
  EXPECT_LT(done, 100000);
  EXPECT_TRUE(parallel_for_interruptible(1000, count));
  EXPECT_FALSE(poll_elsewhere);
}

TEST_P(Threads, PlainAndNestedRegionsDoNotPoll) {
  polls = 0;
  set_interrupt_poll([] { return ++polls > 0; });
  EXPECT_EQ(squares(1000), squares_oracle(1000));
  if (GetParam() == 1) set_num_threads(2);  // with one thread there is no outer region
  parallel_for(4,
               [](std::int64_t, std::int64_t) { parallel_for_interruptible(100, [](std::int64_t, std::int64_t) {}); });
  EXPECT_EQ(polls, 0);
}

TEST_P(Threads, ForkedChildUsesAllThreads) {
  const int n = GetParam();
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(squares(20000), squares_oracle(20000));
    ASSERT_TRUE(child_agrees([n] {
      return squares(20000) == squares_oracle(20000) && threads_that_meet(n) == n && !forked_while_busy();
    })) << "fork "
        << i;
  }
  EXPECT_EQ(threads_that_meet(n), n);
}

TEST_P(Threads, ForkOfAFork) {
  const int n = GetParam();
  EXPECT_EQ(threads_that_meet(n), n);
  EXPECT_TRUE(child_agrees(
      [n] { return threads_that_meet(n) == n && child_agrees([n] { return threads_that_meet(n) == n; }); }));
}

TEST_P(Threads, ForkWhileAThreadThatUsedThePoolIsIdle) {
  const int n = GetParam();
  std::atomic<int> stage{0};
  std::thread other([&] {
    squares(20000);
    stage = 1;
    while (stage == 1) std::this_thread::sleep_for(1ms);
  });
  while (stage == 0) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(child_agrees([n] { return threads_that_meet(n) == n && !forked_while_busy(); }));
  stage = 2;
  other.join();
}

TEST_P(Threads, ForkFromAnotherThread) {
  const int n = GetParam();
  EXPECT_EQ(squares(20000), squares_oracle(20000));
  bool agreed = false;
  std::thread([&] { agreed = child_agrees([n] { return threads_that_meet(n) == n; }); }).join();
  EXPECT_TRUE(agreed);
}

TEST_P(Threads, ForkWhileAnotherThreadIsBusy) {
  const int n = GetParam();
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::int64_t> doubled(3000);
  std::thread busy([&] {
    // Allocates nothing: AddressSanitizer's allocator is not safe to fork while another thread is in it.
    while (!stop) {
      parallel_for(3000, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) doubled[i] = 2 * i;
      });
      for (std::int64_t i = 0; i < 3000; ++i) wrong += std::exchange(doubled[i], 0) != 2 * i;
    }
  });
  for (int i = 0; i < 20; ++i) {
    // Parts are short here, so the helpers leave before the fork and the child has all its threads.
    EXPECT_TRUE(child_agrees([n] {
      return squares(3000) == squares_oracle(3000) && threads_that_meet(n) == n && !forked_while_busy();
    })) << "fork "
        << i;
  }
  stop = true;
  busy.join();
  EXPECT_EQ(wrong, 0);
}

TEST_P(Threads, ForkWhileAHelperStaysInsideIsSerialInTheChild) {
  const int n = GetParam();
  if (n == 1) {
    EXPECT_FALSE(forked_while_busy());
    return;
  }
  std::atomic<int> inside{0};
  std::atomic<bool> leave{false};
  std::thread busy([&] {
    parallel_for(n, [&](std::int64_t, std::int64_t) {
      ++inside;
      while (!leave) std::this_thread::sleep_for(1ms);
    });
  });
  while (inside < n) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(child_agrees([] {
    std::set<std::thread::id> seen;
    parallel_for(50, [&](std::int64_t, std::int64_t) { seen.insert(std::this_thread::get_id()); });
    const bool serial = seen.size() == 1 && forked_while_busy() && fork_state() == ForkState::busy;
    return serial && squares(20000) == squares_oracle(20000) &&
           child_agrees([] { return forked_while_busy() && squares(2000) == squares_oracle(2000); });
  }));
  EXPECT_FALSE(forked_while_busy());
  leave = true;
  busy.join();
  EXPECT_EQ(threads_that_meet(n), n);
}

TEST_P(Threads, ForkInsideARegion) {
  std::atomic<bool> agreed{false};
  const auto caller = std::this_thread::get_id();
  std::vector<int> done(1000, 0);
  parallel_for(1000, [&](std::int64_t begin, std::int64_t end) {
    if (std::this_thread::get_id() == caller && !agreed) {
      agreed = child_agrees([] { return squares(2000) == squares_oracle(2000) && !forked_while_busy(); });
    }
    for (std::int64_t i = begin; i < end; ++i) ++done[i];
  });
  EXPECT_TRUE(agreed);
  EXPECT_EQ(done, std::vector<int>(1000, 1));
}

TEST_P(Threads, ChildThatLostPartsSaysSo) {
  const int n = GetParam();
  if (n == 1) {
    EXPECT_EQ(threads_that_meet(1), 1);
    return;
  }
  const auto caller = std::this_thread::get_id();
  std::atomic<int> inside{0};
  pid_t child = -1;
  int code = 1;
  try {
    parallel_for(n, [&](std::int64_t, std::int64_t) {
      ++inside;
      if (std::this_thread::get_id() != caller) {
        while (inside <= n) std::this_thread::sleep_for(1ms);
        return;
      }
      while (inside < n) std::this_thread::sleep_for(1ms);
      child = fork();
      if (child == 0) alarm(10);
      ++inside;
    });
  } catch (const Unsupported&) {
    code = 0;
  }
  if (child == 0) _exit(code);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(code, 1);  // the parent lost nothing
}

TEST_P(Threads, ChildExitsThroughDestructors) {
  EXPECT_EQ(squares(20000), squares_oracle(20000));
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    std::exit(squares(20000) == squares_oracle(20000) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST_P(Threads, ExitRightAfterTheFirstRegion) {
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(10);
      parallel_for(8, [](std::int64_t, std::int64_t) {});
      std::exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Counts, Threads, ::testing::Values(1, 2, 4));

TEST(ThreadCount, ChangesBetweenRegions) {
  const int before = num_threads();
  for (const int n : {3, 1, 2, 5, 2}) {
    set_num_threads(n);
    EXPECT_EQ(num_threads(), n);
    EXPECT_EQ(threads_that_meet(n), n);
  }
  set_num_threads(before);
}

TEST(ThreadCount, WrongCountsAreRefused) {
  for (const int n : {0, -1, 65537}) {
    try {
      set_num_threads(n);
      FAIL() << n;
    } catch (const ValueError& error) {
      EXPECT_EQ(error.what(),
                "set_num_threads(): " + std::to_string(n) + " is out of range; write a number from 1 to 65536");
      EXPECT_EQ(std::get<std::int64_t>(error.attributes().at(0).second), n);
    }
  }
}

TEST(ThreadCount, EnvironmentOverrides) {
  unsetenv("HYALITE_NUM_THREADS");
  const int machine = default_threads();
  EXPECT_GE(machine, 1);
  setenv("HYALITE_NUM_THREADS", "7", 1);
  EXPECT_EQ(default_threads(), 7);
  setenv("HYALITE_NUM_THREADS", "", 1);
  EXPECT_EQ(default_threads(), machine);
  for (const char* wrong : {"0", "-2", "two", "2x", " 2", "99999999999"}) {
    setenv("HYALITE_NUM_THREADS", wrong, 1);
    EXPECT_THROW(default_threads(), ValueError) << wrong;
  }
  unsetenv("HYALITE_NUM_THREADS");
}

TEST(ThreadCount, AffinityLimits) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i) {
    if (CPU_ISSET(i, &before)) CPU_SET(i, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(default_threads(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

/// A folder of made-up cgroup files.
class CgroupQuota : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/hyalite_cgroup_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    root_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ + path).substr(0, (root_ + path).rfind('/')));
    std::ofstream(root_ + path) << text;
  }
  std::string root_;
};

TEST_F(CgroupQuota, Version2TakesTheSmallestOfTheParents) {
  write("/a/b/cpu.max", "max 100000\n");
  write("/a/cpu.max", "250000 100000\n");
  write("/cpu.max", "800000 100000\n");
  EXPECT_EQ(cgroup_cpu_quota("0::/a/b\n", root_), 2.5);
  EXPECT_EQ(cgroup_cpu_quota("0::/elsewhere\n", root_), 8.0);
}

TEST_F(CgroupQuota, Version1) {
  write("/cpu,cpuacct/job/cpu.cfs_quota_us", "150000\n");
  write("/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  write("/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  write("/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cpu_quota("5:memory:/job\n4:cpu,cpuacct:/job\n3:cpuset:/x\n", root_), 1.5);
  EXPECT_EQ(cgroup_cpu_quota("4:cpu,cpuacct:/\n", root_), 0.0);
}

TEST_F(CgroupQuota, NoneOrBroken) {
  EXPECT_EQ(cgroup_cpu_quota("0::/\n", root_), 0.0);
  EXPECT_EQ(cgroup_cpu_quota("nonsense\n", root_), 0.0);
  write("/cpu.max", "0 0\n");
  EXPECT_EQ(cgroup_cpu_quota("0::/\n", root_), 0.0);
  write("/cpu.max", "");
  EXPECT_EQ(cgroup_cpu_quota("0::/\n", root_), 0.0);
}

TEST(SerialPath, DoesNotAllocate) {
  const int before = num_threads();
  set_num_threads(1);
  const long start = allocations;
  std::int64_t sum = 0;
  const auto add = [&](std::int64_t begin, std::int64_t end) { sum += end - begin; };
  for (int i = 0; i < 100; ++i) {
    parallel_for(1, add);
    parallel_for(1000, add);
    parallel_for_interruptible(1, add);
    parallel_for_interruptible(1000, add);
  }
  EXPECT_EQ(allocations - start, 0);
  EXPECT_EQ(sum, 200200);
  set_num_threads(before);
}

}  // namespace
}  // namespace hyalite
