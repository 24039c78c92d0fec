/// What gradients are written with beside the ops that users call: internal ops, and the same as functions in kernels.
#pragma once

#include "ops/op.h"

namespace hyalite {

/// The gradient x1 made from x2: nothing where x2 is nothing, and a number, +0 for -0, elsewhere.
struct SettleBackward : BinaryKernel<SettleBackward> {
  static constexpr OpSchema schema{.name = "settle", .types = floating, .internal = true};
  static auto formula(auto x, auto y) { return select(is_nothing(y), nothing, x + 0_c); }
  static constexpr auto gradient(auto g, auto, auto y, auto) {
    return grads([=] { return taken(!is_nothing(y), g); }, none);
  }
};

/// Where a gradient is a number: 1 there, and nothing where it is nothing.
struct NumbersBackward : UnaryKernel<NumbersBackward> {
  static constexpr OpSchema schema{
      .name = "numbers", .types = floating, .results = {Result::real_part}, .internal = true};
  static auto formula(auto x) { return select(is_nothing(x), real(x), 1_c); }
  static constexpr auto gradient(auto, auto, auto) { return grads(none); }
};

/// i times the imaginary part; 0 of a real number, whatever it is.
struct ImaginaryBackward : UnaryKernel<ImaginaryBackward> {
  static constexpr OpSchema schema{.name = "imaginary", .types = floating, .internal = true};
  static auto formula(auto x) { return imaginary(x); }
  static constexpr auto gradient(auto g, auto, auto) {
    return grads([=] { return imaginary(g); });
  }
};

// What slopes are made of. Each is the whole slope of something, computed without cancelling, and its own
// gradient is written with the same few: so derivatives of every order are as good as the first.
// Under each op stands its function inside kernels; on tensors the recorded op goes by the same name.

/// The logistic density s(x) * s(-x), s being the sigmoid.
struct LogisticDensityBackward : UnaryKernel<LogisticDensityBackward> {
  static constexpr OpSchema schema{.name = "logistic_density", .types = floating, .ulp = 4, .internal = true};
  static auto formula(auto x) {
    const auto e = exp(select(real(x) < 0_c, x, -x));
    const auto tail = [=] { return e / ((1_c + e) * (1_c + e)); };
    // Near the poles on the imaginary axis 1 + e cancels.
    const auto t = [=] { return tanh(0.5_c * x); };
    return by_kind(x, tail, [=] { return select(abs(real(x)) < 1_c, (1_c - t() * t()) * 0.25_c, tail()); });
  }
  static constexpr auto gradient(auto g, auto x, auto out) {
    return grads([=] { return -(g * conj(out * tanh(0.5_c * x))); });
  }
};
template <class V>
auto logistic_density(V x) {
  return LogisticDensityBackward::formula(x);
}

/// exp(-x * x / 2). The rounding error of the square, which exp magnifies, is made up for.
struct GaussianBackward : UnaryKernel<GaussianBackward> {
  static constexpr OpSchema schema{.name = "gaussian", .types = real_floating, .ulp = 2, .internal = true};
  static auto formula(auto x) {
    const auto y = select(40_c < x, 40_c, maximum(x, -40_c));  // exp(-800) is 0
    const auto square = y * y;
    const auto rest = fused_multiply_add(y, y, -square);
    const auto e = exp(-0.5_c * square);
    return e - e * (0.5_c * rest);
  }
  static constexpr auto gradient(auto g, auto x, auto out) {
    // Far out this is 0 to every order, though x * out may be inf * 0.
    return grads([=] { return -(g * select(out == 0_c, 0_c, x * out)); });
  }
};
template <class V>
auto gaussian(V x) {
  return GaussianBackward::formula(x);
}

/// Twice the standard normal distribution function: erfc(-x / sqrt 2).
template <class V>
auto twice_normal_cdf(V x) {
  // erfc magnifies an error of its argument 2 t^2 times, so x / sqrt 2 is made of two parts, high exact.
  const auto z = select(40_c < x, 40_c, maximum(x, -40_c));
  const auto high = round(z * 256_c) * 0.00390625_c;
  const auto a = high * 0.70703125_c;
  const auto b = (z - high) * 0.70703125_c + z * 7.5531186547524401e-5_c;
  const auto s = a + b;
  const auto rest = b - (s - a);
  return erfc(-s) + exp(-(s * s)) * 1.1283791670955126_c * rest;
}

/// The standard normal distribution function.
struct NormalCdfBackward : UnaryKernel<NormalCdfBackward> {
  static constexpr OpSchema schema{.name = "normal_cdf", .types = real_floating, .ulp = 32, .internal = true};
  static auto formula(auto x) { return 0.5_c * twice_normal_cdf(x); }
  static constexpr auto gradient(auto g, auto x, auto) {
    return grads([=] { return g * (0.39894228040143268_c * gaussian(x)); });
  }
};
template <class V>
auto normal_cdf(V x) {
  return NormalCdfBackward::formula(x);
}

template <class V, class A>
auto pow_term(V x, V y, A less, A logs);

/// x1 ** (x2 - less) * log(x1) ** logs, 0 where the power is: the derivatives of x1 ** x2, of every order.
struct PowTermBackward : BinaryKernel<PowTermBackward> {
  static constexpr OpSchema schema{.name = "pow_term", .types = floating, .ulp = 4, .internal = true};
  template <class S = double>
  struct Attr {
    S less = 1;
    S logs = 0;
    static constexpr std::array names{"less", "logs"};
  };
  /// The power. What x2 - less lost by rounding, a power magnifies by log(x1): it is made up for. A whole number lost
  /// turns the sign of negative ones.
  static auto lowered(auto x, auto y, auto less) {
    const auto exponent = y - less;
    const auto of_reals = [=] {
      const auto rounded = exponent - y, lost = (y - (exponent - rounded)) - (less + rounded);
      const auto half = lost * 0.5_c;
      const auto turned = (real(x) < 0_c) & (half != round(half)) & (lost == round(lost));
      const auto p = power(x, exponent), more = lost * log(x);
      return select((abs(more) < 0.001_c) & isfinite(p), p + p * more, select(turned, -p, p));
    };
    return by_kind(x, of_reals, [=] { return power(x, exponent); });
  }
  /// The logarithm's factor, with 0 * log 0 = 0; so counts also 0 ** 0, whose derivative by the exponent is 0.
  static auto times_log(auto p, auto x, auto y, auto log_x) {
    const auto of_reals = [=] { return select((p == 0_c) | ((x == 0_c) & (y == 0_c)), 0_c, p * log_x); };
    return by_kind(x, of_reals, [=] { return select((x == 0_c) & (0_c <= real(y)), 0_c, p * log_x); });
  }
  static auto formula(auto x, auto y, auto a) {
    const auto p = lowered(x, y, a.less), l = log(x);
    return select(a.logs == 0_c, p, times_log(p, x, y, select(a.logs == 1_c, l, power(l, a.logs))));
  }
  static constexpr auto gradient(auto g, auto x, auto y, auto, auto a) {
    return grads(
        [=] {
          const auto one = pow_term(x, y, a.less + 1_c, a.logs), other = pow_term(x, y, a.less + 1_c, a.logs - 1_c);
          return g * conj(times(y - a.less, one) + select(a.logs == 0_c, 0_c, a.logs * other));
        },
        [=] { return g * conj(pow_term(x, y, a.less, a.logs + 1_c)); });
  }
  /// factor * p, 0 where the factor is: x1 ** 0 is 1, whatever x1 is.
  static constexpr auto times(auto factor, auto p) { return select((factor == 0_c) & !isfinite(p), 0_c, factor * p); }
};
template <class V, class A>
auto pow_term(V x, V y, A less, A logs) {
  return PowTermBackward::formula(x, y, PowTermBackward::Attr<A>{less, logs});
}
/// x1 ** (x2 - 1).
template <class V>
auto pow_by_x(V x, V y) {
  return PowTermBackward::lowered(x, y, 1_c);
}
/// The derivative by x2.
template <class V>
auto pow_by_y(V x, V y) {
  return PowTermBackward::times_log(power(x, y), x, y, log(x));
}

using GradientParts = OpList<SettleBackward, NumbersBackward, ImaginaryBackward, LogisticDensityBackward,
                             GaussianBackward, NormalCdfBackward, PowTermBackward>;

}  // namespace hyalite
