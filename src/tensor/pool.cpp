/// The slow paths of the memory pool: slabs, large mappings and their cache, limits, statistics, threads and forks.
#include "tensor/pool.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <string>
#include <string_view>

#include "hyalite/error.h"
#include "tensor/fail_after.h"

#if defined(__has_feature)
#define HYALITE_HAS_FEATURE(x) __has_feature(x)
#else
#define HYALITE_HAS_FEATURE(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || HYALITE_HAS_FEATURE(address_sanitizer)
#include <sanitizer/asan_interface.h>
#define HYALITE_ASAN 1
// Links live inside free blocks, which are poisoned for everybody but the functions marked so.
#define HYALITE_READS_FREE_BLOCKS __attribute__((no_sanitize("address"), noinline))
#else
#define HYALITE_ASAN 0
#define HYALITE_READS_FREE_BLOCKS
#endif

namespace hyalite::pool {
namespace detail {
namespace {
std::atomic<std::int64_t> to_failure{0};
}  // namespace

constinit thread_local ThreadCache thread_cache{};

}  // namespace detail

namespace {

using detail::FreeBlock;
using detail::small_classes;
using detail::thread_cache;
using detail::ThreadCache;

constexpr std::size_t KiB = 1 << 10;
constexpr std::size_t MiB = 1 << 20;
constexpr std::size_t huge_page = 2 * MiB;
constexpr std::size_t slab_header = 4 * KiB;  // keeps blocks of whole pages on page boundaries
constexpr std::uint32_t list_bound = 128;     // small blocks in one list of one thread
constexpr std::uint32_t refill = 32;
constexpr unsigned char poison_byte = 0xA5;

// ---- sizes: eight steps per power of two, so at most an eighth is wasted ----

/// Steps above 2^base, from 0: sizes in (2^e * (8 + k) / 8, 2^e * (9 + k) / 8] have step 8 * (e - base) + k.
constexpr unsigned step_of(std::size_t bytes, unsigned base) {
  const unsigned e = static_cast<unsigned>(std::bit_width(bytes - 1)) - 1;
  return (e - base) * 8 + static_cast<unsigned>((bytes - 1) >> (e - 3) & 7);
}

constexpr unsigned small_bits = 10;   // largest_small is 2^10
constexpr unsigned medium_bits = 20;  // largest_medium is 2^20
constexpr unsigned class_count = small_classes + (medium_bits - small_bits) * 8;
constexpr unsigned bin_count = (64 - medium_bits) * 8;

constexpr unsigned class_of(std::size_t bytes) {
  return bytes <= largest_small ? detail::small_class(bytes) : small_classes + step_of(bytes, small_bits);
}

constexpr std::size_t class_bytes(unsigned c) {
  if (c < small_classes) return alignment << c;
  const unsigned step = c - small_classes;
  return std::size_t{9 + step % 8} << (step / 8 + small_bits - 3);
}

constexpr std::size_t slab_bytes(unsigned c) { return class_bytes(c) <= 128 * KiB ? huge_page : 4 * huge_page; }

/// Slabs of the finer classes are touched a page at a time; huge pages would make a tiny program hold megabytes.
constexpr bool slab_is_huge(unsigned c) { return slab_bytes(c) > huge_page; }

/// Bytes of the mapping for a large request, 0 if there is no such size.
constexpr std::size_t large_bytes(std::size_t bytes) {
  const std::size_t unit = bytes >= 4 * MiB ? huge_page : 128 * KiB;
  return bytes > std::numeric_limits<std::size_t>::max() / 2 ? 0 : (bytes + unit - 1) / unit * unit;
}

// ---- free mappings ----

/// Lies at the start of a free mapping.
struct Region {
  Region* next;  // in its bin, most recently used first
  Region* previous;
  Region* newer;  // over all bins
  Region* older;
  std::size_t bytes;
  bool huge;
};
static_assert(sizeof(Region) <= slab_header);

void unpoison([[maybe_unused]] void* data, [[maybe_unused]] std::size_t bytes) {
#if HYALITE_ASAN
  __asan_unpoison_memory_region(data, bytes);
#endif
}

void poison([[maybe_unused]] void* data, [[maybe_unused]] std::size_t bytes) {
#if HYALITE_ASAN
  __asan_poison_memory_region(data, bytes);
#endif
}

void unmap(void* data, std::size_t bytes) noexcept {
  unpoison(data, bytes);
  // Unmapping the middle of a merged range fails at the system's limit of ranges; the pages can go all the same.
  if (munmap(data, bytes) != 0) madvise(data, bytes, MADV_DONTNEED);
}

/// Zero pages from the system at a multiple of `align`, or null.
void* map(std::size_t bytes, std::size_t align) {
  const auto request = [](std::size_t n) -> char* {
    void* p = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? nullptr : static_cast<char*>(p);
  };
  char* p = request(bytes);
  if (!p || reinterpret_cast<std::uintptr_t>(p) % align == 0) return p;
  unmap(p, bytes);
  p = request(bytes + align);
  if (!p) return nullptr;
  const std::size_t front = (align - reinterpret_cast<std::uintptr_t>(p) % align) % align;
  if (front) unmap(p, front);
  unmap(p + front + bytes, align - front);
  return p + front;
}

/// Asks for huge pages; for no bytes at all, whether the system knows the advice.
bool advise_huge([[maybe_unused]] void* data, [[maybe_unused]] std::size_t bytes) {
#if defined(MADV_HUGEPAGE)
  return madvise(data, bytes, MADV_HUGEPAGE) == 0;
#else
  return false;
#endif
}

/// Mappings on their way back to the system. Declared before the lock is taken, so that it is given up first.
class Victims {
 public:
  Victims() = default;
  Victims(const Victims&) = delete;
  ~Victims() { unmap_all(); }

