/// Element types of the CPU kernels, and the scalar functions that run lane by lane where no instruction does the work.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "hyalite/dtype.h"

namespace hyalite {

/// Marks lanes that hold the booleans 0 and 1.
struct Bool {
  std::uint8_t value;
};
template <class R>
struct Complex {
  R re, im;
};

/// The C++ type whose kernel computes dtype T. float16 and bfloat16 are computed as float, through blocks.
template <Dtype T>
struct ElementOf;
#define HYALITE_ELEMENT(dtype, type) \
  template <>                        \
  struct ElementOf<Dtype::dtype> {   \
    using Type = type;               \
  }
HYALITE_ELEMENT(boolean, Bool);
HYALITE_ELEMENT(int8, std::int8_t);
HYALITE_ELEMENT(int16, std::int16_t);
HYALITE_ELEMENT(int32, std::int32_t);
HYALITE_ELEMENT(int64, std::int64_t);
HYALITE_ELEMENT(uint8, std::uint8_t);
HYALITE_ELEMENT(uint16, std::uint16_t);
HYALITE_ELEMENT(uint32, std::uint32_t);
HYALITE_ELEMENT(uint64, std::uint64_t);
HYALITE_ELEMENT(float32, float);
HYALITE_ELEMENT(float64, double);
HYALITE_ELEMENT(complex64, Complex<float>);
HYALITE_ELEMENT(complex128, Complex<double>);
#undef HYALITE_ELEMENT

/// Dtypes with kernels of their own.
inline constexpr Dtype kernel_dtypes[] = {
    Dtype::boolean, Dtype::int8,   Dtype::int16,   Dtype::int32,   Dtype::int64,     Dtype::uint8,     Dtype::uint16,
    Dtype::uint32,  Dtype::uint64, Dtype::float32, Dtype::float64, Dtype::complex64, Dtype::complex128};

// Not inline: one copy for the whole library, so that no copy compiled for a later instruction set can be picked.
namespace scalar {
float remainder(float x, float y);
double remainder(double x, double y);

Complex<float> multiply(Complex<float> a, Complex<float> b);  ///< C Annex G
Complex<double> multiply(Complex<double> a, Complex<double> b);
Complex<float> divide(Complex<float> a, Complex<float> b);  ///< C Annex G
Complex<double> divide(Complex<double> a, Complex<double> b);

/// A real numerator by component: the zeros of 1 / conj(z) are those of conj(1 / z).
Complex<float> divide(float a, Complex<float> b);
Complex<double> divide(double a, Complex<double> b);

#define HYALITE_COMPLEX_FUNCTIONS(ROW) \
  ROW(sqrt) ROW(exp) ROW(expm1) ROW(log) ROW(log1p) ROW(sin) ROW(cos) ROW(tanh) ROW(sign)
#define HYALITE_DECLARE(name)            \
  Complex<float> name(Complex<float> z); \
  Complex<double> name(Complex<double> z);
HYALITE_COMPLEX_FUNCTIONS(HYALITE_DECLARE)
#undef HYALITE_DECLARE
Complex<float> power(Complex<float> a, Complex<float> b);
Complex<double> power(Complex<double> a, Complex<double> b);

/// Floors; x // 0 is 0 and MIN // -1 wraps to MIN.
template <class T>
constexpr __attribute__((always_inline)) T floor_divide(T x, T y) {
  if (y == 0) return 0;
  if constexpr (std::is_signed_v<T>) {
    if (y == -1) return static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(x));
    const T q = static_cast<T>(x / y), r = static_cast<T>(x % y);
    return static_cast<T>(q - (r != 0 && (r < 0) != (y < 0)));
  } else {
    return static_cast<T>(x / y);
  }
}
/// Takes the sign of y; x % 0 is 0 and MIN % -1 is 0.
template <class T>
requires std::is_integral_v<T>
constexpr __attribute__((always_inline)) T remainder(T x, T y) {
  if (y == 0) return 0;
  if constexpr (std::is_signed_v<T>) {
    if (y == -1) return 0;
    const T r = static_cast<T>(x % y);
    return static_cast<T>(r != 0 && (r < 0) != (y < 0) ? r + y : r);
  } else {
    return static_cast<T>(x % y);
  }
}
}  // namespace scalar

}  // namespace hyalite
