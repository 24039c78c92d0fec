/// Storage from the pool or borrowed.
#include "tensor/storage.h"

#include <pthread.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "tensor/location.h"

namespace hyalite {

/// Memory that others know too, as one storage sees it. Regions that overlap count their writes together: one of them
/// has the count, the others follow it at a fixed distance.
struct Region {
  std::uintptr_t low, high;  // of all that follow it, for one that follows no other
  std::uint32_t writes;      // the version; of a follower: what is added to that of the other
  std::size_t users = 1;     // the storage, and the regions that follow
  Region* into = nullptr;
};

namespace {

// Small data lie behind their Storage, in one block of the pool.
constexpr std::size_t header = (sizeof(Storage) + pool::alignment - 1) / pool::alignment * pool::alignment;
constexpr std::size_t largest_inline = pool::largest_small - header;

// Those that follow no other, by their first byte. Never destroyed: a storage may outlive static objects.
std::mutex& regions_mutex = *new std::mutex;
std::map<std::uintptr_t, Region*>& regions = *new std::map<std::uintptr_t, Region*>;
[[maybe_unused]] const int fork_handlers =
    pthread_atfork([] { regions_mutex.lock(); }, [] { regions_mutex.unlock(); }, [] { regions_mutex.unlock(); });

/// Gives up one use of `r`, and with the last use that of the one it follows.
void let_go(Region* r) noexcept {
  while (r != nullptr && --r->users == 0) {
    Region* into = r->into;
    if (into == nullptr) regions.erase(r->low);
    delete r;
    r = into;
  }
}

/// The one with the count, and the distance to it; from then on `r` follows it directly.
std::pair<Region*, std::uint32_t> counter_of(Region* r) noexcept {
  std::uint32_t distance = 0;
  Region* root = r;
  for (; root->into != nullptr; root = root->into) distance += root->writes;
  if (r->into != nullptr && r->into != root) {
    Region* between = std::exchange(r->into, root);
    r->writes = distance;
    ++root->users;
    let_go(between);
  }
  return {root, distance};
}

/// Lets the smaller follow the larger, which is returned; of equals the first, so that one that comes and goes leaves
/// nothing behind.
Region* merged(Region* a, Region* b) noexcept {
  if (a->users < b->users) std::swap(a, b);
  b->into = a;
  b->writes -= a->writes;
  ++a->users;
  a->low = std::min(a->low, b->low);
  a->high = std::max(a->high, b->high);
  return a;
}

}  // namespace

void Storage::join_region() {
  if (bytes_ == 0) return;
  const std::lock_guard lock(regions_mutex);
  if (region_.load(std::memory_order_relaxed) != nullptr) return;
  const auto low = reinterpret_cast<std::uintptr_t>(data_), high = low + bytes_;
  auto joined = std::make_unique<Region>(low, high, version_.load(std::memory_order_relaxed));
  auto at = regions.lower_bound(low);
  if (at != regions.begin() && std::prev(at)->second->high > low) --at;
  if (at == regions.end() || at->first >= high) {
    regions.emplace(low, joined.get());
  } else {
    // What is borrowed anew has the version that its memory has.
    if (borrowed_) joined->writes = at->second->writes;
    Region* root = joined.get();
    std::map<std::uintptr_t, Region*>::node_type place;
    while (at != regions.end() && at->first < high) {
      root = merged(at->second, root);
      place = regions.extract(at++);
    }
    place.key() = root->low;
    place.mapped() = root;
    regions.insert(std::move(place));
  }
  region_.store(joined.release(), std::memory_order_release);
}

void Storage::leave_region() noexcept {
  const std::lock_guard lock(regions_mutex);
  let_go(region_.load(std::memory_order_relaxed));
}

std::uint32_t Storage::region_version() const noexcept {
  const std::lock_guard lock(regions_mutex);
  const auto [root, distance] = counter_of(region_.load(std::memory_order_relaxed));
  return root->writes + distance;
}

void Storage::lend(bool writable) {
  if (region_.load(std::memory_order_acquire) == nullptr) join_region();
  if (writable) lent_.fetch_add(1, std::memory_order_relaxed);
}

Ref<Storage> Storage::allocate(std::size_t bytes) {
  const bool together = bytes <= largest_inline;
  const pool::Block object = pool::allocate(together ? header + bytes : sizeof(Storage));
  Storage* s = new (object.data) Storage;
  s->bytes_ = bytes;
  if (together) {
    s->data_ = static_cast<std::byte*>(object.data) + header;
    s->capacity_ = object.capacity;
    s->inline_ = true;
    s->hit_ = object.hit;
    return Ref<Storage>::adopt(s);
  }
  try {
    const pool::Block block = pool::allocate(bytes);
    s->data_ = static_cast<std::byte*>(block.data);
    s->capacity_ = block.capacity;
    s->hit_ = block.hit;
    s->huge_ = block.huge;
    s->zeroed_ = block.zeroed;
  } catch (...) {
    pool::release(s, object.capacity);
    throw;
  }
  return Ref<Storage>::adopt(s);
}

Ref<Storage> Storage::without_memory() {
  return Ref<Storage>::adopt(new (pool::allocate(sizeof(Storage)).data) Storage());
}

Ref<Storage> Storage::deferred(std::size_t bytes, void (*release)(void*), void* cell) {
  Ref<Storage> s = without_memory();
  s->bytes_ = bytes;
  s->deferred_ = true;
  s->release_ = release;
  s->context_ = cell;
  return s;
}

Ref<Storage> Storage::borrow(void* data, std::size_t bytes, bool read_only, void (*release)(void*), void* context) {
  Storage* s = new (pool::allocate(sizeof(Storage)).data) Storage();
  s->data_ = static_cast<std::byte*>(data);
  s->bytes_ = bytes;
  s->read_only_ = read_only;
  s->borrowed_ = true;
  Ref<Storage> storage = Ref<Storage>::adopt(s);
  s->join_region();
  s->release_ = release;
  s->context_ = context;
  return storage;
}

void Storage::bump(Location writer) noexcept {
  if (region_.load(std::memory_order_acquire) != nullptr) {
    const std::lock_guard lock(regions_mutex);
    ++counter_of(region_.load(std::memory_order_relaxed)).first->writes;
  } else {
    version_.fetch_add(1, std::memory_order_acq_rel);
  }
  if (writer.code == nullptr) return;
  Location old = writer;
  {
    const std::lock_guard lock(regions_mutex);
    std::swap(old, writer_);
  }
  release_location(old);
}

void Storage::unbump() noexcept {
  if (region_.load(std::memory_order_acquire) != nullptr) {
    const std::lock_guard lock(regions_mutex);
    --counter_of(region_.load(std::memory_order_relaxed)).first->writes;
  } else {
    version_.fetch_sub(1, std::memory_order_relaxed);
  }
}

Location Storage::last_writer() const noexcept {
  const std::lock_guard lock(regions_mutex);
  retain_location(writer_);
  return writer_;
}

void Storage::destroy() noexcept {
  if (region_.load(std::memory_order_relaxed) != nullptr) leave_region();
  release_location(writer_);
  if (release_ != nullptr) release_(context_);
  const std::size_t capacity = capacity_;
  std::byte* data = data_;
  const bool together = inline_;
  this->~Storage();
  if (together) {
    pool::release(this, capacity);
    return;
  }
  if (capacity != 0) pool::release(data, capacity);
  constexpr std::size_t object = std::size_t{1} << (6 + pool::detail::small_class(sizeof(Storage)));
  pool::release(this, object);
}

}  // namespace hyalite
