/// The graph that backward walks: nodes with edges to the nodes that made their operands.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hyalite/tensor.h"
#include "ops/op_info.h"
#include "tensor/location.h"
#include "tensor/tensor_impl.h"

namespace hyalite {

class Node;
using NodeRef = Ref<Node>;

/// Where a gradient flows next: output number `output` of `node`; a null node takes none.
struct Edge {
  NodeRef node;
  std::uint32_t output = 0;
};

/// A function the user hung on a gradient; what it returns, unless empty, replaces the gradient.
struct Hook {
  std::uint64_t id;
  std::function<Tensor(const Tensor&)> call;
  void* owner = nullptr;  ///< the front end's object, for its garbage collector
  bool last = false;      ///< runs after those that are not, whenever it was hung: it keeps what they made
};
/// Hooks of one gradient, shared between the tensor and the node that will see the gradient.
struct HookList {
  std::vector<Hook> hooks;
};

class Node {
 public:
  virtual ~Node();
  virtual std::string name() const = 0;
  /// Gradients for the operands in `wanted` (bit i: operand i), from those of the outputs, of which any may be empty.
  virtual void backward(std::span<const Tensor> grads, std::uint64_t wanted, bool create_graph,
                        std::span<Tensor> result) = 0;
  /// Whether values were saved, which one walk uses up unless it retains the graph.
  virtual bool saves_values() const { return false; }
  /// Drops them; a second backward then raises.
  virtual void release_saved() noexcept {}
  bool released() const { return walkers.used_up; }
  virtual int outputs() const { return 1; }
  /// A node that this one keeps for itself, outside the edges.
  virtual Node* inner() const { return nullptr; }
  /// Tangents of the outputs, from those of the operands by edge; any may be empty, for zero.
  virtual std::vector<Tensor> forward(std::span<const Tensor> tangents, bool create_graph);
  virtual std::string saved_text() const { return ""; }

