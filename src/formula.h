/// The argument type that turns formulas and gradients into recorded operations: Tensor, with constants.
#pragma once

#include "apply.h"

namespace hyalite {

/// A constant as a weak number: an integer where it is one, so that it meets integer tensors too.
inline Scalar weak(Constant c) {
  const auto whole = static_cast<std::int64_t>(c.value);
  return static_cast<double>(whole) == c.value ? Scalar(whole) : Scalar(c.value);
}

// The names formulas use where ops have others.
inline Tensor select(const Tensor& c, const Tensor& a, const Tensor& b) { return where(c, a, b); }
inline Tensor select(const Tensor& c, Constant a, const Tensor& b) { return where(c, weak(a), b); }
inline Tensor select(const Tensor& c, const Tensor& a, Constant b) { return where(c, a, weak(b)); }
inline Tensor power(const Tensor& a, const Tensor& b) { return pow(a, b); }
inline Tensor maximum(const Tensor& a, Constant b) { return maximum(a, weak(b)); }

#define HYALITE_TENSOR_CONSTANT(symbol)                                                   \
  inline Tensor operator symbol(const Tensor& a, Constant b) { return a symbol weak(b); } \
  inline Tensor operator symbol(Constant a, const Tensor& b) { return weak(a) symbol b; }
HYALITE_TENSOR_CONSTANT(+)
HYALITE_TENSOR_CONSTANT(-)
HYALITE_TENSOR_CONSTANT(*)
HYALITE_TENSOR_CONSTANT(/)
HYALITE_TENSOR_CONSTANT(<)
HYALITE_TENSOR_CONSTANT(<=)
HYALITE_TENSOR_CONSTANT(==)
HYALITE_TENSOR_CONSTANT(!=)
#undef HYALITE_TENSOR_CONSTANT

}  // namespace hyalite
