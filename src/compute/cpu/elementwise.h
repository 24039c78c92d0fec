/// Elementwise ops: one way for all of them, and their gradients in one fused pass each.
#pragma once

#include "compute/backend.h"
#include "compute/cpu/kernels.h"

namespace hyalite::cpu {

Outputs run_elementwise(const Validated& v, TensorImpl* target, Recorder* rec);
bool has_gradient(const GradientRequest& request);
/// An empty handle where the op has no fused gradient in that dtype.
Tensor gradient(const GradientRequest& request);

/// A kernel with the numbers that it takes, for an op's forward or gradient, as the loops call it.
struct Kernel {
  ElementwiseFn run = nullptr;
  std::array<Dtype, max_arity> in{};  ///< of a forward kernel: what it wants the operands in
  std::array<double, 4> attr{};
};
/// Of operands of these dtypes, which the guard has passed. `computed`, `mixed` and `real_operand` are Validated's.
Kernel forward_kernel(const OpInfo& op, std::span<const Dtype> in, Dtype computed, bool mixed, int real_operand,
                      const Attributes* attrs);
Kernel gradient_kernel(const OpInfo& op, int operand, Dtype dtype, const Attributes* attrs, bool from_nothings,
                       bool numbers_and_nothings);

}  // namespace hyalite::cpu
