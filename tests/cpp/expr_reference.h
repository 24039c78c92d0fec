/// Evaluates an expression in long double, with a bound on how far any right implementation may be from the value.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <functional>
#include <limits>

#include "compute/codegen/expr.h"

namespace hyalite::reference {

using Real = long double;
using Value = std::complex<Real>;
inline constexpr Real unknown = std::numeric_limits<Real>::infinity();

/// A value, and the largest distance (of complex values: the norm of the difference) an implementation may have from
/// it. `unknown` where a rounding may decide a comparison, or between a number and infinity.
struct Bounded {
  Value value;
  Real error = 0;
};

/// Exact primitives and arithmetic on exact operands give one right result; the others may differ.
enum class Mode {
  rounded,  ///< each node rounded to its dtype, as a kernel computes
  exact,    ///< nothing rounded: the true value of the formula
};

inline Real epsilon(Dtype t) {
  return real_part(t) == Dtype::float64 ? std::numeric_limits<double>::epsilon()
                                        : std::numeric_limits<float>::epsilon();
}
inline Real least(Dtype t) {
  return real_part(t) == Dtype::float64 ? std::numeric_limits<double>::denorm_min()
                                        : std::numeric_limits<float>::denorm_min();
}
inline Real greatest(Dtype t) {
  return real_part(t) == Dtype::float64 ? std::numeric_limits<double>::max() : std::numeric_limits<float>::max();
}
inline bool finite(Value v) { return std::isfinite(v.real()) && std::isfinite(v.imag()); }
inline Real norm(Value v) { return std::hypot(v.real(), v.imag()); }

/// The declared error of a real primitive, in ULP, from its row of primitives.h; 0 for exact ones.
inline double primitive_ulp(ExprOp op) {
  switch (op) {
#define HYALITE_ROW(name, arity, stem, accuracy, spelling, ulp) \
  case ExprOp::name:                                            \
    return ulp;
    HYALITE_FUNCTIONS(HYALITE_ROW)
#undef HYALITE_ROW
    case ExprOp::power:
      return 4;
    default:
      return 0;
  }
}

/// The norm-wise error of complex functions and quotients, in units of the precision.
inline constexpr double complex_ulp = 4;

/// An op whose results may differ between devices.
inline bool is_inexact(const ExprNode& n) {
  const bool complex_in = n.in[0] && is_complex(n.in[0]->dtype);
  switch (n.op) {
    case ExprOp::divide:
      return is_complex(n.in[1]->dtype);
    case ExprOp::sqrt:
    case ExprOp::sign:
    case ExprOp::abs:
      return complex_in;
    case ExprOp::power:
      return kind(n.dtype) >= Kind::floating;
    default:
      return primitive_ulp(n.op) > 0;
  }
}
/// Some node of the expression satisfies `test`.
inline bool any_node(const ExprNode& n, const std::function<bool(const ExprNode&)>& test) {
  if (test(n)) return true;
  return std::any_of(n.in.begin(), n.in.end(), [&](const auto& in) { return in && any_node(*in, test); });
}

// ------------------------------------------------------------------------------------------- functions C++ lacks

template <class C>
C expm1_of(C z) {
  const auto x = z.real(), y = z.imag();
  if (y == 0) return {std::expm1(x), y};
  if (!finite(z)) return std::exp(z) - C(1);
  const auto s = std::sin(y / 2);
  return {std::expm1(x) * std::cos(y) - 2 * s * s, std::exp(x) * std::sin(y)};
}
template <class C>
C log1p_of(C z) {
  const auto x = z.real(), y = z.imag();
  if (y == 0 && x > -1) return {std::log1p(x), y};
  if (!finite(z) || std::fabs(x) > 0.5L || std::fabs(y) > 0.5L) return std::log(C(1 + x, y));
  return {std::log1p(std::fma(x, 2 + x, y * y)) / 2, std::atan2(y, 1 + x)};
}
inline Value sign_of(Value z) {
  if (z == Value(0)) return z;
  if (std::isnan(z.real()) || std::isnan(z.imag())) return {NAN, NAN};
  auto unit = [](Real r) { return std::copysign(std::isinf(r) ? Real{1} : Real{0}, r); };
  if (!finite(z)) z = {unit(z.real()), unit(z.imag())};
  return z / norm(z);
}
inline Value power_of(Value a, Value b) {
  if (b == Value(0)) return 1;
  if (a == Value(0) && b.imag() == 0) return b.real() > 0 ? Value(0) : Value(std::isnan(b.real()) ? NAN : INFINITY, 0);
  if (b.imag() == 0 && b.real() == std::trunc(b.real()) && std::fabs(b.real()) <= 8) {
    Value r = 1;
    for (int i = 0; i < static_cast<int>(std::fabs(b.real())); ++i) r = r * a;
    return b.real() < 0 ? Value(1) / r : r;
  }
  return std::exp(b * std::log(a));
}

/// Functions of complex values, and of real ones with real results.
inline Value function(ExprOp op, Value a, Value b, bool is_complex_op) {
  const Real x = a.real(), y = b.real();
  using std::hypot, std::atan2, std::exp, std::log, std::sin, std::cos, std::tanh, std::erf, std::erfc, std::expm1,
      std::log1p;
  if (is_complex_op) {
    switch (op) {
      case ExprOp::exp:
        return std::exp(a);
      case ExprOp::expm1:
        return expm1_of(a);
      case ExprOp::log:
        return std::log(a);
      case ExprOp::log1p:
        return log1p_of(a);
      case ExprOp::sin:
        return std::sin(a);
      case ExprOp::cos:
        return std::cos(a);
      case ExprOp::tanh:
        return std::tanh(a);
      case ExprOp::sqrt:
        return std::sqrt(a);
      case ExprOp::sign:
        return sign_of(a);
      case ExprOp::abs:
        return norm(a);
      case ExprOp::power:
        return power_of(a, b);
      default:
        assert(false);
        return {};
    }
  }
  switch (op) {
#define HYALITE_CALL_1(name) name(x)
#define HYALITE_CALL_2(name) name(x, y)
#define HYALITE_ROW(name, arity, ...) \
  case ExprOp::name:                  \
    return HYALITE_CALL_##arity(name);
    HYALITE_FUNCTIONS(HYALITE_ROW)
#undef HYALITE_ROW
#undef HYALITE_CALL_1
#undef HYALITE_CALL_2
    case ExprOp::sqrt:
      return std::sqrt(x);
    case ExprOp::power:
      return std::pow(x, y);
    default:
      assert(false);
      return {};
  }
}

// ------------------------------------------------------------------------------------------------------ evaluation

class Evaluator {
 public:
  /// `leaf(index)` and `attribute(index)` give the values of the kernel's arguments.
  Evaluator(Mode mode, std::function<Value(int)> argument) : mode_(mode), argument_(std::move(argument)) {}

