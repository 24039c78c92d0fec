/// The reduction kernels on Highway vectors; included by a translation unit that is compiled once per instruction set.
#pragma once

#include <hwy/highway.h>

#include <cstring>
#include <type_traits>

#include "compute/cpu/reduce.h"

namespace hyalite::HWY_NAMESPACE {
namespace reduce_detail {

namespace hn = hwy::HWY_NAMESPACE;
using std::int64_t;
using std::uint64_t;

/// Storage of the two 16-bit floating types; they are computed in float32.
struct Half {
  std::uint16_t bits;
};
struct Brain {
  std::uint16_t bits;
};

template <int I>
struct Index {
  static constexpr int value = I;
};

/// Calls f(Index<0>) ... f(Index<N - 1>): vectors in arrays stay in registers only when every index is a constant.
template <int N, int I = 0, class F>
HWY_INLINE void unroll(const F& f) {
  if constexpr (I < N) {
    f(Index<I>{});
    unroll<N, I + 1>(f);
  }
}

// ---- loads that convert -------------------------------------------------------------------------------------------

template <class D, class T>
HWY_INLINE hn::Vec<D> load_as(D d, const T* p) {
  return hn::LoadU(d, p);
}

template <class D>
HWY_INLINE hn::Vec<D> load_as(D d, const Half* p) {
  const hn::Rebind<std::uint16_t, D> d16;
  const auto h = hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(p));
#if HWY_TARGET <= HWY_AVX2
  return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), h));
#else  // Highway's replacement for the missing instruction mistakes infinities and NaN for numbers
  const hn::RebindToUnsigned<D> du;
  const auto w = hn::PromoteTo(du, h);
  const auto magnitude = hn::And(w, hn::Set(du, 0x7fffu));
  const auto scaled = hn::Mul(hn::BitCast(d, hn::ShiftLeft<13>(magnitude)), hn::Set(d, 0x1p112f));
  const auto special = hn::VecFromMask(du, hn::Gt(magnitude, hn::Set(du, 0x7bffu)));
  const auto sign = hn::ShiftLeft<16>(hn::AndNot(hn::Set(du, 0x7fffu), w));
  const auto infinity = hn::And(special, hn::Set(du, 0x7f800000u));
  return hn::BitCast(d, hn::Or(hn::Or(hn::BitCast(du, scaled), infinity), sign));
#endif
}

template <class D>
HWY_INLINE hn::Vec<D> load_as(D d, const Brain* p) {
  const hn::Rebind<std::uint16_t, D> d16;
  const hn::RebindToUnsigned<D> du;
  const auto w = hn::PromoteTo(du, hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(p)));
  return hn::BitCast(d, hn::ShiftLeft<16>(w));
}

template <class D>
requires(sizeof(hn::TFromD<D>) == 8) HWY_INLINE hn::Vec<D> load_as(D d, const float* p) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<float, D>(), p));
}

template <class D, class T>
HWY_INLINE hn::Vec<D> load_wide(D d, const T* p) {
  const auto narrow = hn::LoadU(hn::Rebind<T, D>(), p);
  if constexpr (hwy::IsSigned<T>()) {
    if constexpr (sizeof(T) == 4)
      return hn::PromoteTo(d, narrow);
    else
      return hn::PromoteTo(d, hn::PromoteTo(hn::Rebind<std::int32_t, D>(), narrow));
  } else {
    const hn::RebindToUnsigned<D> du;
    if constexpr (sizeof(T) == 4)
      return hn::BitCast(d, hn::PromoteTo(du, narrow));
    else
      return hn::BitCast(d, hn::PromoteTo(du, hn::PromoteTo(hn::Rebind<std::uint32_t, D>(), narrow)));
  }
}

// ---- operations ---------------------------------------------------------------------------------------------------
// An operation has In, Acc, a vector type of N lanes, `order_free`, and: load, identity, pad (the element that changes
// nothing), join. N is 1 and the "vector" a scalar where no vector instruction exists.

