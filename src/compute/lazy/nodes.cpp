/// Calls, copies and fills become nodes; a write is a new value of the memory that it writes.
#include "compute/lazy/nodes.h"

#include <cstring>
#include <utility>

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

/// A node with these operands. Inputs of the graph that are met here come before it.
NodeRef make_node(GraphBuilder& b, NodeKind kind, std::vector<Input> in, const TensorImpl* target) {
  if (target != nullptr) b.value_of(*target->storage());
  NodeRef n = Node::make(kind);
  n->in = std::move(in);
  return n;
}

}  // namespace

Outputs add_call(GraphBuilder& b, const Validated& v, TensorImpl* target) {
  const Call& c = v.call();
  std::vector<Input> in(c.in.size());
  for (std::size_t i = 0; i < c.in.size(); ++i) {
    if (c.in[i].tensor != nullptr) {
      in[i].use = b.read(*c.in[i].tensor);
    } else {
      in[i].number = c.in[i];
      in[i].is_number = true;
    }
  }
  const NodeRef n = make_node(b, NodeKind::call, std::move(in), target);
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
    if (!leaf.impl()->is_form()) in[i].use = b.read(*leaf.impl());
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
