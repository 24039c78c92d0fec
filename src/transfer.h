/// Moving tensors between devices, which only happens when it is asked for.
#pragma once

#include "hyalite/tensor.h"
#include "tensor/tensor_impl.h"

namespace hyalite {

/// The values on another device, row-major, without history; `x` itself where it lies there. On meta there are none.
Tensor moved_to(const Tensor& x, Device device);
/// The same on the CPU, for who reads values: numbers, lists, texts. Throws Unsupported for meta, naming `op`.
TensorRef on_host(const TensorImpl& t, const char* op);

}  // namespace hyalite
