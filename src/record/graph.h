/// Questions about a graph that backward does not ask.
#pragma once

#include "record/autograd_meta.h"

namespace hyalite {

/// Whether the graph of a tensor ends anywhere but in the leaves `own`.
bool reaches_others(std::span<const Tensor> tensors, std::span<const Tensor> own);

/// Where the part of the outputs' graph that was made since node number `since` ends, on this thread: edges to older
/// nodes and to living leaves, each once.
std::vector<Edge> frontier(std::span<const Tensor> outputs, std::uint64_t since);
/// The gradients that arrive at the edges, each from above only. Throws AutogradError if the outputs do not lead to
/// just these edges.
std::vector<Tensor> gradients_at(std::span<const Edge> edges, std::span<const Tensor> outputs,
                                 std::span<const Tensor> gradients, bool create_graph);

}  // namespace hyalite
