/// Scalar conversions around the reduction kernels.
#include "compute/cpu/reduce_convert.h"

#include <bit>
#include <cassert>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <type_traits>

namespace hyalite {
namespace {

using std::int64_t;
using std::uint32_t;
using std::uint64_t;

struct Half {
  std::uint16_t bits;
};
struct Brain {
  std::uint16_t bits;
};
template <class T>
constexpr bool is_16_bit_float = std::is_same_v<T, Half> || std::is_same_v<T, Brain>;

/// Any byte but 0 is True.
struct Truth {
  std::uint8_t bits;
  operator std::uint8_t() const { return bits != 0; }
};

float widen(Brain x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }

float widen(Half x) {
  const uint32_t magnitude = x.bits & 0x7fffu, sign = (x.bits & 0x8000u) << 16;
  if (magnitude >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(scaled));
}

/// To float32 by truncation with a sticky last bit: a later rounding to at most 22 bits is then as if made directly.
float round_to_odd(double x) {
  const float f = static_cast<float>(x);
  const double back = f;
  uint32_t bits = std::bit_cast<uint32_t>(f);
  if (back == x || x != x || (bits & 1) != 0) return f;
  bits += std::fabs(back) > std::fabs(x) ? uint32_t(-1) : 1u;
  return std::bit_cast<float>(bits);
}

/// Keeps the upper bits of an encoding, ties to even; a carry runs into the exponent as it should.
uint32_t drop_bits(uint32_t bits, int count) {
  const uint32_t half = (1u << (count - 1)) - 1;
  return (bits + half + (bits >> count & 1)) >> count;
}

Brain to_brain(float x) {
  return {static_cast<std::uint16_t>(x != x ? 0x7fc0u : drop_bits(std::bit_cast<uint32_t>(x), 16))};
}

Half to_half(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {0x7e00};
  if (magnitude >= 0x47800000u) return {static_cast<std::uint16_t>(sign | 0x7c00u)};  // 65536 and above
  if (magnitude >= 0x38800000u) return {static_cast<std::uint16_t>(sign | drop_bits(magnitude - 0x38000000u, 13))};
  // Subnormal: adding 0.5 puts the unit of the last place at 2^-24, so the addition itself rounds.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
  return {static_cast<std::uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5f)))};
}

template <class To, class From>
To convert(From x) {
  if constexpr (is_16_bit_float<From>)
    return convert<To>(widen(x));
  else if constexpr (std::is_same_v<To, Half>)
    return to_half(std::is_same_v<From, double> ? round_to_odd(x) : x);
  else if constexpr (std::is_same_v<To, Brain>)
    return to_brain(std::is_same_v<From, double> ? round_to_odd(x) : x);
  else
    return static_cast<To>(x);
}

template <class From, class To>
void convert_all(const void* in, int64_t count, void* out) {
  const From* x = static_cast<const From*>(in);
  To* y = static_cast<To*>(out);
  for (int64_t i = 0; i < count; ++i) y[i] = convert<To>(x[i]);
}

using C64 = std::complex<float>;
using C128 = std::complex<double>;

void nonzero(const void* in, int64_t count, void* out) {
  const C128* x = static_cast<const C128*>(in);
  for (int64_t i = 0; i < count; ++i) static_cast<bool*>(out)[i] = x[i].real() != 0 || x[i].imag() != 0;
}

template <class From>
ConvertFn convert_from(Dtype to) {
  if (to == Dtype::float64) return convert_all<From, double>;
  if constexpr (std::is_integral_v<From> || std::is_same_v<From, Truth>)
    return convert_all<From, int64_t>;
  else
    return convert_all<From, float>;
}

template <class T>
T canonical(T x) {
  if constexpr (is_16_bit_float<T>)
    return x;  // their encoders make only the canonical one
  else
    return x != x ? std::numeric_limits<T>::quiet_NaN() : x;
}

template <class Acc, class To>
void fold_real(const void* values, int64_t count, double divisor, uint64_t, void* out, int64_t stride) {
  for (int64_t i = 0; i < count; ++i) {
    Acc x;
    std::memcpy(&x, static_cast<const char*>(values) + i * static_cast<int64_t>(sizeof x), sizeof x);
    To y;
    if constexpr (std::is_integral_v<Acc>)
      y = static_cast<To>(x);
    else
      y = canonical(divisor == 1 ? convert<To>(x) : convert<To>(static_cast<double>(x) / divisor));
    std::memcpy(static_cast<char*>(out) + i * stride, &y, sizeof y);
  }
}

template <class To>
void fold_complex(const void* values, int64_t count, double, uint64_t, void* out, int64_t stride) {
  for (int64_t i = 0; i < count; ++i) {
    const double* x = static_cast<const double*>(values) + 2 * i;
    const To y[2] = {canonical(convert<To>(x[0])), canonical(convert<To>(x[1]))};
    std::memcpy(static_cast<char*>(out) + i * stride, y, sizeof y);
  }
}

template <class Acc>
FinishFn fold_to(Dtype result) {
  if constexpr (std::is_integral_v<Acc>) {
    switch (itemsize(result)) {
      case 1:
        return fold_real<Acc, std::uint8_t>;
      case 2:
        return fold_real<Acc, std::uint16_t>;
      case 4:
        return fold_real<Acc, uint32_t>;
      default:
        return fold_real<Acc, uint64_t>;
    }
  } else {
    switch (result) {
      case Dtype::float16:
        return fold_real<Acc, Half>;
      case Dtype::bfloat16:
        return fold_real<Acc, Brain>;
      case Dtype::float32:
        return fold_real<Acc, float>;
      default:
        return fold_real<Acc, double>;
    }
  }
}

