/// The rules of forward mode: what each kind of node does with the tangents of its operands.
#include "record/forward.h"

#include <algorithm>

#include "apply.h"
#include "tensor/context.h"

namespace hyalite {
namespace {

Tensor zeros_of(const TensorImpl& form) { return zeros(to_vector(form.shape()), form.dtype(), form.device()); }

Tensor sum_of(const Tensor& a, const Tensor& b) { return !a ? b : !b ? a : add(a, b); }

}  // namespace

void Forward::seed(const Tensor& input, const Tensor& tangent, bool foreign) {
  const Edge e = gradient_edge(*input.impl());
  Known& k = known_[e.node.get()];
  k.node = e.node;
  k.foreign = foreign;
  k.tangents.resize(std::max<std::size_t>(k.tangents.size(), e.output + 1));
  k.tangents[e.output] = tangent;
}

void Forward::enter() {
  parent_ = context().forward;
  context().forward = this;
  entered_ = true;
}

void Forward::leave() noexcept {
  if (!entered_) return;
  context().forward = parent_;
  entered_ = false;
}

void Forward::push(Node& node) {
  for (Forward* f = context().forward; f != nullptr; f = f->parent_) f->know(node);
}

Tensor Forward::tangent(const Tensor& t) { return wants_grad(*t.impl()) ? at(gradient_edge(*t.impl())) : Tensor(); }

Tensor Forward::at(const Edge& e) {
  if (!e.node) return {};
  const Known& k = know(*e.node);
  return e.output < k.tangents.size() ? k.tangents[e.output] : Tensor();
}

/// Operands before their nodes, without recursion: a graph may be a million nodes deep.
const Forward::Known& Forward::know(Node& root) {
  std::vector<Node*> stack{&root};
  while (!stack.empty()) {
    Node* node = stack.back();
    if (known_.contains(node)) {
      stack.pop_back();
      continue;
    }
    const std::size_t before = stack.size();
    for (const Edge& e : node->next()) {
      if (e.node && !known_.contains(e.node.get())) stack.push_back(e.node.get());
    }
    if (stack.size() != before) continue;
    stack.pop_back();
    compute(*node);
  }
  return known_.at(&root);
}

void Forward::compute(Node& node) {
  const auto* leaf = dynamic_cast<const AccumulateGrad*>(&node);
  Known k{NodeRef::share(&node), {}, leaf != nullptr && !leaf->forgotten()};
  std::vector<Tensor> in;
  bool any = false, record = false;
  for (const Edge& e : node.next()) {
    if (e.node) k.foreign |= known_.at(e.node.get()).foreign;
    in.push_back(at(e));
    any |= static_cast<bool>(in.back());
    record |= in.back() && wants_grad(*in.back().impl());
  }
  if (any) {
    if (node.released()) {
      throw AutogradError("jvp(): " + node.name() +
                              " has been walked by a backward() that freed its graph; write "
                              "backward(retain_graph=True)",
                          {{"node", node.name()}});
    }
    Context& ctx = context();
    record = recording_ && (record || k.foreign);
    const ScopedSet<Forward*> outer(ctx.forward, entered_ ? parent_ : ctx.forward);
    const ScopedSet<bool> mode(ctx.grad_mode, record);
    const ScopedSet<bool> plain(ctx.autocast.enabled, false);
    k.tangents = node.forward(in, record);
  }
  known_.emplace(&node, std::move(k));
}

// ---- nodes --------------------------------------------------------------------------------------------------------

std::vector<Tensor> Node::forward(std::span<const Tensor>, bool) {
  throw Unsupported("jvp(): " + name() + " has no forward mode", {{"node", name()}});
}

namespace {

/// An elementwise op of reals has a diagonal Jacobian, so that its gradient by an operand, with the tangent for the
/// incoming gradient, is the operand's part of the result's tangent. Of complex numbers it is a linear map of the plane
/// whose adjoint the gradient is: the images of 1 and i give it.
Tensor through_plane(const Tensor& one, const Tensor& imaginary, const Tensor& t, Dtype out) {
  const bool complex_operand = is_complex(one.dtype());
  const Tensor re = complex_operand ? real(conj(one) * t) : one * t;
  if (!is_complex(out)) return re;
  const Tensor im = complex_operand ? real(conj(imaginary) * t) : imaginary * t;
  return astype(re, out) + astype(im, out) * imaginary_unit(re);
}

}  // namespace

std::vector<Tensor> OpNode::forward_elementwise(std::span<const Tensor> tangents, bool create_graph,
                                                const Histories* histories) {
  const bool reals = !is_complex(computed_);
  const bool real_result = reals || op_->schema.results[0] == Result::real_part;
  const Dtype out = reals || !real_result ? computed_ : real_part(computed_);
  std::vector<Tensor> result(static_cast<std::size_t>(op_->outputs));
  for (std::size_t i = 0; i < tangents.size(); ++i) {
    if (!tangents[i] || !op_->reads[i].exists) continue;
    const bool broadcast = kept_ != nullptr && kept_->reduce_to[i];
    const Tensor t = broadcast ? broadcast_to(tangents[i], to_vector(kept_->result->shape())) : tangents[i];
    for (int k = 0; k < op_->outputs; ++k) {
      std::vector<Tensor> grads(result.size());
      const auto along = [&](const Tensor& g) {
        grads[static_cast<std::size_t>(k)] = g;
        return without_nothings(gradient_of(static_cast<int>(i), grads, create_graph, histories));
      };
      Tensor part;
      if (reals) {
        part = along(t);
      } else {
        const auto unit = [&](std::complex<double> u) {
          return full(to_vector(t.shape()), Scalar(u), out, t.device());
        };
        const Tensor one = along(full(to_vector(t.shape()), Scalar(1), out, t.device()));
        part = through_plane(one, real_result ? Tensor() : along(unit({0, 1})), t, out);
      }
      Tensor& slot = result[static_cast<std::size_t>(k)];
      slot = sum_of(slot, part);
    }
  }
  return result;
}

std::vector<Tensor> OpNode::forward_with(std::span<const Tensor> tangents, bool create_graph,
                                         const Histories* histories) {
  if (op_->elementwise >= 0) return forward_elementwise(tangents, create_graph, histories);
  if (op_->schema.variadic) {
    // Linear in all: no tangent counts as zero.
    std::vector<Tensor> in(tangents.begin(), tangents.end());
    std::vector<Operand> operands;
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (!in[i]) in[i] = zeros_of(*kept_->list[i].tensor);
      operands.push_back(tensor_operand(in[i].impl()));
    }
    return {Tensor::adopt(apply(*op_, operands, attrs_.get()).leak())};
  }
  std::uint32_t reads = 0;
  for (std::size_t i = 0; i < tangents.size(); ++i) {
    if (tangents[i]) reads |= gradient_reads(*op_)[i].reads;
  }
  const std::vector<Tensor> all = leaves(std::vector<Tensor>(1), reads & ~1u, create_graph, histories);
  if (op_->tangent != nullptr) {
    std::vector<Tensor> result{op_->tangent({tangents, all, attrs_.get()})};
    check_versions(reads & ~1u);
    return result;
  }
  if (!op_->schema.is_linear()) {
    std::vector<TensorRef> forms;
    for (int k = 0; k < op_->outputs; ++k) forms.push_back(kept_->saved[1 + op_->arity + k].tensor);
    return transposed(*this, forms, tangents, create_graph);
  }
  std::vector<Tensor> in(tangents.begin(), tangents.end());
  std::vector<Operand> operands;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const TensorImpl& form = *kept_->saved[1 + i].tensor;
    // What has no tangent by its nature, such as indices, is itself; another operand's tangent is zero.
    if (!in[i]) in[i] = is_differentiable(form.dtype()) ? zeros_of(form) : all[1 + i];
    operands.push_back(tensor_operand(in[i].impl()));
  }
  Outputs o = apply_all(*op_, operands, attrs_.get());
  std::vector<Tensor> result;
  for (int k = 0; k < op_->outputs; ++k) result.push_back(Tensor::adopt(o.take(k).leak()));
  return result;
}

