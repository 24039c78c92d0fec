/// The 16- and 8-bit float formats in plain C++: encode and decode, rounding once; the reference for every device.
#pragma once

#include <cstdint>
#include <type_traits>

#include "hyalite/dtype.h"

// Forced inline: these are used in files compiled once per instruction set, from which no shared symbol may leave.
#define HYALITE_INLINE [[gnu::always_inline]] inline constexpr

namespace hyalite {

/// A binary format with a sign bit, `exponent_bits` and `mantissa_bits`. Without infinity, the pattern of ones is NaN.
struct FloatFormat {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;
};

/// The format of a real floating dtype.
template <Dtype D>
inline constexpr FloatFormat float_format = {};
template <>
inline constexpr FloatFormat float_format<Dtype::float16> = {5, 10, true};
template <>
inline constexpr FloatFormat float_format<Dtype::bfloat16> = {8, 7, true};
template <>
inline constexpr FloatFormat float_format<Dtype::float32> = {8, 23, true};
template <>
inline constexpr FloatFormat float_format<Dtype::float64> = {11, 52, true};
template <>
inline constexpr FloatFormat float_format<Dtype::float8_e4m3fn> = {4, 3, false};
template <>
inline constexpr FloatFormat float_format<Dtype::float8_e5m2> = {5, 2, true};

/// float16, bfloat16 or float8: held as bits, because C++ has no type for it.
constexpr bool is_small_float(Dtype t) {
  return t == Dtype::float16 || t == Dtype::bfloat16 || t == Dtype::float8_e4m3fn || t == Dtype::float8_e5m2;
}

/// The unsigned integer that holds the bits of a small float.
template <Dtype D>
using FloatBits = std::conditional_t<itemsize(D) == 1, std::uint8_t, std::uint16_t>;

/// What the integer code needs to know of a format; Word holds its bit patterns without the sign.
template <Dtype D, class Word>
struct FloatLayout {
  static constexpr int mantissa = float_format<D>.mantissa_bits;
  static constexpr int bias = (1 << (float_format<D>.exponent_bits - 1)) - 1;
  static constexpr int sign_shift = float_format<D>.exponent_bits + mantissa;
  static constexpr Word one = 1;
  static constexpr Word fraction = (one << mantissa) - 1;
  static constexpr Word ones = (one << sign_shift) - 1;
  /// Where the finite numbers end: infinity, or NaN in a format without it.
  static constexpr Word overflow = float_format<D>.has_infinity ? ones - fraction : ones;
  /// The NaN to which a payload is added; without infinity there is only one.
  static constexpr Word quiet_nan = float_format<D>.has_infinity ? ones - (fraction >> 1) : ones;
};

/// The small float nearest to `x`, which is a float or a double: ties to even, rounded once.
/// Subnormals and the sign of zero are kept. Overflow gives infinity, or NaN in float8_e4m3fn. NaN stays NaN: quiet,
/// with its sign and the leading bits of its payload.
template <Dtype D, class Float>
HYALITE_INLINE FloatBits<D> encode_float(Float x) {
  static_assert(is_small_float(D) && std::is_floating_point_v<Float>);
  using Word = std::conditional_t<sizeof(Float) == 4, std::uint32_t, std::uint64_t>;
  using Int = std::make_signed_t<Word>;
  using From = FloatLayout<sizeof(Float) == 4 ? Dtype::float32 : Dtype::float64, Word>;
  using To = FloatLayout<D, Word>;
  constexpr Int dropped = From::mantissa - To::mantissa;
  const Word bits = __builtin_bit_cast(Word, x);
  const Word magnitude = bits & From::ones;
  const Int exponent = static_cast<Int>(magnitude >> From::mantissa);
  const Word hidden = exponent != 0 ? From::one << From::mantissa : 0;
  const Int biased = (exponent != 0 ? exponent : 1) - (From::bias - To::bias);
  // Below the normal range more bits are dropped; beyond mantissa + 2 of them the result is zero all the same.
  const Int wanted = biased < 1 ? dropped + 1 - biased : dropped;
  const Int shift = wanted < From::mantissa + 2 ? wanted : From::mantissa + 2;
  const Word significand = (magnitude & From::fraction) | hidden;
  const Word even = (significand >> shift) & 1;
  const Word rounded = (significand + ((From::one << (shift - 1)) - 1 + even)) >> shift;
  // The hidden bit of `rounded`, or its carry, adds one to the exponent by itself.
  const Word finite = rounded + (static_cast<Word>(biased < 1 ? 0 : biased - 1) << To::mantissa);
  const Word number = finite < To::overflow ? finite : To::overflow;
  const Word nan = To::quiet_nan | ((magnitude >> dropped) & To::fraction);
  const Word result = magnitude > From::overflow ? nan : number;
  return static_cast<FloatBits<D>>(result | ((bits >> From::sign_shift) << To::sign_shift));
}

/// The value of a small float, exactly; Float is float or double. NaN stays NaN: quiet, with its sign and payload.
template <Dtype D, class Float = double>
HYALITE_INLINE Float decode_float(FloatBits<D> small) {
  static_assert(is_small_float(D) && std::is_floating_point_v<Float>);
  using Word = std::conditional_t<sizeof(Float) == 4, std::uint32_t, std::uint64_t>;
  using From = FloatLayout<D, Word>;
  using To = FloatLayout<sizeof(Float) == 4 ? Dtype::float32 : Dtype::float64, Word>;
  constexpr int added = To::mantissa - From::mantissa;
  const Word magnitude = small & From::ones;
  const Word sign = static_cast<Word>(small >> From::sign_shift) << To::sign_shift;
  const Word normal = (magnitude << added) + (static_cast<Word>(To::bias - From::bias) << To::mantissa);
  const bool is_nan = float_format<D>.has_infinity ? magnitude > From::overflow : magnitude == From::ones;
  const Word special = is_nan ? To::quiet_nan | ((magnitude << added) & To::fraction) : To::overflow;
  Word result = is_nan || (float_format<D>.has_infinity && magnitude == From::overflow) ? special : normal;
  if constexpr (To::bias != From::bias) {
    // An exact product of two normal numbers: small integer times a power of two.
    constexpr Float unit =
        __builtin_bit_cast(Float, static_cast<Word>(To::bias + 1 - From::bias - From::mantissa) << To::mantissa);
    const Word subnormal = __builtin_bit_cast(Word, static_cast<Float>(static_cast<std::int32_t>(magnitude)) * unit);
    result = magnitude <= From::fraction ? subnormal : result;
  }
  return __builtin_bit_cast(Float, result | sign);
}

/// `x` as a double that rounds to any format of at most 41 bits as `x` itself does: low bits are folded into the last
/// one kept (round to odd; S. Boldo and G. Melquiond, "Emulation of a FMA and correctly rounded sums", 2008).
HYALITE_INLINE double double_rounded_to_odd(std::int64_t x) {
  const bool fits = -(std::int64_t{1} << 53) <= x && x <= std::int64_t{1} << 53;
  const std::int64_t odd = (x & ~std::int64_t{0x7FF}) | ((x & 0x7FF) != 0 ? 0x800 : 0);
  return static_cast<double>(fits ? x : odd);
}
HYALITE_INLINE double double_rounded_to_odd(std::uint64_t x) {
  const std::uint64_t odd = (x & ~std::uint64_t{0x7FF}) | ((x & 0x7FF) != 0 ? 0x800 : 0);
  return static_cast<double>(x <= std::uint64_t{1} << 53 ? x : odd);
}

/// The small float nearest to an integer: ties to even, rounded once from all 64 bits.
template <Dtype D, class Integer>
HYALITE_INLINE FloatBits<D> encode_integer(Integer x) {
  using Wide = std::conditional_t<std::is_signed_v<Integer>, std::int64_t, std::uint64_t>;
  return encode_float<D>(double_rounded_to_odd(static_cast<Wide>(x)));
}

}  // namespace hyalite
