/// The CPU: computes at once, with this machine's instruction set, into buffers from the pool.
#pragma once

#include "compute/backend.h"

namespace hyalite::cpu {

Backend& backend();
/// `Backend::copy` where copying is the work itself, so that no trace counts it as one made on the way.
void copy_elements(const TensorImpl& from, TensorImpl& to);
/// The same by one call of the conversion, for small row-major tensors that do not overlap; false for others.
bool copy_few(const TensorImpl& from, TensorImpl& to);

}  // namespace hyalite::cpu
