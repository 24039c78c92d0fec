/// Powers, exponentials, logarithms, trigonometric functions and activations.
#pragma once

#include "ops/gradient_parts.h"

namespace hyalite {

/// Square root, correctly rounded for reals. The gradient at 0 is infinite.
struct SqrtBackward : UnaryKernel<SqrtBackward> {
  static constexpr OpSchema schema{
      .name = "sqrt", .types = floating, .gradient_ulp = {1.5, 4}, .integers = Integers::to_default};
  static auto formula(auto x) { return sqrt(x); }
  static constexpr auto gradient(auto g, auto, auto out) {
    return grads([=] { return g / (2_c * conj(out + 0_c)); });  // +inf at -0 too
  }
};

/// e to the power x.
struct ExpBackward : UnaryKernel<ExpBackward> {
  static constexpr OpSchema schema{.name = "exp",
                                   .types = floating,
                                   .amp = Amp::full,
                                   .ulp = 1,
                                   .gradient_ulp = {1, 1},
                                   .integers = Integers::to_default};
  static auto formula(auto x) { return exp(x); }
  static constexpr auto gradient(auto g, auto, auto out) {
    return grads([=] { return g * conj(out); });
  }
};

/// exp(x) - 1, accurate near 0.
struct Expm1Backward : UnaryKernel<Expm1Backward> {
  static constexpr OpSchema schema{.name = "expm1",
                                   .types = floating,
                                   .amp = Amp::full,
                                   .ulp = 1,
                                   .gradient_ulp = {1, 1},
                                   .integers = Integers::to_default};
  static auto formula(auto x) { return expm1(x); }
  static constexpr auto gradient(auto g, auto x, auto) {
    return grads([=] { return g * conj(exp(x)); });
  }
};

/// Natural logarithm; log(0) is -inf, of a negative real NaN.
struct LogBackward : UnaryKernel<LogBackward> {
  static constexpr OpSchema schema{.name = "log",
                                   .types = floating,
                                   .amp = Amp::full,
                                   .ulp = 3.5,
                                   .gradient_ulp = {0.5, 1.5},
                                   .integers = Integers::to_default};
  static auto formula(auto x) { return log(x); }
  static constexpr auto gradient(auto g, auto x, auto) {
    return grads([=] { return g / conj(x + 0_c); });  // +inf at -0 too
  }
};

/// log(1 + x), accurate near 0.
struct Log1pBackward : UnaryKernel<Log1pBackward> {
  static constexpr OpSchema schema{.name = "log1p",
                                   .types = floating,
                                   .amp = Amp::full,
                                   .ulp = 2,
                                   .gradient_ulp = {1.5, 4},
                                   .integers = Integers::to_default};
  static auto formula(auto x) {
    // SLEEF's function overflows near the largest numbers, and loses numbers that 1 + x does not see.
    const auto large = 1e30_c < real(x);
    const auto r = log1p(select(large, x * 0.00390625_c, x));
    return select(x + 1_c == 1_c, x, select(large, r + 5.5451774444795625_c, r));
  }
  static constexpr auto gradient(auto g, auto x, auto) {
    return grads([=] { return g / conj(x + 1_c); });
  }
};

/// Sine of x in radians.
struct SinBackward : UnaryKernel<SinBackward> {
  static constexpr OpSchema schema{
      .name = "sin", .types = floating, .ulp = 3.5, .gradient_ulp = {3.5, 3.5}, .integers = Integers::to_default};
  static auto formula(auto x) { return sin(x); }
  static constexpr auto gradient(auto g, auto x, auto) {
    return grads([=] { return g * conj(cos(x)); });
  }
};

/// Cosine of x in radians.
struct CosBackward : UnaryKernel<CosBackward> {
  static constexpr OpSchema schema{
      .name = "cos", .types = floating, .ulp = 3.5, .gradient_ulp = {3.5, 3.5}, .integers = Integers::to_default};
  static auto formula(auto x) { return cos(x); }
  static constexpr auto gradient(auto g, auto x, auto) {
    return grads([=] { return -(g * conj(sin(x))); });
  }
};

/// Hyperbolic tangent.
struct TanhBackward : UnaryKernel<TanhBackward> {
  static constexpr OpSchema schema{
      .name = "tanh", .types = floating, .ulp = 3.5, .gradient_ulp = {4, 10}, .integers = Integers::to_default};
  static auto formula(auto x) { return tanh(x); }
  static constexpr auto gradient(auto g, auto x, auto) {
    return grads([=] { return g * conj(4_c * logistic_density(2_c * x)); });
  }
};

/// The error function.
struct ErfBackward : UnaryKernel<ErfBackward> {
  static constexpr OpSchema schema{.name = "erf",
                                   .types = real_floating,
                                   .ulp = 2,
                                   .gradient_ulp = {5, 9},
                                   .integers = Integers::to_default,
                                   .numpy = "-"};
  static auto formula(auto x) { return erf(x); }
  static constexpr auto gradient(auto g, auto x, auto) {
    return grads([=] { return g * (1.1283791670955126_c * gaussian(x) * gaussian(x)); });
  }
};

/// 1 - erf(x), accurate in the upper tail.
struct ErfcBackward : UnaryKernel<ErfcBackward> {
  static constexpr OpSchema schema{.name = "erfc",
                                   .types = real_floating,
                                   .ulp = 2.5,
                                   .gradient_ulp = {5, 9},
                                   .integers = Integers::to_default,
                                   .numpy = "-"};
  static auto formula(auto x) { return erfc(x); }
  static constexpr auto gradient(auto g, auto x, auto) {
    return grads([=] { return -(g * (1.1283791670955126_c * gaussian(x) * gaussian(x))); });
  }
};

/// x1 to the power x2. pow(x, 0) and pow(1, y) are 1, of NaN too; a negative integer exponent raises; integers wrap.
struct PowBackward : BinaryKernel<PowBackward> {
  static constexpr OpSchema schema{.name = "pow",
                                   .amp = Amp::full,
                                   .ulp = 1,
                                   .gradient_ulp = {6, 12},
                                   .slot = Slot::power,
                                   .with_two = "square",
                                   .check = Check::integer_exponent,
                                   .numpy = "power"};
  static auto formula(auto x, auto y) { return power(x, y); }
  static constexpr auto gradient(auto g, auto x, auto y, auto) {
    return grads([=] { return g * conj(PowTermBackward::times(y, pow_by_x(x, y))); },
                 [=] { return g * conj(pow_by_y(x, y)); });
  }
};

/// 1 / (1 + exp(-x)), accurate in both tails.
struct SigmoidBackward : UnaryKernel<SigmoidBackward> {
  static constexpr OpSchema schema{.name = "sigmoid",
                                   .types = real_floating,
                                   .ulp = 4,
                                   .gradient_ulp = {4, 9},
                                   .integers = Integers::to_default,
                                   .numpy = "-"};
  static auto formula(auto x) {
    auto e = exp(select(x < 0_c, x, -x));
    return select(x < 0_c, e, 1_c) / (1_c + e);
  }
  static constexpr auto gradient(auto g, auto x, auto) {
    return grads([=] { return g * logistic_density(x); });
  }
};

/// x where x is positive, else 0; NaN stays NaN. Where x is not positive it gets nothing of the gradient.
struct ReluBackward : UnaryKernel<ReluBackward> {
  static constexpr OpSchema schema{.name = "relu", .types = real_types, .numpy = "-"};
  static auto formula(auto x) { return maximum(x, 0_c); }
  static constexpr auto gradient(auto g, auto, auto out) {
    return grads([=] { return taken((0_c < out) | isnan(out), g); });
  }
};

/// x where x is positive, else slope * x.
struct LeakyReluBackward : UnaryKernel<LeakyReluBackward> {
  static constexpr OpSchema schema{
      .name = "leaky_relu", .types = real_floating, .integers = Integers::to_default, .numpy = "-"};
  template <class S = double>
  struct Attr {
    S slope = 0.01;
    static constexpr std::array names{"slope"};
  };
  static auto formula(auto x, auto a) { return select(0_c < x, x, a.slope * x); }
  static constexpr auto gradient(auto g, auto x, auto, auto a) {
    return grads([=] { return select(0_c < x, g, a.slope * g); });
  }
};

/// x times the standard normal distribution function: x / 2 * erfc(-x / sqrt 2). Within 4 ULP, but for the last stretch
/// before it underflows (x below -13 in float32, -37 in float64): erfc itself is subnormal there and has lost bits.
struct GeluBackward : UnaryKernel<GeluBackward> {
  static constexpr OpSchema schema{.name = "gelu",
                                   .types = real_floating,
                                   .ulp = 32,
                                   .gradient_ulp = {8, 12},
                                   .integers = Integers::to_default,
                                   .numpy = "-"};
  static auto formula(auto x) {
    const auto y = maximum(x, -40_c);
    // Of two NaNs that meet, the order of operands would choose.
    return select(isnan(x), x + x, y * 0.5_c * twice_normal_cdf(y));
  }
  static constexpr auto gradient(auto g, auto x, auto) {
    return grads([=] { return g * (normal_cdf(x) + 0.39894228040143268_c * times_x(gaussian(x), x)); });
  }
  static constexpr auto times_x(auto p, auto x) { return select(p == 0_c, 0_c, x * p); }
};

using Functions =
    OpList<SqrtBackward, ExpBackward, Expm1Backward, LogBackward, Log1pBackward, SinBackward, CosBackward, TanhBackward,
           ErfBackward, ErfcBackward, PowBackward, SigmoidBackward, ReluBackward, LeakyReluBackward, GeluBackward>;

}  // namespace hyalite
