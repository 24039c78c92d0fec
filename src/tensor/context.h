/// The state of a thread that every op reads once: modes, the recorder and the tracer.
#pragma once

#include <atomic>
#include <cstdint>

#include "hyalite/device.h"
#include "hyalite/dtype.h"
#include "hyalite/export.h"

namespace hyalite {

class Forward;
class Recorder;
class Tracer;

struct Autocast {
  bool enabled = false;
  Dtype dtype = Dtype::bfloat16;
  bool applied = false;  ///< within an op whose operands it has cast
};

struct Context {
  bool grad_mode = true;
  Autocast autocast;
  Recorder* recorder = nullptr;
  Tracer* tracer = nullptr;
  bool anomaly = false;
  Forward* forward = nullptr;  ///< the innermost level of forward mode
  Device device;               ///< of tensors that are made without one
};

namespace detail {
extern constinit std::atomic<bool> deterministic_flag;
extern constinit thread_local Context thread_context __attribute__((tls_model("initial-exec")));
}  // namespace detail
inline Context& context() noexcept { return detail::thread_context; }

/// The recorder of this thread, null when tracing is off. A build without the recorder (HYALITE_RECORDER=OFF) is there
/// to measure what the question costs.
inline Recorder* active_recorder(const Context& c) noexcept {
#ifdef HYALITE_NO_RECORDER
  (void)c;
  return nullptr;
#else
  return c.recorder;
#endif
}

/// Ops that are not deterministic raise while this is on; it holds for the whole process.
inline bool deterministic() noexcept { return detail::deterministic_flag.load(std::memory_order_relaxed); }
void use_deterministic(bool on) noexcept;

/// Sets a field of the context for a scope.
template <class T>
class ScopedSet {
 public:
  ScopedSet(T& field, T value) : field_(field), old_(field) { field_ = value; }
  ~ScopedSet() { field_ = old_; }
  ScopedSet(const ScopedSet&) = delete;
  ScopedSet& operator=(const ScopedSet&) = delete;

 private:
  T& field_;
  T old_;
};

}  // namespace hyalite
