/// How far apart two results are, element by element.
#pragma once

#include <cstdint>

#include "tensor/tensor_impl.h"

namespace hyalite {

/// The elements of two tensors whose bits differ.
struct BitsApart {
  std::int64_t count = 0;
  std::int64_t first = -1;  ///< in row-major order; -1: none differs
  /// Numbers of the dtype between them, at the first and at most; of integers the difference.
  std::int64_t ulp = 0, largest_ulp = 0;
};

/// Of row-major tensors of one dtype and shape on the CPU. `nans_alike`: what a NaN carries does not count.
BitsApart bits_apart(const TensorImpl& a, const TensorImpl& b, bool nans_alike);

}  // namespace hyalite
