/// The primitive functions formulas are made of: one row each, from which the Vec, Expr, Mark and Tensor overloads
/// come.
///
/// A row of HYALITE_FUNCTIONS is (name, arity, SLEEF stem, SLEEF accuracy, C spelling in CUDA and OpenCL, ULP): a
/// function of real floating values that SLEEF gives for every instruction set. The ULP is SLEEF's and PoCL's and
/// CUDA's largest, for float32 and float64.
#pragma once

#define HYALITE_FUNCTIONS(ROW)         \
  ROW(exp, 1, exp, _u10, exp, 3)       \
  ROW(expm1, 1, expm1, _u10, expm1, 3) \
  ROW(log, 1, log, _u35, log, 3.5)     \
  ROW(log1p, 1, log1p, _u10, log1p, 3) \
  ROW(sin, 1, sin, _u35, sin, 4)       \
  ROW(cos, 1, cos, _u35, cos, 4)       \
  ROW(tanh, 1, tanh, _u35, tanh, 5)    \
  ROW(erf, 1, erf, _u10, erf, 16)      \
  ROW(erfc, 1, erfc, _u15, erfc, 16)   \
  ROW(hypot, 2, hypot, _u05, hypot, 4) \
  ROW(atan2, 2, atan2, _u35, atan2, 6)

/// Exact unary primitives of real values: the same bits on every device. (name)
#define HYALITE_EXACT_UNARY(ROW) ROW(abs) ROW(sqrt) ROW(floor) ROW(ceil) ROW(trunc) ROW(round) ROW(sign)

/// Exact binary primitives of two equal types. (name)
#define HYALITE_EXACT_BINARY(ROW) ROW(maximum) ROW(minimum) ROW(copysign) ROW(floor_divide) ROW(remainder)

/// Unary primitives of complex values. Of real ones conj and real are the identity, and imaginary, i times the
/// imaginary part, is 0. (name)
#define HYALITE_COMPLEX_UNARY(ROW) ROW(conj) ROW(real) ROW(imaginary)

/// Unary ops that the gradients of others are written with: their formula inside a kernel, a recorded op on tensors.
#define HYALITE_GRADIENT_UNARY(ROW) ROW(logistic_density) ROW(gaussian) ROW(normal_cdf)
