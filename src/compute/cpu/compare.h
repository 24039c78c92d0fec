/// Exact comparisons between dtypes of different kinds or signs.
#pragma once

#include "compute/cpu/kernels.h"

namespace hyalite::cpu {

/// The kernel of elementwise op number `op` for the hubs `left` and `right` (int64, uint64, float64), which differ.
/// Null unless the op is a comparison.
ElementwiseFn mixed_comparison(int op, Hub left, Hub right);

}  // namespace hyalite::cpu
