/// What a backend makes of a fused group.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "compute/lazy/program.h"
#include "explain/plan_graph.h"

namespace hyalite::lazy {

/// Memory, and how far in it the elements lie that the graph was made for, in bytes.
struct Memory {
  Storage* storage;
  std::int64_t shift;
};

/// The elements of a form in the memory, as a tensor on the device.
TensorRef tensor_over(const TensorImpl& form, const Memory& m, Device device = {});

/// Bytes of the elements in memory; those that an axis of stride 0 repeats count once.
std::int64_t bytes_in_memory(const TensorImpl& t);

/// How a backend may make a kernel faster.
enum class Tier : std::uint8_t {
  automatic,  ///< runs at once, and as generated code when its calls have paid for that
  first,      ///< runs as it can at once, always
  generated,  ///< waits for generated code
};

/// A group that is ready to run. Threads may share it.
class FusedKernel {
 public:
  virtual ~FusedKernel() = default;
  /// Memory by input and output of the program. Throws Interrupted.
  virtual void run(std::span<const Memory> in, std::span<const Memory> out, Recorder* rec) const = 0;
  /// Makes generated code now, where the backend can. Throws Unsupported where its compiler is not there.
  virtual void generate() const {}
  virtual TierText tier() const { return {}; }
  /// Of generated code, as assembly.
  virtual std::string machine_code() const { return ""; }
};

}  // namespace hyalite::lazy
