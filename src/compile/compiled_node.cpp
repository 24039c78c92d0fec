/// Gradients of a compiled call.
#include "compile/compiled_node.h"

#include <algorithm>

#include "apply.h"
#include "explain/record_op.h"
#include "record/autograd_meta.h"
#include "record/forward.h"
#include "record/graph.h"
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
  n->compiled_ = std::move(compiled);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (back.reads[i].any()) {
      n->keep(*inputs[i].storage, inputs[i].shift, back.reads[i]);
    } else {
      n->memory_.emplace_back();
    }
  }
  n->memory_.resize(n->memory_.size() + back.outputs.size());
  for (const int place : back.kept) n->keep(*made[static_cast<std::size_t>(place)], 0, {});
  n->keep(arguments);
  return n;
}

/// What others may write without a version is copied, as by the nodes of ops: only what is read of it.
void CompiledNode::keep(Storage& s, std::int64_t shift, const ByteRange& bytes) {
  if (!s.exposed() || bytes.first >= bytes.end) {
    s.mark_saved();
    memory_.push_back({Ref<Storage>::share(&s), shift, s.version()});
    return;
  }
  const TensorRef read = TensorImpl::make(Dtype::uint8, {}, DimList{bytes.end - bytes.first}, DimList{1},
                                          Ref<Storage>::share(&s), shift + bytes.first);
  const Ref<Storage> copy = clone(*read)->storage_ref();
  memory_.push_back({copy, -bytes.first, copy->version()});
}

void CompiledNode::keep(std::span<TensorImpl* const> arguments) {
  const bool values = compiled_->backward_->reads_values;
  for (TensorImpl* t : arguments) {
    Argument a;
    if (!values) {
      a.tensor = TensorImpl::make(t->dtype(), t->device(), t->shape(), row_major(t->shape()), {});
    } else if (t->storage()->exposed()) {
      a.tensor = clone(*t);
    } else {
      a.tensor = detached(*t);
      t->storage()->mark_saved();
    }
    if (values) a.version = a.tensor->storage()->version();
    arguments_.push_back(std::move(a));
  }
  for (const Compiled::Slot& s : compiled_->slots_) held_versions_.push_back(s.held ? s.held->version() : 0);
}

namespace {

void check_version(const Storage& s, std::uint32_t version) {
  if (s.version() == version) return;
  const Location writer = s.last_writer();
  const std::string line = describe(writer);
  release_location(writer);
  throw VersionMismatch("backward(): a compiled function reads memory again that was written in place since" +
                            (line.empty() ? std::string() : " at " + line) + "; write y = x + ... for a new tensor",
                        {{"saved_version", static_cast<std::int64_t>(version)},
                         {"current_version", static_cast<std::int64_t>(s.version())}});
}

}  // namespace

void CompiledNode::recorded(std::span<const Tensor> grads, std::uint64_t wanted, std::span<Tensor> result) {
  const Compiled& c = *compiled_;
  if (!c.gradients_.empty() || std::ranges::any_of(c.slots_, &Compiled::Slot::written)) {
    throw Unsupported(
        "backward(): a compiled function that writes in place, or leaves gradients, has no second derivative; compile "
        "the gradient, as hl.compile(hl.grad(f)), or call f itself");
  }
  std::vector<TensorRef> arguments;
  const bool values = c.backward_->reads_values;
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    const Argument& a = arguments_[i];
    const auto same = static_cast<std::size_t>(c.arguments_[i].same);
    if (same != i) {
      arguments.push_back(arguments[same]);
      continue;
    }
    // Without values, the gradient is the same for all of them.
    if (values) check_version(*a.tensor->storage(), a.version);
    const Tensor none = values ? Tensor() : zeros(to_vector(a.tensor->shape()), a.tensor->dtype(), {});
    arguments.push_back(detached(values ? *a.tensor : *none.impl()));
    if (c.backward_->edges[i] < 0) continue;
    const Edge& e = next()[static_cast<std::size_t>(c.backward_->edges[i])];
    if (e.node) set_history(*arguments.back(), e.node, e.output);
  }
  for (std::size_t i = 0; i < held_versions_.size(); ++i) {
    if (c.slots_[i].held) check_version(*c.slots_[i].held, held_versions_[i]);
  }
  std::vector<Tensor> outputs;
  {
    const ScopedSet<bool> grad_mode(context().grad_mode, true);
    const ScopedSet<Autocast> autocast(context().autocast, {c.mode_.autocast, c.mode_.autocast_dtype});
    const std::vector<Tensor> all = c.again_(arguments);
    for (const int k : c.backward_->outputs) outputs.push_back(all[static_cast<std::size_t>(k)]);
  }
  std::vector<Tensor> found = gradients_at(next(), outputs, grads, true);
  for (std::size_t i = 0; i < result.size(); ++i) {
    if ((wanted >> (i & 63) & 1) != 0) result[i] = std::move(found[i]);
  }
}

void CompiledNode::backward(std::span<const Tensor> grads, std::uint64_t wanted, bool create_graph,
                            std::span<Tensor> result) {
  const Compiled::Backward& back = *compiled_->backward_;
  for (const Kept& k : memory_) {
    if (k.storage) check_version(*k.storage, k.version);
  }
  if (create_graph) return recorded(grads, wanted, result);
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
