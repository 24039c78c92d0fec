/// The argument type that turns a formula into a SIMD loop body. Compiled once per instruction set, in its namespace.
#pragma once

#ifndef HWY_COMPILE_ONLY_STATIC
#define HWY_COMPILE_ONLY_STATIC
#endif
#include <hwy/highway.h>
#include <sleef.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "compute/cpu/lanes.h"
#include "ops/op.h"
#include "ops/primitives.h"

namespace hyalite::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using Tag = hn::ScalableTag<T>;

/// Masked memory operations fault on no byte outside the mask: every lane size with AVX-512, 32 and 64 bit with AVX2.
template <class T>
inline constexpr bool masked_memory = HWY_TARGET <= HWY_AVX3 || (HWY_TARGET == HWY_AVX2 && sizeof(T) >= 4);

// ---------------------------------------------------------------------------------------------------------- masks

/// A truth value a lane.
template <class T>
struct Mask {
  hn::Mask<Tag<T>> m;
  static Mask load(const void* p);
  static Mask load_n(const void* p, std::size_t n) {
    std::uint8_t bytes[HWY_MAX_BYTES] = {};
    std::memcpy(bytes, p, n);
    return load(bytes);
  }
  void store(void* p) const;
  void store_n(void* p, std::size_t n) const {
    std::uint8_t bytes[HWY_MAX_BYTES];
    store(bytes);
    std::memcpy(p, bytes, n);
  }
  void stream(void* p) const { store(p); }
  bool any() const { return !hn::AllFalse(Tag<T>(), m); }
  friend Mask operator&(Mask a, Mask b) { return {hn::And(a.m, b.m)}; }
  friend Mask operator|(Mask a, Mask b) { return {hn::Or(a.m, b.m)}; }
  friend Mask operator^(Mask a, Mask b) { return {hn::Xor(a.m, b.m)}; }
  friend Mask operator!(Mask a) { return {hn::Not(a.m)}; }
};

/// Bytes to a mask, true where one is not 0, eight at a time through packed bits.
template <class T>
Mask<T> Mask<T>::load(const void* p) {
  constexpr std::size_t lanes = HWY_LANES(T);
  const auto* bytes = static_cast<const std::uint8_t*>(p);
  if constexpr (sizeof(T) == 1) {
    Tag<std::uint8_t> d;
    const auto m = hn::Ne(hn::LoadU(d, bytes), hn::Zero(d));
    return {hn::RebindMask(Tag<T>(), m)};
  } else {
    std::uint8_t packed[8] = {};
    for (std::size_t i = 0; i < lanes; i += 8) {
      std::uint64_t w = 0;
      std::memcpy(&w, bytes + i, lanes < 8 ? lanes : 8);
      // Memory shared with others may hold any byte: its top bit is set where it is not 0.
      w = (((w & 0x7f7f7f7f7f7f7f7fu) + 0x7f7f7f7f7f7f7f7fu) | w) & 0x8080808080808080u;
      packed[i / 8] = static_cast<std::uint8_t>(((w >> 7) * 0x0102040810204080u) >> 56);
    }
    return {hn::LoadMaskBits(Tag<T>(), packed)};
  }
}

template <class T>
void Mask<T>::store(void* p) const {
  constexpr std::size_t lanes = HWY_LANES(T);
  auto* bytes = static_cast<std::uint8_t*>(p);
  if constexpr (sizeof(T) == 1) {
    Tag<std::uint8_t> d;
    hn::StoreU(hn::IfThenElseZero(hn::RebindMask(d, m), hn::Set(d, 1)), d, bytes);
#if HWY_TARGET <= HWY_AVX3
  } else if constexpr (sizeof(T) == 2) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(bytes), _mm256_maskz_set1_epi8(m.raw, 1));
  } else if constexpr (sizeof(T) == 4) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(bytes), _mm_maskz_set1_epi8(m.raw, 1));
