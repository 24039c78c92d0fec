/// Where the elements of an operand lie as a fused pass comes to them.
#pragma once

#include <cstdint>
#include <vector>

#include "compute/lazy/pass.h"

namespace hyalite::cpu {

/// How an operand lies on the two sides of the split.
struct Walk {
  std::int64_t size = 0;                     // of an element
  std::int64_t inner = 0;                    // stride of the last axes, which are one
  std::vector<std::int64_t> sizes, strides;  // of the first axes, joined where they can be

  std::int64_t row(std::int64_t r) const {
    std::int64_t offset = 0;
    for (int i = static_cast<int>(sizes.size()) - 1; i > 0; --i) {
      const auto at = static_cast<std::size_t>(i);
      offset += r % sizes[at] * strides[at];
      r /= sizes[at];
    }
    return sizes.empty() ? 0 : offset + r * strides[0];
  }
  /// Of the first axes where they are one.
  std::int64_t outer() const { return strides.empty() ? 0 : strides[0]; }
};

Walk walk_of(const TensorImpl& t, const lazy::Pass& pass);

}  // namespace hyalite::cpu
