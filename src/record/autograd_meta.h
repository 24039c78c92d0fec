/// What a tensor knows of the graph: its gradient, the node that made it, and the base it is a view of.
#pragma once

#include <memory>
#include <vector>

#include "record/node.h"

namespace hyalite {

/// One op on the way from a base to a view.
struct ViewStep {
  const OpInfo* op;
  AttrRef attrs;
};
/// The last step, and the chain of those before it. Made for a write that is recorded; views themselves have links.
struct ViewChain {
  ViewStep step;
  std::shared_ptr<const ViewChain> before;

  ViewChain(ViewStep s, std::shared_ptr<const ViewChain> b) : step(std::move(s)), before(std::move(b)) {}
  ViewChain(const ViewChain&) = delete;
  ~ViewChain();
  /// From the base on.
  std::vector<const ViewStep*> steps() const;
};
/// From the base of a view to it.
std::shared_ptr<const ViewChain> chain_to(const TensorImpl& view);
/// `first`, then the steps of `rest`.
std::shared_ptr<const ViewChain> chain_after(ViewStep first, const ViewChain& rest);

struct AutogradMeta {
  AutogradMeta() = default;
  AutogradMeta(const AutogradMeta&) = delete;
  ~AutogradMeta() {
    AccumulateGrad* a = accumulator.load(std::memory_order_relaxed);
    if (a == nullptr) return;
    a->forget_leaf();
    a->release();
  }

  TensorRef grad;
  NodeRef grad_fn;                                    ///< null for a leaf
  std::uint32_t output = 0;                           ///< of grad_fn
  std::atomic<AccumulateGrad*> accumulator{nullptr};  ///< of a leaf that some op has used; owned, set once
  std::shared_ptr<HookList> hooks;
  std::uint64_t history = 0;  ///< counts how often this tensor's own grad_fn was replaced by a write
};

AutogradMeta& meta_of(TensorImpl& t);
bool wants_grad_slowly(TensorImpl& view);
/// Whether `t` requires grad; a view may have come to it by a write to its base.
inline bool wants_grad(TensorImpl& t) { return t.requires_grad || (t.view.parent != nullptr && wants_grad_slowly(t)); }
/// Where gradients of `t` flow; regenerates a view's history after its base was written.
Edge gradient_edge(TensorImpl& t);
/// The node that made `t`, null for a leaf or a tensor without history.
NodeRef grad_fn(TensorImpl& t);
bool is_leaf(TensorImpl& t);
void set_requires_grad(TensorImpl& t, bool on);

/// Enters `node` as what made `out`.
void set_history(TensorImpl& out, NodeRef node, std::uint32_t output);
/// Remembers that `view` was made from `source` by `op`.
void set_view(TensorImpl& view, TensorImpl& source, const OpInfo& op, AttrRef attrs);

/// Records a call that was just computed, and gives its node: null where no output has a gradient. Only called when an
/// operand requires grad.
NodeRef record(const Call& call, std::span<TensorImpl* const> outputs, Dtype computed);
/// Refuses, before anything is written, in-place writes that autograd cannot follow.
void check_in_place(TensorImpl& target);
/// Whether a write of `target` changes what somebody's gradient flows through: its own value, or that of its base.
bool write_wants_grad(TensorImpl& target);

/// The record of an op that is about to write `target`. Everything that can fail is done here, before the write: the
/// node is made, and what it needs of the old value is copied.
class InPlaceRecord {
 public:
  InPlaceRecord(const Call& call, TensorImpl& target, Dtype computed);
  /// After the write: the target, and the base it is a view of, continue from the node.
  void commit() noexcept;
  Node& node() const { return *node_; }

 private:
  TensorImpl& target_;
  TensorImpl& base_;
  Ref<OpNode> op_;
  NodeRef node_;  // the op's own, or on a view one around it
};

/// Where a hook hangs, without keeping it alive.
struct HookPlace {
  std::weak_ptr<HookList> list;
  std::uint64_t id = 0;
};
/// Adds a hook; `remove_hook` forgets it.
HookPlace add_hook(TensorImpl& t, std::function<Tensor(const Tensor&)> hook, void* owner, bool last = false);
void remove_hook(const HookPlace& place);
/// Every list of hooks that somebody holds, each held once more.
std::vector<std::shared_ptr<HookList>> hook_lists();

/// The same memory without history.
TensorRef detached(TensorImpl& t);

struct BackwardOptions {
  bool retain_graph = false;
  bool create_graph = false;
  bool ends_at_inputs =
      false;                ///< what the inputs were made from is not walked, and no input's gradient comes from there
  bool accumulate = false;  ///< the gradients are added to the inputs' grad, also of those that are no leaves
};
/// Adds `gradients[i]` to the grad of `tensors[i]`, of all or, if that fails, of none.
void accumulate(std::span<const TensorRef> tensors, std::vector<Tensor> gradients, bool create_graph);
/// Gradients of the weighted sum of `roots`. With `inputs` they are returned, each a tensor of its own, else added to
/// the leaves' grad. If it fails, graph and gradients are as they were, and it can be called again.
std::vector<Tensor> run_backward(std::span<const Tensor> roots, std::span<const Tensor> gradients,
                                 std::span<const Tensor> inputs, BackwardOptions options);

}  // namespace hyalite
