/// The path of every op, and the few helpers gradients need beside the ops.
#include "apply.h"

#include <optional>

#include "compute/backend.h"
#include "ops/movement.h"
#include "record/forward.h"
#include "tensor/context.h"
#include "validate/guard.h"

namespace hyalite {
namespace {

inline bool any_wants_grad(const Call& c) {
  for (const Operand& o : c.in) {
    if (o.tensor != nullptr && wants_grad(*o.tensor)) return true;
  }
  return false;
}

/// A view of operand 0. Strides that allow none are made row-major by a recorded copy first.
TensorRef make_view(const Call& c, const Validated& v) {
  TensorImpl& x = *c.in[0].tensor;
  if (!v.viewable()) {
    const Tensor dense = contiguous(Tensor::share(&x));
    if (Recorder* r = active_recorder(context())) r->copied(dense.impl()->nbytes());
    const Operand in = tensor_operand(dense.impl());
    return apply(c.op, {&in, 1}, c.attrs);
  }
  const std::size_t from = itemsize(x.dtype()), to = itemsize(v.out_dtype());
  const std::int64_t begin = from == to ? x.offset() : x.offset() * static_cast<std::int64_t>(from / to);
  TensorRef view =
      TensorImpl::make(v.out_dtype(), x.device(), v.shape(), v.strides(), x.storage_ref(), begin + v.offset());
  view->nothings = x.nothings;
  if (is_differentiable(x.dtype())) {
    set_view(*view, x, c.op, c.given != nullptr ? std::move(*c.given) : AttrRef::share(c.attrs));
  }
  return view;
}

[[noreturn, gnu::cold]] void throw_absent(const OpInfo& op, const Backend& backend) {
  const std::string device(backend.name);
  throw Unsupported(std::string(op.name()) + "(): " + device + " has no such op; write x.to_device(\"cpu\")",
                    {{"op", std::string(op.name())}, {"device", device}});
}

[[gnu::cold]] void report_view(Span& span, const Call& c, bool copied) {
  span.end(Event::viewed, {{Fact::strides, c.x(0).strides()}, {Fact::copied, copied}});
}

[[gnu::always_inline]] inline Outputs compute(Recorder* rec, Context& ctx, const Call& c, const Validated& v,
                                              TensorImpl* target) {
  Span found(rec, Phase::compute, Who::op, Who::backend, StepKind::request);
  Backend& backend = for_device(ctx, v.device());
  if (found.over()) {
    found.end(Event::backend_found, {{Fact::device, backend.name}, {Fact::backends, backend_names()}});
  }
  switch (c.op.schema.kind) {
    case OpKind::view: {
      Span span(rec, Phase::compute, Who::backend, Who::backend, StepKind::self);
      Outputs o(make_view(c, v));
      if (span.over()) report_view(span, c, rec->copies_so_far() > 0);
      return o;
    }
    case OpKind::composite: {
      const ScopedSet<bool> mode(ctx.grad_mode, ctx.grad_mode && c.op.follows_parts());
      return c.op.compose(c);
    }
    default: {
      const RunFn run = backend.run[static_cast<std::size_t>(c.op.index)];
      if (run == nullptr) [[unlikely]]
        throw_absent(c.op, backend);
      return run(v, target, rec);
    }
  }
}

/// Counts a write before it begins, so that who reads the memory meanwhile can tell. If the op fails, nothing was
/// written.
class CountedWrite {
 public:
  explicit CountedWrite(TensorImpl* target) {
    if (target != nullptr) [[unlikely]]
      count(*target->storage());
  }
  ~CountedWrite() {
    if (storage_ != nullptr) [[unlikely]]
      storage_->unbump();
  }
  CountedWrite(const CountedWrite&) = delete;
  CountedWrite& operator=(const CountedWrite&) = delete;
  void done() { storage_ = nullptr; }

