/// Gradients of a compiled call.
#include "compile/compiled_node.h"

#include "apply.h"
#include "explain/record_op.h"
#include "record/autograd_meta.h"
#include "record/forward.h"
#include "tensor/context.h"
#include "tensor/location.h"

namespace hyalite {

Ref<CompiledNode> CompiledNode::make(std::shared_ptr<const Compiled> compiled, std::span<TensorImpl* const> arguments,
                                     std::span<const lazy::Memory> inputs, std::span<const Ref<Storage>> made) {
  const Compiled::Backward& back = *compiled->backward_;
  Ref<CompiledNode> n = Ref<CompiledNode>::adopt(new CompiledNode);
  n->location_ = capture_location();
  n->set_edge_count(static_cast<int>(back.targets.size()));
  for (std::size_t i = 0; i < back.targets.size(); ++i) {
    const Compiled::Backward::Target& t = back.targets[i];
    n->next()[i] = gradient_edge(t.argument >= 0 ? *arguments[static_cast<std::size_t>(t.argument)] : *t.held);
  }
  const auto keep = [&](Storage* s, std::int64_t shift) {
    s->mark_saved();
    n->memory_.push_back({Ref<Storage>::share(s), shift, s->version()});
  };
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (back.reads[i]) {
      keep(inputs[i].storage, inputs[i].shift);
    } else {
      n->memory_.emplace_back();
    }
  }
  n->memory_.resize(n->memory_.size() + back.outputs.size());
  for (const int place : back.kept) keep(made[static_cast<std::size_t>(place)].get(), 0);
  n->compiled_ = std::move(compiled);
  return n;
}

void CompiledNode::backward(std::span<const Tensor> grads, std::uint64_t wanted, bool create_graph,
                            std::span<Tensor> result) {
  const Compiled::Backward& back = *compiled_->backward_;
  if (create_graph) {
    throw Unsupported(
        "backward(): a compiled function has no second derivative of its own; compile the gradient, as "
        "hl.compile(hl.grad(f)), or call f itself");
  }
  for (const Kept& k : memory_) {
    if (!k.storage || k.storage->version() == k.version) continue;
    const Location writer = k.storage->last_writer();
    const std::string line = describe(writer);
    release_location(writer);
    throw VersionMismatch("backward(): a compiled function reads memory again that was written in place since" +
                              (line.empty() ? std::string() : " at " + line) + "; write y = x + ... for a new tensor",
                          {{"saved_version", static_cast<std::int64_t>(k.version)},
                           {"current_version", static_cast<std::int64_t>(k.storage->version())}});
  }
  // In memory of their own, row-major, as they were foreseen.
  std::vector<Tensor> dense;
  std::vector<lazy::Memory> inputs;
  for (const Kept& k : memory_) inputs.push_back({k.storage.get(), k.shift});
  const std::size_t first = back.reads.size();
  for (std::size_t k = 0; k < back.outputs.size(); ++k) {
    const TensorImpl& form = *back.forms[k];
    const Tensor g = grads[k] ? without_nothings(grads[k]) : zeros(to_vector(form.shape()), form.dtype(), {});
    dense.push_back(g.impl()->contiguous() ? g : contiguous(g));
    const TensorImpl& t = *dense.back().impl();
    inputs[first + k] = {t.storage(), t.offset() * static_cast<std::int64_t>(itemsize(t.dtype()))};
  }
  std::vector<Ref<Storage>> made(back.plan->results());
  Recorder* const rec = active_recorder(context());
  record_op(
      rec, [] { return "backward of a compiled function"; }, [&] { back.plan->run(inputs, made, rec); });
  for (std::size_t i = 0; i < back.targets.size(); ++i) {
    if ((wanted >> (i & 63) & 1) == 0 || back.places[i] < 0) continue;
    const lazy::Memory m{made[static_cast<std::size_t>(back.places[i])].get(), 0};
    result[i] = Tensor::adopt(lazy::tensor_over(*back.gradients[i], m).leak());
  }
}

std::vector<Tensor> CompiledNode::forward(std::span<const Tensor> tangents, bool create_graph) {
  return transposed(*this, compiled_->backward_->forms, tangents, create_graph);
}

}  // namespace hyalite
