/// Reductions as text in C: their state, and what happens to it.
#pragma once

#include <string>

#include "compute/opencl/kernels.h"

namespace hyalite::opencl {

enum class Fold : std::uint8_t { sum, prod, mean, max, min, any, all, argmax, argmin };

/// How a reduction is written: its state, where it begins, how a value joins, how state `b` does, and what the state of
/// all `n` elements gives, as the result is stored.
struct FoldText {
  std::string state, begin, join, merge, end;
};
inline constexpr std::size_t largest_state = 16;  // bytes

/// With `a` and `v` for the state and the value, of the dtype that `in` is computed in.
FoldText fold_text(Fold f, Dtype in, Dtype out, bool has_float64, const std::string& a = "a",
                   const std::string& v = "v");
/// Lines that merge the states of a group's items, `me` of `group_size`, through `all`, in local memory, into that of
/// item 0.
std::string merge_lines(const FoldText& t, const std::string& a, const std::string& all);

}  // namespace hyalite::opencl
