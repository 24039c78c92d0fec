/// A group of elementwise calls as one kernel: the eager kernels, one after the other over blocks in the first cache.
#pragma once

#include <memory>

#include "compute/lazy/kernel.h"

namespace hyalite::cpu {

std::unique_ptr<lazy::FusedKernel> fuse(const lazy::Program& program);

}  // namespace hyalite::cpu
