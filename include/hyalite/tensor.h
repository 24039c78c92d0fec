/// The tensor handle of the C++ interface: a counted reference, cheap to copy, sharing data with its copies.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hyalite/attribute.h"
#include "hyalite/device.h"
#include "hyalite/dtype.h"
#include "hyalite/error.h"
#include "hyalite/export.h"
#include "hyalite/scalar.h"

namespace hyalite {

class TensorImpl;

namespace detail {
HYALITE_API void retain(TensorImpl* p) noexcept;
HYALITE_API void release(TensorImpl* p) noexcept;
}  // namespace detail

/// A multidimensional array on a device. Copies share data; an empty handle has no tensor.
class HYALITE_API Tensor {
 public:
  Tensor() = default;
  Tensor(const Tensor& o) : impl_(o.impl_) {
    if (impl_ != nullptr) detail::retain(impl_);
  }
  Tensor(Tensor&& o) noexcept : impl_(std::exchange(o.impl_, nullptr)) {}
  Tensor& operator=(Tensor o) noexcept {
    std::swap(impl_, o.impl_);
    return *this;
  }
  ~Tensor() {
    if (impl_ != nullptr) detail::release(impl_);
  }
  /// Takes over a count of `p`.
  static Tensor adopt(TensorImpl* p) {
    Tensor t;
    t.impl_ = p;
    return t;
  }
  /// Adds a count of its own.
  static Tensor share(TensorImpl* p) {
    if (p != nullptr) detail::retain(p);
    return adopt(p);
  }
  TensorImpl* impl() const noexcept { return impl_; }
  [[nodiscard]] TensorImpl* leak() noexcept { return std::exchange(impl_, nullptr); }
  explicit operator bool() const noexcept { return impl_ != nullptr; }

  Dtype dtype() const;
  Device device() const;
  int ndim() const;
  std::int64_t numel() const;
  std::span<const std::int64_t> shape() const;
  /// In elements.
  std::span<const std::int64_t> strides() const;
  /// Address of the first element. Only for tensors on the CPU.
  void* data() const;
  /// The only element, converted to a double. Throws ValueError unless there is exactly one.
  double item() const;

  bool requires_grad() const;
  /// Marks a leaf. Throws AutogradError for dtypes without a gradient and for results of recorded ops.
  Tensor& requires_grad_(bool on = true);
  /// The gradient that backward accumulated, empty before.
  Tensor grad() const;
  void set_grad(const Tensor& g);
  /// Name of the node that made it, such as AddBackward; empty for a leaf.
  std::string grad_fn() const;
  /// The same data without history.
  Tensor detach() const;
  /// Accumulates d self / d leaf into every leaf's grad. `gradient` may be empty for a single element.
  void backward(const Tensor& gradient, bool retain_graph = false, bool create_graph = false) const;
  void backward() const { backward(Tensor()); }

 private:
  TensorImpl* impl_ = nullptr;
};

/// Gradients of the sum of `roots` (weighted by `gradients` where given) by `inputs`; empty where there is none.
HYALITE_API std::vector<Tensor> grad(const std::vector<Tensor>& roots, const std::vector<Tensor>& inputs,
                                     const std::vector<Tensor>& gradients = {}, bool retain_graph = false,
                                     bool create_graph = false);

/// While one lives, nothing is recorded on this thread.
class HYALITE_API NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool old_;
};

HYALITE_API Tensor zeros(const Shape& shape, Dtype dtype = Dtype::float32, Device device = {});
/// A copy of `values` as a tensor of `shape`. Throws ShapeMismatch when the counts differ.
HYALITE_API Tensor from_values(std::span<const double> values, const Shape& shape, Dtype dtype = Dtype::float32);

/// An operand of a function: a tensor, or a number that takes the tensor's dtype.
struct Arg {
  const Tensor* tensor = nullptr;
  Scalar scalar;
  Arg(const Tensor& t) : tensor(&t) {}
  template <class T>
  requires std::constructible_from<Scalar, T> Arg(T x) : scalar(x) {}
};

}  // namespace hyalite
