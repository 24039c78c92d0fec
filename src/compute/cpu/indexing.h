/// Gathering and scattering along an axis, and joining tensors.
#pragma once

#include "ops/op_info.h"

namespace hyalite::cpu {

/// Throws IndexError {index, axis, size} for the first index out of range, before anything is written.
void take(const TensorImpl& x, const TensorImpl& indices, std::int64_t axis, TensorImpl& out);
/// Fills out with zeros, then adds x at the indices in their order.
void scatter_add(const TensorImpl& x, const TensorImpl& indices, std::int64_t axis, TensorImpl& out);
void positions(const Call& c, TensorImpl& out);
void true_positions(const Call& c, TensorImpl& out);
void last_writers(const Call& c, const Outputs& o);
void concat(const Call& call, TensorImpl& out);

}  // namespace hyalite::cpu
