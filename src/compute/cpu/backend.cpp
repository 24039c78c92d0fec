/// The CPU's table.
#include "compute/cpu/backend.h"

#include "compute/cpu/elementwise.h"
#include "compute/cpu/operands.h"
#include "compute/cpu/primitives.h"

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
  ByteStrides none{}, b;
  const LoopOperand in{const_cast<std::byte*>(value), none.data(), to.dtype(), to.dtype()};
  copy(in, stored(to, to.shape(), b), to.shape(), nullptr);
}

}  // namespace

void copy_elements(const TensorImpl& from, TensorImpl& to) {
  ByteStrides a, b;
  copy(stored(from, to.shape(), a), stored(to, to.shape(), b), to.shape(), nullptr);
}

Backend& backend() {
  static Backend b = [] {
    Backend made{"cpu", allocate, copy_and_count, fill, [] {}, gradient, std::vector<RunFn>(op_table().size())};
    for (const OpInfo& op : op_table()) {
      if (op.schema.kind == OpKind::elementwise) made.run[static_cast<std::size_t>(op.index)] = run_elementwise;
    }
    for (const Entry& e : primitives()) made.run[static_cast<std::size_t>(find_op(e.op).index)] = e.run;
    return made;
  }();
  return b;
}

}  // namespace hyalite::cpu
