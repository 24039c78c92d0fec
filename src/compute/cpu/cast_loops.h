/// The conversion loops, for a file compiled once per instruction set: it defines HWY_COMPILE_ONLY_STATIC and includes
/// this; `fill` then gives that set's table. Bits do not depend on the set, the length or the position.
#pragma once

#ifndef HWY_COMPILE_ONLY_STATIC
#error "define HWY_COMPILE_ONLY_STATIC before the first include of Highway"
#endif
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "compute/cpu/cast.h"
#include "hyalite/dtype.h"
#include "tensor/float_formats.h"

namespace hyalite {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// ---- 16-bit floats in vectors, shared by the kernels that compute in float32 ----------------------------------------

/// The uint16 vector that holds the 16-bit floats of one float32 vector.
template <class D>
using Small16 = hn::Vec<hn::Rebind<std::uint16_t, D>>;

#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2) || HWY_ARCH_ARM
#define HYALITE_HAS_FLOAT16_CONVERSION 1
#else
#define HYALITE_HAS_FLOAT16_CONVERSION 0
#endif

/// float16 to float32, exactly; NaN becomes quiet and keeps sign and payload.
template <class D>
HWY_INLINE hn::Vec<D> float32_from_float16(D d, Small16<D> half) {
#if HYALITE_HAS_FLOAT16_CONVERSION
  return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), half));
#else
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::PromoteTo(du, half);
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7FFF));
  const auto sign = hn::ShiftLeft<16>(hn::Xor(bits, magnitude));
  const auto shifted = hn::ShiftLeft<13>(magnitude);
  const auto normal = hn::Add(shifted, hn::Set(du, (127 - 15) << 23));
  // 2^-14 with the mantissa as fraction, minus 2^-14: exact, and no subnormal operand that would cost an assist.
  const auto unit = hn::Set(du, (127 - 14) << 23);
  const auto subnormal = hn::BitCast(du, hn::Sub(hn::BitCast(d, hn::Or(shifted, unit)), hn::BitCast(d, unit)));
  const auto quiet = hn::IfThenElseZero(hn::Gt(magnitude, hn::Set(du, 0x7C00)), hn::Set(du, 0x400000));
  const auto special = hn::Or(hn::Or(shifted, hn::Set(du, 0x7F800000)), quiet);
  auto result = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 0x400)), subnormal, normal);
  result = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x7BFF)), special, result);
  return hn::BitCast(d, hn::Or(result, sign));
#endif
}

/// float32 to float16, ties to even; NaN becomes quiet and keeps sign and leading payload.
template <class D>
HWY_INLINE Small16<D> float16_from_float32([[maybe_unused]] D d, hn::Vec<D> x) {
  const hn::Rebind<std::uint16_t, D> d16;
#if HYALITE_HAS_FLOAT16_CONVERSION
  return hn::BitCast(d16, hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), x));
#else
  // F. Giesen's float_to_half, with the payload of a NaN kept. All values below are under 2^31: signed compares serve.
  const hn::RebindToSigned<D> di;
  const auto bits = hn::BitCast(di, x);
  const auto magnitude = hn::And(bits, hn::Set(di, 0x7FFFFFFF));
  const auto sign = hn::ShiftRight<16>(hn::BitCast(hn::RebindToUnsigned<D>(), hn::Xor(bits, magnitude)));
  // Adding 0.5 leaves the float16 subnormal, rounded by the addition itself, in the low bits.
  const auto half = hn::Set(di, 126 << 23);
  const auto subnormal = hn::Sub(hn::BitCast(di, hn::Add(hn::BitCast(d, magnitude), hn::BitCast(d, half))), half);
  const auto even = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(di, 1));
  const auto biased = hn::Add(magnitude, hn::Set(di, 0xFFF - ((127 - 15) << 23)));
  const auto normal = hn::ShiftRight<13>(hn::Add(biased, even));
  const auto payload = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(di, 0x3FF));
  const auto nan = hn::IfThenElseZero(hn::Gt(magnitude, hn::Set(di, 0x7F800000)), hn::Or(payload, hn::Set(di, 0x200)));
  const auto special = hn::Or(nan, hn::Set(di, 0x7C00));
  auto result = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, (127 - 14) << 23)), subnormal, normal);
  result = hn::IfThenElse(hn::Gt(magnitude, hn::Set(di, ((127 + 16) << 23) - 1)), special, result);
  return hn::DemoteTo(d16, hn::Or(result, hn::BitCast(di, sign)));
