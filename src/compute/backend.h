/// What a device is to the engine: a table, filled from the backend's own list.
#pragma once

#include <array>
#include <atomic>
#include <string>
#include <string_view>
#include <vector>

#include "explain/recorder.h"
#include "tensor/context.h"
#include "validate/guard.h"

namespace hyalite {

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

/// Computes a call that passed the guard. `target` is the tensor to write for in-place ops, else null; so may be `rec`.
using RunFn = Outputs (*)(const Validated& v, TensorImpl* target, Recorder* rec);

/// One kind of device: a table of what it can do.
struct Backend {
  std::string_view name;
  /// A dense tensor, not initialised; strides in elements. Throws OutOfMemory.
  TensorRef (*allocate)(Dtype dtype, Dims shape, Dims strides);
  /// Copies between any strides and dtypes, without a record. `to` and `from` have the same shape.
  void (*copy)(const TensorImpl& from, TensorImpl& to);
  /// Every element of `to` becomes the scalar's bytes in its dtype.
  void (*fill)(TensorImpl& to, const std::byte* value);
  /// Waits until all that was asked is done.
  void (*synchronise)();
  /// One gradient of an elementwise op by its fused kernel; an empty handle where it has none.
  Tensor (*gradient)(const GradientRequest& request);
  /// By op; null: this device cannot, which is said before anything runs. Views and composites need no entry.
  std::vector<RunFn> run;

  /// A row-major tensor, not initialised.
  TensorRef empty(Dtype dtype, Dims shape) const { return allocate(dtype, shape, row_major(shape)); }
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

/// A row-major tensor on the CPU, not initialised: for what comes from outside.
inline TensorRef host_empty(Dtype dtype, Dims shape) { return for_device(context(), {}).empty(dtype, shape); }
/// Where the element at index 0 lies, for the borders: NumPy, buffers, DLPack, Python's numbers, texts. By then the
/// device has done all that was asked of it. Null on meta.
inline std::byte* host_address(const TensorImpl& t) {
  for_device(context(), t.device()).synchronise();
  return t.address();
}
/// The same for memory of the CPU.
inline std::byte* host_address(const Storage& s) {
  for_device(context(), {}).synchronise();
  return s.address();
}

/// Names of the backends present that compute, for messages and traces.
std::string backend_names();

}  // namespace hyalite