  HYALITE_READS_FREE_BLOCKS void add(Region* region) {
    region->next = list_;
    list_ = region;
  }

  HYALITE_READS_FREE_BLOCKS void unmap_all() noexcept {
    while (Region* region = list_) {
      list_ = region->next;
      unmap(region, region->bytes);
    }
  }

 private:
  Region* list_ = nullptr;
};

/// Free mappings by size and by age; the links lie in the mappings, so nothing here allocates.
class RegionCache {
 public:
  std::size_t bytes() const { return bytes_; }
  Region* oldest() const { return oldest_; }

  HYALITE_READS_FREE_BLOCKS Region* insert(void* data, std::size_t bytes, bool huge) {
    Region*& bin = bins_[step_of(bytes, medium_bits)];
    Region* region = new (data) Region{bin, nullptr, nullptr, newest_, bytes, huge};
    if (bin) bin->previous = region;
    bin = region;
    if (newest_) newest_->newer = region;
    newest_ = region;
    if (!oldest_) oldest_ = region;
    bytes_ += bytes;
    return region;
  }

  struct Removed {
    std::size_t bytes;
    bool huge;
  };
  HYALITE_READS_FREE_BLOCKS Removed remove(Region* region) {
    (region->previous ? region->previous->next : bins_[step_of(region->bytes, medium_bits)]) = region->next;
    if (region->next) region->next->previous = region->previous;
    (region->newer ? region->newer->older : newest_) = region->older;
    (region->older ? region->older->newer : oldest_) = region->newer;
    bytes_ -= region->bytes;
    return {region->bytes, region->huge};
  }

  /// The smallest mapping of `least` to `most` bytes among the most recently used of each bin, or null.
  HYALITE_READS_FREE_BLOCKS Region* find(std::size_t least, std::size_t most, std::size_t align, bool huge) const {
    constexpr int looked_at = 16;
    Region* best = nullptr;
    for (unsigned bin = step_of(least, medium_bits); bin <= step_of(most, medium_bits) && !best; ++bin) {
      int left = looked_at;
      for (Region* r = bins_[bin]; r && left--; r = r->next) {
        const bool fits = r->bytes >= least && r->bytes <= most && r->huge == huge &&
                          reinterpret_cast<std::uintptr_t>(r) % align == 0;
        if (fits && (!best || r->bytes < best->bytes)) best = r;
        if (best && best->bytes == least) return best;
      }
    }
    return best;
  }