  void retain() noexcept { refs_.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept {
    if (refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy();
  }

  std::uint32_t users() const noexcept { return refs_.load(std::memory_order_relaxed); }

  std::span<Edge> next() { return {edges_, static_cast<std::size_t>(edge_count_)}; }
  std::uint64_t sequence() const { return sequence_; }
  /// Of the next node that is made on this thread.
  static std::uint64_t next_sequence() noexcept;
  Location location() const { return location_; }

  /// Hooks by output number; usually none.
  std::vector<std::shared_ptr<HookList>> hooks;

  /// Who walks here now; WalkClaim in backward.cpp guards it.
  struct Walkers {
    std::uint32_t sharing = 0;  ///< walks that retain the graph
    bool claimed = false;       ///< by one that uses it up
    bool used_up = false;       ///< to be released when the last that shares it has gone
  } walkers;

 protected:
  Node();
  /// Room for n edges.
  void set_edge_count(int n);
  virtual void deallocate() noexcept = 0;
  Location location_;

 private:
  void destroy() noexcept;
  std::atomic<std::uint32_t> refs_{1};
  int edge_count_ = 0;
  std::uint64_t sequence_;
  Node* next_doomed_ = nullptr;
  Edge* edges_ = inline_edges_;
  Edge inline_edges_[2];
};

/// A value that a gradient reads. The tensor has no history of its own: the node's edges lead to it, so that no node
/// holds a tensor whose history it is part of.
struct Saved {
  enum class How : std::uint8_t {
    alias,  ///< the same memory, at `version`
    copy,   ///< memory of its own: what an in-place op overwrote, or somebody else's buffer
    shape,  ///< no memory, only a shape
  };
  TensorRef tensor;
  std::uint32_t version = 0;
  How how = How::alias;
};

/// What an in-place op is about to do: `memory` will be written, so operands there are saved as copies; the operands
/// in `through` get a gradient although they may have no edge of their own.
struct Writing {
  const Storage* memory = nullptr;
  std::uint64_t through = 0;
};

/// The order of axes that undoes `order`.
Shape inverse(const Shape& order);

/// The node of an op of the list: op, kernel and node share one name, AddBackward.
class OpNode final : public Node {
 public:
  static constexpr int most_leaves = 1 + most_operands + most_outputs;  ///< that can be saved
  /// Records a call; `outputs` are its results, or the target that it will write.
  static Ref<OpNode> make(const Call& call, std::span<TensorImpl* const> outputs, Dtype computed, Writing writing = {});

  /// Where the histories of saved values begin, for gradients that are recorded themselves.
  struct Histories {
    std::array<Edge, most_operands> operands;
    Edge output;
  };
  /// As backward, with histories other than the node's own edges.
  void gradients(std::span<const Tensor> grads, std::uint64_t wanted, bool create_graph, std::span<Tensor> result,
                 const Histories* histories);
  /// Whether the gradient reads the op's own result.
  bool saves_output() const;
  /// After an in-place op has written: copies its result, where the gradient reads it and others may write it.
  void keep_output(const TensorImpl& written) noexcept;
  /// As forward, with histories other than the node's own edges.
  std::vector<Tensor> forward_with(std::span<const Tensor> tangents, bool create_graph, const Histories* histories);

  std::string name() const override { return op_->node_name; }
  void backward(std::span<const Tensor> grads, std::uint64_t wanted, bool create_graph,
                std::span<Tensor> result) override {
    gradients(grads, wanted, create_graph, result, nullptr);
  }
  std::vector<Tensor> forward(std::span<const Tensor> tangents, bool create_graph) override {
    return forward_with(tangents, create_graph, nullptr);
  }
  bool saves_values() const override;
  void release_saved() noexcept override;
  int outputs() const override { return op_->outputs; }
  std::string saved_text() const override;
  const OpInfo& op() const { return *op_; }

 private:
  void deallocate() noexcept override;
  /// The result in float32, of operands in 16 bits.
  Tensor result_again(bool create_graph, const Histories* histories);
  Tensor unpack(int leaf, bool create_graph, const Histories* histories);
  /// Throws VersionMismatch if the memory of a saved value has been written since it was saved.
  void check_version(int leaf) const;
  /// The same for all leaves that were read, after that: another thread may have begun to write meanwhile.
  void check_versions(std::uint32_t reads) const;
  bool is_output(int leaf) const { return leaf > op_->arity; }
  /// For operand i, before it is summed to the operand's shape.
  Tensor gradient_of(int i, std::span<const Tensor> grads, bool create_graph, const Histories* histories);
  std::vector<Tensor> forward_elementwise(std::span<const Tensor> tangents, bool create_graph,
                                          const Histories* histories);
  void save(int leaf, const Operand& operand, Device device, const Storage* written);
  /// The leaves as handles: those read, and stand-ins for those that are only shapes.
  std::vector<Tensor> leaves(std::span<const Tensor> grads, std::uint32_t reads, bool create_graph,
                             const Histories* histories);

  const OpInfo* op_ = nullptr;
  AttrRef attrs_;
  Dtype computed_ = Dtype::float32;
  std::uint8_t real_operands_ = 0;  // real beside complex ones; their gradient is a real part
  /// What an addition of equal shapes does not need; made when something is kept.
  struct Kept {
    std::array<Saved, most_leaves> saved;
    std::vector<Saved> list;                         // of variadic ops
    std::array<TensorRef, most_operands> reduce_to;  // shapes of operands that were broadcast
    TensorRef result;                                // the shape they were broadcast to
  };
  Kept& kept();
  void drop_kept() noexcept;
  Kept* kept_ = nullptr;
};

/// An op that wrote a view of a recorded base: one node on the base. Outside the view the base's gradient passes
/// through, inside it goes through the op. Its operands are the base, then the op's.
class ViewWriteNode final : public Node {
 public:
  static Ref<ViewWriteNode> make(Ref<OpNode> op, Edge edge, const TensorImpl& base,
                                 std::shared_ptr<const ViewChain> chain, std::uint64_t target_operands,
                                 Dims view_shape);
  std::string name() const override { return op_->name(); }
  void backward(std::span<const Tensor> grads, std::uint64_t wanted, bool create_graph,
                std::span<Tensor> result) override;
  std::vector<Tensor> forward(std::span<const Tensor> tangents, bool create_graph) override;
  bool saves_values() const override { return op_->saves_values(); }
  Node* inner() const override { return op_.get(); }
  void release_saved() noexcept override { op_->release_saved(); }
  std::string saved_text() const override { return op_->saved_text(); }

 private:
  void deallocate() noexcept override;
  /// Where the histories of what the op saved begin: operands that are the view lead to the base.
  OpNode::Histories histories();
  /// The history of the view, where `from` is that of the base.
  Edge history_of_view(Edge from) const;
  Ref<OpNode> op_;
  TensorRef base_shape_;  // with the base's strides, without memory
  std::shared_ptr<const ViewChain> chain_;
  std::uint64_t target_operands_ = 0;  // which operands of the op were the view itself
  Shape view_shape_;
  Shape order_;                                   // of the base's axes in memory, slowest first; empty: their own
  std::shared_ptr<const ViewChain> from_memory_;  // the chain from the base with its axes in that order
};

/// Ends the graph at a leaf: adds the gradient to it. The leaf owns it, and forgets it when it goes.
class AccumulateGrad final : public Node {
 public:
  /// The leaf's own, made at the first call, from whichever thread.
  static Ref<AccumulateGrad> make(TensorImpl& leaf);
  void forget_leaf() noexcept;
  /// Null once the leaf is gone.
  TensorRef leaf() const noexcept;
  /// The leaf is an argument that hl.grad or its like made: when it is gone, nobody asks for what is between.
  bool argument = false;
  bool forgotten() const noexcept { return argument && !leaf(); }
  std::string name() const override { return "AccumulateGrad"; }
  /// The walk itself keeps what arrives here, and adds it to the leaves when nothing can fail any more.
  void backward(std::span<const Tensor>, std::uint64_t, bool, std::span<Tensor>) override {}

 private:
  void deallocate() noexcept override;
  TensorImpl* leaf_ = nullptr;  // guarded by the mutex of leaves in autograd_meta.cpp
};

}  // namespace hyalite