#endif
}

/// bfloat16 to float32, exactly; NaN becomes quiet and keeps sign and payload.
template <class D>
HWY_INLINE hn::Vec<D> float32_from_bfloat16(D d, Small16<D> small) {
  const hn::RebindToUnsigned<D> du;
  const auto x = hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, small)));
  const auto quiet = hn::BitCast(d, hn::Set(du, 0x400000));
  return hn::IfThenElse(hn::IsNaN(x), hn::Or(x, quiet), x);
}

/// float32 to bfloat16, ties to even; NaN becomes quiet and keeps sign and leading payload.
template <class D>
HWY_INLINE Small16<D> bfloat16_from_float32(D d, hn::Vec<D> x) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, x);
  const auto even = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded = hn::Add(bits, hn::Add(even, hn::Set(du, 0x7FFF)));
  const auto nan = hn::Or(bits, hn::Set(du, 0x400000));
  const auto chosen = hn::IfThenElse(hn::IsNaN(x), hn::BitCast(d, nan), hn::BitCast(d, rounded));
  const auto top = hn::ShiftRight<16>(hn::BitCast(du, chosen));
  return hn::DemoteTo(hn::Rebind<std::uint16_t, D>(), hn::BitCast(hn::RebindToSigned<D>(), top));
}

// ---- One element ----------------------------------------------------------------------------------------------------

template <class Real>
struct ComplexPair {
  Real re, im;
};

template <Dtype D>
struct StoredType;
#define HYALITE_STORED(dtype, ...)  \
  template <>                       \
  struct StoredType<Dtype::dtype> { \
    using type = __VA_ARGS__;       \
  }
HYALITE_STORED(boolean, std::uint8_t);
HYALITE_STORED(int8, std::int8_t);
HYALITE_STORED(int16, std::int16_t);
HYALITE_STORED(int32, std::int32_t);
HYALITE_STORED(int64, std::int64_t);
HYALITE_STORED(uint8, std::uint8_t);
HYALITE_STORED(uint16, std::uint16_t);
HYALITE_STORED(uint32, std::uint32_t);
HYALITE_STORED(uint64, std::uint64_t);
HYALITE_STORED(float16, std::uint16_t);
HYALITE_STORED(bfloat16, std::uint16_t);
HYALITE_STORED(float32, float);
HYALITE_STORED(float64, double);
HYALITE_STORED(complex64, ComplexPair<float>);
HYALITE_STORED(complex128, ComplexPair<double>);
HYALITE_STORED(float8_e4m3fn, std::uint8_t);
HYALITE_STORED(float8_e5m2, std::uint8_t);
#undef HYALITE_STORED
/// How an element lies in memory; small floats as their bits.
template <Dtype D>
using Stored = typename StoredType<D>::type;

/// Truncated towards zero, saturated at the limits of T; NaN gives 0.
template <class T>
HWY_INLINE T saturate(double x) {
  constexpr T lowest = std::numeric_limits<T>::min(), highest = std::numeric_limits<T>::max();
  if constexpr (sizeof(T) < 8) {
    constexpr double low = lowest, high = highest;
    using Via = std::conditional_t<(sizeof(T) < 4 || std::is_signed_v<T>), std::int32_t, std::int64_t>;
    double y = x < high ? x : high;
    y = y > low ? y : low;
    y = x == x ? y : 0.0;
    return static_cast<T>(static_cast<Via>(y));
  } else {
    constexpr double low = lowest, end = std::is_signed_v<T> ? 0x1p63 : 0x1p64;
    if (!(x > low)) return x == x ? lowest : 0;
    return x < end ? static_cast<T>(x) : highest;
  }
}