#endif
  } else {
    std::uint8_t packed[8];
    hn::StoreMaskBits(Tag<T>(), m, packed);
    for (std::size_t i = 0; i < lanes; i += 8) {
      // Bit k of the byte to byte k of the word.
      const std::uint64_t b = packed[i / 8];
      const std::uint64_t low = ((b & 0x7f) * 0x0002040810204081u) & 0x0101010101010101u;
      const std::uint64_t w = low | (b >> 7 << 56);
      std::memcpy(bytes + i, &w, lanes < 8 ? lanes : 8);
    }
  }
}

// ----------------------------------------------------------------------------------------------------- real vectors

template <class T>
struct Vec;

/// Lanes of one real type. Booleans have lanes of uint8 that hold 0 or 1.
template <class T>
struct Vec {
  using D = Tag<T>;
  using Element = T;
  static constexpr std::size_t lanes = HWY_LANES(T);
  // Compilers' own vectors give what Highway 1.0.3 lacks: 8-bit and 64-bit products, shifts of every width.
  typedef T Native __attribute__((vector_size(lanes * sizeof(T))));
  hn::Vec<D> v;

  Vec() = default;
  Vec(hn::Vec<D> x) : v(x) {}
  Vec(Constant c) : v(hn::Set(D(), static_cast<T>(c.value))) {}
  static Vec fill(T x) { return hn::Set(D(), x); }
  static Vec from(Native n) { return Vec(std::bit_cast<hn::Vec<D>>(n)); }
  Native native() const { return std::bit_cast<Native>(v); }

  static Vec load(const void* p) { return hn::LoadU(D(), static_cast<const T*>(p)); }
  static Vec load_n(const void* p, std::size_t n) {
    if constexpr (masked_memory<T>) {
      return hn::MaskedLoad(hn::FirstN(D(), n), D(), static_cast<const T*>(p));
    } else {
      HWY_ALIGN T tail[lanes] = {};
      std::memcpy(tail, p, n * sizeof(T));
      return hn::Load(D(), tail);
    }
  }
  void store(void* p) const { hn::StoreU(v, D(), static_cast<T*>(p)); }
  void store_n(void* p, std::size_t n) const {
    if constexpr (masked_memory<T>) {
      hn::BlendedStore(v, hn::FirstN(D(), n), D(), static_cast<T*>(p));
    } else {
      HWY_ALIGN T tail[lanes];
      hn::Store(v, D(), tail);
      std::memcpy(p, tail, n * sizeof(T));
    }
  }
  void stream(void* p) const { hn::Stream(v, D(), static_cast<T*>(p)); }

  friend Vec operator+(Vec a, Vec b) { return hn::Add(a.v, b.v); }
  friend Vec operator-(Vec a, Vec b) { return hn::Sub(a.v, b.v); }
  friend Vec operator*(Vec a, Vec b) {
    if constexpr (hwy::IsFloat<T>()) {
      return hn::Mul(a.v, b.v);
    } else {
      using U = Vec<std::make_unsigned_t<T>>;
      const auto product = std::bit_cast<typename U::Native>(a.v) * std::bit_cast<typename U::Native>(b.v);
      return std::bit_cast<hn::Vec<D>>(product);
    }
  }
  friend Vec operator/(Vec a, Vec b) requires(hwy::IsFloat<T>()) { return hn::Div(a.v, b.v); }
  friend Vec operator-(Vec a) {
    if constexpr (hwy::IsFloat<T>()) {
      return hn::Xor(a.v, hn::SignBit(D()));
    } else {
      return hn::Sub(hn::Zero(D()), a.v);
    }
  }
  friend Vec operator&(Vec a, Vec b) { return hn::And(a.v, b.v); }
  friend Vec operator|(Vec a, Vec b) { return hn::Or(a.v, b.v); }
  friend Vec operator^(Vec a, Vec b) { return hn::Xor(a.v, b.v); }
  friend Vec operator~(Vec a) { return hn::Not(a.v); }
  friend Mask<T> operator<(Vec a, Vec b) { return {hn::Lt(a.v, b.v)}; }
  friend Mask<T> operator<=(Vec a, Vec b) {
    if constexpr (hwy::IsFloat<T>()) {
      return {hn::Le(a.v, b.v)};
    } else {
      return !(b < a);
    }
  }
  friend Mask<T> operator==(Vec a, Vec b) { return {hn::Eq(a.v, b.v)}; }
  // Not Ne: Highway 1.0.3's is ordered on AVX2, so that NaN != NaN is false there.
  friend Mask<T> operator!=(Vec a, Vec b) { return !(a == b); }
  friend Vec operator<<(Vec a, Vec b) {
    return shift(
        a, b, [](auto x, auto n) { return x << n; }, Vec::fill(0));
  }
  friend Vec operator>>(Vec a, Vec b) {
    const Vec gone = std::is_signed_v<T> ? select(a < Vec::fill(0), Vec::fill(T(-1)), Vec::fill(0)) : Vec::fill(0);
    return shift(
        a, b, [](auto x, auto n) { return x >> n; }, gone);
  }

