/// The argument type that turns a formula into a typed expression, from which source text is printed.
#pragma once

#include <array>
#include <cassert>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "hyalite/dtype.h"
#include "ops/op.h"
#include "ops/primitives.h"

namespace hyalite {

/// The binary operators. (name, symbol)
#define HYALITE_EXPR_ARITHMETIC(ROW) ROW(add, +) ROW(subtract, -) ROW(multiply, *) ROW(divide, /)
#define HYALITE_EXPR_COMPARISONS(ROW) ROW(less, <) ROW(less_equal, <=) ROW(equal, ==) ROW(not_equal, !=)
#define HYALITE_EXPR_BITS(ROW) ROW(bit_and, &) ROW(bit_or, |) ROW(bit_xor, ^) ROW(shift_left, <<) ROW(shift_right, >>)

/// What a node does with its inputs. The primitives of primitives.h follow the nodes every formula language has.
enum class ExprOp : std::uint8_t {
  leaf,       ///< an element of an argument
  attribute,  ///< an argument that is one scalar for all elements
  constant,
  decode,  ///< float16 or bfloat16 to float32
  encode,  ///< float32 to float16 or bfloat16, rounded once
  cast,    ///< between the dtypes that kernels compute in, by the rules of casts; what encodes 16 bits may have any
  negative,
  invert,
  select,
  fused_multiply_add,
  power,
  isnan,
  isinf,
  isfinite,
#define HYALITE_ROW(name, ...) name,
  HYALITE_EXPR_ARITHMETIC(HYALITE_ROW) HYALITE_EXPR_COMPARISONS(HYALITE_ROW) HYALITE_EXPR_BITS(HYALITE_ROW)
      HYALITE_FUNCTIONS(HYALITE_ROW) HYALITE_EXACT_UNARY(HYALITE_ROW) HYALITE_EXACT_BINARY(HYALITE_ROW)
          HYALITE_COMPLEX_UNARY(HYALITE_ROW)
#undef HYALITE_ROW
};

/// The name of an op, as formulas spell it.
constexpr std::string_view name(ExprOp op) {
  constexpr std::string_view names[] = {
      "leaf",
      "attribute",
      "constant",
      "decode",
      "encode",
      "cast",
      "negative",
      "invert",
      "select",
      "fused_multiply_add",
      "power",
      "isnan",
      "isinf",
      "isfinite",
#define HYALITE_ROW(name, ...) #name,
      HYALITE_EXPR_ARITHMETIC(HYALITE_ROW) HYALITE_EXPR_COMPARISONS(HYALITE_ROW) HYALITE_EXPR_BITS(HYALITE_ROW)
          HYALITE_FUNCTIONS(HYALITE_ROW) HYALITE_EXACT_UNARY(HYALITE_ROW) HYALITE_EXACT_BINARY(HYALITE_ROW)
              HYALITE_COMPLEX_UNARY(HYALITE_ROW)
#undef HYALITE_ROW
  };
  return names[static_cast<std::size_t>(op)];
}

/// One operation on scalars of known types. Nodes do not change, so expressions share them.
struct ExprNode {
  ExprOp op;
  Dtype dtype;
  int index = 0;     ///< of a leaf or an attribute: its place in the kernel's arguments
  double value = 0;  ///< of a constant
  std::array<std::shared_ptr<const ExprNode>, 3> in = {};
};

/// A scalar expression. float16 and bfloat16 occur only at the borders: as leaves under `decode`, and from `encode`.
class Expr {
 public:
  Expr() = default;
  Expr(ExprOp op, Dtype dtype, Expr a = {}, Expr b = {}, Expr c = {})
      : node_(std::make_shared<const ExprNode>(ExprNode{op, dtype, 0, 0, {a.node_, b.node_, c.node_}})) {}

  static Expr leaf(int index, Dtype dtype) { return Expr(ExprNode{ExprOp::leaf, dtype, index}); }
  static Expr attribute(int index, Dtype dtype) { return Expr(ExprNode{ExprOp::attribute, dtype, index}); }
  static Expr constant(double value, Dtype dtype) { return Expr(ExprNode{ExprOp::constant, dtype, 0, value}); }

  /// A node as it is, over other inputs.
  Expr(const ExprNode& like, std::array<std::shared_ptr<const ExprNode>, 3> in)
      : node_(std::make_shared<const ExprNode>(ExprNode{like.op, like.dtype, like.index, like.value, std::move(in)})) {}
  explicit Expr(std::shared_ptr<const ExprNode> node) : node_(std::move(node)) {}

