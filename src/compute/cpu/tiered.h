/// Fused kernels that run at once, and as generated code from when that has been made.
#pragma once

#include <cstdint>
#include <memory>

#include "compute/lazy/kernel.h"

namespace hyalite::cpu {

std::unique_ptr<lazy::FusedKernel> fuse(const lazy::Program& program, lazy::Tier tier);
/// Whether there is a compiler.
bool generates();

}  // namespace hyalite::cpu
