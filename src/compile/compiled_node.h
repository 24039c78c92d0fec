/// The node of a compiled function: its gradient is a plan too.
#pragma once

#include <memory>

#include "compile/compiled.h"
#include "record/node.h"

namespace hyalite {

class CompiledNode final : public Node {
 public:
  /// Of a call that has just run: edges to the tensors that gradients go to, and what the gradients' plan reads.
  static Ref<CompiledNode> make(std::shared_ptr<const Compiled> compiled, std::span<TensorImpl* const> arguments,
                                std::span<const lazy::Memory> inputs, std::span<const Ref<Storage>> made);
  std::string name() const override { return "CompiledBackward"; }
  void backward(std::span<const Tensor> grads, std::uint64_t wanted, bool create_graph,
                std::span<Tensor> result) override;
  std::vector<Tensor> forward(std::span<const Tensor> tangents, bool create_graph) override;
  bool saves_values() const override { return true; }
  void release_saved() noexcept override {
    memory_.clear();
    arguments_.clear();
  }
  int outputs() const override { return static_cast<int>(compiled_->backward_->outputs.size()); }

 private:
  void deallocate() noexcept override { delete this; }
  /// A piece of memory that is read again, as it was.
  struct Kept {
    Ref<Storage> storage;
    std::int64_t shift = 0;
    std::uint32_t version = 0;
  };
  /// An argument as it was, without its history, to which an edge leads.
  struct Argument {
    TensorRef tensor;  // only its form where no gradient reads a value
    std::uint32_t version = 0;
  };
  void keep(Storage& s, std::int64_t shift, const ByteRange& bytes);
  void keep(std::span<TensorImpl* const> arguments);
  /// By the ops of the function itself, so that they are recorded.
  void recorded(std::span<const Tensor> grads, std::uint64_t wanted, std::span<Tensor> result);

  std::shared_ptr<const Compiled> compiled_;
  std::vector<Kept> memory_;  // inputs by slot, the gradients' places, then what was kept
  std::vector<Argument> arguments_;
  std::vector<std::uint32_t> held_versions_;  // by slot, of memory that the function reached by other names
};

}  // namespace hyalite
