/// A fused group with reductions as one kernel.
#pragma once

#include <memory>

#include "compute/lazy/kernel.h"

namespace hyalite::cpu {

class Generator;

/// Of a program whose pass reduces axes. With a generator, runs of steps become generated kernels.
std::unique_ptr<lazy::FusedKernel> fuse_rows(const lazy::Program& program, Generator* generator);

}  // namespace hyalite::cpu
