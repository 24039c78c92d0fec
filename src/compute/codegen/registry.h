/// Kernels as expressions, and as text, for every elementwise op, dtype and gradient.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "compute/codegen/print_c.h"

namespace hyalite {

/// In place of an operand's number: the op itself.
inline constexpr int forward_kernel = -1;

/// The kernel of an op for operands of a dtype, or of the gradient for one operand; none where the gradient is `none`.
/// A forward kernel takes every operand, a gradient only the leaves that mark.h says it reads. With `nothings` the
/// incoming gradient may be nothing somewhere, and so is the result there (docs/decisions/0011).
/// Throws ValueError for an unknown op or operand, and DtypeMismatch for a dtype the op or a gradient has no meaning
/// for.
std::optional<ExprKernel> elementwise_kernel(std::string_view op, Dtype dtype, int gradient_operand = forward_kernel,
                                             bool nothings = false);

/// The largest number that becomes 0 when it is stored as `dtype`.
constexpr double least_number(Dtype dtype) {
  return dtype == Dtype::float16 ? 0x1p-25 : dtype == Dtype::bfloat16 ? 0x1p-134 : 0;
}

/// How a gradient is finished where it is stored: with `from_nothings` the incoming one may be nothing somewhere, and
/// so is the result there; what is not above `tiny` becomes +0.
struct GradientFinish {
  bool from_nothings = false;
  double tiny = -1;
};
/// The gradient's kernel, for operands of a computed dtype; none where the gradient is a constant or `none`.
std::optional<ExprKernel> gradient_kernel(std::string_view op, Dtype dtype, int operand, const GradientFinish& finish);

/// The kernel of an op on a complex dtype of which one operand is real, of the type of the components. Throws
/// ValueError for an unknown op or operand, and DtypeMismatch where the op or the dtype does not allow it.
ExprKernel real_operand_kernel(std::string_view op, Dtype dtype, int real_operand);

/// The text of an op's or a gradient's kernel. Throws also ValueError where the gradient is `none`.
std::string generated_source(std::string_view op, Dtype dtype, Language language,
                             int gradient_operand = forward_kernel);
/// The name and the arguments of that kernel. Throws as `generated_source`.
KernelSignature generated_signature(std::string_view op, Dtype dtype, int gradient_operand = forward_kernel);

}  // namespace hyalite
