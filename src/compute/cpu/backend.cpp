/// The CPU's table.
#include "compute/cpu/backend.h"

#include <algorithm>
#include <cstring>

#include "compute/cpu/elementwise.h"
#include "compute/cpu/operands.h"
#include "compute/cpu/primitives.h"
#include "compute/cpu/tiered.h"

namespace hyalite::cpu {
namespace {

TensorRef allocate(Dtype dtype, Dims shape, Dims strides) {
  const std::int64_t n = checked_numel(shape, itemsize(dtype));
  return TensorImpl::make(dtype, {}, shape, strides, Storage::allocate(static_cast<std::size_t>(n) * itemsize(dtype)));
}

void copy_and_count(const TensorImpl& from, TensorImpl& to) {
  copy_elements(from, to);
  if (Recorder* r = active_recorder(context())) [[unlikely]]
    r->copied(to.nbytes());
}

void fill(TensorImpl& to, const std::byte* value) {
  const std::size_t size = itemsize(to.dtype()), bytes = static_cast<std::size_t>(to.nbytes());
  if (to.contiguous() && bytes <= 1024) {
    if (bytes == 0) return;
    std::memcpy(to.address(), value, size);
    repeat(to.address(), size, bytes);
    return;
  }
  ByteStrides none{}, b;
  const LoopOperand in{const_cast<std::byte*>(value), none.data(), to.dtype(), to.dtype()};
  copy(in, stored(to, to.shape(), b), to.shape(), nullptr);
}

}  // namespace

bool copy_few(const TensorImpl& from, TensorImpl& to) {
  if (!from.contiguous() || !to.contiguous() || !same_shape(from, to)) return false;
  const std::byte *a = from.address(), *b = to.address();
  const bool small = from.nbytes() <= small_bytes && to.nbytes() <= small_bytes;
  if (!small || (a < b + to.nbytes() && b < a + from.nbytes())) return false;
  cast(kernels().cast, from.dtype(), a, to.dtype(), to.address(), static_cast<std::size_t>(to.numel()));
  return true;
}

void copy_elements(const TensorImpl& from, TensorImpl& to) {
  if (copy_few(from, to)) return;
  ByteStrides a, b;
  copy(stored(from, to.shape(), a), stored(to, to.shape(), b), to.shape(), nullptr);
}

Backend& backend() {
  static Backend b = [] {
    Backend made{"cpu", allocate, Storage::allocate, copy_and_count,
                 fill,  [] {},    gradient,          has_gradient,
                 folds, fuse,     generates,         std::vector<RunFn>(op_table().size())};
    for (const OpInfo& op : op_table()) {
      if (op.schema.kind == OpKind::elementwise) made.run[static_cast<std::size_t>(op.index)] = run_elementwise;
    }
    made.multiplies = multiplies;
    for (const Entry& e : primitives()) made.run[static_cast<std::size_t>(find_op(e.op).index)] = e.run;
    return made;
  }();
  return b;
}

}  // namespace hyalite::cpu
