/// Questions about a graph that backward does not ask.
#pragma once

#include "record/autograd_meta.h"

namespace hyalite {

/// Whether the graph of a tensor ends anywhere but in the leaves `own`.
bool reaches_others(std::span<const Tensor> tensors, std::span<const Tensor> own);

}  // namespace hyalite
