/// What a tensor is: a dtype, a device, a shape with strides over a Storage, and, when wanted, its place in the graph.
#pragma once

#include <atomic>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <new>

#include "hyalite/dtype.h"
#include "tensor/device.h"
#include "tensor/shape.h"
#include "tensor/storage.h"

namespace hyalite {

struct AutogradMeta;
class Attributes;
class TensorImpl;
struct OpInfo;

/// What a view that can be written in place was made from, and by what: a view of a view links to that view, so that
/// making one costs the same however many came before.
struct ViewLink {
  TensorImpl* parent = nullptr;  ///< held by the link; null of a tensor that is no view
  // Of a view only:
  TensorImpl* base;  ///< at the beginning of the links, held by the last of them
  const OpInfo* op;
  const Attributes* attrs;     ///< held; may be null
  std::uint64_t base_history;  ///< of the base when this tensor's own history was made
};

// What `record/` attached is freed by it; installed there, so that tensor/ need not know it.
extern void (*destroy_autograd_meta)(AutogradMeta*) noexcept;
extern void (*destroy_view_link)(ViewLink&) noexcept;

/// Handles share it by reference count. The shape does not change after construction, but for in-place views.
class TensorImpl {
 public:
  static constexpr int inline_rank = 4;

  /// A tensor over `storage`; strides and offset in elements. A null storage makes a form.
  static Ref<TensorImpl> make(Dtype dtype, Device device, Dims shape, Dims strides, Ref<Storage> storage,
                              std::int64_t offset = 0);
  /// A tensor with the shape and strides of a dense one, over fresh `storage`.
  static Ref<TensorImpl> make_like(const TensorImpl& dense, Dtype dtype, Ref<Storage> storage);

  void retain() noexcept { refs_.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept {
    // As `give_count_back`; but a leaf is known weakly to the node that adds to its gradient. The count is read first:
    // who sees that it is the only owner sees what the others did before they let go.
    const bool only = refs_.load(std::memory_order_acquire) == 1 && autograd == nullptr;
    if (only || refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy();
  }
  /// Adds a count unless the last one is gone: for those who know a tensor without holding it.
  bool try_retain() noexcept {
    std::uint32_t n = refs_.load(std::memory_order_relaxed);
    while (n != 0 && !refs_.compare_exchange_weak(n, n + 1, std::memory_order_relaxed)) {
    }
    return n != 0;
  }
  std::uint32_t users() const noexcept { return refs_.load(std::memory_order_relaxed); }

  Dtype dtype() const noexcept { return dtype_; }
  Device device() const noexcept { return device_; }
  int ndim() const noexcept { return ndim_; }
  std::int64_t numel() const noexcept { return numel_; }
  std::int64_t nbytes() const noexcept { return numel_ * static_cast<std::int64_t>(itemsize(dtype_)); }
  Dims shape() const noexcept { return {dims_, static_cast<std::size_t>(ndim_)}; }
  Dims strides() const noexcept { return {dims_ + ndim_, static_cast<std::size_t>(ndim_)}; }
  std::int64_t offset() const noexcept { return offset_; }
  bool contiguous() const noexcept { return contiguous_; }
  /// Only shape, dtype and strides, for those who look no further: not even a version.
  bool is_form() const noexcept { return !storage_; }
  Storage* storage() const noexcept { return storage_.get(); }
  const Ref<Storage>& storage_ref() const noexcept { return storage_; }
  /// Address of the element at index 0, for the backend that made it; null on meta and of a form.
  std::byte* address() const noexcept { return data_; }

  AutogradMeta* autograd = nullptr;  ///< null unless it requires a gradient or a hook hangs on it
  bool requires_grad = false;        ///< kept in step with `autograd` by record/
  bool nothings = false;             ///< a gradient that may be nothing somewhere (apply.h)
  void* wrapper = nullptr;           ///< the front end's object, held weakly
  ViewLink view;                     ///< kept by record/

 private:
  TensorImpl() = default;
  void destroy() noexcept;
  void free() noexcept;

  std::atomic<std::uint32_t> refs_{1};
  Dtype dtype_;
  Device device_;
  std::uint8_t ndim_;
  bool contiguous_;
  std::int64_t numel_;
  std::int64_t offset_;
  std::byte* data_;
  Ref<Storage> storage_;
  std::int64_t* dims_;  // the shape, then the strides
  std::int64_t inline_dims_[2 * inline_rank];
};

using TensorRef = Ref<TensorImpl>;

[[gnu::always_inline]] inline bool same_shape(const TensorImpl& a, const TensorImpl& b) noexcept {
  if (a.ndim() != b.ndim()) return false;
  const std::int64_t *x = a.shape().data(), *y = b.shape().data();
  for (int i = 0; i < a.ndim(); ++i) {
    if (x[i] != y[i]) return false;
  }
  return true;
}

}  // namespace hyalite
