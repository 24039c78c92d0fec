/// How the families of ops enter themselves in the table.
#pragma once

#include <vector>

#include "ops/families.h"
#include "ops/op_info.h"

namespace hyalite {

/// Appends an op, with all that does not depend on its type.
OpInfo& add_entry(std::vector<OpInfo>& table, const OpSchema& schema, int arity, int outputs);

// What the gradients of elementwise ops share.

/// A leaf as gradients compute with it: 16-bit types in float32, as in kernels, and rounded once.
Tensor leaf_of(const Tensor& t);
/// Of several incoming gradients the one that is read; of a constant, one that is there.
const Tensor& incoming(const GradientCall& c, int arity, int outputs, std::uint32_t reads);
/// A number as its result: rounded to a 16-bit dtype, nothing where what it was made from is.
Tensor finished(const Tensor& value, const Tensor& g, Dtype dtype);

#define HYALITE_DECLARE(name, List) void enter_##name(std::vector<OpInfo>& table);
HYALITE_FAMILIES(HYALITE_DECLARE, HYALITE_DECLARE)
#undef HYALITE_DECLARE

}  // namespace hyalite
