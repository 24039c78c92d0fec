/// Walks the graph from the roots, later nodes first, without recursion.
#include <queue>
#include <unordered_map>

#include "apply.h"
#include "record/autograd_meta.h"
#include "tensor/context.h"

namespace hyalite {
namespace {

struct Pending {
  std::vector<Tensor> grads;  // by output
  int waiting = 0;            // edges from nodes not yet walked
  bool needed = true;         // leads to a wanted input
};

struct Later {
  bool operator()(const Node* a, const Node* b) const { return a->sequence() < b->sequence(); }
};

class Walk {
 public:
  Walk(std::span<const Tensor> inputs, BackwardOptions options) : options_(options) {
    for (const Tensor& t : inputs) {
      const Edge e = gradient_edge(*t.impl());
      captured_.push_back(e);
    }
  }

  void add_root(const Tensor& root, const Tensor& gradient) {
    const Edge e = gradient_edge(*root.impl());
    roots_.push_back(e.node);
    seed(e, gradient);
  }

  std::vector<Tensor> run() {
    count_edges();
    if (!captured_.empty()) mark_needed();
    for (auto& [node, p] : pending_) {
      if (p.waiting == 0) ready_.push(node);
    }
    result_.resize(captured_.size());
    const ScopedSet<bool> mode(context().grad_mode, options_.create_graph);
    while (!ready_.empty()) {
      Node* node = ready_.top();
      ready_.pop();
      visit(*node);
    }
    return std::move(result_);
  }

 private:
  void seed(const Edge& e, const Tensor& gradient) { collect(pending_[e.node.get()], e, gradient); }

  void collect(Pending& p, const Edge& e, const Tensor& g) {
    p.grads.resize(static_cast<std::size_t>(e.node->outputs()));
    Tensor& slot = p.grads[e.output];
    slot = slot ? add(slot, g) : g;
  }

  /// How many edges reach each node that the roots reach.
  void count_edges() {
    std::vector<Node*> stack;
    std::unordered_map<Node*, bool> seen;
    for (const NodeRef& r : roots_) {
      if (seen.emplace(r.get(), true).second) stack.push_back(r.get());
    }
    while (!stack.empty()) {
      Node* node = stack.back();
      stack.pop_back();
      order_.push_back(node);
      pending_[node];
      for (const Edge& e : node->next()) {
        if (!e.node) continue;
        ++pending_[e.node.get()].waiting;
        if (seen.emplace(e.node.get(), true).second) stack.push_back(e.node.get());
      }
    }
  }

  /// With wanted inputs only the nodes that lead to them are walked.
  void mark_needed() {
    for (auto& [node, p] : pending_) p.needed = false;
    for (const Edge& e : captured_) {
      if (const auto at = pending_.find(e.node.get()); at != pending_.end()) at->second.needed = true;
    }
    std::sort(order_.begin(), order_.end(), [](Node* a, Node* b) { return a->sequence() < b->sequence(); });
    // Operands' nodes are older, except across threads: repeat until nothing changes.
    for (bool changed = true; changed;) {
      changed = false;
      for (Node* node : order_) {
        Pending& p = pending_[node];
        if (p.needed) continue;
        for (const Edge& e : node->next()) {
          if (e.node && pending_[e.node.get()].needed) p.needed = changed = true;
        }
      }
    }
  }

  /// What a hook gives must fit where the gradient goes.
  static void check_replacement(const Tensor& g, const Tensor& replaced) {
    if (!same_dims(g.shape(), replaced.shape())) {
      throw ShapeMismatch("backward(): a hook gave " + to_string(replaced.shape()) + " for a gradient of " +
                              to_string(g.shape()) + "; return a tensor of that shape, or None",
                          {{"op", std::string("backward")},
                           {"left_shape", to_vector(g.shape())},
                           {"right_shape", to_vector(replaced.shape())}});
    }
    if (g.dtype() != replaced.dtype()) {
      throw DtypeMismatch("backward(): a hook gave " + std::string(name(replaced.dtype())) + " for a gradient of " +
                              std::string(name(g.dtype())) + "; write gradient.astype(hl." +
                              std::string(name(g.dtype())) + ")",
                          {{"op", std::string("backward")},
                           {"left_dtype", std::string(name(g.dtype()))},
                           {"right_dtype", std::string(name(replaced.dtype()))}});
    }
  }

