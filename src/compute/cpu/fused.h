/// A group of elementwise calls as one kernel: the eager kernels, one after the other over blocks in the first cache.
#pragma once

#include <memory>

#include "compute/lazy/kernel.h"

namespace hyalite::cpu {

class Generator;

/// Of a program whose pass reduces nothing. With a generator, runs of steps become generated kernels.
std::unique_ptr<lazy::FusedKernel> fuse_flat(const lazy::Program& program, Generator* generator);

}  // namespace hyalite::cpu
