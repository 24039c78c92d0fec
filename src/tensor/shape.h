/// Shapes and strides: a small array that stays inline for common ranks, and the arithmetic on it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "hyalite/error.h"

namespace hyalite {

inline constexpr int max_rank = 64;
using Dims = std::span<const std::int64_t>;

/// Up to max_rank sizes, on the stack.
class DimList {
 public:
  DimList() {}  // not defaulted: `DimList()` would zero all of it
  // Only as much as is in use.
  DimList(const DimList& d) : n_(d.n_) { std::copy(d.begin(), d.end(), v_.begin()); }
  DimList& operator=(const DimList& d) {
    n_ = d.n_;
    std::copy(d.begin(), d.end(), v_.begin());
    return *this;
  }
  DimList(Dims d) : n_(checked_rank(d.size())) { std::copy(d.begin(), d.end(), v_.begin()); }
  DimList(std::initializer_list<std::int64_t> d) : DimList(Dims(d.begin(), d.size())) {}
  DimList(int n, std::int64_t fill) : n_(checked_rank(static_cast<std::size_t>(n))) {
    std::fill_n(v_.begin(), n, fill);
  }
  int size() const { return n_; }
  /// What is new has any value.
  void resize(int n) { n_ = checked_rank(static_cast<std::size_t>(n)); }
  std::int64_t& operator[](int i) { return v_[i]; }
  std::int64_t operator[](int i) const { return v_[i]; }
  void push_back(std::int64_t x) {
    const int n = checked_rank(static_cast<std::size_t>(n_) + 1);
    v_[n_] = x;
    n_ = n;
  }
  void insert(int at, std::int64_t x) {
    push_back(x);
    std::rotate(v_.begin() + at, v_.begin() + n_ - 1, v_.begin() + n_);
  }
  void erase(int at) {
    std::copy(v_.begin() + at + 1, v_.begin() + n_, v_.begin() + at);
    --n_;
  }
  const std::int64_t* data() const { return v_.data(); }
  const std::int64_t* begin() const { return v_.data(); }
  const std::int64_t* end() const { return v_.data() + n_; }
  operator Dims() const { return {v_.data(), static_cast<std::size_t>(n_)}; }

 private:
  static int checked_rank(std::size_t n) {
    if (n > static_cast<std::size_t>(max_rank)) throw ValueError("a tensor has at most 64 dimensions");
    return static_cast<int>(n);
  }
  int n_ = 0;
  std::array<std::int64_t, max_rank> v_;
};

inline bool same_dims(Dims a, Dims b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

/// As Python writes a tuple: (), (3,), (2, 3).
inline std::string to_string(Dims d) {
  std::string s = "(";
  for (std::size_t i = 0; i < d.size(); ++i) s += (i ? ", " : "") + std::to_string(d[i]);
  return s + (d.size() == 1 ? ",)" : ")");
}
inline Shape64 to_vector(Dims d) { return {d.begin(), d.end()}; }

namespace detail {
[[noreturn, gnu::cold, gnu::noinline]] inline void throw_shape(Dims shape, const char* why) {
  throw ValueError("shape " + to_string(shape) + why, {{"shape", to_vector(shape)}});
}
}  // namespace detail

/// The product of the sizes. Throws ValueError for a negative size or when the bytes pass 2^63.
inline std::int64_t checked_numel(Dims shape, std::size_t itemsize) {
  std::int64_t n = 1, bytes;
  bool empty = false, overflow = false;
  for (const std::int64_t s : shape) {
    if (s < 0) [[unlikely]]
      detail::throw_shape(shape, " has a negative size; write sizes of 0 or more");
    empty |= s == 0;
    overflow |= s != 0 && __builtin_mul_overflow(n, s, &n);
  }
  if (empty) return 0;
  if (overflow || __builtin_mul_overflow(n, static_cast<std::int64_t>(itemsize), &bytes)) [[unlikely]]
    detail::throw_shape(shape, " has more bytes than 64 bits can count; write a smaller shape");
  return n;
}

inline bool has_zero(Dims shape) {
  return std::any_of(shape.begin(), shape.end(), [](std::int64_t s) { return s == 0; });
}

/// For strides and offsets by which no element is reached, where a product may be anything.
inline std::int64_t wrapping_multiply(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
}
inline std::int64_t wrapping_add(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

/// The step of the next axis outwards in a row-major tensor. Only beside an axis of size 0 can a product be too large
/// for the bytes of any dtype to be counted; it then stays as it is, since no element is reached by it.
inline std::int64_t next_step(std::int64_t step, std::int64_t size) {
  std::int64_t next, bytes;
  const bool fits = !__builtin_mul_overflow(step, std::max<std::int64_t>(size, 1), &next) &&
                    !__builtin_mul_overflow(next, std::int64_t{16}, &bytes);
  return fits ? next : step;
}

/// Strides, in elements, of a row-major tensor.
inline void set_row_major(DimList& strides, Dims shape) {
  strides.resize(static_cast<int>(shape.size()));
  std::int64_t step = 1;
  for (int i = strides.size() - 1; i >= 0; --i) {
    strides[i] = step;
    step = next_step(step, shape[i]);
  }
}
inline DimList row_major(Dims shape) {
  DimList strides;
  set_row_major(strides, shape);
  return strides;
}

/// Sorts axes, equal ones kept in their order; a few at most, so that no memory is asked for as std::stable_sort does.
template <class Before>
void sort_axes(int* first, int* last, Before before) {
  for (int* next = first; next < last; ++next)
    std::rotate(std::upper_bound(first, next, *next, before), next, next + 1);
}

namespace detail {
[[noreturn, gnu::cold, gnu::noinline]] inline void throw_axis(std::int64_t axis, int ndim, const char* op) {
  throw IndexError(std::string(op) + "(): axis " + std::to_string(axis) + " is out of range for " +
                       std::to_string(ndim) + " dimensions; " +
                       (ndim > 0 ? "write one from " + std::to_string(-ndim) + " to " + std::to_string(ndim - 1)
                                 : "a tensor without dimensions has none"),
                   {{"axis", axis}, {"ndim", std::int64_t{ndim}}});
}
}  // namespace detail

/// `axis` counted from the end if negative. Throws IndexError {axis, ndim}.
inline int normalize_axis(std::int64_t axis, int ndim, const char* op) {
  if (axis < -ndim || axis >= ndim) [[unlikely]]
    detail::throw_axis(axis, ndim, op);
  return static_cast<int>(axis < 0 ? axis + ndim : axis);
}

/// Joins `b` into `a` by the broadcasting rules; false if they do not match.
inline bool broadcast_into(DimList& a, Dims b) {
  while (a.size() < static_cast<int>(b.size())) a.insert(0, 1);
  const int shift = a.size() - static_cast<int>(b.size());
  for (std::size_t i = 0; i < b.size(); ++i) {
    std::int64_t& x = a[shift + static_cast<int>(i)];
    if (x == 1) {
      x = b[i];
    } else if (b[i] != 1 && b[i] != x) {
      return false;
    }
  }
  return true;
}

}  // namespace hyalite