template <class Acc, class To>
void extreme(const void* values, int64_t count, double, uint64_t bits, void* out, int64_t stride) {
  using Bits = std::conditional_t<
      sizeof(Acc) == 1, std::uint8_t,
      std::conditional_t<sizeof(Acc) == 2, std::uint16_t, std::conditional_t<sizeof(Acc) == 4, uint32_t, uint64_t>>>;
  for (int64_t i = 0; i < count; ++i) {
    Bits b;
    std::memcpy(&b, static_cast<const char*>(values) + i * static_cast<int64_t>(sizeof b), sizeof b);
    To y;
    if constexpr (std::is_integral_v<Acc>)
      y = static_cast<To>(b ^ static_cast<Bits>(bits));
    else
      y = canonical(convert<To>(std::bit_cast<Acc>(static_cast<Bits>(b ^ static_cast<Bits>(bits)))));
    std::memcpy(static_cast<char*>(out) + i * stride, &y, sizeof y);
  }
}

template <class T, bool Inverted>
void flag(const void* values, int64_t count, double, uint64_t, void* out, int64_t stride) {
  for (int64_t i = 0; i < count; ++i) {
    T x;
    std::memcpy(&x, static_cast<const char*>(values) + i * static_cast<int64_t>(sizeof x), sizeof x);
    static_cast<char*>(out)[i * stride] = (x != 0) != Inverted;
  }
}

template <bool Inverted>
FinishFn flag_of(int size) {
  return size == 1   ? flag<std::uint8_t, Inverted>
         : size == 2 ? flag<std::uint16_t, Inverted>
         : size == 4 ? flag<uint32_t, Inverted>
                     : flag<uint64_t, Inverted>;
}

template <class T>
void store(void* out, T x) {
  std::memcpy(out, &x, sizeof x);
}

}  // namespace

ConvertFn convert_fn(Dtype from, Dtype to) {
  switch (from) {
    case Dtype::boolean:
      return convert_from<Truth>(to);
    case Dtype::uint8:
      return convert_from<std::uint8_t>(to);
    case Dtype::int8:
      return convert_from<std::int8_t>(to);
    case Dtype::int16:
      return convert_from<std::int16_t>(to);
    case Dtype::int32:
      return convert_from<std::int32_t>(to);
    case Dtype::int64:
      return convert_from<int64_t>(to);
    case Dtype::uint16:
      return convert_from<std::uint16_t>(to);
    case Dtype::uint32:
      return convert_from<uint32_t>(to);
    case Dtype::uint64:
      return convert_from<uint64_t>(to);
    case Dtype::float16:
      return convert_from<Half>(to);
    case Dtype::bfloat16:
      return convert_from<Brain>(to);
    case Dtype::float32:
      return convert_from<float>(to);
    case Dtype::complex64:
      return convert_all<C64, C128>;
    default:
      assert(from == Dtype::complex128 && to == Dtype::boolean);
      return nonzero;
  }
}

FinishFn finish_fold(Dtype accumulated, Dtype result) {
  switch (accumulated) {
    case Dtype::int64:
      return fold_to<int64_t>(result);
    case Dtype::float32:
      return fold_to<float>(result);
    case Dtype::float64:
      return fold_to<double>(result);
    default:
      return result == Dtype::complex64 ? fold_complex<float> : fold_complex<double>;
  }
}

FinishFn finish_extreme(Dtype dtype) {
  switch (dtype) {
    case Dtype::float16:
      return extreme<float, Half>;
    case Dtype::bfloat16:
      return extreme<float, Brain>;
    case Dtype::float32:
      return extreme<float, float>;
    case Dtype::float64:
      return extreme<double, double>;
    default:
      break;
  }
  switch (itemsize(dtype)) {
    case 1:
      return extreme<std::uint8_t, std::uint8_t>;
    case 2:
      return extreme<std::uint16_t, std::uint16_t>;
    case 4:
      return extreme<uint32_t, uint32_t>;
    default:
      return extreme<uint64_t, uint64_t>;
  }
}

FinishFn finish_flag(int size, bool inverted) { return inverted ? flag_of<true>(size) : flag_of<false>(size); }

void empty_value(ReduceOp op, Dtype result, void* out) {
  std::memset(out, 0, itemsize(result));
  if (op == ReduceOp::sum || op == ReduceOp::any) return;
  const bool mean = op == ReduceOp::mean;
  const double value = mean ? std::numeric_limits<double>::quiet_NaN() : 1;
  switch (result) {
    case Dtype::float16:
      return store(out, convert<Half>(value));
    case Dtype::bfloat16:
      return store(out, convert<Brain>(value));
    case Dtype::float32:
      return store(out, static_cast<float>(value));
    case Dtype::float64:
      return store(out, value);
    case Dtype::complex64:
      return store(out, C64(static_cast<float>(value), mean ? static_cast<float>(value) : 0));
    case Dtype::complex128:
      return store(out, C128(value, mean ? value : 0));
    default:
      static_cast<unsigned char*>(out)[0] = 1;  // little-endian one of any width
  }
}

}  // namespace hyalite
