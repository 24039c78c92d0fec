/// The argument type that finds, at compile time, which leaves a formula or a gradient reads.
#pragma once

#include "ops/op.h"
#include "ops/primitives.h"

namespace hyalite {

/// A set of leaves, one bit each. `whole` holds for a value that is one leaf untouched, so nothing needs computing.
struct Mark {
  std::uint32_t reads = 0;
  bool whole = false;
  static constexpr Mark leaf(int i) { return {std::uint32_t{1} << i, true}; }
};

template <class T>
concept MarkOperand = std::is_same_v<T, Mark> || std::is_same_v<T, Constant>;
constexpr std::uint32_t reads_of(Mark m) { return m.reads; }
constexpr std::uint32_t reads_of(Constant) { return 0; }
constexpr std::uint32_t reads_of(Nothing) { return 0; }
template <class... A>
concept Marks = (MarkOperand<A> && ...) && (std::is_same_v<A, Mark> || ...);

#define HYALITE_MARK_OPERATOR(symbol) \
  template <class A, class B>         \
  requires Marks<A, B>                \
  constexpr Mark operator symbol(A a, B b) { return {reads_of(a) | reads_of(b)}; }
HYALITE_MARK_OPERATOR(+)
HYALITE_MARK_OPERATOR(-)
HYALITE_MARK_OPERATOR(*)
HYALITE_MARK_OPERATOR(/)
HYALITE_MARK_OPERATOR(<)
HYALITE_MARK_OPERATOR(<=)
HYALITE_MARK_OPERATOR(==)
HYALITE_MARK_OPERATOR(!=)
HYALITE_MARK_OPERATOR(&)
HYALITE_MARK_OPERATOR(|)
HYALITE_MARK_OPERATOR(^)
HYALITE_MARK_OPERATOR(<<)
HYALITE_MARK_OPERATOR(>>)
#undef HYALITE_MARK_OPERATOR
constexpr Mark operator-(Mark a) { return {a.reads}; }
constexpr Mark operator~(Mark a) { return {a.reads}; }
constexpr Mark operator!(Mark a) { return {a.reads}; }

#define HYALITE_MARK_UNARY(name) \
  constexpr Mark name(Mark a) { return {a.reads}; }
#define HYALITE_MARK_BINARY(name) \
  template <class A, class B>     \
  requires Marks<A, B>            \
  constexpr Mark name(A a, B b) { return {reads_of(a) | reads_of(b)}; }
#define HYALITE_MARK_FUNCTION(name, arity, ...) HYALITE_MARK_FUNCTION_##arity(name)
#define HYALITE_MARK_FUNCTION_1(name) HYALITE_MARK_UNARY(name)
#define HYALITE_MARK_FUNCTION_2(name) HYALITE_MARK_BINARY(name)
HYALITE_FUNCTIONS(HYALITE_MARK_FUNCTION)
HYALITE_EXACT_UNARY(HYALITE_MARK_UNARY)
HYALITE_EXACT_BINARY(HYALITE_MARK_BINARY)
constexpr Mark fused_multiply_add(MarkOperand auto a, MarkOperand auto b, MarkOperand auto c) {
  return {reads_of(a) | reads_of(b) | reads_of(c)};
}
HYALITE_MARK_UNARY(isnan)
HYALITE_MARK_UNARY(isinf)
HYALITE_MARK_UNARY(isfinite)
HYALITE_MARK_BINARY(power)
// On real types the identity, on complex ones not: a leaf passed through is still read.
HYALITE_COMPLEX_UNARY(HYALITE_MARK_UNARY)
HYALITE_GRADIENT_UNARY(HYALITE_MARK_UNARY)
HYALITE_MARK_UNARY(is_nothing)
#undef HYALITE_MARK_UNARY
#undef HYALITE_MARK_BINARY
#undef HYALITE_MARK_FUNCTION
#undef HYALITE_MARK_FUNCTION_1
#undef HYALITE_MARK_FUNCTION_2
template <class A, class B>
requires Marks<Mark, A, B>
constexpr Mark select(Mark c, A a, B b) { return {c.reads | reads_of(a) | reads_of(b)}; }
constexpr Mark pow_term(Mark x, Mark y, Mark less, Mark logs) { return {x.reads | y.reads | less.reads | logs.reads}; }
constexpr Mark pow_by_x(Mark x, Mark y) { return {x.reads | y.reads}; }
constexpr Mark pow_by_y(Mark x, Mark y) { return {x.reads | y.reads}; }

template <int i>
using At = std::integral_constant<int, i>;

/// The leaves of a gradient, in order: the incoming gradient, the operands, the outputs, and of an op with several then
/// the incoming gradients of the others.
constexpr int leaf_count(int arity, int outputs) { return arity + 2 * outputs; }
/// The leaf that is the incoming gradient of output k.
constexpr int incoming_leaf(int arity, int outputs, int k) { return k == 0 ? 0 : arity + outputs + k; }
/// The output that a leaf is, or is the incoming gradient of.
constexpr int output_of_leaf(int arity, int outputs, int leaf) {
  return leaf == 0 ? 0 : leaf <= arity + outputs ? leaf - arity - 1 : leaf - arity - outputs;
}
/// Of the incoming gradients the first that is read; the first of all where none is.
constexpr int first_incoming(int arity, int outputs, std::uint32_t reads) {
  for (int k = 0; k < outputs; ++k) {
    const int leaf = incoming_leaf(arity, outputs, k);
    if ((reads >> leaf & 1) != 0) return leaf;
  }
  return 0;
}

/// The lazy gradients of Op over its leaves, leaf(i) being the i-th.
template <class Op, class F>
constexpr auto gradients_over(F leaf, const auto&... attr) {
  constexpr int out = 1 + Op::arity;
  return [&]<std::size_t... I, std::size_t... K>(std::index_sequence<I...>, std::index_sequence<K...>) {
    if constexpr (Op::outputs > 1) {
      return Op::gradient(several(leaf(At<incoming_leaf(Op::arity, Op::outputs, K)>())...), leaf(At<1 + I>())...,
                          several(leaf(At<out + K>())...), attr...);
    } else {
      return Op::gradient(leaf(At<0>()), leaf(At<1 + I>())..., leaf(At<out>()), attr...);
    }
  }
  (std::make_index_sequence<Op::arity>(), std::make_index_sequence<Op::outputs>());
}

/// What the gradient for input I reads; `reads == 0` and not `exists` means none.
struct GradientReads {
  bool exists = false;
  bool passes_g = false;
  std::uint32_t reads = 0;
  bool makes_nothing = false;
};

template <class Op>
constexpr std::array<GradientReads, Op::arity> gradient_reads() {
  std::array<GradientReads, Op::arity> r{};
  auto look = [&](auto... attr) {
    auto t = gradients_over<Op>([](auto i) { return Mark::leaf(i); }, attr...);
    auto one = [&](auto f, GradientReads& into) {
      if constexpr (!std::is_same_v<decltype(f), None>) {
        auto value = f();
        if constexpr (std::is_same_v<decltype(value), Constant>) {
          into = {true, false, 0};
        } else if constexpr (is_taken<decltype(value)>) {
          into = {true, false, value.where.reads | value.value.reads, true};
        } else {
          into = {true, value.whole && value.reads == 1, value.reads};
        }
      }
    };
    [&]<std::size_t... I>(std::index_sequence<I...>) { (one(std::get<I>(t), r[I]), ...); }
    (std::make_index_sequence<Op::arity>());
  };
  if constexpr (HasAttr<Op>) {
    look(make_attr<Op, Mark>([](int) { return Mark{}; }));
  } else {
    look();
  }
  return r;
}

}  // namespace hyalite
