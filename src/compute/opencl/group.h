/// A fused group as one generated kernel.
#pragma once

#include <memory>

#include "compute/lazy/kernel.h"
#include "compute/opencl/device.h"

namespace hyalite::opencl {

/// Of a program whose pass reduces nothing.
std::unique_ptr<lazy::FusedKernel> fuse(ClDevice& device, const lazy::Program& program);

}  // namespace hyalite::opencl
