/// Calls, copies and fills become nodes; a write is a new value of the memory that it writes.
#include "compute/lazy/nodes.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ops/creation.h"
#include "ops/movement.h"

namespace hyalite::lazy {

TensorRef form_of(Dtype dtype, Dims shape, Dims strides, std::int64_t offset) {
  return TensorImpl::make(dtype, {}, shape, strides, {}, offset);
}
TensorRef form_of(const TensorImpl& t) { return form_of(t.dtype(), t.shape(), t.strides(), t.offset()); }

namespace {

/// Whether the form is all of a piece of memory of so many bytes.
bool covers(const TensorImpl& form, std::int64_t bytes) {
  if (form.offset() != 0 || form.nbytes() != bytes) return false;
  for (int i = 0; i < form.ndim(); ++i) {
    if (form.strides()[i] < 0) return false;
  }
  return true;  // as many elements as there is room for, and a target repeats none
}

/// Lets `n` be what the target's memory holds from now on.
void write(GraphBuilder& b, const NodeRef& n, TensorImpl& target) {
  Storage& s = *target.storage();
  b.will_write(target);
  n->out.push_back(form_of(target));
  if (!covers(*n->out[0], static_cast<std::int64_t>(s.bytes()))) {
    n->base = b.value_of(s);
    n->base_bytes = static_cast<std::int64_t>(s.bytes());
  }
  b.set_value(s, {n, 0});
}

/// The number that every element of an operand is, where the graph knows it.
const Operand* known(const Input& i) {
  const Node* n = i.use.from.node.get();
  const bool fills = n != nullptr && n->kind == NodeKind::fill && n->op != nullptr && !n->base.node;
  if (!fills || is_complex(n->out[0]->dtype()) || i.use.form->dtype() != n->out[0]->dtype()) return nullptr;
  return &n->in[0].number;
}

void take_number(Input& i, const Operand& number) {
  i.number = number;
  i.is_number = true;
  i.use = {};
}

/// Operands that are constants become numbers, where the other ones alone give the shape: eager calls run these nodes
/// too. An exponent stays, since powers with a number may be computed in another way.
void take_numbers(std::vector<Input>& in, const Validated& v) {
  const OpInfo& op = v.call().op;
  if (op.elementwise < 0 || v.mixed() || v.real_operand() >= 0 || op.schema.check == Check::integer_exponent) return;
  for (Input& i : in) {
    const Operand* number = known(i);
    if (number == nullptr) continue;
    DimList shape;
    bool others = false;
    for (const Input& other : in) {
      if (&other == &i || !other.use.from.node) continue;
      others = true;
      broadcast_into(shape, other.use.form->shape());
    }
    if (others && same_dims(shape, v.shape())) take_number(i, *number);
  }
}

/// Whether the operand is what a fused op makes, as it makes it.
bool comes_fused(GraphBuilder& b, const TensorImpl& t) {
  const Use u = b.read(t);
  const Node& n = *u.from.node;
  return n.is_elementwise() && !n.base.node && same_form(*u.form, *n.out[static_cast<std::size_t>(u.from.output)]);
}

/// A node with these operands. Inputs of the graph that are met here come before it.
NodeRef make_node(GraphBuilder& b, NodeKind kind, std::vector<Input> in, const TensorImpl* target) {
  if (target != nullptr) b.value_of(*target->storage());
  NodeRef n = Node::make(kind);
  n->in = std::move(in);
  return n;
}

}  // namespace

namespace {

/// Memory into whose parts the operands are written, by those who compute them.
Outputs add_concat(GraphBuilder& b, const Validated& v, int axis) {
  const Call& c = v.call();
  const NodeRef memory = Node::make(NodeKind::empty);
  memory->out.push_back(form_of(v.out_dtype(), v.shape(), v.strides(), 0));
  TensorRef whole = b.foreseen(memory, 0);
  std::int64_t at = 0;
  for (std::size_t i = 0; i < c.in.size(); ++i) {
    const TensorImpl& x = c.x(static_cast<int>(i));
    if (x.numel() == 0) continue;
    const TensorRef part =
        TensorImpl::make(whole->dtype(), whole->device(), x.shape(), whole->strides(), whole->storage_ref(),
                         at * whole->strides()[static_cast<std::size_t>(axis)]);
    add_copy(b, x, *part);
    b.value_of(*whole->storage()).node->op = &c.op;
    at += x.shape()[static_cast<std::size_t>(axis)];
  }
  return Outputs(std::move(whole));
}

}  // namespace

Outputs add_call(GraphBuilder& b, const Validated& v, TensorImpl* target) {
  const Call& c = v.call();
  const auto* concat = target == nullptr && c.attrs != nullptr ? c.attrs->get_if<ConcatBackward::Attr>() : nullptr;
  if (concat != nullptr && concat->axis && !v.shape().empty()) {
    const auto fused = [&](const Operand& o) { return o.tensor != nullptr && comes_fused(b, *o.tensor); };
    if (std::ranges::any_of(c.in, fused))
      return add_concat(b, v, normalize_axis(*concat->axis, static_cast<int>(v.shape().size()), c.op.name().data()));
  }
  std::vector<Input> in(c.in.size());
  for (std::size_t i = 0; i < c.in.size(); ++i) {
    if (c.in[i].tensor != nullptr) {
      in[i].use = b.read(*c.in[i].tensor);
    } else {
      in[i].number = c.in[i];
      in[i].is_number = true;
    }
  }
  take_numbers(in, v);
  const auto* full = c.attrs != nullptr ? c.attrs->get_if<FullBackward::Attr>() : nullptr;
  if (full != nullptr) {
    Operand& number = in.emplace_back().number;
    in[0].is_number = true;
    number.dtype = v.out_dtype();
    number.scalar = full->value;
    number.bytes = {};
    encode_scalar(full->value, number.dtype, number.bytes.data());
  }
  const NodeRef n = make_node(b, full != nullptr ? NodeKind::fill : NodeKind::call, std::move(in), target);
  n->op = &c.op;
  n->attrs = AttrRef::share(c.attrs);
  n->computed = v.dtype();
  n->real_operand = static_cast<std::int8_t>(c.op.elementwise >= 0 ? v.real_operand() : -1);
  n->mixed = c.op.elementwise >= 0 && v.mixed();
  // A cast that drops an imaginary part raises when it runs.
  const auto* cast = c.attrs != nullptr ? c.attrs->get_if<AstypeBackward::Attr>() : nullptr;
  n->converts = cast != nullptr ? !cast->check && (is_complex(v.out_dtype()) || !is_complex(v.dtype()))
                                : c.op.name() == ContiguousBackward::schema.name;
  if (target != nullptr) {
    write(b, n, *target);
    return Outputs(TensorRef::share(target));
  }
  Outputs o;
  for (int k = 0; k < c.op.outputs; ++k) {
    n->out.push_back(form_of(v.out_dtype(k), v.shape(k), v.strides(k), 0));
    o.add(b.foreseen(n, k));
  }
  return o;
}

TensorRef add_memory(GraphBuilder& b, Dtype dtype, Dims shape, Dims strides) {
  checked_numel(shape, itemsize(dtype));
  const NodeRef n = Node::make(NodeKind::empty);
  n->out.push_back(form_of(dtype, shape, strides, 0));
  return b.foreseen(n, 0);
}

void add_copy(GraphBuilder& b, const TensorImpl& from, TensorImpl& to) {
  std::vector<Input> in(1);
  in[0].use = b.read(from);
  const NodeRef n = make_node(b, NodeKind::copy, std::move(in), &to);
  n->computed = to.dtype();
  write(b, n, to);
}

void add_fill(GraphBuilder& b, TensorImpl& to, const std::byte* value) {
  std::vector<Input> in(1);
  in[0].is_number = true;
  in[0].number.dtype = to.dtype();
  std::memcpy(in[0].number.bytes.data(), value, itemsize(to.dtype()));
  const NodeRef n = make_node(b, NodeKind::fill, std::move(in), &to);
  n->computed = to.dtype();
  write(b, n, to);
}

Tensor add_gradient(GraphBuilder& b, const GradientRequest& q, const Backend& computes) {
  if (!computes.has_gradient(q)) return {};
  DimList shape;
  std::vector<Input> in(q.leaves.size());
  for (std::size_t i = 0; i < q.leaves.size(); ++i) {
    const Tensor& leaf = q.leaves[i];
    if (!leaf) continue;
    if (!broadcast_into(shape, leaf.impl()->shape())) {
      throw ShapeMismatch("a gradient does not fit its operand", {});
    }
    if (leaf.impl()->is_form()) continue;
    in[i].use = b.read(*leaf.impl());
    if (const Operand* number = known(in[i])) take_number(in[i], *number);
  }
  const NodeRef n = make_node(b, NodeKind::gradient, std::move(in), nullptr);
  n->op = &q.op;
  n->attrs = AttrRef::share(q.attrs);
  n->computed = q.dtype;
  n->operand = static_cast<std::int8_t>(q.operand);
  n->from_nothings = q.from_nothings;
  n->numbers_and_nothings = q.numbers_and_nothings;
  n->out.push_back(form_of(q.dtype, shape, row_major(shape), 0));
  return Tensor::adopt(b.foreseen(n, 0).leak());
}

}  // namespace hyalite::lazy