std::vector<Tensor> ViewWriteNode::forward(std::span<const Tensor> tangents, bool create_graph) {
  const Tensor view = tangents[0] ? follow(tangents[0], chain_) : Tensor();
  const std::span<Edge> edges = op_->next();
  std::vector<Tensor> in(edges.size());
  bool any = false;
  for (std::size_t i = 0; i < in.size(); ++i) {
    in[i] = (target_operands_ >> (i & 63) & 1) != 0 ? view : tangents[1 + i];
    any |= static_cast<bool>(in[i]);
  }
  const Tensor base = tangents[0] ? tangents[0] : zeros_of(*base_shape_);
  Tensor value;
  if (any) {
    const OpNode::Histories histories = create_graph ? this->histories() : OpNode::Histories();
    value = op_->forward_with(in, create_graph, create_graph ? &histories : nullptr)[0];
  }
  if (!value) value = zeros_of(*follow(base, chain_).impl());
  const Tensor from = order_.empty() ? base : permute_dims(base, order_);
  const Tensor written = write_view(from, value, from_memory_);
  return {order_.empty() ? written : permute_dims(written, inverse(order_))};
}

std::vector<Tensor> transposed(Node& node, std::span<const TensorRef> forms, std::span<const Tensor> tangents,
                               bool create_graph) {
  std::vector<Tensor> ones(forms.size()), inputs;
  for (std::size_t k = 0; k < forms.size(); ++k) {
    if (!forms[k]) continue;
    ones[k] = full(to_vector(forms[k]->shape()), Scalar(1), forms[k]->dtype(), forms[k]->device());
    ones[k].requires_grad_();
    inputs.push_back(ones[k]);
  }
  std::uint64_t wanted = 0;
  for (std::size_t i = 0; i < tangents.size(); ++i) wanted |= std::uint64_t{static_cast<bool>(tangents[i])} << (i & 63);
  std::vector<Tensor> back(tangents.size()), roots, weights;
  {
    const ScopedSet<bool> mode(context().grad_mode, true);
    node.backward(ones, wanted, true, back);
  }
  for (std::size_t i = 0; i < tangents.size(); ++i) {
    if (!back[i] || !tangents[i]) continue;
    back[i] = without_nothings(back[i]);
    if (wants_grad(*back[i].impl())) {
      roots.push_back(back[i]);
      weights.push_back(tangents[i]);
    } else if (any(back[i]).item() != 0) {
      throw AutogradError("jvp(): the backward of " + node.name() +
                              " is not made of recorded ops, so forward mode cannot follow it; write it with "
                              "Hyalite's functions",
                          {{"node", node.name()}});
    }
  }
  std::vector<Tensor> result(forms.size());
  if (roots.empty()) return result;
  std::vector<Tensor> found =
      run_backward(roots, weights, inputs, {.retain_graph = create_graph, .create_graph = create_graph});
  std::size_t n = 0;
  for (std::size_t k = 0; k < forms.size(); ++k) {
    if (forms[k]) result[k] = std::move(found[n++]);
  }
  return result;
}

}  // namespace hyalite
