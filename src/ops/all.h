/// The one list of operations. Bindings, tables, headers, stubs, docs and tests loop over it.
#pragma once

#include "ops/creation.h"
#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/movement.h"
#include "ops/rearrange.h"
#include "ops/reduce.h"

namespace hyalite {

using AllOps = JoinLists<Elementwise, Reductions, Movement, Rearrangement, Linear, Creation>::type;

}  // namespace hyalite