  void run_hooks(Node& node, Pending& p) {
    for (std::size_t k = 0; k < node.hooks.size() && k < p.grads.size(); ++k) {
      if (!node.hooks[k] || !p.grads[k]) continue;
      const std::vector<Hook> hooks = node.hooks[k]->hooks;  // a hook may remove itself
      for (const Hook& h : hooks) {
        const Tensor replaced = h.call(p.grads[k]);
        if (!replaced) continue;
        check_replacement(p.grads[k], replaced);
        p.grads[k] = replaced;
      }
    }
  }

  void visit(Node& node) {
    Pending p = std::move(pending_[&node]);
    bool any = false;
    for (const Tensor& g : p.grads) any |= static_cast<bool>(g);
    if (any) run_hooks(node, p);
    bool captured_here = false;
    for (std::size_t i = 0; i < captured_.size(); ++i) {
      if (captured_[i].node.get() != &node) continue;
      captured_here = true;
      if (captured_[i].output < p.grads.size()) result_[i] = p.grads[captured_[i].output];
    }
    const bool accumulates = dynamic_cast<AccumulateGrad*>(&node) != nullptr;
    const std::span<Edge> next = node.next();
    std::vector<Tensor> grads(next.size());
    std::uint64_t wanted = 0;
    for (std::size_t i = 0; i < next.size(); ++i) {
      const bool want = next[i].node && (captured_.empty() || pending_[next[i].node.get()].needed);
      wanted |= std::uint64_t{want} << (i & 63);
    }
    if (any && (accumulates ? captured_.empty() : wanted != 0 || !captured_here)) {
      node.backward(p.grads, wanted, options_.create_graph, grads);
      if (!options_.retain_graph) node.release_saved();
    }
    for (std::size_t i = 0; i < next.size(); ++i) {
      if (!next[i].node) continue;
      Pending& to = pending_[next[i].node.get()];
      if (grads[i]) collect(to, next[i], grads[i]);
      if (--to.waiting == 0) ready_.push(next[i].node.get());
    }
  }

  BackwardOptions options_;
  std::vector<NodeRef> roots_;
  std::vector<Edge> captured_;
  std::vector<Tensor> result_;
  std::vector<Node*> order_;
  std::unordered_map<Node*, Pending> pending_;
  std::priority_queue<Node*, std::vector<Node*>, Later> ready_;
};

Tensor ones_for(const Tensor& root) {
  if (root.numel() != 1) {
    throw AutogradError("backward(): " + to_string(root.shape()) +
                            " has more than one element; write backward(gradient) with a gradient of that shape",
                        {{"shape", to_vector(root.shape())}});
  }
  if (is_complex(root.dtype())) {
    throw AutogradError("backward(): a complex root has no gradient of its own; write backward(gradient)", {});
  }
  return full(to_vector(root.shape()), Scalar(1), root.dtype(), root.device());
}

}  // namespace

std::vector<Tensor> run_backward(std::span<const Tensor> roots, std::span<const Tensor> gradients,
                                 std::span<const Tensor> inputs, BackwardOptions options) {
  options.retain_graph |= options.create_graph;
  for (const Tensor& t : inputs) {
    if (!wants_grad(*t.impl())) {
      throw AutogradError("grad(): an input does not require grad; call x.requires_grad_() before it is used", {});
    }
  }
  Walk walk(inputs, options);
  for (std::size_t i = 0; i < roots.size(); ++i) {
    const Tensor& root = roots[i];
    if (!wants_grad(*root.impl())) {
      throw AutogradError(
          "backward(): the root does not require grad: nothing on its way was recorded; call "
          "requires_grad_() on an input first",
          {});
    }
    Tensor g = i < gradients.size() && gradients[i] ? gradients[i] : ones_for(root);
    if (!same_dims(g.shape(), root.shape())) {
      throw ShapeMismatch(
          "backward(): the gradient " + to_string(g.shape()) + " does not fit the root " + to_string(root.shape()),
          {{"op", std::string("backward")},
           {"left_shape", to_vector(root.shape())},
           {"right_shape", to_vector(g.shape())}});
    }
    if (g.dtype() != root.dtype()) {
      throw DtypeMismatch("backward(): the gradient is " + std::string(name(g.dtype())) + ", the root " +
                              std::string(name(root.dtype())) + "; write gradient.astype(hl." +
                              std::string(name(root.dtype())) + ")",
                          {{"op", std::string("backward")},
                           {"left_dtype", std::string(name(root.dtype()))},
                           {"right_dtype", std::string(name(g.dtype()))}});
    }
    walk.add_root(root, g);
  }
  return walk.run();
}

}  // namespace hyalite
