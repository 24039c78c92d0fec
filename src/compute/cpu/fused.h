/// A group of elementwise calls as one kernel: the eager kernels, one after the other over blocks in the first cache.
#pragma once

#include <memory>

#include "compute/cpu/code.h"
#include "compute/cpu/loops.h"
#include "compute/lazy/kernel.h"

namespace hyalite::cpu {

class Generator;

/// A kernel that can also run on a part of its shape.
class FlatKernel : public lazy::FusedKernel {
 public:
  /// On the elements of a shape that is no larger, wherever they lie. False when it was interrupted.
  virtual bool run_over(Dims shape, std::span<const LoopOperand> in, std::span<const LoopOperand> out,
                        LoopReport* report) const = 0;
  virtual const Code& code() const = 0;
};

/// Of a program whose pass reduces nothing. With a generator, runs of steps become generated kernels.
std::unique_ptr<FlatKernel> fuse_flat(const lazy::Program& program, Generator* generator);

}  // namespace hyalite::cpu