  Bounded operator()(const ExprNode& n) const {
    Bounded in[3];
    for (int k = 0; k < 3; ++k) {
      if (n.in[k]) in[k] = (*this)(*n.in[k]);
    }
    Bounded r = apply(n, in);
    if (kind(n.dtype) < Kind::floating) return r;
    return mode_ == Mode::rounded ? round(r, n.dtype) : r;
  }

 private:
  static Real to(Dtype t, Real v) {
    return real_part(t) == Dtype::float64 ? static_cast<double>(v) : static_cast<float>(v);
  }
  static Bounded round(Bounded r, Dtype t) {
    if (computed_in(t) != t) return r;
    const Value v{to(t, r.value.real()), to(t, r.value.imag())};
    const bool was_finite = finite(r.value);
    const Real edge = std::max(std::fabs(r.value.real()), std::fabs(r.value.imag()));
    if (was_finite && r.error > 0 && edge + r.error > greatest(t) * (1 - epsilon(t)) &&
        edge - r.error < greatest(t) * (1 + epsilon(t))) {
      return {v, unknown};
    }
    // Beyond the edge all give infinity.
    if (was_finite && !finite(v)) return {v, 0};
    // An inexact operand moves the rounding.
    if (r.error > 0 && std::isfinite(r.error)) r.error += norm(v) * epsilon(t) + least(t);
    return {v, r.error};
  }

  static Bounded exact(Value v) { return {v, 0}; }

