/// The memory pool of the CPU device: small blocks from thread-local lists, medium ones from slabs, large ones from
/// huge-page mappings that stay populated between uses.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>

namespace hyalite::pool {

inline constexpr std::size_t alignment = 64;            ///< bytes; every block has at least this
inline constexpr std::size_t largest_small = 1024;      ///< bytes; up to here from the thread's own lists
inline constexpr std::size_t largest_medium = 1 << 20;  ///< bytes; up to here from slabs, beyond from own mappings

/// Memory handed out by `allocate`; give `data` and `capacity` back to `release`.
struct Block {
  void* data = nullptr;
  std::size_t capacity = 0;  ///< usable bytes, at least those requested
  bool hit = false;          ///< came from a free list: no memory was carved or mapped for it
  bool huge = false;         ///< lies in a mapping for which the system accepted the advice to use huge pages
  bool zeroed = false;       ///< known to be zero pages fresh from the system
};

/// What the pool holds and did, in bytes and calls since the start of the process; allocated + cached = system.
struct Stats {
  std::int64_t allocated_bytes = 0;     ///< capacity of the blocks in use
  std::int64_t cached_bytes = 0;        ///< held but not in use: free blocks, and what slabs have not handed out yet
  std::int64_t peak_bytes = 0;          ///< most in use since `reset_peak`, to within a thread's list of small blocks
  std::int64_t limit_bytes = 0;         ///< most bytes that may be in use
  std::int64_t hits = 0;                ///< requests served from a free list
  std::int64_t misses = 0;              ///< requests that carved or mapped fresh memory
  std::int64_t system_allocations = 0;  ///< mappings made
  std::int64_t system_bytes = 0;        ///< bytes mapped now; pages not touched yet are not resident
  std::int64_t huge_page_bytes = 0;     ///< of these, bytes advised to lie in huge pages
};

namespace detail {

inline constexpr unsigned small_classes = 5;  // 64, 128, 256, 512 and 1024 bytes

struct FreeBlock {
  FreeBlock* next;
};

/// One thread's free lists. All zero means not registered: lists empty, no room, so every call takes the slow path.
/// Only the owner writes; `stats` reads the counters from other threads, hence relaxed atomics (plain moves).
struct ThreadCache {
  enum class State : std::uint32_t { unregistered, registered, closed };
  FreeBlock* head[small_classes];
  std::atomic<std::uint32_t> count[small_classes];
  std::uint32_t bound;  // most blocks in a list
  std::atomic<std::uint64_t> hits;
  ThreadCache* next;
  ThreadCache* previous;
  State state;
};
// A library opened at run time shares a small reserve of initial-exec storage with all others.
static_assert(sizeof(ThreadCache) <= 128);

#if defined(__ELF__)
#define HYALITE_INITIAL_EXEC __attribute__((tls_model("initial-exec")))
#else
#define HYALITE_INITIAL_EXEC
#endif
extern constinit thread_local ThreadCache thread_cache HYALITE_INITIAL_EXEC;

constexpr unsigned small_class(std::size_t bytes) {
  return static_cast<unsigned>(std::bit_width((bytes - (bytes != 0)) | (alignment - 1))) - 6;
}

Block allocate_slow(std::size_t bytes);
void release_slow(void* data, std::size_t capacity) noexcept;

}  // namespace detail

/// At least `bytes` bytes, aligned to 64 (zero bytes give a unique block too). A small block that the thread holds
/// itself is given without looking at the limit. Throws OutOfMemory {requested_bytes, limit_bytes, allocated_bytes}.
inline Block allocate(std::size_t bytes) {
  if (bytes <= largest_small) [[likely]] {
    const unsigned c = detail::small_class(bytes);
    detail::ThreadCache& cache = detail::thread_cache;
    if (detail::FreeBlock* block = cache.head[c]) [[likely]] {
      cache.head[c] = block->next;
      cache.count[c].store(cache.count[c].load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
      cache.hits.store(cache.hits.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      return {block, alignment << c, true, false, false};
    }
  }
  return detail::allocate_slow(bytes);
}

/// Gives a block back, from any thread, also during static destruction; `capacity` is the one `allocate` returned.
/// An empty Block (null, 0) is ignored.
inline void release(void* data, std::size_t capacity) noexcept {
  if (capacity - 1 < largest_small) [[likely]] {
    const unsigned c = static_cast<unsigned>(std::countr_zero(capacity)) - 6;
    detail::ThreadCache& cache = detail::thread_cache;
    const std::uint32_t count = cache.count[c].load(std::memory_order_relaxed);
    if (count < cache.bound) [[likely]] {
      cache.head[c] = new (data) detail::FreeBlock{cache.head[c]};
      cache.count[c].store(count + 1, std::memory_order_relaxed);
      return;
    }
  }
  detail::release_slow(data, capacity);
}

/// The counters now, small blocks of every living thread included.
Stats stats();

/// Starts a new peak at the bytes in use now.
void reset_peak();

/// Gives cached memory back to the system and returns the bytes given; other threads keep their small blocks.
std::size_t trim();

/// Sets the most bytes that may be in use; 0 means the default, the smaller of physical memory and the cgroup's limit.
/// A quarter of the limit bounds the cached mappings, the oldest go first. Lowering it never invalidates a block.
void set_limit(std::size_t bytes);

}  // namespace hyalite::pool
