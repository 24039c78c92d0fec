/// What the CPU's primitives share: strides in bytes, outputs, and whether two tensors lie in the same memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>

#include "compute/backend.h"
#include "compute/cpu/loops.h"

namespace hyalite::cpu {

/// The dtype kernels compute `t` in.
constexpr Dtype computed(Dtype t) { return t == Dtype::float16 || t == Dtype::bfloat16 ? Dtype::float32 : t; }

inline constexpr std::int64_t small_bytes = 16 << 10;  // up to here one plain call of the kernel does

using ByteStrides = std::array<std::int64_t, max_rank>;

/// Strides in bytes of `t` broadcast to `shape`.
void byte_strides(const TensorImpl& t, Dims shape, ByteStrides& to);
/// As a kernel reads it.
LoopOperand operand(const TensorImpl& t, Dims shape, ByteStrides& strides);
/// As it lies, for copies.
LoopOperand stored(const TensorImpl& t, Dims shape, ByteStrides& strides);

/// Bytes that repeat the first `size`, up to `all`.
inline void repeat(std::byte* to, std::size_t size, std::size_t all) {
  for (std::size_t done = size; done < all; done *= 2) std::memcpy(to + done, to, std::min(done, all - done));
}

/// Each of `count` elements `times` over, one after the other.
void spread_elements(std::byte* to, const std::byte* from, std::size_t size, std::int64_t count, std::int64_t times);

/// Fresh memory with the shape and strides of a dense tensor.
[[gnu::always_inline]] inline TensorRef output_like(const TensorImpl& dense, Dtype dtype) {
  const std::size_t bytes = static_cast<std::size_t>(dense.numel()) * itemsize(dtype);
  return TensorImpl::make_like(dense, dtype, Storage::allocate(bytes));
}
/// Fresh memory for output k as the guard foresaw it.
TensorRef output(const Validated& v, int k = 0);
/// For all of them.
Outputs outputs(const Validated& v);
/// The target of an in-place op, else fresh memory.
[[gnu::always_inline]] inline Outputs outputs_or(TensorImpl* target, const Validated& v) {
  if (target != nullptr) return Outputs(TensorRef::share(target));
  return v.call().op.outputs == 1 ? Outputs(output(v)) : outputs(v);
}

/// The elements in row-major order and in `dtype`, in memory of their own; a trace counts the copy.
TensorRef copy_of(const TensorImpl& t, Dtype dtype);
/// The same, or `t` itself where it lies so.
TensorRef dense(const TensorImpl& t, Dtype dtype);

/// Two storages may be borrowed from one array, so addresses count.
bool share_memory(const TensorImpl& a, const TensorImpl& b);
/// Element for element in the same bytes: only then may an operand be read while the target is written.
bool same_place(const TensorImpl& a, const TensorImpl& b);

}  // namespace hyalite::cpu