  /// f applied to each lane alone, where no vector instruction does it.
  template <class F, class... Rest>
  static Vec each(F f, Vec a, Rest... rest) {
    HWY_ALIGN T r[lanes];
    HWY_ALIGN T in[1 + sizeof...(Rest)][lanes];
    hn::Store(a.v, D(), in[0]);
    [&, i = 1]() mutable { (hn::Store(rest.v, D(), in[i++]), ...); }();
    for (std::size_t k = 0; k < lanes; ++k) {
      r[k] = [&]<std::size_t... I>(std::index_sequence<I...>) { return f(in[I][k]...); }
      (std::make_index_sequence<1 + sizeof...(Rest)>());
    }
    return hn::Load(D(), r);
  }

 private:
  /// Shifts by the width or more, and by negative amounts, give `gone`.
  template <class F>
  static Vec shift(Vec a, Vec b, F f, Vec gone) {
    using U = std::make_unsigned_t<T>;
    constexpr U width = sizeof(T) * 8;
    const auto inside = hn::Lt(std::bit_cast<hn::Vec<Tag<U>>>(b.v), hn::Set(Tag<U>(), width));
    const Vec amount = b & Vec::fill(static_cast<T>(width - 1));
    const auto r = f(a.native(), amount.native());
    return select(Mask<T>{hn::RebindMask(D(), inside)}, Vec::from(r), gone);
  }
};

template <class T>
Vec<T> select(Mask<T> m, Vec<T> a, Vec<T> b) {
  return hn::IfThenElse(m.m, a.v, b.v);
}

/// Booleans: uint8 lanes with values 0 and 1, whatever bytes other than 0 the memory holds for True.
template <>
struct Vec<Bool> : Vec<std::uint8_t> {
  using Base = Vec<std::uint8_t>;
  using Element = Bool;
  Vec() = default;
  Vec(Base b) : Base(b) {}
  Vec(Constant c) : Base(Constant{c.value != 0 ? 1.0 : 0.0}) {}
  static Vec load(const void* p) { return truth(Base::load(p)); }
  static Vec load_n(const void* p, std::size_t n) { return truth(Base::load_n(p, n)); }
  static Vec truth(Base b) { return Base(hn::Min(b.v, hn::Set(Base::D(), 1))); }
  friend Vec operator+(Vec a, Vec b) { return Base(hn::Or(a.v, b.v)); }
  friend Vec operator*(Vec a, Vec b) { return Base(hn::And(a.v, b.v)); }
  friend Vec operator&(Vec a, Vec b) { return Base(hn::And(a.v, b.v)); }
  friend Vec operator|(Vec a, Vec b) { return Base(hn::Or(a.v, b.v)); }
  friend Vec operator^(Vec a, Vec b) { return Base(hn::Xor(a.v, b.v)); }
  friend Vec operator~(Vec a) { return Base(hn::Xor(a.v, hn::Set(Base::D(), 1))); }
};
inline Vec<Bool> select(Mask<std::uint8_t> m, Vec<Bool> a, Vec<Bool> b) {
  return select(m, static_cast<Vec<std::uint8_t>>(a), static_cast<Vec<std::uint8_t>>(b));
}

// ----------------------------------------------------------------- constants meet vectors, in either order

template <class T>
struct IsVec : std::false_type {};
template <class T>
struct IsVec<Vec<T>> : std::true_type {};
template <class V>
concept AnyVec = IsVec<V>::value;