template <class AccType>
struct VectorOp {
  using Acc = AccType;
  using D = hn::ScalableTag<Acc>;
  using V = hn::Vec<D>;
  static constexpr int N = hn::MaxLanes(D());
  static HWY_INLINE V load_acc(const Acc* p) { return hn::LoadU(D(), p); }
  static HWY_INLINE void store_acc(V v, Acc* p) { hn::StoreU(v, D(), p); }
};

template <class InType, class AccType>
struct Sum : VectorOp<AccType> {
  using In = InType;
  using typename VectorOp<AccType>::D;
  using typename VectorOp<AccType>::V;
  static constexpr bool order_free = hwy::IsFloat<AccType>() == 0;
  explicit Sum(uint64_t) {}
  HWY_INLINE V load(const In* p) const {
    if constexpr (order_free && sizeof(In) < 8)
      return load_wide(D(), p);
    else
      return load_as(D(), p);
  }
  HWY_INLINE V identity() const { return hn::Set(D(), order_free ? AccType(0) : AccType(-0.0)); }
  In pad() const {
    if constexpr (std::is_same_v<In, Half> || std::is_same_v<In, Brain>)
      return In{0x8000};
    else
      return order_free ? In(0) : In(-0.0);
  }
  template <class Any>
  static HWY_INLINE Any join(Any a, Any b) {
    return hn::Add(a, b);
  }
};

template <class T>
struct Product : VectorOp<T> {
  using In = T;
  using typename VectorOp<T>::D;
  using typename VectorOp<T>::V;
  static constexpr bool order_free = false;
  explicit Product(uint64_t) {}
  HWY_INLINE V load(const T* p) const { return hn::LoadU(D(), p); }
  HWY_INLINE V identity() const { return hn::Set(D(), T(1)); }
  T pad() const { return T(1); }
  template <class Any>
  static HWY_INLINE Any join(Any a, Any b) {
    return hn::Mul(a, b);
  }
};

/// Greatest of the flipped elements; NaN wins, and +0 over -0.
template <class InType, class AccType>
struct Max : VectorOp<AccType> {
  using In = InType;
  using Base = VectorOp<AccType>;
  using typename Base::D;
  using typename Base::V;
  using Bits = hwy::MakeUnsigned<AccType>;
  static constexpr bool order_free = true;
  Bits flip;
  explicit Max(uint64_t bits) : flip(static_cast<Bits>(bits)) {}

  HWY_INLINE V load(const In* p) const {
    return hn::Xor(load_as(D(), p), hn::BitCast(D(), hn::Set(hn::RebindToUnsigned<D>(), flip)));
  }
  static constexpr AccType lowest() {
    if constexpr (hwy::IsFloat<AccType>()) {
      return static_cast<AccType>(-__builtin_huge_val());
    } else {
      constexpr AccType least = hwy::LimitsMin<AccType>();
      return least;
    }
  }
  HWY_INLINE V identity() const { return hn::Set(D(), lowest()); }
  In pad() const {
    if constexpr (std::is_same_v<In, Half>)
      return In{static_cast<std::uint16_t>(flip ? 0x7c00 : 0xfc00)};
    else if constexpr (std::is_same_v<In, Brain>)
      return In{static_cast<std::uint16_t>(flip ? 0x7f80 : 0xff80)};
    else {
      Bits b;
      In x = lowest();
      std::memcpy(&b, &x, sizeof b);
      b = static_cast<Bits>(b ^ flip);
      std::memcpy(&x, &b, sizeof b);
      return x;
    }
  }
  template <class Any>
  static HWY_INLINE Any join(Any a, Any b) {
    if constexpr (hwy::IsFloat<AccType>()) {
      const auto zeros = hn::IfThenElse(hn::Eq(a, b), hn::And(a, b), hn::Max(b, a));
      return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::IsNaN(b), b, zeros));
    } else {
      return hn::Max(a, b);
    }
  }
};

