/// Elementwise ops: one way for all of them, and their gradients in one fused pass each.
#pragma once

#include "compute/backend.h"

namespace hyalite::cpu {

Outputs run_elementwise(const Validated& v, TensorImpl* target, Recorder* rec);
/// An empty handle where the op has no fused gradient in that dtype.
Tensor gradient(const GradientRequest& request);

}  // namespace hyalite::cpu