#define HYALITE_VEC_CONSTANT(symbol)      \
  template <AnyVec V>                     \
  auto operator symbol(V a, Constant b) { \
    return a symbol V(b);                 \
  }                                       \
  template <AnyVec V>                     \
  auto operator symbol(Constant a, V b) { \
    return V(a) symbol b;                 \
  }
HYALITE_VEC_CONSTANT(+)
HYALITE_VEC_CONSTANT(-)
HYALITE_VEC_CONSTANT(*)
HYALITE_VEC_CONSTANT(/)
HYALITE_VEC_CONSTANT(<)
HYALITE_VEC_CONSTANT(<=)
HYALITE_VEC_CONSTANT(==)
HYALITE_VEC_CONSTANT(!=)
#undef HYALITE_VEC_CONSTANT
template <class M, AnyVec V>
V select(M m, V a, Constant b) {
  return select(m, a, V(b));
}
template <class M, AnyVec V>
V select(M m, Constant a, V b) {
  return select(m, V(a), b);
}
template <class M, AnyVec V>
V select(M m, Nothing, V b) {
  return select(m, -V(Constant{0}), b);
}

// ----------------------------------------------------------------------------------------------- exact primitives

template <class T>
concept RealFloat = hwy::IsFloat<T>();
template <class T>
concept Whole = std::is_integral_v<T>;

template <class T>
Vec<T> abs(Vec<T> x) {
  if constexpr (std::is_unsigned_v<T>) {
    return x;
  } else {
    return hn::Abs(x.v);
  }
}
template <RealFloat T>
Vec<T> sqrt(Vec<T> x) {
  return hn::Sqrt(x.v);
}
#define HYALITE_VEC_ROUND(name, Function) \
  template <RealFloat T>                  \
  Vec<T> name(Vec<T> x) {                 \
    return hn::Function(x.v);             \
  }                                       \
  template <Whole T>                      \
  Vec<T> name(Vec<T> x) {                 \
    return x;                             \
  }
HYALITE_VEC_ROUND(floor, Floor)
HYALITE_VEC_ROUND(ceil, Ceil)
HYALITE_VEC_ROUND(trunc, Trunc)
HYALITE_VEC_ROUND(round, Round)
#undef HYALITE_VEC_ROUND

#define HYALITE_VEC_TEST(name, Function, whole) \
  template <RealFloat T>                        \
  Mask<T> name(Vec<T> x) {                      \
    return {hn::Function(x.v)};                 \
  }                                             \
  template <Whole T>                            \
  Mask<T> name(Vec<T> x) {                      \
    return whole;                               \
  }
HYALITE_VEC_TEST(isnan, IsNaN, x != x)
HYALITE_VEC_TEST(isinf, IsInf, x != x)
HYALITE_VEC_TEST(isfinite, IsFinite, x == x)
#undef HYALITE_VEC_TEST

template <class T>
Vec<T> sign(Vec<T> x) {
  using V = Vec<T>;
  const V positive = select(V::fill(0) < x, V::fill(1), x);
  if constexpr (std::is_unsigned_v<T>) {
    return positive;
  } else {
    return select(x < V::fill(0), V::fill(T(-1)), positive);
  }
}
template <class T>
Vec<T> maximum(Vec<T> a, Vec<T> b) {
  if constexpr (hwy::IsFloat<T>()) {
    // Equal values differ only as zeros: and keeps +0.
    return select(a == b, a & b, select((b < a) | isnan(a), a, b));
  } else {
    return select(b < a, a, b);
  }
}
template <class T>
Vec<T> minimum(Vec<T> a, Vec<T> b) {
  if constexpr (hwy::IsFloat<T>()) {
    return select(a == b, a | b, select((a < b) | isnan(a), a, b));
  } else {
    return select(a < b, a, b);
  }
}
template <AnyVec V>
V maximum(V a, Constant b) {
  return maximum(a, V(b));
}
template <RealFloat T>
Vec<T> copysign(Vec<T> a, Vec<T> b) {
  return hn::CopySign(a.v, b.v);
}
template <class T>
Vec<T> conj(Vec<T> x) {
  return x;
}
template <class T>
Vec<T> real(Vec<T> x) {
  return x;
}
template <class T>
Vec<T> imaginary(Vec<T>) {
  return Constant{0};
}
/// What a formula is for reals, or for complex numbers.
template <class T>
auto by_kind(Vec<T>, auto of_reals, auto) {
  return of_reals();
}
/// Where a gradient is nothing: -0.
template <RealFloat T>
Mask<T> is_nothing(Vec<T> x) {
  using I = Tag<hwy::MakeSigned<T>>;
  return {hn::RebindMask(Tag<T>(), hn::Eq(hn::BitCast(I(), x.v), hn::BitCast(I(), hn::SignBit(Tag<T>()))))};
}