/// Booleans count as 0 or 1, whatever bytes other than 0 the memory holds for True.
struct TruthSum : Sum<std::uint8_t, int64_t> {
  explicit TruthSum(uint64_t bits) : Sum(bits) {}
  HWY_INLINE V load(const std::uint8_t* p) const {
    return hn::IfThenElseZero(hn::Ne(Sum::load(p), hn::Zero(D())), hn::Set(D(), 1));
  }
};
struct TruthMax : Max<std::uint8_t, std::uint8_t> {
  explicit TruthMax(uint64_t bits) : Max(bits) {}
  HWY_INLINE V load(const std::uint8_t* p) const {
    return hn::Xor(hn::Min(load_as(D(), p), hn::Set(D(), 1)), hn::Set(D(), flip));
  }
};

/// Or of the masked elements.
template <class T>
struct AnyBit : VectorOp<T> {
  using In = T;
  using typename VectorOp<T>::D;
  using typename VectorOp<T>::V;
  static constexpr bool order_free = true;
  T mask;
  explicit AnyBit(uint64_t bits) : mask(static_cast<T>(bits)) {}
  HWY_INLINE V load(const T* p) const { return hn::And(hn::LoadU(D(), p), hn::Set(D(), mask)); }
  HWY_INLINE V identity() const { return hn::Zero(D()); }
  T pad() const { return 0; }
  template <class Any>
  static HWY_INLINE Any join(Any a, Any b) {
    return hn::Or(a, b);
  }
};

/// All ones where a masked element was zero.
template <class T>
struct AnyZero : AnyBit<T> {
  using typename AnyBit<T>::D;
  using typename AnyBit<T>::V;
  explicit AnyZero(uint64_t bits) : AnyBit<T>(bits) {}
  HWY_INLINE V load(const T* p) const { return hn::VecFromMask(D(), hn::Eq(AnyBit<T>::load(p), hn::Zero(D()))); }
  T pad() const { return static_cast<T>(~T(0)); }
};

template <class T>
struct ScalarOp {
  using In = T;
  using Acc = T;
  using V = T;
  static constexpr int N = 1;
  static constexpr bool order_free = false;
  static HWY_INLINE V load_acc(const T* p) { return *p; }
  static HWY_INLINE void store_acc(V v, T* p) { *p = v; }
  HWY_INLINE V load(const T* p) const { return *p; }
};

struct ProductInt : ScalarOp<uint64_t> {
  explicit ProductInt(uint64_t) {}
  uint64_t identity() const { return 1; }
  uint64_t pad() const { return 1; }
  static HWY_INLINE uint64_t join(uint64_t a, uint64_t b) { return a * b; }
};

struct Complex {
  double re, im;
};

HWY_INLINE bool is_nan(double x) { return x != x; }
HWY_INLINE bool is_inf(double x) { return __builtin_fabs(x) == __builtin_huge_val(); }
HWY_INLINE double one_if_inf(double x) { return __builtin_copysign(is_inf(x) ? 1.0 : 0.0, x); }
HWY_INLINE double zero_if_nan(double x) { return is_nan(x) ? __builtin_copysign(0.0, x) : x; }

/// A product that nothing is fused with: beside each other, a * c - b * d and a * d + b * c become `vfmaddsub` in g++
/// 12's SLP pass in spite of -ffp-contract=off. An empty asm hides the product from it.
HWY_INLINE double times(double a, double b) {
  double product = a * b;
#if HWY_ARCH_X86
  asm("" : "+x"(product));
#elif HWY_ARCH_ARM_A64
  asm("" : "+w"(product));
#endif
  return product;
}

/// C Annex G.5.1: what the product of two numbers is when both parts of the plain formula are NaN.
inline Complex recover_infinity(Complex x, Complex y, Complex plain) {
  double a = x.re, b = x.im, c = y.re, d = y.im;
  const bool inf_x = is_inf(a) || is_inf(b), inf_y = is_inf(c) || is_inf(d);
  const bool lost = !inf_x && !inf_y && (is_inf(a * c) || is_inf(b * d) || is_inf(a * d) || is_inf(b * c));
  if (!inf_x && !inf_y && !lost) return plain;
  if (inf_x) a = one_if_inf(a), b = one_if_inf(b), c = zero_if_nan(c), d = zero_if_nan(d);
  if (inf_y) c = one_if_inf(c), d = one_if_inf(d), a = zero_if_nan(a), b = zero_if_nan(b);
  if (lost) a = zero_if_nan(a), b = zero_if_nan(b), c = zero_if_nan(c), d = zero_if_nan(d);
  return {__builtin_huge_val() * (times(a, c) - times(b, d)), __builtin_huge_val() * (times(a, d) + times(b, c))};
}

