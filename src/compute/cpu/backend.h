/// The CPU: computes at once, with this machine's instruction set, into buffers from the pool.
#pragma once

#include "compute/backend.h"

namespace hyalite::cpu {

Backend& backend();
/// `Backend::copy` where copying is the work itself, so that no trace counts it as one made on the way.
void copy_elements(const TensorImpl& from, TensorImpl& to);

}  // namespace hyalite::cpu