/// a * b + c rounded once, on every instruction set.
template <RealFloat T>
Vec<T> fused_multiply_add(Vec<T> a, Vec<T> b, Vec<T> c) {
#if HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SSSE3
  return Vec<T>::each([](T x, T y, T z) { return std::fma(x, y, z); }, a, b, c);
#else
  return hn::MulAdd(a.v, b.v, c.v);
#endif
}

template <RealFloat T>
Vec<T> fused_multiply_add(Constant a, Vec<T> b, Vec<T> c) {
  return fused_multiply_add(Vec<T>(a), b, c);
}

/// The floor of the exact quotient, rounded once. The rounded quotient is too large by 1 exactly if it is an integer
/// that x falls short of. Where neighbours are 2 or more apart it is too large by that distance if the floor is the
/// number half-way, a tie that goes down to the even neighbour, and the quotient itself passed it.
template <RealFloat T>
Vec<T> floor_divide(Vec<T> x, Vec<T> y) {
  using V = Vec<T>;
  const V quotient = x / y, whole = floor(quotient), zero = V::fill(0);
  const V rest = fused_multiply_add(-whole, y, x);
  const auto short_of = (whole == quotient) & (((rest < zero) & (zero < y)) | ((zero < rest) & (y < zero)));
  const V near = select(short_of, whole - V::fill(1), whole);
  constexpr T dense = static_cast<T>(std::uint64_t{1} << std::numeric_limits<T>::digits);
  const Mask<T> sparse = V::fill(dense) < abs(whole);
  if (!sparse.any()) return near;
  using U = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  const Tag<U> du;
  const auto bits = hn::BitCast(du, whole.v), one = hn::Set(du, U{1});
  const V below =
      select(zero < whole, V(hn::BitCast(Tag<T>(), hn::Sub(bits, one))), V(hn::BitCast(Tag<T>(), hn::Add(bits, one))));
  const Mask<T> odd{hn::RebindMask(Tag<T>(), hn::Eq(hn::And(bits, one), one))};
  // Signs of (quotient - middle) y and (quotient - middle - 1) y; each is rounded once, which keeps its sign.
  const V half = (whole - below) * V::fill(T(0.5));
  const V passed = fused_multiply_add(half, y, rest), beyond = fused_multiply_add(half - V::fill(1), y, rest);
  const Mask<T> between =
      ((zero < passed) & (beyond < zero) & (zero < y)) | ((passed < zero) & (zero < beyond) & (y < zero));
  return select(sparse, select(between & odd, below, whole), near);
}
template <RealFloat T>
Vec<T> remainder(Vec<T> x, Vec<T> y) {
  using V = Vec<T>;
  const V whole = floor_divide(x, y);
  const V rest = fused_multiply_add(-whole, y, x);
  constexpr T exact = static_cast<T>(std::uint64_t{1} << std::numeric_limits<T>::digits);
  const auto simple = (abs(whole) < V::fill(exact)) & isfinite(y) & isfinite(x);
  if ((!simple).any()) return V::each([](T a, T b) { return scalar::remainder(a, b); }, x, y);
  return select(rest == V::fill(0), copysign(V::fill(0), y), rest);
}
template <Whole T>
Vec<T> floor_divide(Vec<T> x, Vec<T> y) {
  return Vec<T>::each([](T a, T b) { return scalar::floor_divide(a, b); }, x, y);
}
template <Whole T>
Vec<T> remainder(Vec<T> x, Vec<T> y) {
  return Vec<T>::each([](T a, T b) { return scalar::remainder(a, b); }, x, y);
}
/// Powers of integers by squaring; exponents are not negative (checked before).
template <Whole T>
Vec<T> power(Vec<T> x, Vec<T> y) {
  using V = Vec<T>;
  V result = V::fill(1);
  const V one = V::fill(1), zero = V::fill(0);
  while ((y != zero).any()) {
    result = select((y & one) != zero, result * x, result);
    x = x * x;
    y = y >> one;
  }
  return result;
}