struct ProductComplex : ScalarOp<Complex> {
  explicit ProductComplex(uint64_t) {}
  Complex identity() const { return {1, 0}; }
  Complex pad() const { return {1, 0}; }
  static HWY_INLINE Complex join(Complex x, Complex y) {
    const Complex r{times(x.re, y.re) - times(x.im, y.im), times(x.re, y.im) + times(x.im, y.re)};
    return is_nan(r.re) && is_nan(r.im) ? recover_infinity(x, y, r) : r;
  }
};

// ---- loops --------------------------------------------------------------------------------------------------------

/// The first `count` (below N) elements; the other lanes hold what changes nothing.
template <class Op>
HWY_INLINE typename Op::V load_some(const Op& op, const typename Op::In* p, int64_t count) {
  typename Op::In buffer[Op::N];
  for (auto& x : buffer) x = op.pad();
  std::memcpy(static_cast<void*>(buffer), p, static_cast<std::size_t>(count) * sizeof(buffer[0]));
  return op.load(buffer);
}

/// Joins the lanes of one vector, upper half to lower half.
template <class Op, class D, class V>
HWY_INLINE auto join_lanes([[maybe_unused]] D d, V v) {
  if constexpr (hn::MaxLanes(D()) == 1) {
    return hn::GetLane(v);
  } else {
    const hn::Half<D> h;
    return join_lanes<Op>(h, Op::join(hn::LowerHalf(h, v), hn::UpperHalf(h, v)));
  }
}

/// Vectors of accumulators. Where the order is free, enough of them that no instruction waits for its predecessor.
template <class Op>
constexpr int vectors = Op::order_free          ? 4
                        : Op::N >= reduce_lanes ? 1
                                                : reduce_lanes / Op::N;

template <class Op>
using Accumulators = typename Op::V[vectors<Op>];

/// Whole vectors of `runs` runs at once, each in accumulators of its own, so that a run's bits do not depend on what
/// runs beside it: how many elements of each.
template <class Op, int runs>
HWY_INLINE int64_t add_vectors(const Op& op, const typename Op::In* const* in, int64_t length, Accumulators<Op>* acc) {
  constexpr int K = vectors<Op>, N = Op::N;
  const auto each = [](auto f) HWY_ATTR {
    unroll<runs>([&](auto r) HWY_ATTR { unroll<K>([&](auto i) HWY_ATTR { f(r.value, i.value); }); });
  };
  each([&](int r, int i) HWY_ATTR { acc[r][i] = op.identity(); });
  int64_t at = 0;
  for (; at + K * N <= length; at += K * N) {
    each([&](int r, int i) HWY_ATTR { acc[r][i] = Op::join(acc[r][i], op.load(in[r] + at + i * N)); });
  }
  return at;
}

/// What is left of a run.
template <class Op>
HWY_INLINE void add_rest(const Op& op, const typename Op::In* in, int64_t length, Accumulators<Op>& acc) {
  constexpr int K = vectors<Op>, N = Op::N;
  unroll<K>([&](auto i) HWY_ATTR {
    if (length >= (i.value + 1) * N) acc[i.value] = Op::join(acc[i.value], op.load(in + i.value * N));
  });
  if (length % N == 0) return;
  const auto some = load_some(op, in + length / N * N, length % N);
  unroll<K>([&](auto i) HWY_ATTR {
    if (length / N == i.value) acc[i.value] = Op::join(acc[i.value], some);
  });
}

