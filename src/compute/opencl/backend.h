/// OpenCL as a device that computes later.
#pragma once

#include "compute/backend.h"
#include "compute/lazy/lazy_device.h"
#include "compute/opencl/device.h"

namespace hyalite::opencl {

/// The table of a device; null where there are not so many.
Backend* backend(int index);
/// What waits on it.
lazy::LazyDevice& lazy_device(int index);

}  // namespace hyalite::opencl
