/// Everything: tensors, operations, errors, explain.
#pragma once

#include "hyalite/error.h"
#include "hyalite/explain.h"
#include "hyalite/ops.h"
#include "hyalite/tensor.h"

#define HYALITE_VERSION_STRING "0.1.0"

namespace hyalite {
/// "major.minor.patch" of the library that runs.
HYALITE_API const char* version() noexcept;
}  // namespace hyalite