/// One element; every loop gives the bits that this gives.
template <Dtype From, Dtype To>
HWY_INLINE Stored<To> convert(Stored<From> x) {
  if constexpr (is_complex(From) && is_complex(To)) {
    return {static_cast<Stored<real_part(To)>>(x.re), static_cast<Stored<real_part(To)>>(x.im)};
  } else if constexpr (is_complex(From)) {
    static_assert(To == Dtype::boolean, "complex converts to complex and bool only");
    return x.re != 0 || x.im != 0;
  } else if constexpr (is_complex(To)) {
    return {convert<From, real_part(To)>(x), 0};
  } else if constexpr (is_small_float(From)) {
    return convert<Dtype::float64, To>(decode_float<From>(x));
  } else if constexpr (To == Dtype::boolean) {
    return x != 0;
  } else if constexpr (From == Dtype::boolean && To != Dtype::int64) {
    return convert<Dtype::int64, To>(x != 0);
  } else if constexpr (From == Dtype::boolean) {
    return x != 0;
  } else if constexpr (is_small_float(To) && is_floating(From)) {
    return encode_float<To>(x);
  } else if constexpr (is_small_float(To)) {
    return encode_integer<To>(x);
  } else if constexpr (is_floating(From) && !is_floating(To)) {
    return saturate<Stored<To>>(x);
  } else {
    return static_cast<Stored<To>>(x);
  }
}

/// The plain loop over `convert`, for the compiler to vectorise.
template <Dtype From, Dtype To>
void convert_each(const void* in, void* out, std::size_t n) {
  const auto* source = static_cast<const unsigned char*>(in);
  auto* target = static_cast<unsigned char*>(out);
  for (std::size_t i = 0; i < n; ++i) {
    Stored<From> x;
    __builtin_memcpy(&x, source + i * sizeof x, sizeof x);
    const Stored<To> y = convert<From, To>(x);
    __builtin_memcpy(target + i * sizeof y, &y, sizeof y);
  }
}

// ---- Vector loops ---------------------------------------------------------------------------------------------------

/// Runs `step(in, out)`, which converts `lanes` elements, over n of them; the tail runs it on a padded copy.
template <std::size_t lanes, class In, class Out, class Step>
HWY_INLINE void for_vectors(const void* in, void* out, std::size_t n, Step step) {
  const auto* source = static_cast<const In*>(in);
  auto* target = static_cast<Out*>(out);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) step(source + i, target + i);
  if (i == n) return;
  In padded[lanes] = {};
  Out result[lanes];
  __builtin_memcpy(padded, source + i, (n - i) * sizeof(In));
  step(padded, result);
  __builtin_memcpy(target + i, result, (n - i) * sizeof(Out));
}

template <class T>
inline constexpr std::size_t lanes_of = hn::MaxLanes(hn::ScalableTag<T>());

using F32 = hn::ScalableTag<float>;
using F64 = hn::ScalableTag<double>;
inline constexpr F32 f32;
inline constexpr F64 f64;
inline constexpr hn::Rebind<std::uint16_t, F32> u16_of_f32;

