/// Reductions over any axes, of any strides.
#pragma once

#include <algorithm>
#include <string>

#include "compute/backend.h"
#include "compute/opencl/folds.h"

namespace hyalite::opencl {

/// How the work of a reduction is spread over items.
struct Spread {
  bool groups = false;     ///< a group for each result, whose items share its elements; else an item
  std::int64_t parts = 1;  ///< groups, or items, for each result

  std::int64_t items(std::int64_t results) const {
    return groups ? std::min<std::int64_t>(results, 4096) * static_cast<std::int64_t>(group_size) : results;
  }
};
/// `rows`: the elements of a result lie side by side, and not those of the next results.
Spread spread_over(const ClDevice& d, std::int64_t kept, std::int64_t reduced, bool rows);

// How the text of kernels says it: the loop over places, or parts of them, with a group's local memory in front; what
// only one of a place's items does; the end; which place `o` part `w` belongs to; the loop over its elements `j`, and
// that over the parts of a place; where the state of one lies.
std::string begin_lines(bool groups, const std::string& locals, const std::string& of, const std::string& count);
std::string first_item(bool groups);
std::string end_lines(bool groups);
std::string part_lines(bool groups);
std::string part_loop(const Spread& s);
std::string join_loop(bool groups);
std::string join_place(bool groups);

template <Fold f>
Outputs reduce(ClDevice& d, const Validated& v, TensorImpl* target);

}  // namespace hyalite::opencl
