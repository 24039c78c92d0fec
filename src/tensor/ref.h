/// An intrusive, atomic reference to an object that counts its own users.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace hyalite {

/// Gives a count back; true if it was the last. The only owner sees that by a plain load, since nobody else is left who
/// could add one: not for objects that are also known weakly.
[[gnu::always_inline]] inline bool give_count_back(std::atomic<std::uint32_t>& refs) noexcept {
  return refs.load(std::memory_order_acquire) == 1 || refs.fetch_sub(1, std::memory_order_acq_rel) == 1;
}

/// Owns one count of T, whose `retain()` and `release()` do the counting.
template <class T>
class Ref {
 public:
  Ref() = default;
  /// Takes over a count that the caller holds.
  static Ref adopt(T* p) {
    Ref r;
    r.p_ = p;
    return r;
  }
  /// Adds a count of its own.
  static Ref share(T* p) {
    if (p != nullptr) p->retain();
    return adopt(p);
  }
  Ref(const Ref& o) : p_(o.p_) {
    if (p_ != nullptr) p_->retain();
  }
  Ref(Ref&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  Ref& operator=(Ref o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  [[gnu::always_inline]] ~Ref() {
    if (p_ != nullptr) p_->release();
  }
  T* get() const { return p_; }
  T* operator->() const { return p_; }
  T& operator*() const { return *p_; }
  explicit operator bool() const { return p_ != nullptr; }
  /// Gives the count to the caller.
  [[nodiscard]] T* leak() { return std::exchange(p_, nullptr); }
  bool operator==(const Ref&) const = default;

 private:
  T* p_ = nullptr;
};

}  // namespace hyalite
