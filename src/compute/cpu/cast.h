/// Conversion of contiguous elements between any two dtypes on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "hyalite/dtype.h"
#include "hyalite/error.h"

namespace hyalite {

/// Converts n contiguous elements of any alignment. `in` and `out` do not overlap, or are one address and element size.
using CastFn = void (*)(const void* in, void* out, std::size_t n);

/// The dtypes through which any two others are joined; each holds the values of its kind exactly.
enum class Hub : std::uint8_t { int64, uint64, float64, complex128 };
inline constexpr int hub_count = 4;

/// The hub of a dtype: int64 for bool and signed, uint64 for unsigned, float64 for real floating, complex128.
constexpr Hub hub_of(Dtype t) {
  return is_complex(t)            ? Hub::complex128
         : is_floating(t)         ? Hub::float64
         : is_unsigned_integer(t) ? Hub::uint64
                                  : Hub::int64;
}
constexpr Dtype dtype_of(Hub hub) {
  return hub == Hub::int64     ? Dtype::int64
         : hub == Hub::uint64  ? Dtype::uint64
         : hub == Hub::float64 ? Dtype::float64
                               : Dtype::complex128;
}

/// The loops of one instruction set; `fill` in that set's namespace sets every entry.
struct CastTable {
  CastFn widen[dtype_count];                // to the dtype's hub, exactly
  CastFn narrow[hub_count][dtype_count];    // from a hub, rounded once; null for complex to integer or float
  CastFn direct[dtype_count][dtype_count];  // one pass where it is faster, null elsewhere: [from][to]
};

/// The table of the instruction set chosen at start.
const CastTable& cast_table();

namespace cast_detail {

// Two or three blocks of the widest hub leave most of a 32 KiB L1 to the operands.
inline constexpr std::size_t block = 256;

struct Complex128 {
  double re, im;
};
template <Hub hub>
struct HubValue;
template <>
struct HubValue<Hub::int64> {
  using type = std::int64_t;
};
template <>
struct HubValue<Hub::uint64> {
  using type = std::uint64_t;
};
template <>
struct HubValue<Hub::float64> {
  using type = double;
};
template <>
struct HubValue<Hub::complex128> {
  using type = Complex128;
};

/// Equality of the exact values, NaN equal to NaN.
inline bool same(std::int64_t a, std::int64_t b) { return a == b; }
inline bool same(std::uint64_t a, std::uint64_t b) { return a == b; }
inline bool same(std::int64_t a, std::uint64_t b) { return a >= 0 && static_cast<std::uint64_t>(a) == b; }
inline bool same(std::uint64_t a, std::int64_t b) { return same(b, a); }
inline bool same(double a, double b) { return a == b || (a != a && b != b); }
inline bool same(std::int64_t a, double b) {
  // Converting `b` back would be undefined, or saturate to the value sought, at the limits of the integer type.
  if (!(b >= -0x1p63 && b < 0x1p63)) return false;
  const auto back = static_cast<std::int64_t>(b);
  return back == a && static_cast<double>(back) == b;
}
inline bool same(std::uint64_t a, double b) {
  if (!(b >= 0 && b < 0x1p64)) return false;
  const auto back = static_cast<std::uint64_t>(b);
  return back == a && static_cast<double>(back) == b;
}
inline bool same(double a, std::int64_t b) { return same(b, a); }
inline bool same(double a, std::uint64_t b) { return same(b, a); }
inline bool same(Complex128 a, Complex128 b) { return same(a.re, b.re) && same(a.im, b.im); }
template <class Real>
bool same(Real a, Complex128 b) {
  return same(a, b.re) && b.im == 0;
}
template <class Real>
bool same(Complex128 a, Real b) {
  return same(a.re, b) && a.im == 0;
}

/// Index of the first pair that differs, n if none does.
template <Hub from, Hub to>
std::size_t first_difference(const void* a, const void* b, std::size_t n) {
  const auto* x = static_cast<const typename HubValue<from>::type*>(a);
  const auto* y = static_cast<const typename HubValue<to>::type*>(b);
  std::size_t i = 0;
  while (i < n && same(x[i], y[i])) ++i;
  return i;
}
using DifferenceFn = std::size_t (*)(const void*, const void*, std::size_t);
template <Hub from>
[[gnu::visibility("hidden")]] inline constexpr DifferenceFn differences_from[hub_count] = {
    first_difference<from, Hub::int64>, first_difference<from, Hub::uint64>, first_difference<from, Hub::float64>,
    first_difference<from, Hub::complex128>};
inline constexpr const DifferenceFn* differences[hub_count] = {
    differences_from<Hub::int64>, differences_from<Hub::uint64>, differences_from<Hub::float64>,
    differences_from<Hub::complex128>};

/// The loop from the hub of `from`; throws TypeError where there is none.
inline CastFn narrow_from_hub(const CastTable& table, Dtype from, Dtype to) {
  const CastFn narrow = table.narrow[static_cast<std::size_t>(hub_of(from))][static_cast<std::size_t>(to)];
  if (narrow == nullptr) {
    const std::string from_name(name(from)), to_name(name(to));
    throw TypeError("astype(): " + from_name + " to " + to_name +
                        " would drop the imaginary part; write hl.real(x).astype(hl." + to_name + ")",
                    {{"from_dtype", from_name}, {"to_dtype", to_name}});
  }
  return narrow;
}

}  // namespace cast_detail

/// Converts n elements by the rules of "Casts" in semantics; the pointers as in CastFn.
/// Throws TypeError for complex to integer or float: an imaginary part is never dropped silently.
inline void cast(const CastTable& table, Dtype from, const void* in, Dtype to, void* out, std::size_t n) {
  const auto source = static_cast<std::size_t>(from);
  const auto target = static_cast<std::size_t>(to);
  const Dtype hub = dtype_of(hub_of(from));
  const CastFn narrow = cast_detail::narrow_from_hub(table, from, to);
  if (from == to) {
    if (in != out && n != 0) std::memcpy(out, in, n * itemsize(from));
  } else if (const CastFn direct = table.direct[source][target]) {
    direct(in, out, n);
  } else if (from == hub) {
    narrow(in, out, n);
  } else if (to == hub) {
    table.widen[source](in, out, n);
  } else {
    alignas(64) std::byte wide[cast_detail::block * sizeof(cast_detail::Complex128)];
    const std::size_t block = sizeof wide / itemsize(hub);
    for (std::size_t i = 0; i < n; i += block) {
      const std::size_t count = n - i < block ? n - i : block;
      table.widen[source](static_cast<const std::byte*>(in) + i * itemsize(from), wide, count);
      narrow(wide, static_cast<std::byte*>(out) + i * itemsize(to), count);
    }
  }
}

/// Index of the first element whose value the cast would change, -1 if all survive; nothing is written.
/// An element survives when the result stands for exactly the same number (so -0.0 to integer 0 does, and INT64_MAX to
/// float64 does not, though casting back would saturate to it), or when both are NaN. Throws as `cast` does.
inline std::int64_t first_that_does_not_survive(const CastTable& table, Dtype from, const void* in, Dtype to,
                                                std::size_t n) {
  using cast_detail::block;
  constexpr std::size_t bytes = block * sizeof(cast_detail::Complex128);
  cast_detail::narrow_from_hub(table, from, to);
  alignas(64) std::byte result[bytes], before[bytes], after[bytes];
  const auto compare =
      cast_detail::differences[static_cast<std::size_t>(hub_of(from))][static_cast<std::size_t>(hub_of(to))];
  for (std::size_t i = 0; i < n; i += block) {
    const std::size_t count = n - i < block ? n - i : block;
    const std::byte* source = static_cast<const std::byte*>(in) + i * itemsize(from);
    cast(table, from, source, to, result, count);
    table.widen[static_cast<std::size_t>(from)](source, before, count);
    table.widen[static_cast<std::size_t>(to)](result, after, count);
    const std::size_t first = compare(before, after, count);
    if (first != count) return static_cast<std::int64_t>(i + first);
  }
  return -1;
}

}  // namespace hyalite
