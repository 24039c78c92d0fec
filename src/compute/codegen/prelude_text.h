/// The texts of the helper functions of generated kernels: one row an operation and set of dtypes.
///
/// In a text @F opens a function; for the row's dtype @D is its name, @T the type of a value, @V the unsigned type of
/// its width, @U the one it is computed in (32 bits or more), @W its width in bits. For floats, and the parts of
/// complex values, @R is the real type, @P its dtype's name, @V its bits' type, @bits and @value convert, @inf and @nan
/// are values, @f ends a literal, and @C(x, y) makes a complex value. A helper calls others by their full name,
/// hl_NAME_@D.
#pragma once

#include "ops/op.h"

namespace hyalite {

struct Helper {
  std::string_view name;
  DtypeSet dtypes;
  std::string_view text;
};

inline constexpr DtypeSet float_types = bit(Dtype::float32) | bit(Dtype::float64);
inline constexpr DtypeSet wide_complex = bit(Dtype::complex128);

inline constexpr Helper integer_helpers[] = {
    {"negative", integer_types, "@F @T hl_negative_@D(@T x) { return (@T)((@U)0 - (@U)x); }\n"},
    {"abs", signed_types, "@F @T hl_abs_@D(@T x) { return x < 0 ? (@T)((@U)0 - (@U)x) : x; }\n"},
    {"sign", signed_types, "@F @T hl_sign_@D(@T x) { return x < 0 ? (@T)-1 : (@T)(x > 0); }\n"},
    {"sign", unsigned_types, "@F @T hl_sign_@D(@T x) { return (@T)(x > 0); }\n"},
    {"maximum", integer_types, "@F @T hl_maximum_@D(@T a, @T b) { return b < a ? a : b; }\n"},
    {"minimum", integer_types, "@F @T hl_minimum_@D(@T a, @T b) { return a < b ? a : b; }\n"},
    {"floor_divide", signed_types, R"(
// Floors; by zero 0, and the least integer by -1 wraps.
@F @T hl_floor_divide_@D(@T x, @T y) {
  if (y == 0) return 0;
  if (y == -1) return (@T)((@U)0 - (@U)x);
  const @T q = x / y, r = x % y;
  return r != 0 && (r < 0) != (y < 0) ? (@T)(q - 1) : q;
}
)"},
    {"floor_divide", unsigned_types, "@F @T hl_floor_divide_@D(@T x, @T y) { return y == 0 ? (@T)0 : (@T)(x / y); }\n"},
    {"remainder", signed_types, R"(
// Takes the sign of y; modulo zero 0.
@F @T hl_remainder_@D(@T x, @T y) {
  if (y == 0 || y == -1) return 0;
  const @T r = x % y;
  return r != 0 && (r < 0) != (y < 0) ? (@T)(r + y) : r;
}
)"},
    {"remainder", unsigned_types, "@F @T hl_remainder_@D(@T x, @T y) { return y == 0 ? (@T)0 : (@T)(x % y); }\n"},
    {"power", integer_types, R"(
// By squaring, modulo 2^@W; the exponent is not negative.
@F @T hl_power_@D(@T x, @T y) {
  @U result = 1, square = (@U)x;
  for (@V e = (@V)y; e != 0; e >>= 1) {
    if (e & 1) result *= square;
    square *= square;
  }
  return (@T)result;
}
)"},
    {"from_float32", signed_types, R"(
// Towards zero, saturated; NaN gives 0.
@F @T hl_from_float32_@D(float x) {
  const float end = (float)((@V)1 << (@W - 1));
  if (x != x) return 0;
  return x >= end ? (@T)(((@V)1 << (@W - 1)) - 1) : x <= -end ? (@T)((@V)1 << (@W - 1)) : (@T)x;
}
)"},
    {"from_float64", signed_types, R"(
// Towards zero, saturated; NaN gives 0.
@F @T hl_from_float64_@D(double x) {
  const double end = (double)((@V)1 << (@W - 1));
  if (x != x) return 0;
  return x >= end ? (@T)(((@V)1 << (@W - 1)) - 1) : x <= -end ? (@T)((@V)1 << (@W - 1)) : (@T)x;
}
)"},
    {"from_float32", unsigned_types, R"(
// Towards zero, saturated; NaN gives 0.
@F @T hl_from_float32_@D(float x) {
  const float half_end = (float)((@V)1 << (@W - 1));
  return x >= 2 * half_end ? (@T)~(@V)0 : x > 0 ? (@T)x : (@T)0;
}
)"},
    {"from_float64", unsigned_types, R"(
// Towards zero, saturated; NaN gives 0.
@F @T hl_from_float64_@D(double x) {
  const double half_end = (double)((@V)1 << (@W - 1));
  return x >= 2 * half_end ? (@T)~(@V)0 : x > 0 ? (@T)x : (@T)0;
}
)"},
    {"sticky", bit(Dtype::int64), R"(
// A number of 53 bits that any shorter format rounds as this one.
@F @T hl_sticky_@D(@T x) {
  const @U top = (@U)x >> 53;
  if (top == 0 || top == 0x7ff) return x;
  return (@T)(((@U)x & ~(@U)0xfff) | (((@U)x & 0xfff) != 0 ? (@U)0x800 : 0));
}
)"},
    {"sticky", bit(Dtype::uint64), R"(
// A number of 53 bits that any shorter format rounds as this one.
@F @T hl_sticky_@D(@T x) {
  if (x >> 53 == 0) return x;
  return (x & ~(@U)0xfff) | ((x & 0xfff) != 0 ? (@U)0x800 : 0);
}
)"},
    {"shift_left", integer_types,
     "@F @T hl_shift_left_@D(@T x, @T y) { return (@V)y < @W ? (@T)((@U)x << y) : (@T)0; }\n"},
    {"shift_right", signed_types,
     "@F @T hl_shift_right_@D(@T x, @T y) { return (@T)(x >> ((@V)y < @W ? y : (@T)(@W - 1))); }\n"},
    {"shift_right", unsigned_types, "@F @T hl_shift_right_@D(@T x, @T y) { return y < @W ? (@T)(x >> y) : (@T)0; }\n"},
};

inline constexpr Helper float_helpers[] = {
    {"negative", float_types, R"(
// By the sign bit, so that a NaN changes its sign too.
@F @T hl_negative_@D(@T x) { return @value(@bits(x) ^ ((@V)1 << (@W - 1))); }
)"},
    {"sign", float_types, "@F @T hl_sign_@D(@T x) { return x > 0 ? 1.0@f : x < 0 ? -1.0@f : x; }\n"},
    {"maximum", float_types, R"(
// Equal values differ only as zeros: and keeps +0. NaN wins.
@F @T hl_maximum_@D(@T a, @T b) {
  return a == b ? @value(@bits(a) & @bits(b)) : b < a || isnan(a) ? a : b;
}
)"},
    {"minimum", float_types, R"(
// Equal values differ only as zeros: or keeps -0. NaN wins.
@F @T hl_minimum_@D(@T a, @T b) {
  return a == b ? @value(@bits(a) | @bits(b)) : a < b || isnan(a) ? a : b;
}
)"},
    {"floor_divide", float_types, R"(
// The floor of the exact quotient, rounded once: the rounded quotient is too large by 1 exactly if it is an integer that
// x falls short of, and far out by one place if it passed a middle that the floor, a tie, is rounded down from.
@F @T hl_floor_divide_@D(@T x, @T y) {
  const @T quotient = x / y, whole = floor(quotient), rest = fma(-whole, y, x);
  if (fabs(whole) > @exact) {
    const @T below = @value(whole > 0 ? @bits(whole) - 1 : @bits(whole) + 1), gap = (whole - below) * 0.5@f;
    const @T passed = fma(gap, y, rest), beyond = fma(gap - 1, y, rest);
    const bool between = y > 0 ? passed > 0 && beyond < 0 : passed < 0 && beyond > 0;
    return between && (@bits(whole) & 1) ? below : whole;
  }
  return whole == quotient && ((rest < 0 && y > 0) || (rest > 0 && y < 0)) ? whole - 1 : whole;
}
)"},
    {"remainder", float_types, R"(
// Exact while the quotient is a small integer, else from fmod; the sign of y, also for zero.
@F @T hl_remainder_@D(@T x, @T y) {
  const @T whole = hl_floor_divide_@D(x, y), rest = fma(-whole, y, x);
  if (fabs(whole) < @exact && isfinite(x) && isfinite(y)) return rest == 0 ? copysign((@T)0, y) : rest;
  const @T r = fmod(x, y);
  if (r == 0) return copysign((@T)0, y);
  return (r < 0) != (y < 0) ? r + y : r;
}
)"},
    {"odd", bit(Dtype::float64), R"(
// To float32, where a number between two takes the odd one, so that it is not rounded yet.
@F float hl_odd_float64(double x) {
  const float y = (float)x;
  const double back = (double)y;
  if (back == x || x != x) return y;
#ifdef __OPENCL_VERSION__
  return as_float((as_uint(y) - (fabs(back) > fabs(x) ? 1u : 0u)) | 1u);
#else
  return __uint_as_float((__float_as_uint(y) - (fabs(back) > fabs(x) ? 1u : 0u)) | 1u);
#endif
}
)"},
    {"decode", bit(Dtype::float16), R"(
@F float hl_decode_float16(@V x) {
  const @u32 magnitude = x & 0x7fffu, sign = (@u32)(x & 0x8000u) << 16;
  if (magnitude < 0x400u) return @value(@bits((float)magnitude * 0x1p-24f) | sign);
  const @u32 normal = (magnitude << 13) + 0x38000000u;
  // Infinity and NaN keep an exponent of ones; a NaN becomes quiet.
  return @value((normal + (magnitude < 0x7c00u ? 0u : 0x38000000u)) | (magnitude > 0x7c00u ? 0x400000u : 0u) | sign);
}
)"},
    {"encode", bit(Dtype::float16), R"(
// Rounded once, ties to even; below the normal range the sum with 1/2 rounds at the last subnormal bit.
@F @V hl_encode_float16(float x) {
  const @u32 magnitude = @bits(x) & 0x7fffffffu, sign = (@bits(x) >> 16) & 0x8000u;
  if (magnitude > 0x7f800000u) return (@V)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude < 0x38800000u) return (@V)(sign | (@bits(@value(magnitude) + 0.5f) - 0x3f000000u));
  const @u32 rounded = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  return (@V)(sign | (rounded < 0x7c00u ? rounded : 0x7c00u));
}
)"},
    {"decode", bit(Dtype::bfloat16), "@F float hl_decode_bfloat16(@V x) { return @value((@u32)x << 16); }\n"},
    {"encode", bit(Dtype::bfloat16), R"(
// Rounded once, ties to even.
@F @V hl_encode_bfloat16(float x) {
  const @u32 b = @bits(x);
  if ((b & 0x7fffffffu) > 0x7f800000u) return (@V)((b >> 16) | 0x40u);
  return (@V)((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
}
)"},
};

inline constexpr Helper complex_helpers[] = {
    {"add", complex_types, "@F @T hl_add_@D(@T a, @T b) { return @C(a.x + b.x, a.y + b.y); }\n"},
    {"subtract", complex_types, "@F @T hl_subtract_@D(@T a, @T b) { return @C(a.x - b.x, a.y - b.y); }\n"},
    {"negative", complex_types,
     "@F @T hl_negative_@D(@T z) { return @C(hl_negative_@P(z.x), hl_negative_@P(z.y)); }\n"},
    {"conj", complex_types, "@F @T hl_conj_@D(@T z) { return @C(z.x, hl_negative_@P(z.y)); }\n"},
    {"real", complex_types, "@F @R hl_real_@D(@T z) { return z.x; }\n"},
    {"imaginary", complex_types, "@F @T hl_imaginary_@D(@T z) { return @C(0, z.y); }\n"},
    {"add_real", complex_types, "@F @T hl_add_real_@D(@T z, @R r) { return @C(z.x + r, z.y); }\n"},
    {"subtract_real", complex_types, "@F @T hl_subtract_real_@D(@T z, @R r) { return @C(z.x - r, z.y); }\n"},
    {"real_subtract", complex_types,
     "@F @T hl_real_subtract_@D(@R r, @T z) { return @C(r - z.x, hl_negative_@P(z.y)); }\n"},
    {"multiply_real", complex_types, "@F @T hl_multiply_real_@D(@T z, @R r) { return @C(z.x * r, z.y * r); }\n"},
    {"real_divide", complex_types, "@F @T hl_real_divide_@D(@R r, @T z) { return hl_divide_@D(@C(r, 0), z); }\n"},
    {"divide_real", complex_types, "@F @T hl_divide_real_@D(@T z, @R r) { return @C(z.x / r, z.y / r); }\n"},
    {"equal", complex_types, "@F bool hl_equal_@D(@T a, @T b) { return a.x == b.x && a.y == b.y; }\n"},
    {"not_equal", complex_types, "@F bool hl_not_equal_@D(@T a, @T b) { return a.x != b.x || a.y != b.y; }\n"},
    {"isnan", complex_types, "@F bool hl_isnan_@D(@T z) { return isnan(z.x) || isnan(z.y); }\n"},
    {"isinf", complex_types, "@F bool hl_isinf_@D(@T z) { return isinf(z.x) || isinf(z.y); }\n"},
    {"isfinite", complex_types, "@F bool hl_isfinite_@D(@T z) { return isfinite(z.x) && isfinite(z.y); }\n"},
    {"round", complex_types, "@F @T hl_round_@D(@T z) { return @C(rint(z.x), rint(z.y)); }\n"},
    {"abs", wide_complex, "@F double hl_abs_@D(@T z) { return hypot(z.x, z.y); }\n"},
    {"abs", complex_types, R"(
// In double, where the squares are exact.
@F float hl_abs_@D(@T z) {
  if (isinf(z.x) || isinf(z.y)) return @inf;
  return (float)sqrt((double)z.x * z.x + (double)z.y * z.y);
}
)"},
    {"unit", complex_types, R"(
// An infinity as 1, anything else as 0, with its sign: a direction for Annex G.
@F @R hl_unit_@D(@R x) { return copysign(isinf(x) ? 1.0@f : 0.0@f, x); }
)"},
    {"zero_of_nan", complex_types, R"(
@F @R hl_zero_of_nan_@D(@R x) { return isnan(x) ? copysign(0.0@f, x) : x; }
)"},
    {"multiply", complex_types, R"(
// C Annex G, section 5.1: an infinite factor gives an infinite product.
@F @T hl_multiply_@D(@T a, @T b) {
  const @R ac = a.x * b.x, bd = a.y * b.y, ad = a.x * b.y, bc = a.y * b.x;
  const @R x = ac - bd, y = ad + bc;
  if (!(isnan(x) && isnan(y))) return @C(x, y);
  bool again = false;
  if (isinf(a.x) || isinf(a.y)) {
    a = @C(hl_unit_@D(a.x), hl_unit_@D(a.y));
    b = @C(hl_zero_of_nan_@D(b.x), hl_zero_of_nan_@D(b.y));
    again = true;
  }
  if (isinf(b.x) || isinf(b.y)) {
    b = @C(hl_unit_@D(b.x), hl_unit_@D(b.y));
    a = @C(hl_zero_of_nan_@D(a.x), hl_zero_of_nan_@D(a.y));
    again = true;
  }
  if (!again && (isinf(ac) || isinf(bd) || isinf(ad) || isinf(bc))) {
    a = @C(hl_zero_of_nan_@D(a.x), hl_zero_of_nan_@D(a.y));
    b = @C(hl_zero_of_nan_@D(b.x), hl_zero_of_nan_@D(b.y));
    again = true;
  }
  if (!again) return @C(x, y);
  return @C(@inf * (a.x * b.x - a.y * b.y), @inf * (a.x * b.y + a.y * b.x));
}
)"},
    {"scaled", wide_complex, R"(
// z with its exponent taken away, which goes to *exponent.
@F double2 hl_scaled_@D(double2 z, int* exponent) {
  const double big = fmax(fabs(z.x), fabs(z.y));
  *exponent = isfinite(big) && big > 0 ? ilogb(big) : 0;
  return @C(ldexp(z.x, -*exponent), ldexp(z.y, -*exponent));
}
)"},
    {"divide", wide_complex, R"(
// C Annex G, section 5.1, with both operands scaled. Beside an infinity the finite part of a is as good as 0, and b is
// not scaled, so that no part of it becomes 0.
@F double2 hl_divide_@D(double2 a, double2 b) {
  if ((isinf(a.x) || isinf(a.y)) && isfinite(b.x) && isfinite(b.y) && (b.x != 0 || b.y != 0)) {
    a = @C(isfinite(a.x) ? 0.0 : a.x, isfinite(a.y) ? 0.0 : a.y);
    const double x = a.x * b.x + a.y * b.y, y = a.y * b.x - a.x * b.y;
    if (!(isnan(x) && isnan(y))) return @C(x, y);
    a = @C(hl_unit_@D(a.x), hl_unit_@D(a.y));
    return @C(@inf * (a.x * b.x + a.y * b.y), @inf * (a.y * b.x - a.x * b.y));
  }
  int up, down;
  a = hl_scaled_@D(a, &up);
  b = hl_scaled_@D(b, &down);
  const double d = b.x * b.x + b.y * b.y;
  const double x = ldexp((a.x * b.x + a.y * b.y) / d, up - down), y = ldexp((a.y * b.x - a.x * b.y) / d, up - down);
  if (!(isnan(x) && isnan(y))) return @C(x, y);
  if (d == 0 && (!isnan(a.x) || !isnan(a.y))) {
    const double infinity = copysign(@inf, b.x);
    return @C(infinity * a.x, infinity * a.y);
  }
  if ((isinf(b.x) || isinf(b.y)) && isfinite(a.x) && isfinite(a.y)) {
    b = @C(hl_unit_@D(b.x), hl_unit_@D(b.y));
    return @C(0 * (a.x * b.x + a.y * b.y), 0 * (a.y * b.x - a.x * b.y));
  }
  return @C(x, y);
}
)"},
    {"divide", complex_types, R"(
// In double, where the products are exact and nothing overflows.
@F float2 hl_divide_@D(float2 a, float2 b) {
  const double ax = a.x, ay = a.y, bx = b.x, by = b.y, d = bx * bx + by * by;
  const double x = (ax * bx + ay * by) / d, y = (ay * bx - ax * by) / d;
  if (!(isnan(x) && isnan(y))) return @C((float)x, (float)y);
  return hl_narrow_complex64(hl_divide_complex128(hl_widen_complex64(a), hl_widen_complex64(b)));
}
)"},
    {"widen", complex_types, "@F double2 hl_widen_@D(float2 z) { return @C2((double)z.x, (double)z.y); }\n"},
    {"narrow", complex_types, "@F float2 hl_narrow_@D(double2 z) { return @C((float)z.x, (float)z.y); }\n"},
    {"sqrt", wide_complex, R"(
// C99 Annex G, section 6.4.2; scaled where the sum below would overflow or lose bits.
@F double2 hl_sqrt_@D(double2 z) {
  double x = z.x, y = z.y;
  if (x == 0 && y == 0) return @C(0.0, y);
  if (isinf(y)) return @C(@inf, y);
  if (isinf(x)) {
    if (x > 0) return @C(x, isnan(y) ? y : copysign(0.0, y));
    return @C(isnan(y) ? y : 0.0, copysign(@inf, y));
  }
  if (isnan(x) || isnan(y)) return @C(@nan, @nan);
  const double big = fmax(fabs(x), fabs(y));
  const double in = big > 0x1p1000 ? 0x1p-4 : big < 0x1p-900 ? 0x1p120 : 1.0;
  const double out = big > 0x1p1000 ? 0x1p2 : big < 0x1p-900 ? 0x1p-60 : 1.0;
  x *= in;
  y *= in;
  const double t = sqrt(0.5 * (fabs(x) + hypot(x, y))), s = fabs(y) / (2 * t);
  return x >= 0 ? @C(t * out, copysign(s * out, y)) : @C(s * out, copysign(t * out, y));
}
)"},
    {"exp", wide_complex, R"(
// C99 Annex G, section 6.3.1; exp(x) in two halves where it overflows and its product may not.
@F double2 hl_exp_@D(double2 z) {
  const double x = z.x, y = z.y;
  if (y == 0) return @C(exp(x), y);
  if (!isfinite(y)) {
    if (isinf(x)) return x > 0 ? @C(x, @nan) : @C(0.0, copysign(0.0, y));
    return @C(@nan, @nan);
  }
  if (x > 709.0) {
    const double half_way = exp(0.5 * x);
    return @C(half_way * cos(y) * half_way, half_way * sin(y) * half_way);
  }
  const double e = exp(x);
  return @C(e * cos(y), e * sin(y));
}
)"},
    {"expm1", wide_complex, R"(
// expm1(x) cos y - 2 sin^2(y / 2) + i exp(x) sin y, where exp(z) is near 1.
@F double2 hl_expm1_@D(double2 z) {
  const double x = z.x, y = z.y;
  if (y == 0) return @C(x == 0 ? 0.0 : expm1(x), y);
  if (!(fabs(x) < 1) || !isfinite(y)) {
    const double2 e = hl_exp_@D(z);
    return @C(e.x - 1.0, e.y);
  }
  const double s = sin(0.5 * y);
  return @C(expm1(x) * cos(y) - 2 * s * s, exp(x) * sin(y));
}
)"},
    {"log", wide_complex, R"(
// C99 Annex G, section 6.3.2; near the unit circle from |z|^2 - 1.
@F double2 hl_log_@D(double2 z) {
  const double angle = atan2(z.y, z.x);
  if (isinf(z.x) || isinf(z.y)) return @C(@inf, angle);
  if (isnan(z.x) || isnan(z.y)) return @C(@nan, @nan);
  const double big = fmax(fabs(z.x), fabs(z.y)), small = fmin(fabs(z.x), fabs(z.y));
  if (big > 0.5 && big < 2.0) return @C(0.5 * log1p(fma(big - 1, big + 1, small * small)), angle);
  if (big > 0x1p1000) return @C(log(hypot(0.5 * big, 0.5 * small)) + 0x1.62e42fefa39efp-1, angle);
  if (big < 0x1p-900) return @C(log(hypot(0x1p120 * big, 0x1p120 * small)) - 0x1.4cb5ecf0a9650p+6, angle);
  return @C(log(hypot(big, small)), angle);
}
)"},
    {"log1p", wide_complex, R"(
// log(1 + z); while z is small from |1 + z|^2 - 1 = x (2 + x) + y^2.
@F double2 hl_log1p_@D(double2 z) {
  const double x = z.x, y = z.y;
  if (y == 0 && x > -1) return @C(log1p(x), y);
  if (fabs(x) < 0.5 && fabs(y) < 0.5) return @C(0.5 * log1p(fma(x, 2 + x, y * y)), atan2(y, 1 + x));
  return hl_log_@D(@C(1 + x, y));
}
)"},
    {"sinh", wide_complex, R"(
// C99 Annex G, section 6.2.5; exp(|x|) in two halves where it overflows and its product may not.
@F double2 hl_sinh_@D(double2 z) {
  const double x = z.x, y = z.y;
  if (y == 0) return @C(sinh(x), y);
  if (!isfinite(y)) return @C(x == 0 || isinf(x) ? x : @nan, @nan);
  if (fabs(x) > 709.0) {
    const double half_way = exp(0.5 * fabs(x));
    return @C(copysign(0.5 * half_way, x) * cos(y) * half_way, 0.5 * half_way * sin(y) * half_way);
  }
  return @C(sinh(x) * cos(y), cosh(x) * sin(y));
}
)"},
    {"cosh", wide_complex, R"(
// C99 Annex G, section 6.2.4; exp(|x|) in two halves where it overflows and its product may not.
@F double2 hl_cosh_@D(double2 z) {
  const double x = z.x, y = z.y;
  if (y == 0) return @C(cosh(x), copysign(1.0, x) * y);
  if (!isfinite(y)) return @C(isinf(x) ? @inf : @nan, x == 0 ? x * copysign(1.0, y) : @nan);
  if (fabs(x) > 709.0) {
    const double half_way = exp(0.5 * fabs(x));
    return @C(0.5 * half_way * cos(y) * half_way, copysign(0.5 * half_way, x) * sin(y) * half_way);
  }
  return @C(cosh(x) * cos(y), sinh(x) * sin(y));
}
)"},
    {"sin", wide_complex, R"(
// -i sinh(i z).
@F double2 hl_sin_@D(double2 z) {
  const double2 w = hl_sinh_@D(@C(hl_negative_float64(z.y), z.x));
  return @C(w.y, hl_negative_float64(w.x));
}
)"},
    {"cos", wide_complex, R"(
// cosh(i z).
@F double2 hl_cos_@D(double2 z) { return hl_cosh_@D(@C(hl_negative_float64(z.y), z.x)); }
)"},
    {"tanh", wide_complex, R"(
// As the array API standard lists it: (sinh x cosh x + i sin y cos y) / (sinh^2 x + cos^2 y).
@F double2 hl_tanh_@D(double2 z) {
  const double x = z.x, y = z.y;
  if (isinf(x)) return @C(copysign(1.0, x), copysign(0.0, y));
  if (y == 0) return @C(tanh(x), y);
  if (!isfinite(y)) return @C(x == 0 ? x : @nan, @nan);
  const double s = sin(y), c = cos(y);
  if (fabs(x) > 22.0) return @C(copysign(1.0, x), 4 * s * c * exp(-2 * fabs(x)));
  const double sh = sinh(x), d = sh * sh + c * c;
  return @C(sh * cosh(x) / d, s * c / d);
}
)"},
    {"sign", wide_complex, R"(
// z / |z|, also where |z| overflows; an infinity has the direction of its infinite parts.
@F double2 hl_sign_@D(double2 z) {
  if (z.x == 0 && z.y == 0) return @C(0.0, 0.0);
  if (isnan(z.x) || isnan(z.y)) return @C(@nan, @nan);
  if (isinf(z.x) || isinf(z.y)) z = @C(hl_unit_@D(z.x), hl_unit_@D(z.y));
  int exponent;
  z = hl_scaled_@D(z, &exponent);
  const double length = sqrt(z.x * z.x + z.y * z.y);
  return @C(z.x / length, z.y / length);
}
)"},
    {"power", wide_complex, R"(
// Small whole exponents by products, exact where the result is; else exp(b log a).
@F double2 hl_power_@D(double2 a, double2 b) {
  if (b.x == 0 && b.y == 0) return @C(1.0, 0.0);
  if (a.x == 0 && a.y == 0 && b.y == 0) return b.x > 0 ? @C(0.0, 0.0) : @C(isnan(b.x) ? @nan : @inf, 0.0);
  if (b.y == 0 && b.x == trunc(b.x) && fabs(b.x) <= 8) {
    double2 r = @C(1.0, 0.0);
    for (int i = 0; i < (int)fabs(b.x); ++i) r = hl_multiply_@D(r, a);
    return b.x < 0 ? hl_divide_@D(@C(1.0, 0.0), r) : r;
  }
  return hl_exp_@D(hl_multiply_@D(b, hl_log_@D(a)));
}
)"},
};

/// complex64 functions of one and two operands, where only complex128 has a row: in double, rounded once.
inline constexpr std::string_view narrowed_unary =
    "@F float2 hl_@N_complex64(float2 z) { return hl_narrow_complex64(hl_@N_complex128(hl_widen_complex64(z))); }\n";
inline constexpr std::string_view narrowed_binary = R"(
@F float2 hl_@N_complex64(float2 a, float2 b) {
  return hl_narrow_complex64(hl_@N_complex128(hl_widen_complex64(a), hl_widen_complex64(b)));
}
)";

}  // namespace hyalite
