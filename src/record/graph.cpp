/// Walks of a graph that compute nothing.
#include "record/graph.h"

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
    // A leaf that is gone is somebody's: tensors between it and here may be asked for.
    if (const auto* leaf = dynamic_cast<AccumulateGrad*>(node); leaf != nullptr && !ours.contains(leaf->leaf().get()))
      return true;
    for (const Edge& e : node->next()) visit(e.node.get());
  }
  return false;
}

}  // namespace hyalite
