/// Walks of a graph that compute nothing.
#include "record/graph.h"

#include <algorithm>
#include <unordered_set>

namespace hyalite {

bool reaches_others(std::span<const Tensor> tensors, std::span<const Tensor> own) {
  std::unordered_set<const TensorImpl*> ours;
  for (const Tensor& t : own) ours.insert(t.impl());
  std::vector<NodeRef> roots;
  for (const Tensor& t : tensors) {
    if (wants_grad(*t.impl())) roots.push_back(gradient_edge(*t.impl()).node);
  }
  std::unordered_set<Node*> seen;
  std::vector<Node*> stack;
  const auto visit = [&](Node* node) {
    if (node != nullptr && seen.insert(node).second) stack.push_back(node);
  };
  for (const NodeRef& r : roots) visit(r.get());
  while (!stack.empty()) {
    Node* node = stack.back();
    stack.pop_back();
    // A leaf that is gone is somebody's all the same: tensors between it and here may be asked for.
    const auto* leaf = dynamic_cast<AccumulateGrad*>(node);
    if (leaf != nullptr && !leaf->forgotten() && !ours.contains(leaf->leaf().get())) return true;
    for (const Edge& e : node->next()) visit(e.node.get());
  }
  return false;
}

std::vector<Edge> frontier(std::span<const Tensor> outputs, std::uint64_t since) {
  std::vector<Edge> found;
  std::unordered_set<Node*> seen;
  std::vector<NodeRef> stack;
  const auto visit = [&](const Edge& e) {
    if (!e.node) return;
    const auto* leaf = dynamic_cast<const AccumulateGrad*>(e.node.get());
    if (leaf == nullptr && e.node->sequence() >= since) {
      if (seen.insert(e.node.get()).second) stack.push_back(e.node);
      return;
    }
    if (leaf != nullptr && !leaf->leaf()) return;  // made by the function itself
    const bool known =
        std::ranges::any_of(found, [&](const Edge& f) { return f.node == e.node && f.output == e.output; });
    if (!known) found.push_back(e);
  };
  for (const Tensor& t : outputs) visit(gradient_edge(*t.impl()));
  while (!stack.empty()) {
    const NodeRef node = stack.back();
    stack.pop_back();
    for (const Edge& e : node->next()) visit(e);
  }
  return found;
}

namespace {

/// A tensor whose gradient flows along the edge.
Tensor stand_in(const Edge& e) {
  TensorRef t = TensorImpl::make(Dtype::float32, {}, {}, {}, {});
  set_history(*t, e.node, e.output);
  return Tensor::adopt(t.leak());
}

/// Whether the outputs lead to all of the edges and, between them and the outputs, to no living leaf.
bool leads_to(std::span<const Tensor> outputs, std::span<const Edge> edges) {
  std::vector<bool> reached(edges.size());
  std::unordered_set<Node*> seen;
  std::vector<NodeRef> stack;
  bool others = false;
  const auto visit = [&](const Edge& e) {
    if (!e.node) return;
    const auto at =
        std::ranges::find_if(edges, [&](const Edge& f) { return f.node == e.node && f.output == e.output; });
    if (at != edges.end()) {
      reached[static_cast<std::size_t>(at - edges.begin())] = true;
      return;
    }
    if (const auto* leaf = dynamic_cast<const AccumulateGrad*>(e.node.get())) others |= static_cast<bool>(leaf->leaf());
    if (seen.insert(e.node.get()).second) stack.push_back(e.node);
  };
  for (const Tensor& t : outputs) {
    if (wants_grad(*t.impl())) visit(gradient_edge(*t.impl()));
  }
  while (!stack.empty()) {
    const NodeRef node = stack.back();
    stack.pop_back();
    for (const Edge& e : node->next()) visit(e);
  }
  return !others && std::ranges::all_of(reached, [](bool r) { return r; });
}

}  // namespace

std::vector<Tensor> gradients_at(std::span<const Edge> edges, std::span<const Tensor> outputs,
                                 std::span<const Tensor> gradients, bool create_graph) {
  if (!leads_to(outputs, edges)) {
    throw AutogradError(
        "checkpoint(): the function led to other tensors when it was called again; it must do the same each time", {});
  }
  std::vector<Tensor> inputs, roots, weights;
  for (const Edge& e : edges) inputs.push_back(stand_in(e));
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    if (!gradients[k] || !wants_grad(*outputs[k].impl())) continue;
    roots.push_back(outputs[k]);
    weights.push_back(gradients[k]);
  }
  if (roots.empty()) return std::vector<Tensor>(edges.size());
  return run_backward(roots, weights, inputs, {.create_graph = create_graph, .ends_at_inputs = true});
}

}  // namespace hyalite
