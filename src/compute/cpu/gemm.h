/// Matrix products: OpenBLAS for floating types, own loops for integers.
#pragma once

#include <string>

#include "tensor/tensor_impl.h"

namespace hyalite::cpu {

/// What a product did, for the trace.
struct GemmReport {
  std::string routine;    ///< "sgemm"; empty where nothing was multiplied
  std::string library;    ///< with its version and its build; empty for loops of our own
  int threads = 0;        ///< that were asked for
  double operations = 0;  ///< multiplications and additions
};

/// out = a @ b with broadcast leading axes; vectors as rows and columns. Shapes have been checked; out is row-major.
/// `report` may be null.
void matmul(const TensorImpl& a, const TensorImpl& b, TensorImpl& out, GemmReport* report = nullptr);
/// The library's name, core and threads, for the trace and hl.about().
std::string blas_description();

}  // namespace hyalite::cpu