inline void float16_to_float32(const void* in, void* out, std::size_t n) {
  for_vectors<lanes_of<float>, std::uint16_t, float>(in, out, n, [](const std::uint16_t* x, float* y) {
    hn::StoreU(float32_from_float16(f32, hn::LoadU(u16_of_f32, x)), f32, y);
  });
}
inline void float32_to_float16(const void* in, void* out, std::size_t n) {
  for_vectors<lanes_of<float>, float, std::uint16_t>(in, out, n, [](const float* x, std::uint16_t* y) {
    hn::StoreU(float16_from_float32(f32, hn::LoadU(f32, x)), u16_of_f32, y);
  });
}
inline void bfloat16_to_float32(const void* in, void* out, std::size_t n) {
  for_vectors<lanes_of<float>, std::uint16_t, float>(in, out, n, [](const std::uint16_t* x, float* y) {
    hn::StoreU(float32_from_bfloat16(f32, hn::LoadU(u16_of_f32, x)), f32, y);
  });
}
inline void float32_to_bfloat16(const void* in, void* out, std::size_t n) {
  for_vectors<lanes_of<float>, float, std::uint16_t>(in, out, n, [](const float* x, std::uint16_t* y) {
    hn::StoreU(bfloat16_from_float32(f32, hn::LoadU(f32, x)), u16_of_f32, y);
  });
}

inline void float32_to_float64(const void* in, void* out, std::size_t n) {
  for_vectors<lanes_of<double>, float, double>(in, out, n, [](const float* x, double* y) {
    hn::StoreU(hn::PromoteTo(f64, hn::LoadU(hn::Rebind<float, F64>(), x)), f64, y);
  });
}
inline void float64_to_float32(const void* in, void* out, std::size_t n) {
  for_vectors<lanes_of<double>, double, float>(in, out, n, [](const double* x, float* y) {
    const hn::Rebind<float, F64> half;
    hn::StoreU(hn::DemoteTo(half, hn::LoadU(f64, x)), half, y);
  });
}

/// float64 to float32 rounded to odd: from it a shorter format rounds once (subnormals and overflow included).
template <class D>
HWY_INLINE hn::Vec<D> float32_rounded_to_odd(D half, hn::Vec<F64> x) {
  const hn::RebindToUnsigned<D> bits32;
  const hn::RebindToUnsigned<F64> bits64;
  const auto to_mask32 = [&](auto mask) {
    return hn::TruncateTo(bits32, hn::BitCast(bits64, hn::VecFromMask(f64, mask)));
  };
  const auto nearest = hn::DemoteTo(half, x);
  const auto back = hn::Abs(hn::PromoteTo(f64, nearest));
  const auto over = hn::Gt(back, hn::Abs(x));
  const auto inexact = hn::Or(over, hn::Lt(back, hn::Abs(x)));
  // Adding a mask subtracts one from the magnitude: towards zero, from infinity to the largest finite number.
  const auto truncated = hn::Add(hn::BitCast(bits32, nearest), to_mask32(over));
  return hn::BitCast(half, hn::Or(truncated, hn::ShiftRight<31>(to_mask32(inexact))));
}

/// float16 or bfloat16 to their hub and back.
template <Dtype D>
void small_to_float64(const void* in, void* out, std::size_t n) {
  for_vectors<lanes_of<double>, std::uint16_t, double>(in, out, n, [](const std::uint16_t* x, double* y) {
    const hn::Rebind<float, F64> half;
    const auto v = hn::LoadU(hn::Rebind<std::uint16_t, F64>(), x);
    if constexpr (D == Dtype::float16) {
      hn::StoreU(hn::PromoteTo(f64, float32_from_float16(half, v)), f64, y);
    } else {
      hn::StoreU(hn::PromoteTo(f64, float32_from_bfloat16(half, v)), f64, y);
    }
  });
}
template <Dtype D>
void float64_to_small(const void* in, void* out, std::size_t n) {
  for_vectors<lanes_of<double>, double, std::uint16_t>(in, out, n, [](const double* x, std::uint16_t* y) {
    const hn::Rebind<float, F64> half;
    const hn::Rebind<std::uint16_t, F64> d16;
    const auto v = float32_rounded_to_odd(half, hn::LoadU(f64, x));
    if constexpr (D == Dtype::float16) {
      hn::StoreU(float16_from_float32(half, v), d16, y);
    } else {
      hn::StoreU(bfloat16_from_float32(half, v), d16, y);
    }
  });
}

