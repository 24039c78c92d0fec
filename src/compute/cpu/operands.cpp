/// Strides, outputs and overlap of the CPU's operands.
#include "compute/cpu/operands.h"

#include <algorithm>

namespace hyalite::cpu {

void byte_strides(const TensorImpl& t, Dims shape, ByteStrides& to) {
  const std::int64_t size = static_cast<std::int64_t>(itemsize(t.dtype()));
  const int extra = static_cast<int>(shape.size()) - t.ndim();
  for (int i = 0; i < static_cast<int>(shape.size()); ++i) {
    const bool repeats = i < extra || (t.shape()[i - extra] == 1 && shape[i] != 1);
    to[i] = repeats ? 0 : t.strides()[i - extra] * size;
  }
}

LoopOperand stored(const TensorImpl& t, Dims shape, ByteStrides& strides) {
  byte_strides(t, shape, strides);
  return {t.data(), strides.data(), t.dtype(), t.dtype()};
}

LoopOperand operand(const TensorImpl& t, Dims shape, ByteStrides& strides) {
  byte_strides(t, shape, strides);
  return {t.data(), strides.data(), t.dtype(), computed(t.dtype())};
}

TensorRef make_output(const Call& c, Dtype dtype, Dims shape) {
  const TensorImpl* model = nullptr;
  for (const Operand& o : c.in) {
    if (o.tensor == nullptr || !same_dims(o.tensor->shape(), shape)) continue;
    if (model != nullptr && !same_dims(model->strides(), o.tensor->strides())) return TensorImpl::empty(dtype, shape);
    model = o.tensor;
  }
  if (model == nullptr || model->contiguous() || model->numel() == 0) return TensorImpl::empty(dtype, shape);
  std::array<int, max_rank> order;
  const int n = model->ndim();
  for (int i = 0; i < n; ++i) order[i] = i;
  const Dims strides = model->strides();
  std::stable_sort(order.begin(), order.begin() + n, [&](int a, int b) { return strides[a] > strides[b]; });
  DimList fresh(n, 0);
  std::int64_t step = 1;
  for (int i = n - 1; i >= 0; --i) {
    if (shape[order[i]] != 1 && strides[order[i]] != step) return TensorImpl::empty(dtype, shape);
    fresh[order[i]] = step;
    step *= shape[order[i]];
  }
  return TensorImpl::make(dtype, {}, shape, fresh, Storage::allocate(step * itemsize(dtype)));
}

namespace {

/// The bytes from the first to the last element of `t`.
std::pair<const std::byte*, const std::byte*> extent(const TensorImpl& t) {
  const std::int64_t size = static_cast<std::int64_t>(itemsize(t.dtype()));
  std::int64_t low = 0, high = size;
  for (int i = 0; i < t.ndim(); ++i) {
    const std::int64_t reach = (t.shape()[i] - 1) * t.strides()[i] * size;
    (reach < 0 ? low : high) += reach;
  }
  return {t.data() + low, t.data() + high};
}

}  // namespace

bool share_memory(const TensorImpl& a, const TensorImpl& b) {
  if (a.numel() == 0 || b.numel() == 0) return false;
  const auto [a0, a1] = extent(a);
  const auto [b0, b1] = extent(b);
  return a0 < b1 && b0 < a1;
}

bool same_place(const TensorImpl& a, const TensorImpl& b) {
  return a.data() == b.data() && itemsize(a.dtype()) == itemsize(b.dtype()) && same_dims(a.shape(), b.shape()) &&
         same_dims(a.strides(), b.strides());
}

}  // namespace hyalite::cpu
