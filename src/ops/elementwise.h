/// The elementwise ops, as one list.
#pragma once

#include "ops/arithmetic.h"
#include "ops/comparison.h"
#include "ops/families.h"
#include "ops/functions.h"
#include "ops/gradient_parts.h"

namespace hyalite {

template <class... L>
struct JoinLists;
template <class... A>
struct JoinLists<OpList<A...>> {
  using type = OpList<A...>;
};
template <class... A, class... B, class... Rest>
struct JoinLists<OpList<A...>, OpList<B...>, Rest...> {
  using type = typename JoinLists<OpList<A..., B...>, Rest...>::type;
};

#define HYALITE_LIST(name, List) , List
using Elementwise = JoinLists<OpList<> HYALITE_FAMILIES(HYALITE_LIST, HYALITE_NO_FAMILY)>::type;
#undef HYALITE_LIST

}  // namespace hyalite