/// int32, int8 or uint8 to float32.
template <class T>
void integer_to_float32(const void* in, void* out, std::size_t n) {
  for_vectors<lanes_of<float>, T, float>(in, out, n, [](const T* x, float* y) {
    const hn::RebindToSigned<F32> wide;
    const auto v = hn::LoadU(hn::Rebind<T, F32>(), x);
    if constexpr (sizeof(T) == 4) {
      hn::StoreU(hn::ConvertTo(f32, v), f32, y);
    } else {
      hn::StoreU(hn::ConvertTo(f32, hn::PromoteTo(wide, v)), f32, y);
    }
  });
}

inline hn::Vec<hn::RebindToSigned<F32>> saturated_int32(hn::Vec<F32> x) {
  const hn::RebindToSigned<F32> di;
  // Highway saturates; only NaN needs care.
  const auto number = hn::VecFromMask(f32, hn::Eq(x, x));
  return hn::And(hn::ConvertTo(di, x), hn::BitCast(di, number));
}
inline void float32_to_int32(const void* in, void* out, std::size_t n) {
  for_vectors<lanes_of<float>, float, std::int32_t>(in, out, n, [](const float* x, std::int32_t* y) {
    hn::StoreU(saturated_int32(hn::LoadU(f32, x)), hn::RebindToSigned<F32>(), y);
  });
}
inline void float32_to_uint8(const void* in, void* out, std::size_t n) {
  for_vectors<lanes_of<float>, float, std::uint8_t>(in, out, n, [](const float* x, std::uint8_t* y) {
    const hn::RebindToSigned<F32> di;
    const hn::Rebind<std::uint8_t, F32> d8;
    // The minimum first: Highway 1.0.3 demotes 0x8000 to 0, not to 255.
    const auto v = hn::Min(saturated_int32(hn::LoadU(f32, x)), hn::Set(di, 255));
    hn::StoreU(hn::DemoteTo(d8, v), d8, y);
  });
}
inline void float32_to_int64(const void* in, void* out, std::size_t n) {
  for_vectors<lanes_of<double>, float, std::int64_t>(in, out, n, [](const float* x, std::int64_t* y) {
    const hn::RebindToSigned<F64> di;
    const auto v = hn::PromoteTo(f64, hn::LoadU(hn::Rebind<float, F64>(), x));
    const auto number = hn::VecFromMask(f64, hn::Eq(v, v));
    hn::StoreU(hn::And(hn::ConvertTo(di, v), hn::BitCast(di, number)), di, y);
  });
}

inline void int32_to_int64(const void* in, void* out, std::size_t n) {
  for_vectors<lanes_of<std::int64_t>, std::int32_t, std::int64_t>(
      in, out, n, [](const std::int32_t* x, std::int64_t* y) {
        const hn::ScalableTag<std::int64_t> d;
        hn::StoreU(hn::PromoteTo(d, hn::LoadU(hn::Rebind<std::int32_t, decltype(d)>(), x)), d, y);
      });
}
inline void int64_to_int32(const void* in, void* out, std::size_t n) {
  for_vectors<lanes_of<std::uint64_t>, std::uint64_t, std::uint32_t>(
      in, out, n, [](const std::uint64_t* x, std::uint32_t* y) {
        const hn::ScalableTag<std::uint64_t> d;
        const hn::Rebind<std::uint32_t, decltype(d)> half;
        hn::StoreU(hn::TruncateTo(half, hn::LoadU(d, x)), half, y);
      });
}

