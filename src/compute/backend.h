/// What a device is to the engine: a table, filled from the backend's own list.
#pragma once

#include <array>
#include <atomic>
#include <memory>
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

/// Which fused groups may hold a reduction.
enum class Folds : std::uint8_t {
  no,
  rows,  ///< those that walk rows which stay in the cache
  yes,
};

namespace lazy {
struct Program;
class FusedKernel;
enum class Tier : std::uint8_t;
}  // namespace lazy

/// Computes a call that passed the guard. `target` is the tensor to write for in-place ops, else null; so may be `rec`.
using RunFn = Outputs (*)(const Validated& v, TensorImpl* target, Recorder* rec);

/// One kind of device: a table of what it can do.
struct Backend {
  std::string_view name;
  /// A dense tensor, not initialised; strides in elements. Throws OutOfMemory.
  TensorRef (*allocate)(Dtype dtype, Dims shape, Dims strides);
  /// So many bytes, not initialised. Throws OutOfMemory.
  Ref<Storage> (*memory)(std::size_t bytes);
  /// Copies between any strides and dtypes, without a record. `to` and `from` have the same shape.
  void (*copy)(const TensorImpl& from, TensorImpl& to);
  /// Every element of `to` becomes the scalar's bytes in its dtype.
  void (*fill)(TensorImpl& to, const std::byte* value);
  /// Waits until all that was asked is done.
  void (*synchronise)();
  /// One gradient of an elementwise op by its fused kernel; an empty handle where it has none.
  Tensor (*gradient)(const GradientRequest& request);
  /// Whether it has that kernel.
  bool (*has_gradient)(const GradientRequest& request);
  /// Whether a fused group may hold the op's reduction of such elements to such a result.
  Folds (*folds)(const OpInfo& op, Dtype in, Dtype out);
  /// One kernel for a group of calls (lazy/kernel.h); the program outlives it.
  std::unique_ptr<lazy::FusedKernel> (*fuse)(const lazy::Program& program, lazy::Tier tier);
  /// Whether kernels can be generated, as lazy::Tier::generated asks.
  bool (*generates)();
  /// By op; null: this device cannot, which is said before anything runs. Views and composites need no entry.
  std::vector<RunFn> run;
  /// Of a device with memory of its own: its copy of a dense tensor of the CPU, and the way back, for a tensor that is
  /// row-major from the beginning of its memory. Null where tensors lie in the CPU's memory, or nowhere.
  TensorRef (*upload)(const TensorImpl& from) = nullptr;
  void (*download)(const TensorImpl& from, TensorImpl& to) = nullptr;
  /// Of a device that computes later: what its plans run on, over tensors of memory that is there.
  Backend* executor = nullptr;
  /// Whether a fused group may hold the op, which is a matrix product, of such elements. Null: none.
  bool (*multiplies)(const OpInfo& op, Dtype dtype) = nullptr;

  /// A row-major tensor, not initialised.
  TensorRef empty(Dtype dtype, Dims shape) const { return allocate(dtype, shape, row_major(shape)); }
};

namespace detail {
extern constinit std::array<std::atomic<Backend*>, device_count> ready_backends;
}
Backend& find_backend(Device device);
Backend& find_present(Device device);

/// What a tracer is to those who are not part of it. Installed by it.
struct TracingHooks {
  Backend* (*backend)() = nullptr;                   ///< instead of the CPU's, while the thread's tracer is on
  void (*check_readable)(const Storage&) = nullptr;  ///< throws unless the function itself has just made it
  void (*made_outside)(Storage&) = nullptr;          ///< memory whose values come from outside
  void (*met)(TensorImpl&) = nullptr;                ///< somebody looks at what the tensor carries, such as its grad
};
void install_tracing_hooks(const TracingHooks& hooks) noexcept;
void check_readable(const Storage& s);
void tell_tracer(TensorImpl& t);
/// For who looks at, or changes, what a tensor carries beside its values.
inline void note_for_tracer(TensorImpl& t) {
  if (context().tracer != nullptr) [[unlikely]]
    tell_tracer(t);
}

/// The backend of a device, from an array indexed by its kind; while a tracer is on, the one that only notes what is
/// asked. Throws Unsupported naming those that this build has.
inline Backend& for_device(const Context& ctx, Device device) {
  Backend* b = detail::ready_backends[static_cast<std::size_t>(device.kind)].load(std::memory_order_acquire);
  return b != nullptr && device.index == 0 && ctx.tracer == nullptr ? *b : find_backend(device);
}

/// The same for what is there at once, also while a tracer is on: what comes from outside, and what goes there.
inline Backend& at_once(Device device) {
  Backend* b = detail::ready_backends[static_cast<std::size_t>(device.kind)].load(std::memory_order_acquire);
  return b != nullptr && device.index == 0 ? *b : find_present(device);
}

/// A row-major tensor on the CPU, not initialised: for what comes from outside.
TensorRef host_empty(Dtype dtype, Dims shape);
/// Where the element at index 0 lies, for the borders: NumPy, buffers, DLPack, Python's numbers, texts. By then the
/// device has done all that was asked of it. Null on meta. Throws Unsupported while a function is traced.
inline std::byte* host_address(const TensorImpl& t) {
  if (context().tracer != nullptr) [[unlikely]]
    check_readable(*t.storage());
  at_once(t.device()).synchronise();
  return t.address();
}
/// The same for memory of the CPU.
inline std::byte* host_address(const Storage& s) {
  if (context().tracer != nullptr) [[unlikely]]
    check_readable(s);
  at_once({}).synchronise();
  return s.address();
}

/// Names of the backends present that compute, for messages and traces.
std::string backend_names();

}  // namespace hyalite