 private:
  std::array<Region*, bin_count> bins_{};
  Region* newest_ = nullptr;
  Region* oldest_ = nullptr;
  std::size_t bytes_ = 0;
};

// ---- limits of the machine ----

/// The beginning of a file, or nothing.
std::string_view read_file(const char* path, std::array<char, 4096>& buffer) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  const ssize_t n = read(file, buffer.data(), buffer.size());
  close(file);
  return {buffer.data(), n > 0 ? static_cast<std::size_t>(n) : 0};
}

/// The smallest limit on the way from a control group up to the root of its hierarchy.
std::size_t smallest_limit(const char* root, std::string_view group, const char* file) {
  constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
  std::size_t smallest = none;
  while (true) {
    std::array<char, 4096> path, buffer;
    const int n =
        std::snprintf(path.data(), path.size(), "%s%.*s/%s", root, static_cast<int>(group.size()), group.data(), file);
    if (n > 0 && static_cast<std::size_t>(n) < path.size()) {
      const std::string_view text = read_file(path.data(), buffer);
      std::size_t value = none;  // the text "max" leaves it so
      std::from_chars(text.data(), text.data() + text.size(), value);
      smallest = std::min(smallest, value);
    }
    if (group.empty()) return smallest;
    group = group.substr(0, group.rfind('/') == std::string_view::npos ? 0 : group.rfind('/'));
  }
}

/// The memory limit of this process's control group (version 1 or 2), or SIZE_MAX.
std::size_t cgroup_limit() {
  std::size_t smallest = std::numeric_limits<std::size_t>::max();
  std::array<char, 4096> buffer;
  std::string_view lines = read_file("/proc/self/cgroup", buffer);
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(lines.size(), line.size() + 1));
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string_view path = line.substr(second + 1);
    const std::string_view group = path == "/" ? std::string_view{} : path;
    if (controllers.empty())
      smallest = std::min(smallest, smallest_limit("/sys/fs/cgroup", group, "memory.max"));
    else if (controllers == "memory")
      smallest = std::min(smallest, smallest_limit("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes"));
  }
  return smallest;
}

std::size_t default_limit() {
  const auto pages = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES));
  return std::min(pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)), cgroup_limit());
}

// ---- errors ----

std::int64_t clamp(std::size_t bytes) {
  return static_cast<std::int64_t>(std::min<std::size_t>(bytes, std::numeric_limits<std::int64_t>::max()));
}

