/// Watches the nodes of a walk.
#include "record/anomaly.h"

#include "hyalite/ops.h"
#include "tensor/context.h"

namespace hyalite {
namespace {

thread_local std::string last_place;

std::string place_of(const Node& node) {
  const std::string line = describe(node.location());
  return node.name() + (line.empty() ? "" : ", whose forward op is at " + line);
}

bool has_nan(const Tensor& t) {
  const ScopedSet<bool> off(context().grad_mode, false);
  return any(isnan(t)).item() != 0;
}

}  // namespace

void backward_watched(Node& node, std::span<const Tensor> grads, std::uint64_t wanted, bool create_graph,
                      std::span<Tensor> result) {
  const std::string place = place_of(node);
  try {
    node.backward(grads, wanted, create_graph, result);
  } catch (const Error& e) {
    // The innermost of nested walks is the one to name.
    for (const auto& [key, value] : e.attributes()) {
      if (key == "forward") throw;
    }
    Error::Attributes attributes = e.attributes();
    attributes.emplace_back("forward", describe(node.location()));
    throw Error(e.kind(), std::string(e.what()) + "; in the backward of " + place, std::move(attributes));
  } catch (...) {
    if (last_place.empty()) last_place = place;
    throw;
  }
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (!result[i] || !has_nan(result[i])) continue;
    bool came = false;
    for (const Tensor& g : grads) came |= g && has_nan(g);
    throw AutogradError("backward(): NaN in the gradient for operand " + std::to_string(i) + " of " + place +
                            (came ? "; the gradient that came in had NaN already" : ""),
                        {{"node", node.name()}, {"forward", describe(node.location())}});
  }
}

std::string take_anomaly_place() { return std::exchange(last_place, {}); }

}  // namespace hyalite