// ------------------------------------------------------------------------------------------------ SLEEF's functions

#if HWY_TARGET <= HWY_AVX3
#define HYALITE_SLEEF_F32(stem, accuracy) Sleef_finz_##stem##f16##accuracy##avx512f
#define HYALITE_SLEEF_F64(stem, accuracy) Sleef_finz_##stem##d8##accuracy##avx512f
#elif HWY_TARGET == HWY_AVX2
#define HYALITE_SLEEF_F32(stem, accuracy) Sleef_finz_##stem##f8##accuracy##avx2
#define HYALITE_SLEEF_F64(stem, accuracy) Sleef_finz_##stem##d4##accuracy##avx2
#elif HWY_TARGET == HWY_NEON
#define HYALITE_SLEEF_F32(stem, accuracy) Sleef_finz_##stem##f4##accuracy##advsimd
#define HYALITE_SLEEF_F64(stem, accuracy) Sleef_finz_##stem##d2##accuracy##advsimd
#else
#define HYALITE_SLEEF_F32(stem, accuracy) Sleef_cinz_##stem##f4##accuracy##sse4
#define HYALITE_SLEEF_F64(stem, accuracy) Sleef_cinz_##stem##d2##accuracy##sse4
#endif

/// A result of SLEEF's. Its NaNs have either sign, by instruction set: they become one.
template <RealFloat T>
Vec<T> from_sleef(auto raw) {
  const hn::Vec<Tag<T>> v{raw};
  return hn::IfThenElse(hn::IsNaN(v), hn::Set(Tag<T>(), std::numeric_limits<T>::quiet_NaN()), v);
}

#define HYALITE_VEC_FUNCTION(name, arity, stem, accuracy, ...) HYALITE_VEC_FUNCTION_##arity(name, stem, accuracy)
#define HYALITE_VEC_FUNCTION_1(name, stem, accuracy)                                                             \
  inline Vec<float> name(Vec<float> x) { return from_sleef<float>(HYALITE_SLEEF_F32(stem, accuracy)(x.v.raw)); } \
  inline Vec<double> name(Vec<double> x) { return from_sleef<double>(HYALITE_SLEEF_F64(stem, accuracy)(x.v.raw)); }
#define HYALITE_VEC_FUNCTION_2(name, stem, accuracy)                                \
  inline Vec<float> name(Vec<float> x, Vec<float> y) {                              \
    return from_sleef<float>(HYALITE_SLEEF_F32(stem, accuracy)(x.v.raw, y.v.raw));  \
  }                                                                                 \
  inline Vec<double> name(Vec<double> x, Vec<double> y) {                           \
    return from_sleef<double>(HYALITE_SLEEF_F64(stem, accuracy)(x.v.raw, y.v.raw)); \
  }
HYALITE_FUNCTIONS(HYALITE_VEC_FUNCTION)
#undef HYALITE_VEC_FUNCTION
#undef HYALITE_VEC_FUNCTION_1
#undef HYALITE_VEC_FUNCTION_2
inline Vec<float> power(Vec<float> x, Vec<float> y) {
  return from_sleef<float>(HYALITE_SLEEF_F32(pow, _u10)(x.v.raw, y.v.raw));
}
inline Vec<double> power(Vec<double> x, Vec<double> y) {
  return from_sleef<double>(HYALITE_SLEEF_F64(pow, _u10)(x.v.raw, y.v.raw));
}

}  // namespace hyalite::HWY_NAMESPACE
