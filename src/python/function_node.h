/// A node whose gradient is computed by a Python function: hl.Function and hl.checkpoint.
#pragma once

#include <unordered_set>

#include "python/tensor_object.h"
#include "record/forward.h"

namespace hyalite::python {

/// Calls `callback(node, grads, wanted, create_graph)`, which gives a gradient or None for each edge.
class FunctionNode final : public Node {
 public:
  /// `callback` and `release` are kept; the line is that of the first caller outside this package.
  static Ref<FunctionNode> make(std::string name, std::vector<Edge> edges, std::vector<TensorRef> forms, bool saves,
                                PyObject* callback, PyObject* release);
  std::string name() const override { return name_; }
  void backward(std::span<const Tensor> grads, std::uint64_t wanted, bool create_graph,
                std::span<Tensor> result) override;
  std::vector<Tensor> forward(std::span<const Tensor> tangents, bool create_graph) override {
    return transposed(*this, forms_, tangents, create_graph);
  }
  bool saves_values() const override { return saves_; }
  void release_saved() noexcept override;
  int outputs() const override { return static_cast<int>(forms_.size()); }

  /// The nodes there are. Guarded by the GIL.
  static const std::unordered_set<FunctionNode*>& all();
  PyObject* callback() const { return callback_; }
  PyObject* releaser() const { return release_; }
  /// Gives up both, as nothing can reach the node any more.
  void drop();

 private:
  void deallocate() noexcept override;
  std::string name_;
  std::vector<TensorRef> forms_;  // of the outputs, without memory; null for those without a gradient
  bool saves_ = false;
  PyObject* callback_ = nullptr;
  PyObject* release_ = nullptr;
};

}  // namespace hyalite::python
