/// Tensors from rules: ranges and identities. Values are computed exactly and rounded once.
#pragma once

#include "hyalite/tensor.h"

namespace hyalite {

/// count elements start + i * step, each rounded once to `dtype`.
Tensor range(double start, double step, std::int64_t count, Dtype dtype);
/// The same in integers, which wrap into `dtype` as casts do.
Tensor range(std::int64_t start, std::int64_t step, std::int64_t count, Dtype dtype);
/// count elements from start to stop; the last is stop exactly. Without `endpoint` the step is (stop - start) / count.
Tensor linspace(double start, double stop, std::int64_t count, Dtype dtype, bool endpoint = true);
/// Zeros with ones on diagonal k.
Tensor eye(std::int64_t rows, std::int64_t columns, std::int64_t k, Dtype dtype);

}  // namespace hyalite
