/// The promotion rules of semantics, "Types and promotion".
#include "python/promote.h"

#include <algorithm>
#include <string>

#include "hyalite/error.h"

namespace hyalite::python {
namespace {

constexpr Dtype signed_of[] = {Dtype::int8, Dtype::int16, Dtype::int32, Dtype::int64};

bool is_float8(Dtype t) { return t == Dtype::float8_e4m3fn || t == Dtype::float8_e5m2; }

[[noreturn]] void throw_no_join(Dtype a, Dtype b, const char* op) {
  const bool float8 = is_float8(a) || is_float8(b);
  const std::string left(name(a)), right(name(b));
  const std::string cast = float8 ? "cast float8 to a wider float first, as x.astype(hl.float32)"
                                  : "no integer dtype holds both; write x.astype(hl." +
                                        (a == Dtype::uint64 ? left : right) + ") or x.astype(hl.float64) on one side";
  throw DtypeMismatch(std::string(op) + "(): " + left + " and " + right + " have no common dtype; " + cast,
                      {{"op", std::string(op)}, {"left_dtype", left}, {"right_dtype", right}});
}

Dtype join_integers(Dtype a, Dtype b, const char* op) {
  if (info(a).is_signed == info(b).is_signed) return itemsize(a) >= itemsize(b) ? a : b;
  const Dtype with_sign = info(a).is_signed ? a : b, without = info(a).is_signed ? b : a;
  if (without == Dtype::uint64) throw_no_join(a, b, op);
  const std::size_t bytes = std::max(itemsize(with_sign), 2 * itemsize(without));
  for (const Dtype t : signed_of) {
    if (itemsize(t) == bytes) return t;
  }
  return Dtype::int64;
}

Dtype join_floats(Dtype a, Dtype b, const char* op) {
  if (is_float8(a) || is_float8(b)) throw_no_join(a, b, op);
  if (itemsize(a) == itemsize(b)) return Dtype::float32;  // float16 with bfloat16
  return itemsize(a) > itemsize(b) ? a : b;
}

}  // namespace

Dtype promote(Dtype a, Dtype b, const char* op) {
  if (a == b) return a;
  if (kind(a) < kind(b)) std::swap(a, b);
  if (kind(b) == Kind::boolean) return a;
  if (is_complex(a)) {
    if (is_float8(b)) throw_no_join(a, b, op);
    const bool wide = a == Dtype::complex128 || b == Dtype::complex128 || b == Dtype::float64;
    return wide ? Dtype::complex128 : Dtype::complex64;
  }
  if (is_floating(a)) return is_floating(b) ? join_floats(a, b, op) : is_float8(a) ? (throw_no_join(a, b, op), a) : a;
  return join_integers(a, b, op);
}

Dtype promote(std::span<const Dtype> dtypes, const char* op) {
  Kind highest = Kind::boolean;
  for (const Dtype t : dtypes) highest = std::max(highest, kind(t));
  Dtype r = Dtype::boolean;
  bool first = true;
  // Integers count for nothing beside a float, and floats give their precision to a complex.
  for (const Dtype t : dtypes) {
    const bool counts = kind(t) == highest || (highest == Kind::complex && is_floating(t));
    if (!counts) continue;
    r = first ? t : promote(r, t, op);
    first = false;
  }
  return r;
}

Dtype default_dtype(Kind k) {
  constexpr Dtype defaults[] = {Dtype::boolean, Dtype::int64, Dtype::float32, Dtype::complex64};
  return defaults[static_cast<int>(k)];
}

Dtype promote_weak(Dtype t, Kind scalar) {
  if (scalar <= kind(t)) return t;
  if (scalar == Kind::complex && is_floating(t)) return t == Dtype::float64 ? Dtype::complex128 : Dtype::complex64;
  return default_dtype(scalar);
}

bool fits(const Scalar& s, Dtype dtype) {
  if (s.kind != Kind::integer || kind(dtype) != Kind::integer) return true;
  const int bits = static_cast<int>(itemsize(dtype)) * 8;
  if (info(dtype).is_signed) {
    if (s.is_unsigned) return false;
    return bits == 64 || (s.integer >= -(std::int64_t{1} << (bits - 1)) && s.integer < (std::int64_t{1} << (bits - 1)));
  }
  if (!s.is_unsigned && s.integer < 0) return false;
  return bits == 64 || (!s.is_unsigned && s.integer < (std::int64_t{1} << bits));
}

}  // namespace hyalite::python
