/// Reductions over any axes, of any strides.
#pragma once

#include "compute/backend.h"
#include "compute/opencl/device.h"

namespace hyalite::opencl {

enum class Fold : std::uint8_t { sum, prod, mean, max, min, any, all, argmax, argmin };
template <Fold f>
Outputs reduce(ClDevice& d, const Validated& v, TensorImpl* target);

}  // namespace hyalite::opencl
