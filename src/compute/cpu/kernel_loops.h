/// The one loop every elementwise kernel is: full vectors, then the same code on the part that is left.
#pragma once

#include "compute/cpu/kernels.h"
#include "compute/cpu/vec.h"
#include "compute/cpu/vec_complex.h"
#include "ops/mark.h"

namespace hyalite::HWY_NAMESPACE {

template <class T>
struct LaneOf {
  using Type = T;
};
template <>
struct LaneOf<Bool> {
  using Type = std::uint8_t;
};
template <class R>
struct LaneOf<Complex<R>> {
  using Type = R;
};
template <class T>
using MaskOf = Mask<typename LaneOf<T>::Type>;

/// Bytes an element takes in memory.
template <class V>
inline constexpr std::size_t stored_size = 1;
template <class T>
inline constexpr std::size_t stored_size<Vec<T>> = sizeof(T);

/// The type of operand I, and of the result, of an op over T.
template <class Op, class T, int I>
using Operand = std::conditional_t<Op::schema.is_condition(I), MaskOf<T>, Vec<T>>;
template <class Op, class T, int k = 0>
struct ResultOf {
  using Type = Vec<T>;
};
template <class Op, class T, int k>
requires(Op::schema.results[k] == Result::boolean) struct ResultOf<Op, T, k> {
  using Type = MaskOf<T>;
};
template <class Op, class R, int k>
requires(Op::schema.results[k] == Result::real_part) struct ResultOf<Op, Complex<R>, k> {
  using Type = Vec<R>;
};
/// The types of all results, as `loop` takes them.
template <class Op, class T, class K = std::make_index_sequence<Op::outputs>>
struct ResultsOf;
template <class Op, class T, std::size_t... K>
struct ResultsOf<Op, T, std::index_sequence<K...>> {
  using Type = std::tuple<typename ResultOf<Op, T, K>::Type...>;
};

template <class... V>
struct Leaves {};

/// Calls f on vectors of the leaves in `reads` and stores what it returns, as the types of the tuple `Outs`. T sets the
/// lanes.
template <class T, class Outs, std::uint32_t reads, class F, class... V>
HWY_INLINE void loop(const void* const* in, void* const* out, std::size_t n, bool stream, F f, Leaves<V...>) {
  constexpr std::size_t lanes = HWY_LANES(typename LaneOf<T>::Type);
  auto leaf = [&]<std::size_t I, class L>(std::size_t i, auto load) -> L {
    if constexpr ((reads >> I & 1) != 0) {
      return load(static_cast<const std::uint8_t*>(in[I]) + i * stored_size<L>, std::type_identity<L>());
    } else {
      return L();
    }
  };
  auto store = [&](auto r, std::size_t i, auto one) {
    auto to = [&]<int k>(std::integral_constant<int, k>, auto value) {
      using Out = std::tuple_element_t<k, Outs>;
      one(Out(value), static_cast<std::uint8_t*>(out[k]) + i * stored_size<Out>);
    };
    if constexpr (is_several<decltype(r)>) {
      [&]<std::size_t... K>(std::index_sequence<K...>) {
        (to(std::integral_constant<int, static_cast<int>(K)>(), at<static_cast<int>(K)>(r)), ...);
      }
      (std::make_index_sequence<std::tuple_size_v<Outs>>());
    } else {
      to(std::integral_constant<int, 0>(), r);
    }
  };
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    std::size_t i = 0;
    auto full = [](const void* p, auto type) { return decltype(type)::type::load(p); };
    for (; i + lanes <= n; i += lanes) {
      store(f(leaf.template operator()<I, V>(i, full)...), i, [&](auto r, void* to) {
        if (stream) {
          r.stream(to);
        } else {
          r.store(to);
        }
      });
    }
    if (i < n) {
      auto part = [&](const void* p, auto type) { return decltype(type)::type::load_n(p, n - i); };
      store(f(leaf.template operator()<I, V>(i, part)...), i, [&](auto r, void* to) { r.store_n(to, n - i); });
    }
  }
  (std::index_sequence_for<V...>());
}

template <class Op, class T, class F>
HWY_INLINE void with_attributes(const double* attr, F f) {
  if constexpr (HasAttr<Op>) {
    f(make_attr<Op, Vec<T>>([&](int i) { return Vec<T>(Constant{attr[i]}); }));
  } else {
    f();
  }
}

template <class Op, class T>
void forward(const void* const* in, void* const* out, std::size_t n, const double* attr, bool stream) {
  using Outs = typename ResultsOf<Op, T>::Type;
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    with_attributes<Op, T>(attr, [&](auto... a) {
      loop<T, Outs, ~0u>(
          in, out, n, stream, [&](auto... x) { return Op::formula(x..., a...); }, Leaves<Operand<Op, T, I>...>());
    });
  }
  (std::make_index_sequence<Op::arity>());
}

