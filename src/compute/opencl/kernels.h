/// What the kernels that are no formula share: types in C, memory, launches.
#pragma once

#include <string>
#include <vector>

#include "compute/backend.h"
#include "compute/codegen/print_c.h"
#include "compute/lazy/graph.h"
#include "compute/opencl/device.h"

namespace hyalite::opencl {

inline constexpr std::size_t group_size = 64;

std::string value_type(Dtype t);
std::string stored_type(Dtype t);
inline bool is_16_bit(Dtype t) { return t == Dtype::float16 || t == Dtype::bfloat16; }
/// An element as a value of the dtype it is computed in.
std::string loaded(Dtype t, const std::string& element);
inline Dtype computed(Dtype t) { return t == Dtype::boolean ? Dtype::uint8 : computed_in(t); }

/// Throws Unsupported, in the op's name, where the device does not compute in the dtype.
void check_dtype(const ClDevice& d, Dtype t, std::string_view op);

TensorRef make(ClDevice& d, Dtype dtype, Dims shape, Dims strides);
/// Numbers for a kernel, on the device.
Ref<Storage> sent(ClDevice& d, const std::vector<std::int64_t>& numbers);
inline KernelArgument memory_of(const TensorImpl& t) { return ClDevice::buffer(*t.storage()); }
void launch(ClDevice& d, const std::string& body, const std::string& name, const std::vector<KernelArgument>& arguments,
            std::int64_t items, std::size_t group = group_size);

/// The target, or memory for each output.
Outputs outputs(ClDevice& d, const Validated& v, TensorImpl* target);
/// The elements in row-major order and in `dtype`, from the beginning of their memory.
TensorRef dense(ClDevice& d, const TensorImpl& t, Dtype dtype);
/// Where a result has to be dense: the result itself, or memory whose elements go there by `put`.
TensorRef dense_result(ClDevice& d, const TensorImpl& out);
void put(ClDevice& d, const TensorRef& made, TensorImpl& out);
/// A node alone, over these tensors.
void run_node(ClDevice& d, const lazy::NodeRef& n, const std::vector<const TensorImpl*>& in, Dims shape,
              const Outputs& out);

/// Converts between any strides and dtypes; `to` and `from` have one shape.
void convert(ClDevice& d, const TensorImpl& from, TensorImpl& to);
void fill(ClDevice& d, TensorImpl& to, const std::byte* value);

}  // namespace hyalite::opencl
