/// Powers, exponentials, logarithms, trigonometric functions and activations.
#pragma once

#include "ops/op.h"

namespace hyalite {

/// Square root, correctly rounded for reals. The gradient at 0 is infinite.
struct SqrtBackward : UnaryKernel<SqrtBackward> {
  static constexpr OpSchema schema{.name = "sqrt", .types = floating, .integers = Integers::to_default};
  static auto formula(auto x) { return sqrt(x); }
  static constexpr auto gradient(auto g, auto, auto out) {
    return grads([=] { return g / (2_c * conj(out)); });
  }
};

/// e to the power x.
struct ExpBackward : UnaryKernel<ExpBackward> {
  static constexpr OpSchema schema{
      .name = "exp", .types = floating, .amp = Amp::full, .ulp = 1, .integers = Integers::to_default};
  static auto formula(auto x) { return exp(x); }
  static constexpr auto gradient(auto g, auto, auto out) {
    return grads([=] { return g * conj(out); });
  }
};

/// exp(x) - 1, accurate near 0.
struct Expm1Backward : UnaryKernel<Expm1Backward> {
  static constexpr OpSchema schema{
      .name = "expm1", .types = floating, .amp = Amp::full, .ulp = 1, .integers = Integers::to_default};
  static auto formula(auto x) { return expm1(x); }
  static constexpr auto gradient(auto g, auto, auto out) {
    return grads([=] { return g * conj(out + 1_c); });
  }
};

/// Natural logarithm; log(0) is -inf, of a negative real NaN.
struct LogBackward : UnaryKernel<LogBackward> {
  static constexpr OpSchema schema{
      .name = "log", .types = floating, .amp = Amp::full, .ulp = 3.5, .integers = Integers::to_default};
  static auto formula(auto x) { return log(x); }
  static constexpr auto gradient(auto g, auto x, auto) {
    return grads([=] { return g / conj(x); });
  }
};

/// log(1 + x), accurate near 0.
struct Log1pBackward : UnaryKernel<Log1pBackward> {
  static constexpr OpSchema schema{
      .name = "log1p", .types = floating, .amp = Amp::full, .ulp = 2, .integers = Integers::to_default};
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
  static constexpr OpSchema schema{.name = "sin", .types = floating, .ulp = 3.5, .integers = Integers::to_default};
  static auto formula(auto x) { return sin(x); }
  static constexpr auto gradient(auto g, auto x, auto) {
    return grads([=] { return g * conj(cos(x)); });
  }
};

/// Cosine of x in radians.
struct CosBackward : UnaryKernel<CosBackward> {
  static constexpr OpSchema schema{.name = "cos", .types = floating, .ulp = 3.5, .integers = Integers::to_default};
  static auto formula(auto x) { return cos(x); }
  static constexpr auto gradient(auto g, auto x, auto) {
    return grads([=] { return -(g * conj(sin(x))); });
  }
};

/// Hyperbolic tangent.
struct TanhBackward : UnaryKernel<TanhBackward> {
  static constexpr OpSchema schema{.name = "tanh", .types = floating, .ulp = 3.5, .integers = Integers::to_default};
  static auto formula(auto x) { return tanh(x); }
  static constexpr auto gradient(auto g, auto, auto out) {
    return grads([=] { return g - g * conj(out * out); });
  }
};

/// The error function.
struct ErfBackward : UnaryKernel<ErfBackward> {
  static constexpr OpSchema schema{
      .name = "erf", .types = real_floating, .ulp = 2, .integers = Integers::to_default, .numpy = "-"};
  static auto formula(auto x) { return erf(x); }
  static constexpr auto gradient(auto g, auto x, auto) {
    return grads([=] { return g * (1.1283791670955126_c * exp(-(x * x))); });
  }
};

/// 1 - erf(x), accurate in the upper tail.
struct ErfcBackward : UnaryKernel<ErfcBackward> {
  static constexpr OpSchema schema{
      .name = "erfc", .types = real_floating, .ulp = 2.5, .integers = Integers::to_default, .numpy = "-"};
  static auto formula(auto x) { return erfc(x); }
  static constexpr auto gradient(auto g, auto x, auto) {
    return grads([=] { return -(g * (1.1283791670955126_c * exp(-(x * x)))); });
  }
};

/// x1 to the power x2. pow(x, 0) and pow(1, y) are 1, of NaN too; a negative integer exponent raises; integers wrap.
struct PowBackward : BinaryKernel<PowBackward> {
  static constexpr OpSchema schema{.name = "pow",
                                   .amp = Amp::full,
                                   .ulp = 1,
                                   .slot = Slot::power,
                                   .check = Check::integer_exponent,
                                   .numpy = "power"};
  static auto formula(auto x, auto y) { return power(x, y); }
  static constexpr auto gradient(auto g, auto x, auto y, auto out) {
    // 0 * log 0 counts as 0, so that 0 ** y has a derivative by y for y >= 0.
    return grads([=] { return select(y == 0_c, 0_c, g * conj(y * power(x, y - 1_c))); },
                 [=] { return select((x == 0_c) & (0_c <= real(y)), 0_c, g * conj(out * log(x))); });
  }
};

/// 1 / (1 + exp(-x)), accurate in both tails.
struct SigmoidBackward : UnaryKernel<SigmoidBackward> {
  static constexpr OpSchema schema{
      .name = "sigmoid", .types = real_floating, .ulp = 4, .integers = Integers::to_default, .numpy = "-"};
  static auto formula(auto x) {
    auto e = exp(select(x < 0_c, x, -x));
    return select(x < 0_c, e, 1_c) / (1_c + e);
  }
  static constexpr auto gradient(auto g, auto, auto out) {
    return grads([=] { return g * out * (1_c - out); });
  }
};

/// x where x is positive, else 0; NaN stays NaN. The gradient at 0 is 0.
struct ReluBackward : UnaryKernel<ReluBackward> {
  static constexpr OpSchema schema{.name = "relu", .types = real_types, .numpy = "-"};
  static auto formula(auto x) { return maximum(x, 0_c); }
  static constexpr auto gradient(auto g, auto, auto out) {
    return grads([=] { return select(0_c < out, g, 0_c); });
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
  static constexpr OpSchema schema{
      .name = "gelu", .types = real_floating, .ulp = 32, .integers = Integers::to_default, .numpy = "-"};
  static auto formula(auto x) {
    // erfc magnifies an error of its argument 2 t^2 times, so x / sqrt 2 is made of two parts, high exact.
    const auto y = maximum(x, -40_c);
    const auto z = select(40_c < y, 40_c, y);
    const auto high = round(z * 256_c) * 0.00390625_c;
    const auto a = high * 0.70703125_c;
    const auto b = (z - high) * 0.70703125_c + z * 7.5531186547524401e-5_c;
    const auto s = a + b;
    const auto rest = b - (s - a);
    return y * 0.5_c * (erfc(-s) + exp(-(s * s)) * 1.1283791670955126_c * rest);
  }
  static constexpr auto gradient(auto g, auto x, auto) {
    return grads([=] {
      return g * (0.5_c * erfc(-0.70710678118654752_c * x) + 0.39894228040143268_c * x * exp(-0.5_c * x * x));
    });
  }
};

using Functions =
    OpList<SqrtBackward, ExpBackward, Expm1Backward, LogBackward, Log1pBackward, SinBackward, CosBackward, TanhBackward,
           ErfBackward, ErfcBackward, PowBackward, SigmoidBackward, ReluBackward, LeakyReluBackward, GeluBackward>;

}  // namespace hyalite
