/// The memory behind tensors: counted, with the version that in-place writes raise.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "hyalite/device.h"
#include "tensor/pool.h"
#include "tensor/ref.h"

namespace hyalite {

/// A line of the user's program, kept undecoded: what the two numbers mean, only the installed hook knows.
struct Location {
  const void* code = nullptr;
  std::int64_t position = 0;
};

struct Region;

/// One piece of memory. Views share it, and its version; so do storages over memory that overlaps, where it is not all
/// ours: two that were borrowed from one array, or one that was lent and borrowed back.
class Storage {
 public:
  /// `bytes` from the pool. Throws OutOfMemory.
  static Ref<Storage> allocate(std::size_t bytes);
  /// Of a tensor on the meta device: it counts versions and is shared by views, and there is nothing behind it.
  static Ref<Storage> without_memory();
  /// Of a value that is not computed yet, and may never be: `cell` says which, and is given up by release(cell).
  static Ref<Storage> deferred(std::size_t bytes, void (*release)(void*), void* cell);
  /// Memory of somebody else, released by release(context) when the last user goes. Throws std::bad_alloc.
  static Ref<Storage> borrow(void* data, std::size_t bytes, bool read_only, void (*release)(void*), void* context);

  void retain() noexcept { refs_.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept {
    if (give_count_back(refs_)) destroy();
  }
  std::uint32_t users() const noexcept { return refs_.load(std::memory_order_relaxed); }

  std::byte* address() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }
  bool read_only() const noexcept { return read_only_; }
  bool hit() const noexcept { return hit_; }
  bool huge() const noexcept { return huge_; }
  bool zeroed() const noexcept { return zeroed_; }

  /// What `deferred` was given; null of memory that is there.
  void* cell() const noexcept { return deferred_ ? context_ : nullptr; }

  /// Memory of somebody else.
  bool borrowed() const noexcept { return borrowed_; }
  /// Whether somebody outside can write it without a version: it is borrowed, or lent to an array that is alive.
  bool exposed() const noexcept { return borrowed_ || lent_.load(std::memory_order_relaxed) != 0; }
  /// An export begins; `writable` ones count until they are given back. Throws std::bad_alloc.
  void lend(bool writable);
  void give_back() noexcept { lent_.fetch_sub(1, std::memory_order_relaxed); }

  std::uint32_t version() const noexcept {
    if (region_.load(std::memory_order_acquire) != nullptr) [[unlikely]]
      return region_version();
    return version_.load(std::memory_order_relaxed);
  }
  /// Counts a write; its line is kept only when some node has saved this memory.
  void bump(Location writer) noexcept;
  /// The write that was counted did not happen.
  void unbump() noexcept;
  void mark_saved() noexcept { saved_.store(true, std::memory_order_relaxed); }
  bool saved() const noexcept { return saved_.load(std::memory_order_relaxed); }
  /// With a count of its own, for `release_location`.
  Location last_writer() const noexcept;

 private:
  Storage() = default;
  void destroy() noexcept;
  void join_region();
  void leave_region() noexcept;
  std::uint32_t region_version() const noexcept;

  std::atomic<std::uint32_t> refs_{1};
  std::atomic<std::uint32_t> version_{0};
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t capacity_ = 0;  // of the pool's block; 0 when borrowed
  std::atomic<bool> saved_{false};
  bool read_only_ = false;
  bool borrowed_ = false, deferred_ = false;
  bool inline_ = false;  // data and object share one block
  bool hit_ = false, huge_ = false, zeroed_ = false;
  void (*release_)(void*) = nullptr;
  void* context_ = nullptr;
  Location writer_;
  std::atomic<Region*> region_{nullptr};  // of memory that others know too: it has the version then
  std::atomic<std::uint32_t> lent_{0};
};

}  // namespace hyalite