template <class Op>
HWY_INLINE typename Op::Acc joined(Accumulators<Op>& acc) {
  constexpr int K = vectors<Op>;
  if constexpr (K >= 16) unroll<8>([&](auto i) HWY_ATTR { acc[i.value] = Op::join(acc[i.value], acc[i.value + 8]); });
  if constexpr (K >= 8) unroll<4>([&](auto i) HWY_ATTR { acc[i.value] = Op::join(acc[i.value], acc[i.value + 4]); });
  if constexpr (K >= 4) unroll<2>([&](auto i) HWY_ATTR { acc[i.value] = Op::join(acc[i.value], acc[i.value + 2]); });
  if constexpr (K >= 2) acc[0] = Op::join(acc[0], acc[1]);
  if constexpr (Op::N == 1)
    return acc[0];
  else
    return join_lanes<Op>(typename Op::D(), acc[0]);
}

/// Blocks between two that are read at once: two streams of memory are read faster than one. Nearer than 8 KiB they
/// hinder each other, 2.4 to 4 times as long on one machine.
constexpr int64_t pair_distance = 16;

template <class Op>
void contiguous(const void* in, int64_t unit_stride, int64_t length, int64_t units, void* out, uint64_t bits) {
  using In = typename Op::In;
  const Op op(bits);
  auto* o = static_cast<typename Op::Acc*>(out);
  const auto run = [&](int64_t u) {
    return reinterpret_cast<const In*>(static_cast<const char*>(in) + u * unit_stride);
  };
  int64_t u = 0;
  if constexpr (vectors<Op> <= 4) {
    const int64_t pairs_end = length == reduce_block ? units - 2 * pair_distance : -1;
    for (; u <= pairs_end; u += 2 * pair_distance) {
      for (int64_t k = u; k < u + pair_distance; ++k) {
        const In* const two[] = {run(k), run(k + pair_distance)};
        Accumulators<Op> acc[2];
        add_vectors<Op, 2>(op, two, reduce_block, acc);
        o[k] = joined<Op>(acc[0]);
        o[k + pair_distance] = joined<Op>(acc[1]);
      }
    }
  }
  for (; u < units; ++u) {
    const In* const one = run(u);
    Accumulators<Op> acc[1];
    const int64_t done = add_vectors<Op, 1>(op, &one, length, acc);
    add_rest(op, one + done, length - done, acc[0]);
    o[u] = joined<Op>(acc[0]);
  }
}

template <class Op>
void join(void* a, const void* b, int64_t count) {
  auto* x = static_cast<typename Op::Acc*>(a);
  const auto* y = static_cast<const typename Op::Acc*>(b);
  for (int64_t i = 0; i < count; i += Op::N) {
    Op::store_acc(Op::join(Op::load_acc(x + i), Op::load_acc(y + i)), x + i);
  }
}

/// acc[c] joins `Rows` rows in turn, over the columns; the accumulators are in memory, so several rows share a trip to
/// them.
template <class Op, int Rows, class RowAt, class ColumnAt>
HWY_INLINE void add_rows(const Op& op, const RowAt& row, const ColumnAt& column, int64_t chunks,
                         typename Op::Acc* acc) {
  for (int64_t c = 0; c < chunks; ++c) {
    auto v = Op::load_acc(acc + c * Op::N);
    unroll<Rows>([&](auto r) HWY_ATTR { v = Op::join(v, op.load(row(r.value) + column(c))); });
    Op::store_acc(v, acc + c * Op::N);
  }
}

constexpr int rows_at_once = 4;

template <class Op>
constexpr int panel_lanes = Op::order_free ? 1 : reduce_lanes;

