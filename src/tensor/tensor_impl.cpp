/// Making and freeing tensors.
#include "tensor/tensor_impl.h"

#include <algorithm>
#include <utility>

namespace hyalite {

void (*destroy_autograd_meta)(AutogradMeta*) noexcept = nullptr;
void (*destroy_view_link)(ViewLink&) noexcept = nullptr;

static_assert(sizeof(TensorImpl) <= pool::largest_small);

Ref<TensorImpl> TensorImpl::make(Dtype dtype, Device device, Dims shape, Dims strides, Ref<Storage> storage,
                                 std::int64_t offset) {
  TensorImpl* t = new (pool::allocate(sizeof(TensorImpl)).data) TensorImpl;
  const int n = static_cast<int>(shape.size());
  t->dtype_ = dtype;
  t->device_ = device;
  t->ndim_ = static_cast<std::uint8_t>(n);
  t->dims_ = n <= inline_rank ? t->inline_dims_
                              : static_cast<std::int64_t*>(pool::allocate(2 * n * sizeof(std::int64_t)).data);
  // A stride that reaches no element is that of a dense tensor, so that all arithmetic on strides stays in range.
  std::int64_t step = 1;
  bool row = true;
  for (int i = n - 1; i >= 0; --i) {
    const std::int64_t size = shape[i], stride = size > 1 ? strides[i] : step;
    t->dims_[i] = size;
    t->dims_[n + i] = stride;
    row &= stride == step;
    step = wrapping_multiply(step, size);
  }
  if (step == 0) {  // there is no element
    row = true;
    offset = 0;
    const DimList dense = row_major(shape);
    std::copy(dense.begin(), dense.end(), t->dims_ + n);
  }
  t->numel_ = step;
  t->contiguous_ = row;
  t->offset_ = offset;
  t->data_ = storage && storage->address() != nullptr
                 ? storage->address() + offset * static_cast<std::int64_t>(itemsize(dtype))
                 : nullptr;
  t->storage_ = std::move(storage);
  return Ref<TensorImpl>::adopt(t);
}

Ref<TensorImpl> TensorImpl::make_like(const TensorImpl& dense, Dtype dtype, Ref<Storage> storage) {
  if (dense.ndim_ > inline_rank) {
    return make(dtype, dense.device_, dense.shape(), dense.strides(), std::move(storage));
  }
  TensorImpl* t = new (pool::allocate(sizeof(TensorImpl)).data) TensorImpl;
  t->dtype_ = dtype;
  t->device_ = dense.device_;
  t->ndim_ = dense.ndim_;
  t->contiguous_ = dense.contiguous_;
  t->numel_ = dense.numel_;
  t->offset_ = 0;
  t->data_ = storage->address();
  t->storage_ = std::move(storage);
  t->dims_ = t->inline_dims_;
  // All of it: a copy of fixed size needs no call.
  std::memcpy(t->inline_dims_, dense.inline_dims_, sizeof t->inline_dims_);
  return Ref<TensorImpl>::adopt(t);
}

void TensorImpl::destroy() noexcept {
  if (autograd == nullptr) {
    if (view.parent != nullptr && view.parent->users() > 1) {
      // Its parent stays, so that nothing is freed inside of this.
      destroy_view_link(view);
      view.parent = nullptr;
    }
    if (view.parent == nullptr) return free();
  }
  // A gradient may have a gradient, a view be one of a view, and so on: each waits its turn instead of being freed
  // inside the one before.
  static constinit thread_local TensorImpl* waiting HYALITE_INITIAL_EXEC = nullptr;
  static constinit thread_local bool freeing HYALITE_INITIAL_EXEC = false;
  wrapper = std::exchange(waiting, this);
  if (freeing) return;
  freeing = true;
  while (TensorImpl* t = waiting) {
    waiting = static_cast<TensorImpl*>(t->wrapper);
    if (t->autograd != nullptr) destroy_autograd_meta(t->autograd);
    if (t->view.parent != nullptr) destroy_view_link(t->view);
    t->free();
  }
  freeing = false;
}

void TensorImpl::free() noexcept {
  if (dims_ != inline_dims_) {
    const std::size_t bytes = 2 * ndim_ * sizeof(std::int64_t);
    pool::release(dims_, std::size_t{1} << (6 + pool::detail::small_class(bytes)));
  }
  this->~TensorImpl();
  constexpr std::size_t object = std::size_t{1} << (6 + pool::detail::small_class(sizeof(TensorImpl)));
  pool::release(this, object);
}

}  // namespace hyalite