/// Elements of the size of U to bool: whether any bit of `mask` is set (a float without its sign: NaN counts).
template <class U, U mask>
void bits_to_bool(const void* in, void* out, std::size_t n) {
  for_vectors<lanes_of<U>, U, std::uint8_t>(in, out, n, [](const U* x, std::uint8_t* y) {
    const hn::ScalableTag<U> d;
    const hn::RebindToSigned<decltype(d)> di;
    const hn::Rebind<std::uint8_t, decltype(d)> d8;
    const auto any = hn::Ne(hn::And(hn::LoadU(d, x), hn::Set(d, mask)), hn::Zero(d));
    const auto bit = hn::IfThenElseZero(any, hn::Set(d, 1));
    if constexpr (sizeof(U) == 1) {
      hn::StoreU(bit, d8, y);
    } else if constexpr (sizeof(U) == 8) {
      hn::StoreU(hn::TruncateTo(d8, bit), d8, y);
    } else {
      hn::StoreU(hn::DemoteTo(d8, hn::BitCast(di, bit)), d8, y);
    }
  });
}

/// bool to elements of the size of U: `one` where true, all bits zero elsewhere.
template <class U, U one>
void bool_to_bits(const void* in, void* out, std::size_t n) {
  for_vectors<lanes_of<U>, std::uint8_t, U>(in, out, n, [](const std::uint8_t* x, U* y) {
    const hn::ScalableTag<U> d;
    const auto v = hn::LoadU(hn::Rebind<std::uint8_t, decltype(d)>(), x);
    const auto store = [&](auto wide) {
      hn::StoreU(hn::IfThenElseZero(hn::Ne(wide, hn::Zero(d)), hn::Set(d, one)), d, y);
    };
    if constexpr (sizeof(U) == 1) {
      store(v);
    } else if constexpr (sizeof(U) == 8) {
      store(hn::PromoteTo(d, hn::PromoteTo(hn::Rebind<std::uint32_t, decltype(d)>(), v)));
    } else {
      store(hn::PromoteTo(d, v));
    }
  });
}

/// float32 to complex64, float64 to complex128: the component is a copy, so here a signalling NaN stays as it is.
template <class Real>
void real_to_complex(const void* in, void* out, std::size_t n) {
  for_vectors<lanes_of<Real>, Real, ComplexPair<Real>>(in, out, n, [](const Real* x, ComplexPair<Real>* y) {
    const hn::ScalableTag<Real> d;
    hn::StoreInterleaved2(hn::LoadU(d, x), hn::Zero(d), d, reinterpret_cast<Real*>(y));
  });
}

template <std::size_t size>
void copy_elements(const void* in, void* out, std::size_t n) {
  __builtin_memmove(out, in, n * size);
}

// ---- The table ------------------------------------------------------------------------------------------------------

/// The unsigned integer of the size of an element, for those up to 8 bytes.
template <Dtype D>
using ElementBits =
    std::conditional_t<itemsize(D) == 1, std::uint8_t,
                       std::conditional_t<itemsize(D) == 2, std::uint16_t,
                                          std::conditional_t<itemsize(D) == 4, std::uint32_t, std::uint64_t>>>;

/// The bits of an element that make it differ from zero.
template <Dtype D>
constexpr ElementBits<D> value_mask() {
  using U = ElementBits<D>;
  constexpr U all = static_cast<U>(~U{0});
  if constexpr (D == Dtype::complex64) return 0x7FFFFFFF7FFFFFFF;
  return is_floating(D) ? static_cast<U>(all >> 1) : all;
}

/// The bits of an element equal to 1.
template <Dtype D>
constexpr ElementBits<D> one_bits() {
  if constexpr (D == Dtype::complex64) {
    return 0x3F800000;
  } else if constexpr (is_floating(D)) {
    using Layout = FloatLayout<D, ElementBits<D>>;
    return static_cast<ElementBits<D>>(ElementBits<D>{Layout::bias} << Layout::mantissa);
  } else {
    return 1;
  }
}