  Bounded apply(const ExprNode& n, const Bounded* in) const {
    const Bounded &a = in[0], &b = in[1];
    const Value x = a.value, y = b.value;
    switch (n.op) {
      case ExprOp::leaf:
      case ExprOp::attribute:
        return exact(argument_(n.index));
      case ExprOp::constant:
        return exact(mode_ == Mode::rounded && is_floating(n.dtype) ? to(n.dtype, n.value) : n.value);
      case ExprOp::decode:
        return a;
      case ExprOp::encode:
        return a;
      case ExprOp::negative:
        return {-x, a.error};
      case ExprOp::conj:
        return {std::conj(x), a.error};
      case ExprOp::real:
        return {x.real(), a.error};
      case ExprOp::imaginary:
        return {{0, x.imag()}, a.error};
      case ExprOp::add:
        return {x + y, a.error + b.error};
      case ExprOp::subtract:
        return {x - y, a.error + b.error};
      case ExprOp::multiply:
        return multiply(n, a, b);
      case ExprOp::divide:
        return divide(n, a, b);
      case ExprOp::select:
        if (a.error != 0) return {y, unknown};
        return x != Value(0) ? b : in[2];
      case ExprOp::less:
        return compare(x.real() < y.real(), a, b);
      case ExprOp::less_equal:
        return compare(x.real() <= y.real(), a, b);
      case ExprOp::equal:
        return compare(x == y, a, b);
      case ExprOp::not_equal:
        return compare(x != y, a, b);
      case ExprOp::bit_and:
        return join(a, b, false);
      case ExprOp::bit_or:
        return join(a, b, true);
      default:
        return primitive(n, a, b, in[2]);
    }
  }

  static Bounded compare(bool holds, const Bounded& a, const Bounded& b) {
    const Real room = a.error + b.error;
    return {holds ? 1 : 0, room > 0 && !(norm(a.value - b.value) > room) ? unknown : 0};
  }

  /// Truth values by or (`either`) or and: one that decides does so alone.
  static Bounded join(const Bounded& a, const Bounded& b, bool either) {
    for (const Bounded& one : {a, b}) {
      if (one.error == 0 && (one.value != Value(0)) == either) return exact(either ? 1 : 0);
    }
    return {either ? 0 : 1, a.error + b.error};
  }

  Bounded multiply(const ExprNode& n, const Bounded& a, const Bounded& b) const {
    const Value v = is_complex(n.dtype) ? a.value * b.value : Value(a.value.real() * b.value.real());
    if (a.error == 0 && b.error == 0) {
      const bool parts = is_complex(n.in[0]->dtype) && is_complex(n.in[1]->dtype);
      return {v, parts && finite(v) ? 2 * epsilon(n.dtype) * norm(a.value) * norm(b.value) + least(n.dtype) : 0};
    }
    return settle(v, norm(a.value) * b.error + norm(b.value) * a.error + a.error * b.error);
  }

  Bounded divide(const ExprNode& n, const Bounded& a, const Bounded& b) const {
    const bool parts = is_complex(n.in[1]->dtype);
    Value v = a.value / b.value;
    if (!is_complex(n.dtype)) v = a.value.real() / b.value.real();
    if (is_complex(n.dtype) && !parts) v = {a.value.real() / b.value.real(), a.value.imag() / b.value.real()};
    Real error = parts && finite(v) ? complex_ulp * epsilon(n.dtype) * norm(v) + least(n.dtype) : 0;
    if (a.error > 0 || b.error > 0) {
      const Real room = norm(b.value) - b.error;
      error += room > 0 ? (a.error + norm(v) * b.error) / room : unknown;
    }
    return settle(v, error);
  }

  /// A value that is not finite is certain only if nothing before it was uncertain.
  static Bounded settle(Value v, Real error) {
    if (std::isnan(error)) error = unknown;
    return {v, !finite(v) && error > 0 ? unknown : error};
  }

