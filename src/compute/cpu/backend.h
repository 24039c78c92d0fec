/// The CPU: computes at once, with this machine's instruction set, into buffers from the pool.
#pragma once

#include "compute/backend.h"

namespace hyalite::cpu {

Backend& backend();

}  // namespace hyalite::cpu