  const ExprNode& node() const { return *node_; }
  const std::shared_ptr<const ExprNode>& shared() const { return node_; }
  Dtype dtype() const { return node_->dtype; }

 private:
  explicit Expr(ExprNode node) : node_(std::make_shared<const ExprNode>(std::move(node))) {}
  std::shared_ptr<const ExprNode> node_;
};

/// The dtype a kernel computes `t` in.
constexpr Dtype computed_in(Dtype t) { return t == Dtype::float16 || t == Dtype::bfloat16 ? Dtype::float32 : t; }
/// Leaves of 16 bits become float32 before they meet anything.
inline Expr decoded(Expr x) {
  return computed_in(x.dtype()) == x.dtype() ? x : Expr(ExprOp::decode, Dtype::float32, x);
}
/// The explicit rounding with which an op on float16 or bfloat16 ends.
inline Expr encoded(Expr x, Dtype to) { return x.dtype() == to ? x : Expr(ExprOp::encode, to, x); }

/// The value in another dtype: of 16 bits it stays decoded, rounded to them once.
inline Expr cast_to(Expr x, Dtype from, Dtype to) {
  if (from == to) return x;
  const Dtype wide = computed_in(to);
  if (wide == to) return x.dtype() == to ? x : Expr(ExprOp::cast, to, x);
  return Expr(ExprOp::decode, wide, Expr(ExprOp::encode, to, x));
}
/// The same expression over other leaves and attributes, by their index.
Expr with_leaves(const Expr& e, std::span<const Expr> leaves);

template <class T>
concept ExprOperand = std::is_same_v<T, Expr> || std::is_same_v<T, Constant>;
template <class... A>
concept Exprs = (ExprOperand<A> && ...) && (std::is_same_v<A, Expr> || ...);

/// `a` itself, or the constant in the type of what it meets.
inline Expr lifted(Expr a, const Expr&) { return a; }
inline Expr lifted(Constant c, const Expr& met) { return Expr::constant(c.value, met.dtype()); }
/// In arithmetic a constant beside a complex value is real, as on the CPU, and works by component.
inline Expr lifted_real(Expr a, const Expr&) { return a; }
inline Expr lifted_real(Constant c, const Expr& met) { return Expr::constant(c.value, real_part(met.dtype())); }
inline const Expr& typed(const Expr& a, const auto&) { return a; }
inline const Expr& typed(Constant, const Expr& b) { return b; }
inline Constant typed(Constant a, Constant) { return a; }

/// A node of two inputs. In arithmetic one may be complex and the other of the type of its components.
inline Expr binary(ExprOp op, Expr a, Expr b) {
  assert(a.dtype() == b.dtype() || (ExprOp::add <= op && op <= ExprOp::divide && a.dtype() != b.dtype() &&
                                    real_part(a.dtype()) == real_part(b.dtype())));
  return Expr(op, is_complex(a.dtype()) ? a.dtype() : b.dtype(), a, b);
}

#define HYALITE_EXPR_BINARY(name, symbol)                                                  \
  template <class A, class B>                                                              \
  requires Exprs<A, B> Expr operator symbol(A a, B b) {                                    \
    return binary(ExprOp::name, lifted_real(a, typed(a, b)), lifted_real(b, typed(a, b))); \
  }
HYALITE_EXPR_ARITHMETIC(HYALITE_EXPR_BINARY)
HYALITE_EXPR_BITS(HYALITE_EXPR_BINARY)
#undef HYALITE_EXPR_BINARY
#define HYALITE_EXPR_COMPARISON(name, symbol)                          \
  template <class A, class B>                                          \
  requires Exprs<A, B> Expr operator symbol(A a, B b) {                \
    const Expr x = lifted(a, typed(a, b)), y = lifted(b, typed(a, b)); \
    assert(x.dtype() == y.dtype());                                    \
    return Expr(ExprOp::name, Dtype::boolean, x, y);                   \
  }
HYALITE_EXPR_COMPARISONS(HYALITE_EXPR_COMPARISON)
#undef HYALITE_EXPR_COMPARISON
inline Expr operator-(Expr a) { return Expr(ExprOp::negative, a.dtype(), a); }
inline Expr operator~(Expr a) { return Expr(ExprOp::invert, a.dtype(), a); }
inline Expr operator!(Expr a) { return Expr(ExprOp::invert, Dtype::boolean, a); }

/// A node of one input, or the input where the op is the identity on its type.
inline Expr unary(ExprOp op, Expr a) {
  const Kind k = kind(a.dtype());
  switch (op) {
    case ExprOp::conj:
    case ExprOp::real:
      if (k != Kind::complex) return a;
      break;
    case ExprOp::imaginary:
      if (k != Kind::complex) return Expr::constant(0, a.dtype());
      break;
    case ExprOp::floor:
    case ExprOp::ceil:
    case ExprOp::trunc:
    case ExprOp::round:
      if (k <= Kind::integer) return a;
      break;
    case ExprOp::abs:
      if (k == Kind::boolean || is_unsigned_integer(a.dtype())) return a;
      break;
    default:
      break;
  }
  return Expr(op, op == ExprOp::abs || op == ExprOp::real ? real_part(a.dtype()) : a.dtype(), a);
}

#define HYALITE_EXPR_UNARY(name) \
  inline Expr name(Expr a) { return unary(ExprOp::name, a); }
#define HYALITE_EXPR_BINARY(name)                                                \
  template <class A, class B>                                                    \
  requires Exprs<A, B> Expr name(A a, B b) {                                     \
    return binary(ExprOp::name, lifted(a, typed(a, b)), lifted(b, typed(a, b))); \
  }
#define HYALITE_EXPR_FUNCTION(name, arity, ...) HYALITE_EXPR_FUNCTION_##arity(name)
#define HYALITE_EXPR_FUNCTION_1(name) HYALITE_EXPR_UNARY(name)
#define HYALITE_EXPR_FUNCTION_2(name) HYALITE_EXPR_BINARY(name)
HYALITE_FUNCTIONS(HYALITE_EXPR_FUNCTION)
HYALITE_EXACT_UNARY(HYALITE_EXPR_UNARY)
HYALITE_EXACT_BINARY(HYALITE_EXPR_BINARY)
HYALITE_COMPLEX_UNARY(HYALITE_EXPR_UNARY)
#undef HYALITE_EXPR_UNARY
#undef HYALITE_EXPR_BINARY
#undef HYALITE_EXPR_FUNCTION
#undef HYALITE_EXPR_FUNCTION_1
#undef HYALITE_EXPR_FUNCTION_2

/// An exponent may be real beside a complex base.
inline Expr power(Expr a, Expr b) {
  return binary(ExprOp::power, a, a.dtype() == b.dtype() ? b : Expr::constant(0, a.dtype()) + b);
}

/// a * b + c, rounded once.
template <class A, class B, class C>
requires Exprs<A, B, C> Expr fused_multiply_add(A a, B b, C c) {
  const Expr& met = typed(a, typed(b, c));
  const Expr x = lifted(a, met), y = lifted(b, met), z = lifted(c, met);
  assert(x.dtype() == y.dtype() && y.dtype() == z.dtype());
  return Expr(ExprOp::fused_multiply_add, x.dtype(), x, y, z);
}

/// Tests of floating values; of integers they are constants.
#define HYALITE_EXPR_TEST(name, of_integers)                                              \
  inline Expr name(Expr a) {                                                              \
    return kind(a.dtype()) <= Kind::integer ? Expr::constant(of_integers, Dtype::boolean) \
                                            : Expr(ExprOp::name, Dtype::boolean, a);      \
  }
HYALITE_EXPR_TEST(isnan, 0)
HYALITE_EXPR_TEST(isinf, 0)
HYALITE_EXPR_TEST(isfinite, 1)
#undef HYALITE_EXPR_TEST

template <class A, class B>
requires Exprs<A, B> Expr select(Expr condition, A a, B b) {
  const Expr x = lifted(a, typed(a, b)), y = lifted(b, typed(a, b));
  assert(condition.dtype() == Dtype::boolean && x.dtype() == y.dtype());
  return Expr(ExprOp::select, x.dtype(), condition, x, y);
}

inline Expr select(Expr condition, Nothing, Expr b) {
  return Expr(ExprOp::select, b.dtype(), condition, -Expr::constant(0, b.dtype()), b);
}

/// What a formula is for reals, or for complex numbers.
inline Expr by_kind(Expr x, auto of_reals, auto of_complex) {
  return is_complex(x.dtype()) ? of_complex() : of_reals();
}

/// Where a gradient is nothing: -0, for its real part if it is complex.
inline Expr is_nothing(Expr x) { return (x == 0_c) & (copysign(1_c, real(x)) < 0_c); }

}  // namespace hyalite