template <class Op>
void panel_add(const void* in, const int64_t* offsets, int64_t first, int64_t rows, int64_t width, void* scratch,
               uint64_t bits) {
  using Acc = typename Op::Acc;
  using In = typename Op::In;
  constexpr int L = panel_lanes<Op>, N = Op::N, R = rows_at_once;
  static_assert(panel_step % (R * L) == 0);
  const Op op(bits);
  const int64_t chunks = (width + N - 1) / N, padded = chunks * N;
  // The last vector ends at the last output and overlaps its neighbour; both compute the same bits.
  const auto column = [&](int64_t c) { return c * N + N <= width ? c * N : width - N; };
  const auto row = [&](int64_t j) { return reinterpret_cast<const In*>(static_cast<const char*>(in) + offsets[j]); };
  auto* acc = static_cast<Acc*>(scratch);
  int64_t j = 0;
  if (first == 0) {
    const int used = rows < L ? static_cast<int>(rows) : L;
    for (int l = 0; l < used; ++l) {
      for (int64_t c = 0; c < chunks; ++c) Op::store_acc(op.load(row(l) + column(c)), acc + l * padded + c * N);
    }
    j = L;
  }
  for (; j + R * L <= rows; j += R * L) {
    for (int l = 0; l < L; ++l) {
      add_rows<Op, R>(
          op, [&](int r) HWY_ATTR { return row(j + l + r * L); }, column, chunks, acc + l * padded);
    }
  }
  for (; j < rows; ++j) {
    add_rows<Op, 1>(
        op, [&](int) HWY_ATTR { return row(j); }, column, chunks, acc + (j % L) * padded);
  }
}

template <class Op>
void panel_lane(const void* in, int64_t rows, int64_t width, int lane, bool begins, void* scratch, uint64_t bits) {
  using In = typename Op::In;
  constexpr int N = Op::N;
  const Op op(bits);
  const int64_t chunks = (width + N - 1) / N;
  const auto column = [&](int64_t c) { return c * N + N <= width ? c * N : width - N; };
  const auto* data = static_cast<const In*>(in);
  auto* acc = static_cast<typename Op::Acc*>(scratch) + lane * chunks * N;
  const auto row = [&](int64_t j) { return data + j * width; };
  if (begins) {
    for (int64_t c = 0; c < chunks; ++c) Op::store_acc(op.load(row(0) + column(c)), acc + c * N);
  }
  const int64_t first = begins ? 1 : 0;
  const auto rest = [&](int j) HWY_ATTR { return row(first + j); };
  switch (rows - first) {
    case 4:
      return add_rows<Op, 4>(op, rest, column, chunks, acc);
    case 3:
      return add_rows<Op, 3>(op, rest, column, chunks, acc);
    case 2:
      return add_rows<Op, 2>(op, rest, column, chunks, acc);
    case 1:
      return add_rows<Op, 1>(op, rest, column, chunks, acc);
    default:
      return;
  }
}

template <class Op>
void panel_end(int64_t rows, int64_t width, void* scratch, void* out) {
  using Acc = typename Op::Acc;
  constexpr int L = panel_lanes<Op>, N = Op::N;
  const int64_t chunks = (width + N - 1) / N, padded = chunks * N;
  const auto column = [&](int64_t c) { return c * N + N <= width ? c * N : width - N; };
  auto* acc = static_cast<Acc*>(scratch);
  const int used = rows < L ? static_cast<int>(rows) : L;
  for (int h = L / 2; h > 0; h /= 2) {
    for (int i = 0; i < h && i + h < used; ++i) join<Op>(acc + i * padded, acc + (i + h) * padded, padded);
  }
  for (int64_t c = 0; c < chunks; ++c) Op::store_acc(Op::load_acc(acc + c * N), static_cast<Acc*>(out) + column(c));
}

template <class Op>
void panel(const void* in, const int64_t* offsets, int64_t rows, int64_t width, void* scratch, void* out,
           uint64_t bits) {
  panel_add<Op>(in, offsets, 0, rows, width, scratch, bits);
  panel_end<Op>(rows, width, scratch, out);
}

/// A multiple of 16 and of every N, so that a whole number of vectors spans the lanes of any width.
template <class Op>
constexpr int dense_lanes = Op::order_free ? static_cast<int>(reduce_padding) : reduce_lanes;

