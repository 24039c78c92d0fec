/// What a backend makes of a fused group.
#pragma once

#include <span>

#include "compute/lazy/program.h"

namespace hyalite::lazy {

/// Memory, and how far in it the elements lie that the graph was made for, in bytes.
struct Memory {
  Storage* storage;
  std::int64_t shift;
};

/// The elements of a form in the memory.
TensorRef tensor_over(const TensorImpl& form, const Memory& m);

/// A group that is ready to run. Does not change, so that threads may share it.
class FusedKernel {
 public:
  virtual ~FusedKernel() = default;
  /// Memory by input and output of the program. Throws Interrupted.
  virtual void run(std::span<const Memory> in, std::span<const Memory> out, Recorder* rec) const = 0;
  /// The text that it runs, where it was generated.
  virtual std::string source() const { return ""; }
};

}  // namespace hyalite::lazy