std::string readable(std::size_t bytes) {
  constexpr std::array units{"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < units.size(); ++unit) value /= 1024;
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
  return text.data();
}

[[noreturn]] void out_of_memory(std::size_t requested, std::size_t limit, std::size_t allocated, bool by_system) {
  const std::string state = readable(allocated) + " of the limit of " + readable(limit) + " are in use";
  const std::string advice = by_system           ? "delete tensors, work on smaller pieces or stop other programs"
                             : requested > limit ? "work on smaller pieces or raise the limit"
                                                 : "delete tensors, work on smaller pieces or raise the limit";
  const std::string refusal = by_system ? ", the system refuses them: " : ": ";
  throw OutOfMemory(
      "allocate(): no room for " + readable(requested) + refusal + state + "; " + advice,
      {{"requested_bytes", clamp(requested)}, {"limit_bytes", clamp(limit)}, {"allocated_bytes", clamp(allocated)}});
}

// ---- the shared state ----

/// Lies at the start of a slab, a mapping aligned to its own size and cut into blocks of one class.
struct Slab {
  Slab* next;  // among those of its class with a free block
  Slab* previous;
  FreeBlock* free;
  std::uint32_t fresh;  // blocks from this one on were never handed out
  std::uint32_t live;
  std::uint32_t blocks;
  bool huge;
  bool zeroed;
};
static_assert(sizeof(Slab) <= slab_header);

class Pool {
 public:
  std::mutex mutex;  // guards everything below; private methods and `after_fork_in_child` expect it held

  Block allocate(std::size_t bytes);
  void release(void* data, std::size_t capacity) noexcept;
  Stats stats();
  void reset_peak();
  std::size_t trim();
  void set_limit(std::size_t bytes);
  void close_thread(ThreadCache& cache) noexcept;
  void after_fork_in_child() noexcept;
  bool fills() const { return fills_; }

 private:
  void start();
  bool register_thread();
  void unlink(ThreadCache& cache);
  void give_back(ThreadCache& cache, unsigned c, std::uint32_t keep, Victims& victims);

  Block allocate_small(unsigned c, Victims& victims);
  Block allocate_large(std::size_t requested, Victims& victims);
  Block pop(unsigned c, Victims& victims);
  void push(void* data, unsigned c, Victims& victims);
  Slab* make_slab(unsigned c, Victims& victims);
  void link(Slab* slab, unsigned c);
  void unlink(Slab* slab, unsigned c);
  void drop_empty_slabs();

  struct Mapping {
    void* data;
    bool fresh;
    std::size_t bytes;
  };
  Mapping obtain(std::size_t least, std::size_t most, std::size_t align, bool huge, std::size_t requested, Victims&);
  void evict(Region* region, Victims& victims);
  std::size_t evict_down_to(std::size_t bytes, Victims& victims);

  void check_limit(std::size_t requested, std::size_t capacity) const;
  std::size_t in_thread_lists() const;
  std::size_t allocated() const { return handed_out_ - in_thread_lists(); }
  void note_peak();
  std::size_t budget() const { return limit_ / 4; }
  bool is_huge(std::size_t large) const { return huge_pages_ && large >= huge_page; }

  bool started_ = false;
  bool fills_ = false;  // HYALITE_POISON=1
  bool lists_ = false;  // threads may keep small blocks
  bool huge_pages_ = false;
  pthread_key_t at_thread_exit_{};
  ThreadCache* threads_ = nullptr;

  std::array<Slab*, class_count> slabs_{};
  RegionCache cache_;

  std::size_t limit_ = 0;
  std::size_t handed_out_ = 0;  // blocks outside slabs and cache: in use, or in the list of a thread
  std::size_t peak_ = 0;
  std::size_t system_ = 0;
  std::size_t huge_ = 0;
  std::int64_t mappings_ = 0;
  std::int64_t hits_ = 0;
  std::int64_t misses_ = 0;
};

/// Never destroyed: objects with static storage may give blocks back at any time during exit.
union Immortal {
  constexpr Immortal() : pool() {}
  ~Immortal() {}
  Pool pool;
};
constinit Immortal immortal;
constinit Pool& shared = immortal.pool;

void close_this_thread(void* cache) { shared.close_thread(*static_cast<ThreadCache*>(cache)); }

[[maybe_unused]] const int fork_handlers = pthread_atfork([] { shared.mutex.lock(); }, [] { shared.mutex.unlock(); },
                                                          [] {
                                                            shared.after_fork_in_child();
                                                            shared.mutex.unlock();
                                                          });

/// Reads the surroundings once; every first call of a thread comes through here.
void Pool::start() {
  if (started_) [[likely]]
    return;
  started_ = true;
  const char* fill = std::getenv("HYALITE_POISON");
  fills_ = fill && std::string_view(fill) == "1";
  if (!limit_) limit_ = default_limit();
  huge_pages_ = advise_huge(nullptr, 0);
  // Filled and poisoned blocks change hands in the slow path alone, which keeps the fast one free of both.
  lists_ = !fills_ && !HYALITE_ASAN && pthread_key_create(&at_thread_exit_, close_this_thread) == 0;
}

// ---- threads ----

bool Pool::register_thread() {
  ThreadCache& cache = thread_cache;
  if (cache.state == ThreadCache::State::registered) return true;
  if (!lists_ || cache.state == ThreadCache::State::closed) return false;
  // Destructors of keys run after those of thread_local objects, which may still give blocks back.
  if (pthread_setspecific(at_thread_exit_, &cache) != 0) return false;
  cache.state = ThreadCache::State::registered;
  cache.bound = list_bound;
  cache.next = threads_;
  if (threads_) threads_->previous = &cache;
  threads_ = &cache;
  return true;
}

void Pool::unlink(ThreadCache& cache) {
  (cache.previous ? cache.previous->next : threads_) = cache.next;
  if (cache.next) cache.next->previous = cache.previous;
}

void Pool::close_thread(ThreadCache& cache) noexcept {
  Victims victims;
  std::lock_guard lock(mutex);
  for (unsigned c = 0; c < small_classes; ++c) give_back(cache, c, 0, victims);
  unlink(cache);
  hits_ += static_cast<std::int64_t>(cache.hits.load(std::memory_order_relaxed));
  cache.hits.store(0, std::memory_order_relaxed);
  cache.bound = 0;
  cache.state = ThreadCache::State::closed;
}

/// Moves blocks from a thread's list to their slabs until `keep` are left.
void Pool::give_back(ThreadCache& cache, unsigned c, std::uint32_t keep, Victims& victims) {
  std::uint32_t count = cache.count[c].load(std::memory_order_relaxed);
  for (; count > keep; --count) {
    FreeBlock* block = cache.head[c];
    cache.head[c] = block->next;
    push(block, c, victims);
  }
  cache.count[c].store(count, std::memory_order_relaxed);
}

/// The other threads do not exist here. Their lists may have been copied half-way through a change, so their blocks
/// (at most 250 KiB a thread) are left where they are and count as cached.
void Pool::after_fork_in_child() noexcept {
  ThreadCache* own = nullptr;
  for (ThreadCache* cache = threads_; cache; cache = cache->next) {
    if (cache == &thread_cache) {
      own = cache;
      continue;
    }
    hits_ += static_cast<std::int64_t>(cache->hits.load(std::memory_order_relaxed));
    for (unsigned c = 0; c < small_classes; ++c)
      handed_out_ -= cache->count[c].load(std::memory_order_relaxed) * class_bytes(c);
  }
  if (own) own->next = own->previous = nullptr;
  threads_ = own;
}

// ---- mappings ----

/// Takes a free mapping out of the cache, to be given back to the system.
void Pool::evict(Region* region, Victims& victims) {
  const auto [bytes, huge] = cache_.remove(region);
  victims.add(region);
  system_ -= bytes;
  if (huge) huge_ -= bytes;
}

/// Evicts until at most `bytes` are cached; returns the bytes evicted.
std::size_t Pool::evict_down_to(std::size_t bytes, Victims& victims) {
  const std::size_t before = cache_.bytes();
  while (cache_.bytes() > bytes) evict(cache_.oldest(), victims);
  return before - cache_.bytes();
}

/// A mapping from the cache or from the system.
Pool::Mapping Pool::obtain(std::size_t least, std::size_t most, std::size_t align, bool huge, std::size_t requested,
                           Victims& victims) {
  if (Region* region = cache_.find(least, most, align, huge)) return {region, false, cache_.remove(region).bytes};
  if (system_ + least > limit_) drop_empty_slabs();
  while (system_ + least > limit_ && cache_.oldest()) evict(cache_.oldest(), victims);
  void* data = map(least, align);
  if (!data) {
    drop_empty_slabs();
    evict_down_to(0, victims);
    victims.unmap_all();
    data = map(least, align);
  }
  if (!data) out_of_memory(requested, limit_, allocated(), true);
  if (huge) {
    advise_huge(data, least);
    huge_ += least;
  }
  system_ += least;
  ++mappings_;
  return {data, true, least};
}

// ---- slabs ----

void Pool::link(Slab* slab, unsigned c) {
  slab->previous = nullptr;
  slab->next = slabs_[c];
  if (slab->next) slab->next->previous = slab;
  slabs_[c] = slab;
}

void Pool::unlink(Slab* slab, unsigned c) {
  (slab->previous ? slab->previous->next : slabs_[c]) = slab->next;
  if (slab->next) slab->next->previous = slab->previous;
}

Slab* Pool::make_slab(unsigned c, Victims& victims) {
  const std::size_t bytes = slab_bytes(c);
  const bool huge = huge_pages_ && slab_is_huge(c);
  const Mapping mapping = obtain(bytes, bytes, bytes, huge, class_bytes(c), victims);
  poison(mapping.data, bytes);
  unpoison(mapping.data, slab_header);
  const auto blocks = static_cast<std::uint32_t>((bytes - slab_header) / class_bytes(c));
  Slab* slab = new (mapping.data) Slab{nullptr, nullptr, nullptr, 0, 0, blocks, huge, mapping.fresh};
  link(slab, c);
  return slab;
}

/// A block of class `c` out of its slab.
HYALITE_READS_FREE_BLOCKS Block Pool::pop(unsigned c, Victims& victims) {
  Slab* slab = slabs_[c];
  if (!slab) slab = make_slab(c, victims);
  FreeBlock* block = slab->free;
  const bool reused = block != nullptr;
  void* data = block;
  if (reused)
    slab->free = block->next;
  else
    data = reinterpret_cast<char*>(slab) + slab_header + slab->fresh++ * class_bytes(c);
  if (++slab->live == slab->blocks) unlink(slab, c);
  handed_out_ += class_bytes(c);
  return {data, class_bytes(c), reused, slab->huge, !reused && slab->zeroed};
}

/// A block of class `c` back into its slab, and the slab into the cache if that was its last and there is another one.
HYALITE_READS_FREE_BLOCKS void Pool::push(void* data, unsigned c, Victims& victims) {
  Slab* slab = reinterpret_cast<Slab*>(reinterpret_cast<std::uintptr_t>(data) & ~(slab_bytes(c) - 1));
  if (slab->live == slab->blocks) link(slab, c);
  slab->free = new (data) FreeBlock{slab->free};
  handed_out_ -= class_bytes(c);
  if (--slab->live > 0 || (slabs_[c] == slab && !slab->next)) return;
  unlink(slab, c);
  cache_.insert(slab, slab_bytes(c), slab->huge);
  evict_down_to(budget(), victims);
}

void Pool::drop_empty_slabs() {
  for (unsigned c = 0; c < class_count; ++c)
    for (Slab* slab = slabs_[c]; slab;) {
      Slab* following = slab->next;
      if (slab->live == 0) {
        unlink(slab, c);
        cache_.insert(slab, slab_bytes(c), slab->huge);
      }
      slab = following;
    }
}

// ---- requests ----

std::size_t Pool::in_thread_lists() const {
  std::size_t bytes = 0;
  for (const ThreadCache* cache = threads_; cache; cache = cache->next)
    for (unsigned c = 0; c < small_classes; ++c)
      bytes += cache->count[c].load(std::memory_order_relaxed) * class_bytes(c);
  return bytes;
}

void Pool::note_peak() {
  if (handed_out_ > peak_) peak_ = std::max(peak_, allocated());
}

void Pool::check_limit(std::size_t requested, std::size_t capacity) const {
  const auto fits = [&](std::size_t used) { return used <= limit_ && capacity <= limit_ - used; };
  if (fits(handed_out_)) [[likely]]
    return;
  if (const std::size_t used = allocated(); !fits(used)) out_of_memory(requested, limit_, used, false);
}

/// One block, and some more for the thread's list.
Block Pool::allocate_small(unsigned c, Victims& victims) {
  Block block = pop(c, victims);
  block.zeroed = false;
  if (!register_thread()) return block;
  ThreadCache& cache = thread_cache;
  for (std::uint32_t i = 0; i < refill && slabs_[c]; ++i) {
    cache.head[c] = new (pop(c, victims).data) FreeBlock{cache.head[c]};
    cache.count[c].store(cache.count[c].load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  return block;
}

Block Pool::allocate_large(std::size_t requested, Victims& victims) {
  const std::size_t bytes = large_bytes(requested);
  const bool huge = is_huge(bytes);
  std::size_t most = std::min(bytes + bytes / 4, limit_ - std::min(limit_, handed_out_));
  if (bytes < huge_page) most = std::min(most, huge_page - 1);  // `release` tells huge mappings by their size
  const Mapping mapping = obtain(bytes, std::max(bytes, most), huge_page, huge, requested, victims);
  handed_out_ += mapping.bytes;
  return {mapping.data, mapping.bytes, !mapping.fresh, huge, mapping.fresh};
}

Block Pool::allocate(std::size_t bytes) {
  Victims victims;
  std::lock_guard lock(mutex);
  start();
  const std::size_t capacity = bytes <= largest_medium ? class_bytes(class_of(bytes)) : large_bytes(bytes);
  if (!capacity) out_of_memory(bytes, limit_, allocated(), false);
  check_limit(bytes, capacity);
  const Block block = bytes <= largest_small    ? allocate_small(class_of(bytes), victims)
                      : bytes <= largest_medium ? pop(class_of(bytes), victims)
                                                : allocate_large(bytes, victims);
  ++(block.hit ? hits_ : misses_);
  note_peak();
  return block;
}

void Pool::release(void* data, std::size_t capacity) noexcept {
  Victims victims;
  std::lock_guard lock(mutex);
  start();
  if (capacity <= largest_small && register_thread()) {
    ThreadCache& cache = thread_cache;
    const unsigned c = class_of(capacity);
    if (cache.count[c].load(std::memory_order_relaxed) >= cache.bound) give_back(cache, c, cache.bound / 2, victims);
    cache.head[c] = new (data) FreeBlock{cache.head[c]};
    cache.count[c].store(cache.count[c].load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  } else if (capacity <= largest_medium) {
    push(data, class_of(capacity), victims);
  } else {
    handed_out_ -= capacity;
    Region* region = cache_.insert(data, capacity, is_huge(capacity));
    if (capacity > budget()) evict(region, victims);  // it would only drive the others out before it goes itself
    evict_down_to(budget(), victims);
  }
}

Stats Pool::stats() {
  std::lock_guard lock(mutex);
  start();
  const std::size_t used = allocated();
  peak_ = std::max(peak_, used);
  std::int64_t hits = hits_;
  for (const ThreadCache* cache = threads_; cache; cache = cache->next)
    hits += static_cast<std::int64_t>(cache->hits.load(std::memory_order_relaxed));
  return {clamp(used), clamp(system_ - used), clamp(peak_), clamp(limit_), hits, misses_,
          mappings_,   clamp(system_),        clamp(huge_)};
}

void Pool::reset_peak() {
  std::lock_guard lock(mutex);
  peak_ = allocated();
}

std::size_t Pool::trim() {
  Victims victims;
  std::lock_guard lock(mutex);
  for (unsigned c = 0; c < small_classes; ++c) give_back(thread_cache, c, 0, victims);
  drop_empty_slabs();
  return evict_down_to(0, victims);
}

void Pool::set_limit(std::size_t bytes) {
  Victims victims;
  std::lock_guard lock(mutex);
  limit_ = bytes ? bytes : default_limit();
  evict_down_to(budget(), victims);
}

}  // namespace

namespace detail {

Block allocate_slow(std::size_t bytes) {
  if (to_failure.load(std::memory_order_relaxed) > 0 && to_failure.fetch_sub(1, std::memory_order_relaxed) == 1) {
    const Stats now = shared.stats();
    out_of_memory(bytes, static_cast<std::size_t>(now.limit_bytes), static_cast<std::size_t>(now.allocated_bytes),
                  false);
  }
  Block block = shared.allocate(bytes);
  unpoison(block.data, block.capacity);
  if (shared.fills()) [[unlikely]] {
    std::memset(block.data, poison_byte, block.capacity);
    block.zeroed = false;
  }
  return block;
}

void release_slow(void* data, std::size_t capacity) noexcept {
  if (!data) return;
  if (shared.fills()) [[unlikely]]
    std::memset(data, poison_byte, capacity);
  poison(data, capacity);
  shared.release(data, capacity);
}

}  // namespace detail

std::int64_t fail_after(std::int64_t n) noexcept { return detail::to_failure.exchange(n, std::memory_order_relaxed); }

Stats stats() { return shared.stats(); }
void reset_peak() { shared.reset_peak(); }
std::size_t trim() { return shared.trim(); }
void set_limit(std::size_t bytes) { shared.set_limit(bytes); }

}  // namespace hyalite::pool
