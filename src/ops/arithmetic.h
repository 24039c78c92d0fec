/// Arithmetic, rounding and the operators that choose between values.
#pragma once

#include "ops/op.h"

namespace hyalite {

/// x1 + x2. Integers wrap; booleans join by or.
struct AddBackward : BinaryKernel<AddBackward> {
  static constexpr OpSchema schema{
      .name = "add", .types = all_types, .slot = Slot::add, .commutes = true, .real_with_complex = true};
  static auto formula(auto x, auto y) { return x + y; }
  static constexpr auto gradient(auto g, auto, auto, auto) {
    return grads([=] { return g; }, [=] { return g; });
  }
};

/// x1 - x2. Integers wrap; booleans have no difference.
struct SubtractBackward : BinaryKernel<SubtractBackward> {
  static constexpr OpSchema schema{.name = "subtract", .slot = Slot::subtract, .real_with_complex = true};
  static auto formula(auto x, auto y) { return x - y; }
  static constexpr auto gradient(auto g, auto, auto, auto) {
    return grads([=] { return g; }, [=] { return -g; });
  }
};

/// x1 * x2. Integers wrap; booleans join by and; complex products follow C Annex G.
struct MultiplyBackward : BinaryKernel<MultiplyBackward> {
  static constexpr OpSchema schema{
      .name = "multiply", .types = all_types, .slot = Slot::multiply, .commutes = true, .real_with_complex = true};
  static auto formula(auto x, auto y) { return x * y; }
  static constexpr auto gradient(auto g, auto x, auto y, auto) {
    return grads([=] { return g * conj(y); }, [=] { return g * conj(x); });
  }
};

/// x1 / x2, correctly rounded; integers become the default float. Complex quotients follow C Annex G.
struct DivideBackward : BinaryKernel<DivideBackward> {
  static constexpr OpSchema schema{.name = "divide",
                                   .types = floating,
                                   .gradient_ulp = {1.5, 4},
                                   .integers = Integers::to_default,
                                   .slot = Slot::true_divide,
                                   .real_with_complex = true};
  static auto formula(auto x, auto y) { return x / y; }
  static constexpr auto gradient(auto g, auto x, auto y, auto) {
    return grads([=] { return g / conj(y); }, [=] { return -(g * conj(x / y) / conj(y)); });
  }
};

/// floor(x1 / x2): of the exact quotient for finite operands; integers divided by zero give 0.
struct FloorDivideBackward : BinaryKernel<FloorDivideBackward> {
  static constexpr OpSchema schema{.name = "floor_divide", .types = real_types, .slot = Slot::floor_divide};
  static auto formula(auto x, auto y) { return floor_divide(x, y); }
  static constexpr auto gradient(auto, auto, auto, auto) {
    return grads([=] { return 0_c; }, [=] { return 0_c; });
  }
};

/// x1 - x2 * floor(x1 / x2), exact, with the sign of x2, also for zero; integers modulo zero give 0.
struct RemainderBackward : BinaryKernel<RemainderBackward> {
  static constexpr OpSchema schema{.name = "remainder", .types = real_types, .slot = Slot::remainder};
  static auto formula(auto x, auto y) { return remainder(x, y); }
  static constexpr auto gradient(auto g, auto x, auto y, auto) {
    return grads([=] { return g; }, [=] { return -(g * floor_divide(x, y)); });
  }
};

/// The pair (x1 // x2, x1 % x2).
struct DivmodBackward : BinaryKernel<DivmodBackward> {
  static constexpr OpSchema schema{.name = "divmod", .types = real_types, .slot = Slot::divmod};
  static constexpr int outputs = 2;
  static auto formula(auto x, auto y) { return several(floor_divide(x, y), remainder(x, y)); }
  static constexpr auto gradient(auto g, auto, auto, auto out) {
    return grads([=] { return at<1>(g); }, [=] { return -(at<1>(g) * at<0>(out)); });
  }
};

/// -x. Integers wrap; a NaN keeps its payload and changes its sign.
struct NegativeBackward : UnaryKernel<NegativeBackward> {
  static constexpr OpSchema schema{.name = "negative", .slot = Slot::negative};
  static auto formula(auto x) { return -x; }
  static constexpr auto gradient(auto g, auto, auto) {
    return grads([=] { return -g; });
  }
};

/// x itself, as a new tensor.
struct PositiveBackward : UnaryKernel<PositiveBackward> {
  static constexpr OpSchema schema{.name = "positive", .slot = Slot::positive};
  static auto formula(auto x) { return x; }
  static constexpr auto gradient(auto g, auto, auto) {
    return grads([=] { return g; });
  }
};

/// |x|; the absolute value of the least integer is itself. The gradient at 0 is 0.
struct AbsBackward : UnaryKernel<AbsBackward> {
  static constexpr OpSchema schema{.name = "abs", .results = {Result::real_part}, .ulp = 1, .slot = Slot::absolute};
  static auto formula(auto x) { return abs(x); }
  static constexpr auto gradient(auto g, auto x, auto) {
    return grads([=] { return g * sign(x); });
  }
};

/// -1, 0 or 1; z / |z| for complex; NaN of NaN.
struct SignBackward : UnaryKernel<SignBackward> {
  static constexpr OpSchema schema{.name = "sign", .ulp = 3};
  static auto formula(auto x) { return sign(x); }
  static constexpr auto gradient(auto g, auto x, auto) {
    // What turns z / |z| is across it; of a real number nothing does.
    return grads([=] { return select(x == 0_c, 0_c, sign(x) * imaginary(conj(sign(x)) * g) / abs(x)); });
  }
};

/// x * x.
struct SquareBackward : UnaryKernel<SquareBackward> {
  static constexpr OpSchema schema{.name = "square"};
  static auto formula(auto x) { return x * x; }
  static constexpr auto gradient(auto g, auto x, auto) {
    return grads([=] { return g * conj(x) * 2_c; });
  }
};

/// 1 / x, correctly rounded.
struct ReciprocalBackward : UnaryKernel<ReciprocalBackward> {
  static constexpr OpSchema schema{
      .name = "reciprocal", .types = floating, .gradient_ulp = {1.5, 4}, .integers = Integers::to_default};
  static auto formula(auto x) { return 1_c / x; }
  static constexpr auto gradient(auto g, auto x, auto) {
    return grads([=] { return -(g / conj(x) / conj(x)); });
  }
};

/// The largest integer not above x; integers unchanged.
struct FloorBackward : UnaryKernel<FloorBackward> {
  static constexpr OpSchema schema{.name = "floor", .types = real_types};
  static auto formula(auto x) { return floor(x); }
  static constexpr auto gradient(auto, auto, auto) {
    return grads([=] { return 0_c; });
  }
};

/// The smallest integer not below x; integers unchanged.
struct CeilBackward : UnaryKernel<CeilBackward> {
  static constexpr OpSchema schema{.name = "ceil", .types = real_types};
  static auto formula(auto x) { return ceil(x); }
  static constexpr auto gradient(auto, auto, auto) {
    return grads([=] { return 0_c; });
  }
};

/// x without its fraction; integers unchanged.
struct TruncBackward : UnaryKernel<TruncBackward> {
  static constexpr OpSchema schema{.name = "trunc", .types = real_types};
  static auto formula(auto x) { return trunc(x); }
  static constexpr auto gradient(auto, auto, auto) {
    return grads([=] { return 0_c; });
  }
};

/// The nearest integer, halfway cases to even, by component for complex; integers unchanged.
struct RoundBackward : UnaryKernel<RoundBackward> {
  static constexpr OpSchema schema{.name = "round", .types = numeric};
  static auto formula(auto x) { return round(x); }
  static constexpr auto gradient(auto, auto, auto) {
    return grads([=] { return 0_c; });
  }
};

/// The larger of two; NaN wins, +0 is larger than -0. Equal arguments take half the gradient each, else the side that
/// is the result takes it and the other gets nothing.
struct MaximumBackward : BinaryKernel<MaximumBackward> {
  static constexpr OpSchema schema{.name = "maximum", .types = real_types, .commutes = true};
  static auto formula(auto x, auto y) { return maximum(x, y); }
  static constexpr auto gradient(auto g, auto x, auto y, auto) {
    return grads([=] { return taken((y <= x) | isnan(x), share(g, x, y)); },
                 [=] { return taken((x <= y) | isnan(y), share(g, x, y)); });
  }
  static constexpr auto share(auto g, auto x, auto y) { return select((x == y) | (isnan(x) & isnan(y)), g * 0.5_c, g); }
};

/// The smaller of two; NaN wins, -0 is smaller than +0. Its gradient is as that of maximum.
struct MinimumBackward : BinaryKernel<MinimumBackward> {
  static constexpr OpSchema schema{.name = "minimum", .types = real_types, .commutes = true};
  static auto formula(auto x, auto y) { return minimum(x, y); }
  static constexpr auto gradient(auto g, auto x, auto y, auto) {
    return grads([=] { return taken((x <= y) | isnan(x), MaximumBackward::share(g, x, y)); },
                 [=] { return taken((y <= x) | isnan(y), MaximumBackward::share(g, x, y)); });
  }
};

/// x held between min and max; where min exceeds max, max wins. The gradient goes to the one that is the result, and
/// the others get nothing.
struct ClipBackward : TernaryKernel<ClipBackward> {
  static constexpr OpSchema schema{
      .name = "clip", .types = real_types, .params = "x, min, max", .roles = {Role::data, Role::bound, Role::bound}};
  static auto formula(auto x, auto low, auto high) { return minimum(maximum(x, low), high); }
  static constexpr auto gradient(auto g, auto x, auto low, auto high, auto) {
    return grads([=] { return taken(((low <= x) & (x <= high)) | isnan(x), g); },
                 [=] { return taken(((x < low) & (low <= high)) | (isnan(low) & !isnan(x)), g); },
                 [=] { return taken((high < maximum(x, low)) | (isnan(high) & !isnan(maximum(x, low))), g); });
  }
};

/// x1 with the sign bit of x2.
struct CopysignBackward : BinaryKernel<CopysignBackward> {
  static constexpr OpSchema schema{.name = "copysign", .types = real_floating, .integers = Integers::to_default};
  static auto formula(auto x, auto y) { return copysign(x, y); }
  static constexpr auto gradient(auto g, auto x, auto, auto out) {
    return grads([=] { return g * sign(x) * sign(out); }, [=] { return 0_c; });
  }
};

/// x1 where the condition holds, else x2. The side not taken gets nothing, not zero times something.
struct WhereBackward : TernaryKernel<WhereBackward> {
  static constexpr OpSchema schema{
      .name = "where", .types = all_types, .params = "condition, x1, x2", .roles = {Role::condition}};
  static auto formula(auto c, auto x, auto y) { return select(c, x, y); }
  static constexpr auto gradient(auto g, auto c, auto, auto, auto) {
    return grads(
        none, [=] { return taken(c, g); }, [=] { return taken(!c, g); });
  }
};

/// The complex conjugate; real values unchanged.
struct ConjBackward : UnaryKernel<ConjBackward> {
  static constexpr OpSchema schema{.name = "conj", .types = numeric, .identity_on_reals = true};
  static auto formula(auto x) { return conj(x); }
  static constexpr auto gradient(auto g, auto, auto) {
    return grads([=] { return conj(g); });
  }
};

using Arithmetic =
    OpList<AddBackward, SubtractBackward, MultiplyBackward, DivideBackward, FloorDivideBackward, RemainderBackward,
           DivmodBackward, NegativeBackward, PositiveBackward, AbsBackward, SignBackward, SquareBackward,
           ReciprocalBackward, FloorBackward, CeilBackward, TruncBackward, RoundBackward, MaximumBackward,
           MinimumBackward, ClipBackward, CopysignBackward, WhereBackward, ConjBackward>;

}  // namespace hyalite
