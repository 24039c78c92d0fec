/// The narrow interface of a device: some twenty calls, none per op.
#pragma once

#include <array>
#include <atomic>
#include <string>

#include "explain/recorder.h"
#include "tensor/context.h"
#include "validate/guard.h"

namespace hyalite {

/// Where results go: fresh tensors, or for an in-place op the target.
struct Outputs {
  TensorRef first, second;
};

/// What a backend can do for an op whose gradient is one fused pass.
struct GradientRequest {
  const OpInfo& op;
  int operand;                     ///< whose gradient
  std::span<const Tensor> leaves;  ///< mark.h; empty handles for those not read
  const Attributes* attrs;
  Dtype dtype;                        ///< the forward op was computed in
  bool from_nothings = false;         ///< the incoming gradient may be nothing somewhere
  bool numbers_and_nothings = false;  ///< so may be the result: its zeros must be +0
};

/// One kind of device.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;

  /// Computes a call that passed the guard. `target` is the tensor to write for in-place ops, else null. `rec` may be
  /// null.
  virtual Outputs compute(const Validated& v, TensorImpl* target, Recorder* rec) = 0;
  /// One gradient of an elementwise op by its fused kernel; an empty handle where it has none.
  virtual Tensor gradient(const GradientRequest& request) = 0;
  /// Copies between any strides and dtypes, without a record. `to` and `from` have the same shape.
  virtual void copy(const TensorImpl& from, TensorImpl& to) = 0;
  /// Every element of `to` becomes the scalar's bytes in its dtype.
  virtual void fill(TensorImpl& to, const std::byte* value) = 0;
};

namespace detail {
extern constinit std::array<std::atomic<Backend*>, device_count> ready_backends;
}
Backend& find_backend(Device device);

/// The backend of a device, from an array indexed by its kind. Throws Unsupported naming those that this build has.
inline Backend& for_device(const Context&, Device device) {
  Backend* b = detail::ready_backends[static_cast<std::size_t>(device.kind)].load(std::memory_order_acquire);
  return b != nullptr && device.index == 0 ? *b : find_backend(device);
}
/// Names of the backends present, for messages and traces.
std::string backend_names();

}  // namespace hyalite
