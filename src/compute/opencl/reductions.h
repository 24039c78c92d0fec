/// Reductions over any axes, of any strides.
#pragma once

#include <algorithm>

#include "compute/backend.h"
#include "compute/opencl/folds.h"

namespace hyalite::opencl {

/// How the work of a reduction is spread over items.
struct Spread {
  bool groups = false;     ///< a group for each result, else an item
  std::int64_t parts = 1;  ///< groups for each result

  std::int64_t items(std::int64_t results) const {
    return groups ? std::min<std::int64_t>(results, 4096) * static_cast<std::int64_t>(group_size) : results;
  }
};
Spread spread_over(const ClDevice& d, std::int64_t kept, std::int64_t reduced);

template <Fold f>
Outputs reduce(ClDevice& d, const Validated& v, TensorImpl* target);

}  // namespace hyalite::opencl
