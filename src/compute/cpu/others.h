/// Products of all elements of a row but one, along directions (ops/reduce.h, OthersBackward).
#pragma once

#include "tensor/tensor_impl.h"

namespace hyalite::cpu {

/// x and out have two axes, directions three: the directions, then those of x. float32, float64 and complex.
void others(const TensorImpl& x, const TensorImpl& directions, TensorImpl& out);

}  // namespace hyalite::cpu
