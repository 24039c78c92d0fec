/// Storage from the pool or borrowed.
#include "tensor/storage.h"

#include <limits>
#include <new>

#include "tensor/location.h"

namespace hyalite {
namespace {

// Small data lie behind their Storage, in one block of the pool.
constexpr std::size_t header = (sizeof(Storage) + pool::alignment - 1) / pool::alignment * pool::alignment;
constexpr std::size_t largest_inline = pool::largest_small - header;

}  // namespace

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

Ref<Storage> Storage::borrow(void* data, std::size_t bytes, bool read_only, void (*release)(void*), void* context) {
  Storage* s = new (pool::allocate(sizeof(Storage)).data) Storage();
  s->data_ = static_cast<std::byte*>(data);
  s->bytes_ = bytes;
  s->read_only_ = read_only;
  s->release_ = release;
  s->context_ = context;
  return Ref<Storage>::adopt(s);
}

void Storage::bump(Location writer) noexcept {
  version_.fetch_add(1, std::memory_order_relaxed);
  if (writer.code == nullptr) return;
  release_location(writer_);
  writer_ = writer;
}

void Storage::destroy() noexcept {
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