/// The loop that converts in one pass, null where the way through the hub serves.
template <Dtype From, Dtype To>
constexpr CastFn direct_loop() {
  using enum Dtype;
  const auto pair = [](Dtype a, Dtype b) { return From == a && To == b; };
  if constexpr (From == To) return copy_elements<itemsize(From)>;
  if constexpr (To == boolean && itemsize(From) <= 8) return bits_to_bool<ElementBits<From>, value_mask<From>()>;
  if constexpr (From == boolean && itemsize(To) <= 8) return bool_to_bits<ElementBits<To>, one_bits<To>()>;
  if (pair(float16, float32)) return float16_to_float32;
  if (pair(float32, float16)) return float32_to_float16;
  if (pair(bfloat16, float32)) return bfloat16_to_float32;
  if (pair(float32, bfloat16)) return float32_to_bfloat16;
  if (pair(float32, float64)) return float32_to_float64;
  if (pair(float64, float32)) return float64_to_float32;
  if constexpr (From == float32 && itemsize(To) == 1 && is_floating(To)) return convert_each<From, To>;
  if (pair(int32, float32)) return integer_to_float32<std::int32_t>;
  if (pair(int8, float32)) return integer_to_float32<std::int8_t>;
  if (pair(uint8, float32)) return integer_to_float32<std::uint8_t>;
  if (pair(float32, int32)) return float32_to_int32;
  if (pair(float32, uint8)) return float32_to_uint8;
  if (pair(float32, int64)) return float32_to_int64;
  if (pair(float32, complex64)) return real_to_complex<float>;
  if (pair(float64, complex128)) return real_to_complex<double>;
  if constexpr (kind(From) == Kind::integer && kind(To) == Kind::integer) {
    if constexpr (itemsize(From) == itemsize(To)) return copy_elements<itemsize(From)>;
    if constexpr (itemsize(From) == 8 && itemsize(To) == 4) return int64_to_int32;
    if (pair(int32, int64) || pair(int32, uint64)) return int32_to_int64;
    return convert_each<From, To>;
  }
  if constexpr (From == boolean || To == boolean) return convert_each<From, To>;
  return nullptr;
}

template <Hub From, Dtype To>
constexpr CastFn narrow_loop() {
  if constexpr (From == Hub::complex128 && !is_complex(To) && To != Dtype::boolean) {
    return nullptr;
  } else if constexpr (dtype_of(From) == To) {
    return copy_elements<itemsize(To)>;
  } else if constexpr (From == Hub::float64 && (To == Dtype::float16 || To == Dtype::bfloat16)) {
    return float64_to_small<To>;
  } else {
    return convert_each<dtype_of(From), To>;
  }
}

template <Dtype D>
constexpr CastFn widen_loop() {
  constexpr Dtype hub = dtype_of(hub_of(D));
  if constexpr (D == hub) {
    return copy_elements<itemsize(D)>;
  } else if constexpr (D == Dtype::float16 || D == Dtype::bfloat16) {
    return small_to_float64<D>;
  } else {
    return convert_each<D, hub>;
  }
}

template <std::size_t from, std::size_t... to>
void fill_row(CastTable& table, std::index_sequence<to...>) {
  constexpr Dtype source = static_cast<Dtype>(from);
  table.widen[from] = widen_loop<source>();
  ((table.direct[from][to] = direct_loop<source, static_cast<Dtype>(to)>()), ...);
}

template <std::size_t... d>
void fill_all(CastTable& table, std::index_sequence<d...> all) {
  (fill_row<d>(table, all), ...);
  ((table.narrow[0][d] = narrow_loop<Hub::int64, static_cast<Dtype>(d)>()), ...);
  ((table.narrow[1][d] = narrow_loop<Hub::uint64, static_cast<Dtype>(d)>()), ...);
  ((table.narrow[2][d] = narrow_loop<Hub::float64, static_cast<Dtype>(d)>()), ...);
  ((table.narrow[3][d] = narrow_loop<Hub::complex128, static_cast<Dtype>(d)>()), ...);
}

/// Sets every entry to the loop of this instruction set.
inline void fill(CastTable& table) { fill_all(table, std::make_index_sequence<dtype_count>()); }

}  // namespace HWY_NAMESPACE
}  // namespace hyalite
