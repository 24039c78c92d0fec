/// The one list of operations. Bindings, tables, headers, stubs, docs and tests loop over it.
#pragma once

#include "ops/creation.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/linear.h"
#include "ops/movement.h"
#include "ops/rearrange.h"
#include "ops/reduce.h"

namespace hyalite {

#define HYALITE_LIST(name, List) , List
using AllOps = JoinLists<OpList<> HYALITE_FAMILIES(HYALITE_LIST, HYALITE_LIST)>::type;
#undef HYALITE_LIST

}  // namespace hyalite
