/// Complex lanes as a pair of vectors, for the formulas of complex64 and complex128.
#pragma once

#include "compute/cpu/vec.h"

namespace hyalite::HWY_NAMESPACE {

template <class R>
struct Vec<Complex<R>> {
  using Real = Vec<R>;
  using Element = Complex<R>;
  static constexpr std::size_t lanes = Real::lanes;
  Real re, im;

  Vec() = default;
  Vec(Real a, Real b) : re(a), im(b) {}
  explicit Vec(Real a) : re(a), im(Constant{0}) {}
  Vec(Constant c) : re(c), im(Constant{0}) {}

  static Vec load(const void* p) {
    Vec z;
    hn::LoadInterleaved2(Tag<R>(), static_cast<const R*>(p), z.re.v, z.im.v);
    return z;
  }
  static Vec load_n(const void* p, std::size_t n) {
    HWY_ALIGN R tail[2 * lanes] = {};
    std::memcpy(tail, p, n * sizeof(Element));
    return load(tail);
  }
  void store(void* p) const { hn::StoreInterleaved2(re.v, im.v, Tag<R>(), static_cast<R*>(p)); }
  void store_n(void* p, std::size_t n) const {
    HWY_ALIGN R tail[2 * lanes];
    store(tail);
    std::memcpy(p, tail, n * sizeof(Element));
  }
  void stream(void* p) const {
    HWY_ALIGN R whole[2 * lanes];
    store(whole);
    Real::load(whole).stream(p);
    Real::load(whole + lanes).stream(static_cast<R*>(p) + lanes);
  }

  friend Vec operator+(Vec a, Vec b) { return {a.re + b.re, a.im + b.im}; }
  friend Vec operator-(Vec a, Vec b) { return {a.re - b.re, a.im - b.im}; }
  friend Vec operator-(Vec a) { return {-a.re, -a.im}; }
  friend Vec operator*(Vec a, Vec b) {
    const Vec z{a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
    // Annex G differs from the textbook only where both parts come out NaN.
    if ((isnan(z.re) & isnan(z.im)).any()) {
      return each([](Element x, Element y) { return scalar::multiply(x, y); }, a, b);
    }
    return z;
  }
  friend Vec operator/(Vec a, Vec b) {
    return each([](Element x, Element y) { return scalar::divide(x, y); }, a, b);
  }
  friend Vec operator*(Vec a, Real b) { return {a.re * b, a.im * b}; }
  friend Vec operator*(Real a, Vec b) { return {a * b.re, a * b.im}; }
  friend Vec operator/(Vec a, Real b) { return {a.re / b, a.im / b}; }
  friend Vec operator/(Real a, Vec b) {
    return each([](Element x, Element y) { return scalar::divide(x.re, y); }, Vec(a), b);
  }
  friend Vec operator+(Vec a, Real b) { return {a.re + b, a.im}; }
  friend Vec operator+(Real a, Vec b) { return {a + b.re, b.im}; }
  friend Vec operator-(Vec a, Real b) { return {a.re - b, a.im}; }
  friend Vec operator-(Real a, Vec b) { return {a - b.re, -b.im}; }
  friend Mask<R> operator==(Vec a, Vec b) { return (a.re == b.re) & (a.im == b.im); }
  friend Mask<R> operator!=(Vec a, Vec b) { return !(a == b); }

  /// f of each lane alone. By component: g++ 12 folds the interleaving of a constant with zero into the constant twice.
  template <class F, class... Rest>
  static Vec each(F f, Vec a, Rest... rest) {
    constexpr std::size_t n = 1 + sizeof...(Rest);
    HWY_ALIGN R re[n][lanes], im[n][lanes];
    auto put = [&, i = 0](const Vec& v) mutable {
      v.re.store(re[i]);
      v.im.store(im[i++]);
    };
    put(a);
    (put(rest), ...);
    for (std::size_t k = 0; k < lanes; ++k) {
      const Element z = [&]<std::size_t... I>(std::index_sequence<I...>) { return f(Element{re[I][k], im[I][k]}...); }
      (std::make_index_sequence<n>());
      re[0][k] = z.re;
      im[0][k] = z.im;
    }
    return {Real::load(re[0]), Real::load(im[0])};
  }
};

// A constant beside a complex value is real, and works by component.
#define HYALITE_COMPLEX_CONSTANT(symbol)                           \
  template <class R>                                               \
  Vec<Complex<R>> operator symbol(Vec<Complex<R>> a, Constant b) { \
    return a symbol Vec<R>(b);                                     \
  }                                                                \
  template <class R>                                               \
  Vec<Complex<R>> operator symbol(Constant a, Vec<Complex<R>> b) { \
    return Vec<R>(a) symbol b;                                     \
  }
HYALITE_COMPLEX_CONSTANT(+)
HYALITE_COMPLEX_CONSTANT(-)
HYALITE_COMPLEX_CONSTANT(*)
HYALITE_COMPLEX_CONSTANT(/)
#undef HYALITE_COMPLEX_CONSTANT

template <class R>
Vec<Complex<R>> select(Mask<R> m, Vec<Complex<R>> a, Vec<Complex<R>> b) {
  return {select(m, a.re, b.re), select(m, a.im, b.im)};
}
template <class R>
Vec<Complex<R>> conj(Vec<Complex<R>> z) {
  return {z.re, -z.im};
}
template <class R>
Vec<R> real(Vec<Complex<R>> z) {
  return z.re;
}
template <class R>
Vec<Complex<R>> imaginary(Vec<Complex<R>> z) {
  return {Constant{0}, z.im};
}
template <class R>
auto by_kind(Vec<Complex<R>>, auto, auto of_complex) {
  return of_complex();
}
/// Numbers have no -0 for a real part where the imaginary one is 0.
template <class R>
Mask<R> is_nothing(Vec<Complex<R>> z) {
  return is_nothing(z.re) & (z.im == Constant{0});
}
template <class R>
Vec<R> abs(Vec<Complex<R>> z) {
  return hypot(z.re, z.im);
}
template <class R>
Vec<Complex<R>> round(Vec<Complex<R>> z) {
  return {round(z.re), round(z.im)};
}
template <class R>
Mask<R> isnan(Vec<Complex<R>> z) {
  return isnan(z.re) | isnan(z.im);
}
template <class R>
Mask<R> isinf(Vec<Complex<R>> z) {
  return isinf(z.re) | isinf(z.im);
}
template <class R>
Mask<R> isfinite(Vec<Complex<R>> z) {
  return isfinite(z.re) & isfinite(z.im);
}
#define HYALITE_VEC_COMPLEX(name)                                                  \
  template <class R>                                                               \
  Vec<Complex<R>> name(Vec<Complex<R>> z) {                                        \
    return Vec<Complex<R>>::each([](Complex<R> x) { return scalar::name(x); }, z); \
  }
HYALITE_COMPLEX_FUNCTIONS(HYALITE_VEC_COMPLEX)
#undef HYALITE_VEC_COMPLEX
template <class R>
Vec<Complex<R>> power(Vec<Complex<R>> a, Vec<Complex<R>> b) {
  return Vec<Complex<R>>::each([](Complex<R> x, Complex<R> y) { return scalar::power(x, y); }, a, b);
}

}  // namespace hyalite::HWY_NAMESPACE
