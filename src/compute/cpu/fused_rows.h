/// A fused group with reductions as one kernel.
#pragma once

#include <memory>

#include "compute/lazy/kernel.h"

namespace hyalite::cpu {

/// Of a program whose pass reduces axes.
std::unique_ptr<lazy::FusedKernel> fuse_rows(const lazy::Program& program);

}  // namespace hyalite::cpu
