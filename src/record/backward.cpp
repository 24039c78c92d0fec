/// Walks the graph from the roots, later nodes first, without recursion.
#include <mutex>
#include <queue>
#include <unordered_map>

#include "apply.h"
#include "compute/blocking.h"
#include "explain/recorder.h"
#include "record/anomaly.h"
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

/// A walk's presence on its nodes: of several walks one uses up what a node saved, the others are refused before they
/// compute anything, and nobody frees what another reads. A walk that fails leaves all as it was.
class WalkClaim {
 public:
  WalkClaim(std::vector<Node*> nodes, bool uses_up) : nodes_(std::move(nodes)), uses_up_(uses_up) {
    const std::lock_guard lock(mutex_);
    for (const Node* node : nodes_) {
      if (node->walkers.used_up || node->walkers.claimed) refuse(*node);
    }
    for (Node* node : nodes_) {
      if (uses_up_) {
        node->walkers.claimed = true;
      } else {
        ++node->walkers.sharing;
      }
    }
  }
  ~WalkClaim() { leave(false); }
  WalkClaim(const WalkClaim&) = delete;
  /// The walk has come to its end.
  void finish() noexcept { leave(true); }

 private:
  [[noreturn]] static void refuse(const Node& node) {
    throw AutogradError(node.walkers.used_up
                            ? node.name() +
                                  " has been walked before and its saved tensors are gone; call the first "
                                  "backward(retain_graph=True)"
                            : node.name() +
                                  " is being walked by another backward(), which uses its saved tensors up; call "
                                  "backward(retain_graph=True) in both",
                        {{"node", node.name()}});
  }

  void leave(bool finished) noexcept {
    const std::vector<Node*> nodes = std::exchange(nodes_, {});
    std::vector<bool> free(nodes.size());
    {
      const std::lock_guard lock(mutex_);
      for (std::size_t i = 0; i < nodes.size(); ++i) {
        Node::Walkers& w = nodes[i]->walkers;
        if (uses_up_) {
          w.claimed = false;
          w.used_up = finished;
        } else {
          --w.sharing;
        }
        free[i] = w.used_up && w.sharing == 0;
      }
    }
    // Outside the lock: what goes may run the front end's code.
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (free[i]) nodes[i]->release_saved();
    }
  }

  static std::mutex mutex_;  // held for bookkeeping only
  std::vector<Node*> nodes_;
  bool uses_up_;
};
std::mutex WalkClaim::mutex_;

/// A tensor that nobody else has, so that adding to it reaches no other owner.
Tensor own(Tensor g, bool create_graph) {
  const TensorImpl& t = *g.impl();
  if (t.users() == 1 && t.storage()->users() == 1 && t.contiguous() && !t.storage()->exposed()) return g;
  Tensor mine = create_graph ? positive(g) : copy_of(g);
  return has_nothings(g) ? with_nothings(std::move(mine)) : mine;
}

class Walk {
 public:
  Walk(std::span<const Tensor> inputs, BackwardOptions options) : options_(options) {
    for (const Tensor& t : inputs) {
      const Edge e = gradient_edge(*t.impl());
      if (options.ends_at_inputs) ends_.emplace(e.node.get(), captured_.size());
      captured_.push_back(e);
      if (options.accumulate) leaves_.push_back(TensorRef::share(t.impl()));
    }
    result_.resize(captured_.size());
  }

  void add_root(const Tensor& root, const Tensor& gradient) {
    const Edge e = gradient_edge(*root.impl());
    if (finish(e, gradient)) return;
    roots_.push_back(e.node);
    seed(e, gradient);
  }

  std::vector<Tensor> run() {
    count_edges();
    if (!captured_.empty()) mark_needed();
    for (auto& [node, p] : pending_) {
      if (p.waiting == 0) ready_.push(node);
    }
    WalkClaim claim(saving_nodes(), !options_.retain_graph);
    const ScopedSet<bool> mode(context().grad_mode, options_.create_graph);
    while (!ready_.empty()) {
      Node* node = ready_.top();
      ready_.pop();
      visit(*node);
    }
    for (Tensor& g : result_) {
      if (g) g = own(std::move(g), options_.create_graph);
    }
    if (options_.accumulate) take_results();
    accumulate(leaves_, std::move(arrived_), options_.create_graph);
    claim.finish();
    return std::move(result_);
  }

