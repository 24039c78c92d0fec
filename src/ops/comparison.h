/// Comparisons, tests of values, logical and bitwise operators: nothing here has a gradient.
#pragma once

#include "ops/op.h"

namespace hyalite {

template <class Op>
struct Test : UnaryKernel<Op> {
  static constexpr auto gradient(auto, auto, auto) { return grads(none); }
};
template <class Op>
struct Relation : BinaryKernel<Op> {
  static constexpr auto gradient(auto, auto, auto, auto) { return grads(none, none); }
};
inline constexpr DtypeSet ordered_types = boolean_types | real_types;

/// x1 == x2, exact by value between any real types.
struct EqualBackward : Relation<EqualBackward> {
  static constexpr OpSchema schema{
      .name = "equal", .types = all_types, .results = {Result::boolean}, .slot = Slot::equal, .mixed = true};
  static auto formula(auto x, auto y) { return x == y; }
};

/// x1 != x2, exact by value between any real types.
struct NotEqualBackward : Relation<NotEqualBackward> {
  static constexpr OpSchema schema{
      .name = "not_equal", .types = all_types, .results = {Result::boolean}, .slot = Slot::not_equal, .mixed = true};
  static auto formula(auto x, auto y) { return x != y; }
};

/// x1 < x2, exact by value between any real types.
struct LessBackward : Relation<LessBackward> {
  static constexpr OpSchema schema{
      .name = "less", .types = ordered_types, .results = {Result::boolean}, .slot = Slot::less, .mixed = true};
  static auto formula(auto x, auto y) { return x < y; }
};

/// x1 <= x2, exact by value between any real types.
struct LessEqualBackward : Relation<LessEqualBackward> {
  static constexpr OpSchema schema{.name = "less_equal",
                                   .types = ordered_types,
                                   .results = {Result::boolean},
                                   .slot = Slot::less_equal,
                                   .mixed = true};
  static auto formula(auto x, auto y) { return x <= y; }
};

/// x1 > x2, exact by value between any real types.
struct GreaterBackward : Relation<GreaterBackward> {
  static constexpr OpSchema schema{
      .name = "greater", .types = ordered_types, .results = {Result::boolean}, .slot = Slot::greater, .mixed = true};
  static auto formula(auto x, auto y) { return y < x; }
};

/// x1 >= x2, exact by value between any real types.
struct GreaterEqualBackward : Relation<GreaterEqualBackward> {
  static constexpr OpSchema schema{.name = "greater_equal",
                                   .types = ordered_types,
                                   .results = {Result::boolean},
                                   .slot = Slot::greater_equal,
                                   .mixed = true};
  static auto formula(auto x, auto y) { return y <= x; }
};

/// x is NaN; false for integers.
struct IsnanBackward : Test<IsnanBackward> {
  static constexpr OpSchema schema{.name = "isnan", .results = {Result::boolean}};
  static auto formula(auto x) { return isnan(x); }
};

/// x is an infinity; false for integers.
struct IsinfBackward : Test<IsinfBackward> {
  static constexpr OpSchema schema{.name = "isinf", .results = {Result::boolean}};
  static auto formula(auto x) { return isinf(x); }
};

/// x is neither NaN nor an infinity; true for integers.
struct IsfiniteBackward : Test<IsfiniteBackward> {
  static constexpr OpSchema schema{.name = "isfinite", .results = {Result::boolean}};
  static auto formula(auto x) { return isfinite(x); }
};

/// Both operands are nonzero; NaN counts as nonzero.
struct LogicalAndBackward : Relation<LogicalAndBackward> {
  static constexpr OpSchema schema{.name = "logical_and", .types = all_types, .results = {Result::boolean}};
  static auto formula(auto x, auto y) { return (x != 0_c) & (y != 0_c); }
};

/// Either operand is nonzero; NaN counts as nonzero.
struct LogicalOrBackward : Relation<LogicalOrBackward> {
  static constexpr OpSchema schema{.name = "logical_or", .types = all_types, .results = {Result::boolean}};
  static auto formula(auto x, auto y) { return (x != 0_c) | (y != 0_c); }
};

/// Exactly one operand is nonzero; NaN counts as nonzero.
struct LogicalXorBackward : Relation<LogicalXorBackward> {
  static constexpr OpSchema schema{.name = "logical_xor", .types = all_types, .results = {Result::boolean}};
  static auto formula(auto x, auto y) { return (x != 0_c) ^ (y != 0_c); }
};

/// x is zero; NaN is not.
struct LogicalNotBackward : Test<LogicalNotBackward> {
  static constexpr OpSchema schema{.name = "logical_not", .types = all_types, .results = {Result::boolean}};
  static auto formula(auto x) { return x == 0_c; }
};

inline constexpr DtypeSet bit_types = boolean_types | integer_types;

/// Bitwise and; logical for booleans.
struct BitwiseAndBackward : Relation<BitwiseAndBackward> {
  static constexpr OpSchema schema{.name = "bitwise_and", .types = bit_types, .slot = Slot::bitwise_and};
  static auto formula(auto x, auto y) { return x & y; }
};

/// Bitwise or; logical for booleans.
struct BitwiseOrBackward : Relation<BitwiseOrBackward> {
  static constexpr OpSchema schema{.name = "bitwise_or", .types = bit_types, .slot = Slot::bitwise_or};
  static auto formula(auto x, auto y) { return x | y; }
};

/// Bitwise exclusive or; logical for booleans.
struct BitwiseXorBackward : Relation<BitwiseXorBackward> {
  static constexpr OpSchema schema{.name = "bitwise_xor", .types = bit_types, .slot = Slot::bitwise_xor};
  static auto formula(auto x, auto y) { return x ^ y; }
};

/// Every bit flipped; logical not for booleans.
struct BitwiseInvertBackward : Test<BitwiseInvertBackward> {
  static constexpr OpSchema schema{.name = "bitwise_invert", .types = bit_types, .slot = Slot::invert};
  static auto formula(auto x) { return ~x; }
};

/// x1 shifted left by x2 bits; 0 for shifts by the width or more and by negative amounts.
struct BitwiseLeftShiftBackward : Relation<BitwiseLeftShiftBackward> {
  static constexpr OpSchema schema{
      .name = "bitwise_left_shift", .types = integer_types, .slot = Slot::left_shift, .numpy = "-"};
  static auto formula(auto x, auto y) { return x << y; }
};

/// x1 shifted right, keeping its sign; 0 or -1 for shifts by the width or more and by negative amounts.
struct BitwiseRightShiftBackward : Relation<BitwiseRightShiftBackward> {
  static constexpr OpSchema schema{
      .name = "bitwise_right_shift", .types = integer_types, .slot = Slot::right_shift, .numpy = "-"};
  static auto formula(auto x, auto y) { return x >> y; }
};

using Comparisons =
    OpList<EqualBackward, NotEqualBackward, LessBackward, LessEqualBackward, GreaterBackward, GreaterEqualBackward,
           IsnanBackward, IsinfBackward, IsfiniteBackward, LogicalAndBackward, LogicalOrBackward, LogicalXorBackward,
           LogicalNotBackward, BitwiseAndBackward, BitwiseOrBackward, BitwiseXorBackward, BitwiseInvertBackward,
           BitwiseLeftShiftBackward, BitwiseRightShiftBackward>;

}  // namespace hyalite
