/// A list whose first elements need no memory of their own: operands, arguments.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace hyalite {

/// Up to N elements lie inline, more on the heap. T has a default and can be moved; a list that was moved from is only
/// to be destroyed or assigned.
template <class T, std::size_t N>
class SmallVector {
 public:
  SmallVector() = default;
  explicit SmallVector(std::size_t n) { resize(n); }

  /// Only ever larger.
  void resize(std::size_t n) {
    if (n > N) {
      spill(n);
      far_.resize(n);
    }
    size_ = n;
  }
  void reserve(std::size_t n) {
    if (n > N) far_.reserve(n);
  }
  void push_back(T value) {
    if (size_ < N) {
      near_[size_] = std::move(value);
    } else {
      if (size_ == N) spill(N + 1);
      far_.push_back(std::move(value));
    }
    ++size_;
  }

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return size_ <= N ? near_.data() : far_.data(); }
  const T* data() const { return size_ <= N ? near_.data() : far_.data(); }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  T& operator[](std::size_t i) { return data()[i]; }
  const T& operator[](std::size_t i) const { return data()[i]; }
  T& back() { return data()[size_ - 1]; }

 private:
  /// Moves the inline elements out, before the size passes N.
  void spill(std::size_t n) {
    if (!far_.empty()) return;
    far_.reserve(n);
    for (std::size_t i = 0; i < size_; ++i) far_.push_back(std::move(near_[i]));
  }

  std::size_t size_ = 0;
  std::array<T, N> near_;
  std::vector<T> far_;
};

}  // namespace hyalite