 private:
  void seed(const Edge& e, const Tensor& gradient) { collect(pending_[e.node.get()], e, gradient); }

  void collect(Pending& p, const Edge& e, Tensor g) {
    p.grads.resize(static_cast<std::size_t>(e.node->outputs()));
    Tensor& slot = p.grads[e.output];
    slot = slot ? add_gradients(slot, g) : std::move(g);
  }

  /// Which input an edge ends the walk at; none: -1.
  std::ptrdiff_t end_of(const Edge& e) const {
    const auto [from, to] = ends_.equal_range(e.node.get());
    for (auto it = from; it != to; ++it) {
      if (captured_[it->second].output == e.output) return static_cast<std::ptrdiff_t>(it->second);
    }
    return -1;
  }
  bool finish(const Edge& e, const Tensor& g) {
    const std::ptrdiff_t i = end_of(e);
    if (i < 0) return false;
    Tensor& slot = result_[static_cast<std::size_t>(i)];
    if (g) slot = slot ? add_gradients(slot, g) : g;
    return true;
  }
  /// The inputs to which a gradient came, for their grad.
  void take_results() {
    std::vector<TensorRef> inputs;
    for (std::size_t i = 0; i < result_.size(); ++i) {
      if (!result_[i]) continue;
      inputs.push_back(leaves_[i]);
      arrived_.push_back(std::move(result_[i]));
    }
    leaves_ = std::move(inputs);
  }

  /// Kept until nothing can fail any more.
  void arrive(const AccumulateGrad& node, Tensor g) {
    TensorRef leaf = node.leaf();
    if (!leaf || !leaf->requires_grad) return;  // nobody is left to see it, or wants to
    leaves_.push_back(std::move(leaf));
    arrived_.push_back(std::move(g));
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
        if (!e.node || end_of(e) >= 0) continue;
        ++pending_[e.node.get()].waiting;
        if (seen.emplace(e.node.get(), true).second) stack.push_back(e.node.get());
      }
    }
  }

  /// Whether an edge leads to a wanted input.
  bool leads_on(const Edge& e) { return end_of(e) >= 0 || pending_[e.node.get()].needed; }

  /// With wanted inputs only the nodes that lead to them are walked.
  void mark_needed() {
    for (auto& [node, p] : pending_) p.needed = false;
    for (const Edge& e : captured_) {
      if (options_.ends_at_inputs) break;
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
          if (e.node && leads_on(e)) p.needed = changed = true;
        }
      }
    }
  }

  /// The nodes whose saved values this walk will read.
  std::vector<Node*> saving_nodes() {
    std::vector<Node*> nodes;
    for (Node* node : order_) {
      if (!node->saves_values() && !node->released()) continue;
      bool computes = captured_.empty();
      for (const Edge& e : node->next()) computes |= e.node && leads_on(e);
      if (computes && pending_[node].needed) nodes.push_back(node);
    }
    return nodes;
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
        const Tensor shown = without_nothings(p.grads[k]);
        const std::uint32_t version = shown.impl()->storage()->version();
        Tensor replaced = h.call(shown);
        if (!replaced && shown.impl()->storage()->version() != version) replaced = shown;  // written in place
        if (!replaced || (replaced.impl() == shown.impl() && shown.impl()->storage()->version() == version)) continue;
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
    for (std::size_t i = 0; i < captured_.size() && !options_.ends_at_inputs; ++i) {
      if (captured_[i].node.get() != &node) continue;
      if (captured_[i].output < p.grads.size()) result_[i] = p.grads[captured_[i].output];
      if (result_[i]) result_[i] = without_nothings(result_[i]);
    }
    if (auto* leaf = dynamic_cast<AccumulateGrad*>(&node)) {
      if (captured_.empty() && any) arrive(*leaf, without_nothings(p.grads[0]));
      return;
    }
    const std::span<Edge> next = node.next();
    std::vector<Tensor> grads(next.size());
    std::uint64_t wanted = 0;
    for (std::size_t i = 0; i < next.size(); ++i) {
      const bool want = next[i].node && (captured_.empty() || leads_on(next[i]));
      wanted |= std::uint64_t{want} << (i & 63);
    }
    if (any && wanted != 0) {
      // Gradients have the dtypes of what they are gradients of, whatever the policy around.
      const ScopedSet<bool> plain(context().autocast.enabled, false);
      if (context().anomaly) [[unlikely]] {
        backward_watched(node, p.grads, wanted, options_.create_graph, grads);
      } else {
        node.backward(p.grads, wanted, options_.create_graph, grads);
      }
    }
    for (std::size_t i = 0; i < next.size(); ++i) {
      if (!next[i].node || finish(next[i], grads[i])) continue;
      Pending& to = pending_[next[i].node.get()];
      if (grads[i]) collect(to, next[i], std::move(grads[i]));
      if (--to.waiting == 0) ready_.push(next[i].node.get());
    }
  }

  BackwardOptions options_;
  std::vector<NodeRef> roots_;
  std::vector<Edge> captured_;
  std::unordered_multimap<const Node*, std::size_t> ends_;  // inputs that end the walk, by node
  std::vector<Tensor> result_;
  std::vector<TensorRef> leaves_;  // in the order in which the gradients arrived
  std::vector<Tensor> arrived_;
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

