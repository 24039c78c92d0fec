/// CLBlast, which is opened when a large product is first asked for. What it lacks, or is not there for, our kernel
/// does.
#pragma once

#include <string>

#include "compute/opencl/device.h"

namespace hyalite::opencl {

/// A matrix in a device's memory, or a batch of them, in elements; row-major unless `transposed`.
struct Matrix {
  cl_mem memory = nullptr;
  std::int64_t offset = 0, lead = 0, batch = 0;
  bool transposed = false;
};
struct Product {
  Dtype dtype;  ///< float32, float64, complex64 or complex128
  std::int64_t rows, cols, inner, batches;
  Matrix a, b, out;
};

/// Empty where it is there, else why not.
const std::string& clblast_problem();
/// Asks for the product; false where CLBlast does not take it, and nothing was done.
bool clblast_product(ClDevice& d, const Product& p);

}  // namespace hyalite::opencl
