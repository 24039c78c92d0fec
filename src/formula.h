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
inline Tensor operator!(const Tensor& c) { return logical_not(c); }
inline Tensor is_nothing(const Tensor& g) { return equal(numbers(g), Scalar(0)); }
/// An attribute is a constant here, and so is what depends on one alone.
inline Tensor select(bool c, Constant a, const Tensor& b) {
  return c ? full(to_vector(b.shape()), weak(a), b.dtype(), b.device()) : b;
}
inline Tensor pow_term(const Tensor& x, const Tensor& y, Constant less, Constant logs) {
  return pow_term(x, y, less.value, logs.value);
}
inline Tensor pow_by_x(const Tensor& x, const Tensor& y) { return pow_term(x, y, 1.0, 0.0); }
inline Tensor pow_by_y(const Tensor& x, const Tensor& y) { return pow_term(x, y, 0.0, 1.0); }

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
