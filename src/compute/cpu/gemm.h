/// Matrix products: OpenBLAS for floating types, own loops for integers.
#pragma once

#include "tensor/tensor_impl.h"

namespace hyalite::cpu {

/// out = a @ b with broadcast leading axes; vectors as rows and columns. Shapes have been checked; out is row-major.
void matmul(const TensorImpl& a, const TensorImpl& b, TensorImpl& out);
/// The library's name, core and threads, for the trace and hl.about().
std::string blas_description();

}  // namespace hyalite::cpu
