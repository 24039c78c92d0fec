/// Runs the formulas and gradients of one family of ops on Expr; CMake compiles this file once for each.
#include "compute/codegen/formulas.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include HYALITE_FAMILY_HEADER

#define HYALITE_JOIN(a, b) a##b
#define HYALITE_FORMULAS_OF(family) HYALITE_JOIN(formulas_of_, family)

namespace hyalite {
namespace {

template <class Op>
constexpr auto attribute_names = [] {
  std::array<std::string_view, attr_count<Op>> names{};
  if constexpr (HasAttr<Op>) std::ranges::copy(Op::template Attr<double>::names, names.begin());
  return names;
}();
template <class Op>
constexpr auto reads_of_op = gradient_reads<Op>();

/// f(attributes...), of which most ops have none.
template <class Op>
auto with_attributes(const Expr* attributes, auto f) {
  if constexpr (HasAttr<Op>) {
    return f(make_attr<Op, Expr>([&](int i) { return attributes[i]; }));
  } else {
    return f();
  }
}

template <class Op>
void forward(const Expr* x, const Expr* attributes, Expr* results) {
  const auto value = with_attributes<Op>(attributes, [&](auto... attr) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) { return Op::formula(x[I]..., attr...); }
    (std::make_index_sequence<Op::arity>());
  });
  if constexpr (Op::outputs > 1) {
    std::apply([&](const auto&... v) { ((*results++ = v), ...); }, value.of);
  } else {
    results[0] = value;
  }
}

inline ExprGradient made(Constant c) { return {c, {}, {}}; }
inline ExprGradient made(Expr value) { return {{}, std::move(value), {}}; }
inline ExprGradient made(Taken<Expr, Expr> g) { return {{}, std::move(g.value), std::move(g.where)}; }

template <class Op>
std::optional<ExprGradient> gradient(const Expr* leaves, const Expr* attributes, int operand) {
  return with_attributes<Op>(attributes, [&](auto... attr) {
    const auto lazy = gradients_over<Op>([&](auto i) { return leaves[i]; }, attr...);
    std::optional<ExprGradient> found;
    auto one = [&](const auto& g, int i) {
      if (i != operand) return;
      if constexpr (!std::is_same_v<std::decay_t<decltype(g)>, None>) found = made(g());
    };
    std::apply([&, i = 0](const auto&... g) mutable { (one(g, i++), ...); }, lazy);
    return found;
  });
}

template <class... Ops>
std::span<const OpFormulas> formulas(OpList<Ops...>) {
  static constexpr OpFormulas table[] = {{Ops::schema, Ops::arity, Ops::outputs, attribute_names<Ops>, reads_of_op<Ops>,
                                          &forward<Ops>, &gradient<Ops>}...};
  return table;
}

}  // namespace

std::span<const OpFormulas> HYALITE_FORMULAS_OF(HYALITE_FAMILY)() { return formulas(HYALITE_OPS()); }

}  // namespace hyalite