void check_handles(std::span<const Tensor> roots, std::span<const Tensor> gradients, std::span<const Tensor> inputs) {
  for (std::size_t i = 0; i < roots.size(); ++i) {
    if (!roots[i]) {
      throw TypeError("backward(): root " + std::to_string(i) +
                          " is None; give tensors (did the function that made it forget to return?)",
                      {{"position", static_cast<std::int64_t>(i)}});
    }
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i]) {
      throw TypeError("grad(): input " + std::to_string(i) + " is None; give tensors",
                      {{"position", static_cast<std::int64_t>(i)}});
    }
  }
  if (gradients.size() > roots.size()) {
    throw ValueError("backward(): " + std::to_string(gradients.size()) + " gradients for " +
                         std::to_string(roots.size()) + " roots; give one a root, or None",
                     {});
  }
}

/// Whether a sum may be written over `grad`: it has no history of its own, and each element its own place.
bool takes_in_place(const TensorImpl& grad) {
  if (grad.storage()->read_only()) return false;
  for (int i = 0; i < grad.ndim(); ++i) {
    if (grad.shape()[i] > 1 && grad.strides()[i] == 0) return false;
  }
  return true;
}

/// Waits without keeping the front end's other threads from running: one of them may hold the lock.
class PatientLock {
 public:
  explicit PatientLock(std::recursive_mutex& mutex) : lock_(mutex, std::try_to_lock) {
    if (lock_) return;
    const Blocking blocking;
    lock_.lock();
  }

 private:
  std::unique_lock<std::recursive_mutex> lock_;
};

}  // namespace

void accumulate(std::span<const TensorRef> tensors, std::vector<Tensor> gradients, bool create_graph) {
  if (tensors.empty()) return;
  if (Recorder* r = context().recorder) r->has_effects = true;
  for (Tensor& g : gradients) g = own(std::move(g), create_graph);
  std::vector<AutogradMeta*> metas;
  for (const TensorRef& t : tensors) metas.push_back(&meta_of(*t));
  std::vector<Tensor> sums(gradients.size());
  // Recursive, for what a sum frees may run the front end's code.
  static std::recursive_mutex mutex;
  const PatientLock lock(mutex);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    TensorImpl* old = metas[i]->grad.get();
    if (old == nullptr) continue;
    const bool recorded = create_graph || wants_grad(*old);
    if (!recorded && takes_in_place(*old)) continue;
    const ScopedSet<bool> mode(context().grad_mode, recorded);
    sums[i] = add(Tensor::share(old), gradients[i]);
  }
  for (std::size_t i = 0; i < sums.size(); ++i) {
    TensorRef& grad = metas[i]->grad;
    if (grad && !sums[i]) {
      add_in_place(*grad, *gradients[i].impl());
    } else {
      Tensor& now = grad ? sums[i] : gradients[i];
      TensorRef fresh = TensorRef::adopt(now.leak());
      std::swap(grad, fresh);
      now = Tensor::adopt(fresh.leak());  // goes when the lock does not hold any more
    }
  }
}

std::vector<Tensor> run_backward(std::span<const Tensor> roots, std::span<const Tensor> gradients,
                                 std::span<const Tensor> inputs, BackwardOptions options) {
  check_handles(roots, gradients, inputs);
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