 private:
  [[gnu::noinline]] void count(Storage& s) {
    s.bump(s.saved() ? capture_location() : Location{});
    storage_ = &s;
  }
  Storage* storage_ = nullptr;
};

void report_result(Recorder& r, const Call& c, const TensorImpl& out, bool recorded) {
  RecordedOp& op = r.current_op();
  op.result_dtype = name(out.dtype());
  op.result_device = to_string(out.device());
  op.result_shape = to_vector(out.shape());
  op.grad_fn = recorded ? c.op.node_name : "";
  r.took_part(c.op.name(), c.op.node_name);
}

/// `node` is what the recording itself gave: to ask a view for its node would make the view's history again.
[[gnu::cold]] void report_node(Span& span, const Call& c, Node* node, bool wanted) {
  if (node == nullptr) {
    span.end(Event::no_node, {{Fact::grad_mode, context().grad_mode},
                              {Fact::wanted, wanted},
                              {Fact::parts, c.op.follows_parts()},
                              {Fact::gradient, c.op.has_gradient}});
    return;
  }
  std::string edges;
  for (const Edge& e : node->next())
    edges += (edges.empty() ? "" : ", ") + (e.node ? e.node->name() : std::string("none"));
  span.end(Event::node_made, {{Fact::node, node->name()}, {Fact::edges, edges}, {Fact::saved, node->saved_text()}});
}

/// The whole path. Inlined where there is a recorder and where there is none, so that this costs the common path
/// nothing.
[[gnu::always_inline]] inline Outputs apply_with(Recorder* rec, Context& ctx, const Call& c, TensorImpl* target) {
  if (target != nullptr) check_in_place(*target);
  const Validated v = SchemaGuard::check(rec, c, target);
  // What a write overwrites has no gradient any more, whatever was written: that is recorded too.
  const bool written = target != nullptr && ctx.grad_mode && write_wants_grad(*target);
  const bool wanted = written || (ctx.grad_mode && any_wants_grad(c));
  const bool recorded = wanted && (c.op.has_gradient || written);
  std::optional<InPlaceRecord> in_place;
  if (recorded && target != nullptr) [[unlikely]] {
    Span span(rec, Phase::record, Who::op, Who::autograd, StepKind::lazy);
    in_place.emplace(c, *target, v.dtype());
    if (span.over()) report_node(span, c, &in_place->node(), wanted);
  }
  CountedWrite count(target);
  Outputs o = compute(rec, ctx, c, v, target);
  count.done();
  if (Span span(rec, Phase::compute, Who::backend, Who::op, StepKind::result); span.over()) {
    span.end(Event::result_made, {{Fact::shape, o[0]->shape()}, {Fact::in_place, target != nullptr}});
  }
  NodeRef node;
  if (in_place) {
    in_place->commit();
    node = NodeRef::share(&in_place->node());
  } else {
    Span span(rec, Phase::record, Who::op, Who::autograd, StepKind::lazy);
    if (recorded) [[unlikely]] {
      node = record(c, o.all(), v.dtype());
    }
    if (span.over()) report_node(span, c, node.get(), wanted);
  }
  if (node && ctx.forward != nullptr) [[unlikely]] {
    Forward::push(*node);
  }
  if (rec != nullptr) report_result(*rec, c, *o[0], static_cast<bool>(node));
  if (Span span(rec, Phase::result, Who::op, Who::binding, StepKind::result); span.over()) {
    span.end(Event::handle_returned);
  }
  return o;
}

Outputs run_again(const Call& c, TensorImpl* target);

/// Autocast: floating operands are cast to the dtype of the op's policy by ordinary, recorded astypes.
Outputs apply_autocast(Context& ctx, const Call& c, TensorImpl* target) {
  std::vector<Operand> in(c.in.begin(), c.in.end());
  std::vector<Tensor> keep;
  for (Operand& o : in) {
    const Dtype mine = o.tensor != nullptr ? o.tensor->dtype() : o.dtype;
    const Dtype to = autocast_dtype(ctx.autocast, c.op.schema, mine);
    if (to == mine) continue;
    if (o.tensor == nullptr) {
      o = scalar_operand(o.scalar, to);
    } else {
      keep.push_back(astype(Tensor::share(o.tensor), to));
      o.tensor = keep.back().impl();
    }
  }
  const ScopedSet<bool> off(ctx.autocast.enabled, false), applied(ctx.autocast.applied, true);
  return run_again({c.op, in, c.attrs, c.given}, target);
}

/// The path with the recorder on. Out of line, so that it costs the common path nothing but the question.
[[gnu::cold, gnu::noinline]] Outputs apply_recorded(Recorder& r, Context& ctx, const Call& c, TensorImpl* target) {
  r.begin_op(std::string(c.op.name()));
  try {
    Outputs o = apply_with(&r, ctx, c, target);
    r.end_op();
    return o;
  } catch (const std::exception& error) {
    r.end_op(error.what());
    throw;
  } catch (...) {
    r.end_op();
    throw;
  }
}

[[gnu::cold, gnu::noinline]] Outputs run_unusual(Context& ctx, const Call& c, TensorImpl* target) {
  if (ctx.autocast.enabled && c.op.schema.amp != Amp::keep) return apply_autocast(ctx, c, target);
  if (Recorder* r = active_recorder(ctx)) return apply_recorded(*r, ctx, c, target);
  return apply_with(nullptr, ctx, c, target);
}

[[gnu::always_inline]] inline Outputs run(const Call& c, TensorImpl* target) {
  Context& ctx = context();
  // One branch for both questions.
  const auto unusual = reinterpret_cast<std::uintptr_t>(active_recorder(ctx)) | std::uintptr_t{ctx.autocast.enabled};
  if (unusual != 0) [[unlikely]] {
    return run_unusual(ctx, c, target);
  }
  return apply_with(nullptr, ctx, c, target);
}
Outputs run_again(const Call& c, TensorImpl* target) { return run(c, target); }

}  // namespace

TensorRef apply(const OpInfo& op, std::span<const Operand> in, const Attributes* attrs, TensorImpl* target) {
  return run({op, in, attrs}, target).take();
}

TensorRef apply(const OpInfo& op, std::span<const Operand> in, AttrRef&& attrs) {
  return run({op, in, attrs.get(), &attrs}, nullptr).take();
}

Outputs apply_all(const OpInfo& op, std::span<const Operand> in, const Attributes* attrs) {
  return run_again({op, in, attrs}, nullptr);
}

Tensor apply_one(const OpInfo& op, const Tensor& x, const Attributes* attrs) {
  const Operand in = tensor_operand(x.impl());
  return Tensor::adopt(apply(op, {&in, 1}, attrs).leak());
}

Operand scalar_operand(const Scalar& s, Dtype dtype) {
  Operand o;
  o.dtype = dtype;
  o.scalar = s;
  encode_scalar(s, dtype, o.bytes.data());
  return o;
}

TensorRef clone(const TensorImpl& t) {
  const Backend& b = for_device(context(), t.device());
  TensorRef r = b.empty(t.dtype(), t.shape());
  b.copy(t, *r);
  return r;
}

void add_in_place(TensorImpl& a, const TensorImpl& b) {
  static const OpInfo& op = find_op("add");
  const ScopedSet<bool> off(context().grad_mode, false);
  const Operand in[] = {tensor_operand(&a), tensor_operand(const_cast<TensorImpl*>(&b))};
  apply(op, in, nullptr, &a);
}

Tensor sum_to_shape(const Tensor& g, Dims shape) {
  if (same_dims(g.shape(), shape)) return g;
  const int extra = g.ndim() - static_cast<int>(shape.size());
  Shape axes;
  for (int i = 0; i < g.ndim(); ++i) {
    if (i < extra || (shape[i - extra] == 1 && g.shape()[i] != 1)) axes.push_back(i);
  }
  // A sum starts from -0: it is nothing where all of it was.
  const Tensor r = reshape(sum(g, axes, g.dtype(), true), to_vector(shape));
  return has_nothings(g) ? with_nothings(r) : r;
}

Tensor swap_last(const Tensor& t) { return Tensor::adopt(swap_last(*t.impl()).leak()); }

TensorRef swap_last(TensorImpl& t) {
  static const OpInfo& op = find_op("permute_dims");
  const int n = t.ndim();
  DimList axes;
  for (int i = 0; i < n - 2; ++i) axes.push_back(i);
  axes.push_back(n - 1);
  axes.push_back(n - 2);
  const Operand in = tensor_operand(&t);
  return apply(op, {&in, 1}, Attributes::make_by([&] { return PermuteDimsBackward::Attr{Dims(axes)}; }));
}

Tensor imaginary_unit(const Tensor& x) {
  const bool wide = real_part(x.dtype()) == Dtype::float64;
  return full({}, Scalar(std::complex<double>(0, 1)), wide ? Dtype::complex128 : Dtype::complex64, x.device());
}

void copy_into(const Tensor& to, const Tensor& value) {
  TensorImpl& t = *to.impl();
  for_device(context(), t.device()).copy(*value.impl(), t);
}

Tensor copy_of(const Tensor& t) { return Tensor::adopt(clone(*t.impl()).leak()); }

Tensor follow(const Tensor& t, const std::shared_ptr<const ViewChain>& chain) {
  Tensor r = t;
  for (const ViewStep* s : chain->steps()) r = apply_one(*s->op, r, s->attrs.get());
  return r;
}

}  // namespace hyalite
