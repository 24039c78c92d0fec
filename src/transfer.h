/// Moving tensors between devices, which only happens when it is asked for.
#pragma once

#include "hyalite/tensor.h"
#include "tensor/tensor_impl.h"

namespace hyalite {

/// The values on another device, row-major, without history; `x` itself where it lies there. On meta there are none.
Tensor moved_to(const Tensor& x, Device device);
/// Throws Unsupported for a tensor on meta, naming `op`.
void need_values(const TensorImpl& t, const char* op);
/// The same on the CPU, for who reads values: numbers, lists, texts. Throws as `need_values`.
TensorRef on_host(const TensorImpl& t, const char* op);

}  // namespace hyalite