/// The op over a complex T whose operand `real` is of the component's type.
template <class Op, class R, int real>
void forward_real(const void* const* in, void* const* out, std::size_t n, const double*, bool stream) {
  using A = std::conditional_t<real == 0, Vec<R>, Vec<Complex<R>>>;
  using B = std::conditional_t<real == 1, Vec<R>, Vec<Complex<R>>>;
  loop<Complex<R>, std::tuple<Vec<Complex<R>>>, ~0u>(
      in, out, n, stream, [](auto x, auto y) { return Op::formula(x, y); }, Leaves<A, B>());
}

/// The type of leaf I of a gradient (mark.h: g, operands, outputs, the other g).
template <class Op, class T, int I, bool operand = (I >= 1 && I <= Op::arity)>
struct GradientLeaf : ResultOf<Op, T, output_of_leaf(Op::arity, Op::outputs, I)> {};
template <class Op, class T, int I>
struct GradientLeaf<Op, T, I, true> {
  using Type = Operand<Op, T, I - 1>;
};

/// A gradient whose zeros are +0, so that none of them is taken for nothing. What is not above `tiny` rounds to zero
/// where it is stored; a tiny below 0 leaves all as it is.
template <RealFloat R>
Vec<R> number(Vec<R> x, Vec<R> tiny) {
  return select(abs(x) <= tiny, Constant{0}, x);
}
template <class R>
Vec<Complex<R>> number(Vec<Complex<R>> z, Vec<R> tiny) {
  return {number(z.re, tiny), z.im};
}

/// The gradient for operand N, as one pass over the leaves it reads. After the op's attributes come `tiny`, and whether
/// the incoming gradient may be nothing somewhere: so is the result there, whatever the slope (docs/decisions/0011).
template <class Op, class T, int N>
void gradient(const void* const* in, void* const* out, std::size_t n, const double* attr, bool stream) {
  using R = typename LaneOf<T>::Type;
  const Vec<R> tiny = Constant{attr[attr_count<Op>]};
  const Mask<R> may_be_nothing = Vec<R>(Constant{attr[attr_count<Op> + 1]}) != Vec<R>(Constant{0});
  constexpr std::uint32_t reads = gradient_reads<Op>()[N].reads;
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    with_attributes<Op, T>(attr, [&](auto... a) {
      auto body = [&](auto... x) {
        const auto leaves = std::make_tuple(x...);
        const auto slope = std::get<N>(gradients_over<Op>([&](auto i) { return std::get<i>(leaves); }, a...))();
        constexpr int g = first_incoming(Op::arity, Op::outputs, reads);
        const auto none = is_nothing(std::get<g>(leaves)) & may_be_nothing;
        if constexpr (is_taken<std::decay_t<decltype(slope)>>) {
          return select(none | !slope.where, nothing, number(Vec<T>(slope.value), tiny));
        } else {
          return select(none, nothing, number(Vec<T>(slope), tiny));
        }
      };
      loop<T, std::tuple<Vec<T>>, reads>(in, out, n, stream, body, Leaves<typename GradientLeaf<Op, T, I>::Type...>());
    });
  }
  (std::make_index_sequence<leaf_count(Op::arity, Op::outputs)>());
}

/// Enters the kernels of one op and dtype in row `row`.
template <class Op, Dtype dtype>
HWY_INLINE void enter(const cpu::KernelTable::Family& table, int row) {
  if constexpr (contains(Op::schema.types, dtype)) {
    constexpr auto column = static_cast<std::size_t>(dtype);
    using T = typename ElementOf<dtype>::Type;
    table.forward[row][column] = &forward<Op, T>;
    if constexpr (Op::schema.real_with_complex && is_complex(dtype)) {
      using R = typename ElementOf<real_part(dtype)>::Type;
      table.real_operand[row][0][column] = &forward_real<Op, R, 0>;
      table.real_operand[row][1][column] = &forward_real<Op, R, 1>;
    }
    if constexpr (is_differentiable(dtype)) {
      auto operand = [&]<int I>() {
        constexpr auto r = gradient_reads<Op>()[I];
        if constexpr (r.exists && r.reads != 0 && !r.passes_g) table.gradient[row][I][column] = &gradient<Op, T, I>;
      };
      [&]<std::size_t... N>(std::index_sequence<N...>) { (operand.template operator()<static_cast<int>(N)>(), ...); }
      (std::make_index_sequence<Op::arity>());
    }
  }
}

/// Enters the kernels of a family, which is a list of ops.
template <class List>
void fill_family(cpu::KernelTable& table) {
  const cpu::KernelTable::Family rows = table.add_family(List::size);
  List::for_each([&]<class Op>() {
    [&]<std::size_t... D>(std::index_sequence<D...>) {
      (enter<Op, kernel_dtypes[D]>(rows, IndexIn<Op, List>::value), ...);
    }
    (std::make_index_sequence<std::size(kernel_dtypes)>());
  });
}

}  // namespace hyalite::HWY_NAMESPACE
