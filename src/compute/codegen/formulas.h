/// Formulas and gradients over Expr, with the types of the ops forgotten.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "compute/codegen/expr.h"
#include "ops/families.h"
#include "ops/mark.h"

namespace hyalite {

/// A gradient: a constant, or a value, which may be nothing where `where`, if given, does not hold.
struct ExprGradient {
  std::optional<Constant> constant;
  Expr value;
  std::optional<Expr> where;
};

/// All that is compiled for an op: its kernels are put together from this by plain functions.
struct OpFormulas {
  const OpSchema& schema;
  int arity;
  int outputs;
  std::span<const std::string_view> attributes;  ///< their names
  std::span<const GradientReads> reads;          ///< by operand
  /// The results, of the operands and attributes.
  void (*forward)(const Expr* x, const Expr* attributes, Expr* results);
  /// The gradient for an operand, of all leaves (mark.h) and attributes; none where it is `none`.
  std::optional<ExprGradient> (*gradient)(const Expr* leaves, const Expr* attributes, int operand);
};

#define HYALITE_DECLARE(name, List) std::span<const OpFormulas> formulas_of_##name();
HYALITE_FAMILIES(HYALITE_DECLARE, HYALITE_NO_FAMILY)
#undef HYALITE_DECLARE

}  // namespace hyalite
