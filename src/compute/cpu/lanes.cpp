/// Scalar functions behind the kernels: exact remainders and complex arithmetic, compiled once for all instruction
/// sets.
#include "compute/cpu/lanes.h"

#include <complex>
#include <limits>

namespace hyalite::scalar {
namespace {

template <class T>
T remainder_of(T x, T y) {
  T r = std::fmod(x, y);
  if (r == 0) return std::copysign(T{0}, y);
  return (r < 0) != (y < 0) ? r + y : r;
}

template <class R>
std::complex<R> to_std(Complex<R> z) {
  return {z.re, z.im};
}
template <class R>
Complex<R> from_std(std::complex<R> z) {
  return {z.real(), z.imag()};
}
std::complex<double> wide(Complex<float> z) { return {z.re, z.im}; }
Complex<float> narrow(std::complex<double> z) { return {static_cast<float>(z.real()), static_cast<float>(z.imag())}; }

/// exp(x) - 1 without cancellation: expm1(x) cos y - 2 sin^2(y / 2) + i exp(x) sin y.
std::complex<double> expm1_of(std::complex<double> z) {
  const double x = z.real(), y = z.imag();
  if (y == 0) return {x == 0 ? 0.0 : std::expm1(x), y};
  if (!std::isfinite(x) || !std::isfinite(y)) return std::exp(z) - 1.0;
  const double half = std::sin(y / 2);
  return {std::expm1(x) * std::cos(y) - 2 * half * half, std::exp(x) * std::sin(y)};
}

/// log(1 + z): the real part from |1 + z|^2 - 1 = x (2 + x) + y^2 while that is small.
std::complex<double> log1p_of(std::complex<double> z) {
  const double x = z.real(), y = z.imag();
  if (y == 0 && x > -1) return {std::log1p(x), y};
  if (!std::isfinite(x) || !std::isfinite(y)) return std::log(1.0 + z);
  const double angle = std::atan2(y, 1 + x);
  if (std::fabs(x) < 0.5 && std::fabs(y) < 0.5) {
    // x (2 + x) + y^2 cancels where |1 + z| is near 1; the products are exact in long double.
    const long double lx = x, ly = y;
    return {0.5 * std::log1p(static_cast<double>(lx * (2 + lx) + ly * ly)), angle};
  }
  return {std::log(std::hypot(1 + x, y)), angle};
}

/// The power of two that brings the larger part of z to [1, 2); 0 for zeros and what is not finite.
int scale_of(std::complex<double> z) {
  const double largest = std::max(std::fabs(z.real()), std::fabs(z.imag()));
  return std::isfinite(largest) && largest != 0 ? -std::ilogb(largest) : 0;
}

/// a / b by C Annex G. Both are scaled to near 1 first: no product overflows or loses bits as a subnormal, and libgcc's
/// NaN for a subnormal divisor does not come up.
std::complex<double> divide_of(std::complex<double> a, std::complex<double> b) {
  if (b == 0.0 || !std::isfinite(b.real()) || !std::isfinite(b.imag())) return a / b;
  const int up = scale_of(a), down = scale_of(b);
  const double x = std::ldexp(a.real(), up), y = std::ldexp(a.imag(), up);
  const double c = std::ldexp(b.real(), down), d = std::ldexp(b.imag(), down), length = c * c + d * d;
  const double re = std::ldexp((x * c + y * d) / length, down - up);
  const double im = std::ldexp((y * c - x * d) / length, down - up);
  if (std::isnan(re) && std::isnan(im)) return a / b;
  return {re, im};
}

template <class R>
Complex<R> divide_real(R a, Complex<R> b) {
  Complex<R> z = divide(Complex<R>{a, 0}, b);
  if (z.re == 0) z.re = std::signbit(a) != std::signbit(b.re) ? -R{0} : R{0};
  if (z.im == 0) z.im = std::signbit(a) != std::signbit(b.im) ? R{0} : -R{0};
  return z;
}

/// z / |z|, 0 of 0, a unit vector also where |z| overflows.
std::complex<double> sign_of(std::complex<double> z) {
  const double x = z.real(), y = z.imag();
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  if (std::isnan(x) || std::isnan(y)) return {nan, nan};
  if (x == 0 && y == 0) return 0.0;
  if (std::isinf(x) || std::isinf(y)) {
    const double a = std::isinf(x) ? std::copysign(1.0, x) : 0 * x, b = std::isinf(y) ? std::copysign(1.0, y) : 0 * y;
    return sign_of({a, b});
  }
  const int scale = -std::max(std::ilogb(x), std::ilogb(y));
  const double a = std::ldexp(x, scale), b = std::ldexp(y, scale), length = std::sqrt(a * a + b * b);
  return {a / length, b / length};
}

/// At an infinite real part the imaginary one has the sign of y, as the array API standard has it; C99 has sin 2y's.
std::complex<double> tanh_of(std::complex<double> z) {
  if (std::isinf(z.real())) return {std::copysign(1.0, z.real()), std::copysign(0.0, z.imag())};
  return std::tanh(z);
}

/// By the upper right quadrant: the C library leaves the signs of some zeros and infinities without symmetry.
std::complex<double> sin_of(std::complex<double> z) {
  const std::complex<double> w = std::sin(std::complex<double>(std::fabs(z.real()), std::fabs(z.imag())));
  return {std::signbit(z.real()) ? -w.real() : w.real(), std::signbit(z.imag()) ? -w.imag() : w.imag()};
}
std::complex<double> cos_of(std::complex<double> z) {
  const std::complex<double> w = std::cos(std::complex<double>(std::fabs(z.real()), std::fabs(z.imag())));
  return {w.real(), std::signbit(z.real()) != std::signbit(z.imag()) ? -w.imag() : w.imag()};
}

std::complex<double> power_of(std::complex<double> a, std::complex<double> b) {
  if (b == 0.0) return 1.0;
  if (a == 0.0) {
    if (b.imag() == 0 && b.real() > 0) return 0.0;
    if (b.imag() == 0) return {std::numeric_limits<double>::infinity(), 0};
  }
  // Small whole exponents by products: exact where the result is.
  if (b.imag() == 0 && b.real() == std::trunc(b.real()) && std::fabs(b.real()) <= 8) {
    std::complex<double> r = 1.0;
    for (int i = 0; i < static_cast<int>(std::fabs(b.real())); ++i) r = r * a;
    return b.real() < 0 ? 1.0 / r : r;
  }
  return std::pow(a, b);
}

}  // namespace

float remainder(float x, float y) { return remainder_of(x, y); }
double remainder(double x, double y) { return remainder_of(x, y); }

Complex<float> multiply(Complex<float> a, Complex<float> b) { return from_std(to_std(a) * to_std(b)); }
Complex<double> multiply(Complex<double> a, Complex<double> b) { return from_std(to_std(a) * to_std(b)); }
Complex<float> divide(Complex<float> a, Complex<float> b) { return narrow(wide(a) / wide(b)); }
Complex<double> divide(Complex<double> a, Complex<double> b) { return from_std(divide_of(to_std(a), to_std(b))); }

Complex<float> divide(float a, Complex<float> b) { return divide_real(a, b); }
Complex<double> divide(double a, Complex<double> b) { return divide_real(a, b); }

#define HYALITE_DEFINE(name, call)                                        \
  Complex<float> name(Complex<float> z) { return narrow(call(wide(z))); } \
  Complex<double> name(Complex<double> z) { return from_std(call(to_std(z))); }
HYALITE_DEFINE(sqrt, std::sqrt)
HYALITE_DEFINE(exp, std::exp)
HYALITE_DEFINE(expm1, expm1_of)
HYALITE_DEFINE(log, std::log)
HYALITE_DEFINE(log1p, log1p_of)
HYALITE_DEFINE(sin, sin_of)
HYALITE_DEFINE(cos, cos_of)
HYALITE_DEFINE(tanh, tanh_of)
HYALITE_DEFINE(sign, sign_of)
#undef HYALITE_DEFINE

Complex<float> power(Complex<float> a, Complex<float> b) { return narrow(power_of(wide(a), wide(b))); }
Complex<double> power(Complex<double> a, Complex<double> b) { return from_std(power_of(to_std(a), to_std(b))); }

}  // namespace hyalite::scalar
