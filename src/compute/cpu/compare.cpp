/// The comparisons' own formulas, over numbers of two types that compare by value.
#include "compute/cpu/compare.h"

#include <cmath>
#include <compare>

#include "ops/elementwise.h"

namespace hyalite::cpu {
namespace {

/// A number that compares exactly with numbers of the other hubs.
template <class T>
struct Exact {
  T value;
};

std::partial_ordering order(std::int64_t a, std::uint64_t b) {
  if (a < 0) return std::partial_ordering::less;
  return static_cast<std::uint64_t>(a) <=> b;
}
template <class Integer>
std::partial_ordering order(Integer a, double b) {
  constexpr bool is_signed = std::is_signed_v<Integer>;
  constexpr double above = is_signed ? 0x1p63 : 0x1p64, below = is_signed ? -0x1p63 : 0;
  if (b != b) return std::partial_ordering::unordered;
  if (b >= above) return std::partial_ordering::less;
  if (b < below) return std::partial_ordering::greater;
  const double whole = std::floor(b);
  const auto by_whole = a <=> static_cast<Integer>(whole);
  if (by_whole != 0) return by_whole;
  return whole < b ? std::partial_ordering::less : std::partial_ordering::equivalent;
}
std::partial_ordering reversed(std::partial_ordering o) { return 0 <=> o; }
std::partial_ordering order(std::uint64_t a, std::int64_t b) { return reversed(order(b, a)); }
template <class Integer>
std::partial_ordering order(double a, Integer b) {
  return reversed(order(b, a));
}

#define HYALITE_EXACT(symbol)                    \
  template <class A, class B>                    \
  bool operator symbol(Exact<A> a, Exact<B> b) { \
    return order(a.value, b.value) symbol 0;     \
  }
HYALITE_EXACT(<)
HYALITE_EXACT(<=)
HYALITE_EXACT(==)
HYALITE_EXACT(!=)
#undef HYALITE_EXACT

template <class Op, class A, class B>
void compare(const void* const* in, void* const* out, std::size_t n, const double*, bool) {
  const A* a = static_cast<const A*>(in[0]);
  const B* b = static_cast<const B*>(in[1]);
  auto* r = static_cast<std::uint8_t*>(out[0]);
  for (std::size_t i = 0; i < n; ++i) r[i] = Op::formula(Exact<A>{a[i]}, Exact<B>{b[i]});
}

template <class Op>
ElementwiseFn pick(Hub left, Hub right) {
  if (left == Hub::int64)
    return right == Hub::uint64 ? &compare<Op, std::int64_t, std::uint64_t> : &compare<Op, std::int64_t, double>;
  if (left == Hub::uint64)
    return right == Hub::int64 ? &compare<Op, std::uint64_t, std::int64_t> : &compare<Op, std::uint64_t, double>;
  return right == Hub::int64 ? &compare<Op, double, std::int64_t> : &compare<Op, double, std::uint64_t>;
}

}  // namespace

ElementwiseFn mixed_comparison(int op, Hub left, Hub right) {
  ElementwiseFn found = nullptr;
  Elementwise::for_each([&]<class Op>() {
    if constexpr (Op::schema.mixed) {
      if (IndexIn<Op, Elementwise>::value == op) found = pick<Op>(left, right);
    }
  });
  return found;
}

}  // namespace hyalite::cpu