template <class Op>
void dense(const void* in, int64_t rows, int64_t width, void* scratch, void* out, uint64_t bits) {
  using In = typename Op::In;
  constexpr int L = dense_lanes<Op>, N = Op::N, R = rows_at_once;
  const Op op(bits);
  const In* p = static_cast<const In*>(in);
  auto* acc = static_cast<typename Op::Acc*>(scratch);
  const int64_t period = L * width, chunks = period / N, periods = rows / L;
  const auto column = [](int64_t c) { return c * Op::N; };
  for (int64_t c = 0; c < chunks; ++c) Op::store_acc(periods ? op.load(p + c * N) : op.identity(), acc + c * N);
  int64_t k = periods ? 1 : 0;
  for (; k + R <= periods; k += R) {
    add_rows<Op, R>(
        op, [&](int r) HWY_ATTR { return p + (k + r) * period; }, column, chunks, acc);
  }
  for (; k < periods; ++k)
    add_rows<Op, 1>(
        op, [&](int) HWY_ATTR { return p + k * period; }, column, chunks, acc);
  const int64_t rest = (rows - periods * L) * width;
  p += periods * period;
  add_rows<Op, 1>(
      op, [&](int) HWY_ATTR { return p; }, column, rest / N, acc);
  if (rest % N != 0) {
    const int64_t i = rest / N * N;
    Op::store_acc(Op::join(Op::load_acc(acc + i), load_some(op, p + i, rest % N)), acc + i);
  }
  // The last vector of a join may pass h * width: what lies there has been joined already.
  for (int64_t h = L / 2; h > 0; h /= 2) join<Op>(acc, acc + h * width, h * width);
  std::memcpy(out, static_cast<const void*>(acc), static_cast<std::size_t>(width) * sizeof(*acc));
}

template <class Op>
void tree(void* v, int64_t count) {
  auto* x = static_cast<typename Op::Acc*>(v);
  // Joining neighbours level by level, the odd one moving up as it is, makes the left-balanced tree.
  for (; count > 1; count = (count + 1) / 2) {
    for (int64_t i = 0; i < count / 2; ++i) {
      if constexpr (Op::N == 1) {
        x[i] = Op::join(x[2 * i], x[2 * i + 1]);
      } else {
        const hn::CappedTag<typename Op::Acc, 1> d;
        x[i] = hn::GetLane(Op::join(hn::Set(d, x[2 * i]), hn::Set(d, x[2 * i + 1])));
      }
    }
    if (count % 2 != 0) x[count / 2] = x[count - 1];
  }
}

template <class Op>
void select(void* best, int64_t* best_index, const void* value, const int64_t* index, int64_t count) {
  auto* b = static_cast<typename Op::Acc*>(best);
  const auto* v = static_cast<const typename Op::Acc*>(value);
  for (int64_t i = 0; i < count; ++i) {
    if (v[i] > b[i] || (v[i] != v[i] && b[i] == b[i])) {
      b[i] = v[i];
      best_index[i] = index[i];
    }
  }
}

template <class Op>
int64_t locate(const void* in, int64_t length, const void* value, uint64_t bits) {
  const Op op(bits);
  const auto* p = static_cast<const typename Op::In*>(in);
  const typename Op::D d;
  typename Op::Acc wanted;
  std::memcpy(&wanted, value, sizeof wanted);
  const auto target = hn::Set(d, wanted);
  for (int64_t j = 0; j < length; j += Op::N) {
    const auto x = length - j >= Op::N ? op.load(p + j) : load_some(op, p + j, length - j);
    auto found = hn::Eq(x, target);
    if constexpr (hwy::IsFloat<typename Op::Acc>()) {
      if (wanted != wanted) found = hn::IsNaN(x);  // Ne(x, x) is ordered, so false, in Highway's AVX2
    }
    const auto lane = hn::FindFirstTrue(d, found);
    if (lane >= 0) return j + lane;
  }
  return -1;
}

