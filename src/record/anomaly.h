/// Anomaly mode: what goes wrong in a backward is told with the line of the forward op.
#pragma once

#include "record/node.h"

namespace hyalite {

/// As node.backward; errors name the line, and the first NaN is one.
void backward_watched(Node& node, std::span<const Tensor> grads, std::uint64_t wanted, bool create_graph,
                      std::span<Tensor> result);
/// Where the last error of this thread came from that could not be told so, empty if there was none; asking forgets it.
std::string take_anomaly_place();

}  // namespace hyalite