  Bounded primitive(const ExprNode& n, const Bounded& a, const Bounded& b, const Bounded& c) const {
    const Value x = a.value;
    const bool complex_in = is_complex(n.in[0]->dtype);
    const bool certain = a.error == 0 && b.error == 0;
    switch (n.op) {
      case ExprOp::fused_multiply_add:
        return fused(n, a, b, c);
      case ExprOp::sign:
        if (complex_in) break;
        if (!(a.error == 0 || std::fabs(x.real()) > a.error)) return {x, unknown};
        return exact(x.real() > 0 ? Value(1) : x.real() < 0 ? Value(-1) : x);
      case ExprOp::abs:
        if (complex_in) break;
        return {std::fabs(x.real()), a.error};
      case ExprOp::maximum:
      case ExprOp::minimum: {
        const bool first =
            std::isnan(x.real()) || (n.op == ExprOp::maximum ? b.value.real() < x.real() : x.real() < b.value.real());
        return {first ? x : b.value, std::max(a.error, b.error)};
      }
      case ExprOp::copysign:
        return {std::copysign(x.real(), b.value.real()), a.error};
      case ExprOp::floor_divide:
        return whole(std::floor(x.real() / b.value.real()), certain);
      case ExprOp::floor:
        return whole(std::floor(x.real()), certain);
      case ExprOp::ceil:
        return whole(std::ceil(x.real()), certain);
      case ExprOp::trunc:
        return whole(std::trunc(x.real()), certain);
      case ExprOp::round:
        return whole(std::nearbyint(x.real()), certain);
      case ExprOp::isnan:
        // A bound is known only of numbers, and of infinities that all give.
        return {std::isnan(x.real()) || std::isnan(x.imag()) ? 1 : 0, std::isfinite(a.error) ? 0 : unknown};
      case ExprOp::isinf:
        return {std::isinf(x.real()) || std::isinf(x.imag()) ? 1 : 0, certain ? 0 : unknown};
      case ExprOp::isfinite:
        return {finite(x) ? 1 : 0, certain ? 0 : unknown};
      case ExprOp::invert:
        return {x == Value(0) ? 1 : 0, a.error};
      default:
        break;
    }
    return smooth(n, a, b, complex_in);
  }

  Bounded fused(const ExprNode& n, const Bounded& a, const Bounded& b, const Bounded& c) const {
    const Real x = a.value.real(), y = b.value.real(), z = c.value.real();
    Real v = std::fma(x, y, z);
    // Long double would round twice.
    if (mode_ == Mode::rounded && n.dtype == Dtype::float64) {
      v = std::fma(static_cast<double>(x), static_cast<double>(y), static_cast<double>(z));
    } else if (mode_ == Mode::rounded) {
      v = std::fma(static_cast<float>(x), static_cast<float>(y), static_cast<float>(z));
    }
    if (a.error == 0 && b.error == 0 && c.error == 0) return exact(v);
    return settle(v, std::fabs(x) * b.error + std::fabs(y) * a.error + a.error * b.error + c.error);
  }

  static Bounded whole(Real v, bool certain) { return {v, certain ? 0 : unknown}; }

  Bounded smooth(const ExprNode& n, const Bounded& a, const Bounded& b, bool complex_in) const {
    const Value v = function(n.op, a.value, b.value, complex_in);
    if (!std::isfinite(a.error) || !std::isfinite(b.error)) return {v, unknown};
    Real ulps = complex_in ? complex_ulp : primitive_ulp(n.op);
    if (n.op == ExprOp::power && complex_in && a.value != Value(0)) ulps += 4 * norm(b.value * std::log(a.value));
    Real error = 0;
    if (finite(v) && ulps > 0) error = ulps * (epsilon(n.dtype) * norm(v) + least(n.dtype));
    if (finite(v)) {
      for (const Value step : {Value(1, 0), Value(-1, 0), Value(0, 1), Value(0, -1)}) {
        if (!complex_in && step.imag() != 0) continue;
        const Value by_a = function(n.op, a.value + step * a.error, b.value, complex_in);
        const Value by_b = function(n.op, a.value, b.value + step * b.error, complex_in);
        if (a.error > 0) error += 2 * norm(by_a - v);
        if (b.error > 0) error += 2 * norm(by_b - v);
      }
    } else if (a.error > 0 || b.error > 0) {
      error = unknown;
    }
    return settle(v, error);
  }

  Mode mode_;
  std::function<Value(int)> argument_;
};

}  // namespace hyalite::reference