template <class Op>
ReduceKernel make_kernel() {
  ReduceKernel k{};
  k.in_size = sizeof(typename Op::In);
  k.acc_size = sizeof(typename Op::Acc);
  k.panel_lanes = panel_lanes<Op>;
  k.dense_lanes = dense_lanes<Op>;
  k.min_width = Op::N;
  k.contiguous = contiguous<Op>;
  k.panel = panel<Op>;
  k.panel_add = panel_add<Op>;
  k.panel_lane = panel_lane<Op>;
  k.panel_end = panel_end<Op>;
  k.dense = dense<Op>;
  k.join = join<Op>;
  k.tree = tree<Op>;
  return k;
}

template <class Op>
ReduceKernel make_max_kernel_of() {
  ReduceKernel k = make_kernel<Op>();
  k.select = select<Op>;
  k.locate = locate<Op>;
  return k;
}
template <class In, class Acc = In>
ReduceKernel make_max_kernel() {
  return make_max_kernel_of<Max<In, Acc>>();
}

template <template <class> class Op>
void fill_by_size(ReduceKernel (&table)[4]) {
  table[0] = make_kernel<Op<std::uint8_t>>();
  table[1] = make_kernel<Op<std::uint16_t>>();
  table[2] = make_kernel<Op<std::uint32_t>>();
  table[3] = make_kernel<Op<uint64_t>>();
}

inline ReduceKernels make_kernels() {
  ReduceKernels t{};
  const auto sum = [&](Dtype d) -> ReduceKernel& { return t.sum[static_cast<int>(d)]; };
  const auto max = [&](Dtype d) -> ReduceKernel& { return t.max[static_cast<int>(d)]; };
  sum(Dtype::boolean) = make_kernel<TruthSum>();
  sum(Dtype::uint8) = make_kernel<Sum<std::uint8_t, int64_t>>();
  sum(Dtype::int8) = make_kernel<Sum<std::int8_t, int64_t>>();
  sum(Dtype::int16) = make_kernel<Sum<std::int16_t, int64_t>>();
  sum(Dtype::int32) = make_kernel<Sum<std::int32_t, int64_t>>();
  sum(Dtype::int64) = sum(Dtype::uint64) = make_kernel<Sum<int64_t, int64_t>>();
  sum(Dtype::uint16) = make_kernel<Sum<std::uint16_t, int64_t>>();
  sum(Dtype::uint32) = make_kernel<Sum<std::uint32_t, int64_t>>();
  sum(Dtype::float16) = make_kernel<Sum<Half, float>>();
  sum(Dtype::bfloat16) = make_kernel<Sum<Brain, float>>();
  sum(Dtype::float32) = sum(Dtype::complex64) = make_kernel<Sum<float, double>>();
  sum(Dtype::float64) = sum(Dtype::complex128) = make_kernel<Sum<double, double>>();
  max(Dtype::boolean) = make_max_kernel_of<TruthMax>();
  max(Dtype::uint8) = make_max_kernel<std::uint8_t>();
  max(Dtype::int8) = make_max_kernel<std::int8_t>();
  max(Dtype::int16) = make_max_kernel<std::int16_t>();
  max(Dtype::int32) = make_max_kernel<std::int32_t>();
  max(Dtype::int64) = make_max_kernel<int64_t>();
  max(Dtype::uint16) = make_max_kernel<std::uint16_t>();
  max(Dtype::uint32) = make_max_kernel<std::uint32_t>();
  max(Dtype::uint64) = make_max_kernel<uint64_t>();
  max(Dtype::float16) = make_max_kernel<Half, float>();
  max(Dtype::bfloat16) = make_max_kernel<Brain, float>();
  max(Dtype::float32) = make_max_kernel<float>();
  max(Dtype::float64) = make_max_kernel<double>();
  fill_by_size<AnyBit>(t.any);
  fill_by_size<AnyZero>(t.all);
  t.prod_int64 = make_kernel<ProductInt>();
  t.prod_float32 = make_kernel<Product<float>>();
  t.prod_float64 = make_kernel<Product<double>>();
  t.prod_complex128 = make_kernel<ProductComplex>();
  return t;
}

}  // namespace reduce_detail

/// Sets every kernel of this instruction set.
inline void fill(ReduceKernels& table) { table = reduce_detail::make_kernels(); }

}  // namespace hyalite::HWY_NAMESPACE
