/// The backend of a tracer: each entry makes a node.
#include "compute/lazy/tracer.h"

#include <utility>

#include "ops/movement.h"

namespace hyalite {

using lazy::Input;
using lazy::Node;
using lazy::NodeKind;
using lazy::NodeRef;
using lazy::Use;

/// What stands behind a traced storage. The storages of a tracer form a list, which it takes apart when it goes.
struct TracedCell {
  Tracer* tracer;
  lazy::Value now;
  TracedCell *before = nullptr, *after = nullptr;

  static TracedCell& of(Storage& s) { return *static_cast<TracedCell*>(s.cell()); }
  static void release(void* p) {
    auto* c = static_cast<TracedCell*>(p);
    c->leave();
    delete c;
  }
  void enter(Tracer& t) {
    after = t.cells_;
    if (after != nullptr) after->before = this;
    t.cells_ = this;
  }
  void leave() {
    if (tracer == nullptr) return;
    (before != nullptr ? before->after : tracer->cells_) = after;
    if (after != nullptr) after->before = before;
    tracer = nullptr;
  }
};

namespace {

Tracer& tracer() { return *context().tracer; }

TensorRef form_of(Dtype dtype, Dims shape, Dims strides, std::int64_t offset) {
  return TensorImpl::make(dtype, {}, shape, strides, {}, offset);
}
TensorRef form_of(const TensorImpl& t) { return form_of(t.dtype(), t.shape(), t.strides(), t.offset()); }

/// Whether the form is all of a piece of memory of so many bytes.
bool covers(const TensorImpl& form, std::int64_t bytes) {
  if (form.offset() != 0 || form.nbytes() != bytes) return false;
  for (int i = 0; i < form.ndim(); ++i) {
    if (form.strides()[i] < 0) return false;
  }
  return true;  // as many elements as there is room for, and a target repeats none
}

/// Lets `n` be what the target's memory holds from now on.
void write(Tracer& t, const NodeRef& n, TensorImpl& target) {
  Storage& s = *target.storage();
  if (s.cell() == nullptr) t.meet(target);
  n->out.push_back(form_of(target));
  if (!covers(*n->out[0], static_cast<std::int64_t>(s.bytes()))) {
    n->base = t.value_of(s);
    n->base_bytes = static_cast<std::int64_t>(s.bytes());
  }
  t.set_value(s, {n, 0});
}

/// A node with these operands. Inputs of the graph that are met here come before it.
NodeRef make_node(NodeKind kind, std::vector<Input> in, const TensorImpl* target) {
  if (target != nullptr) tracer().value_of(*target->storage());
  NodeRef n = Node::make(kind);
  n->in = std::move(in);
  return n;
}

Outputs run(const Validated& v, TensorImpl* target, Recorder*) {
  Tracer& t = tracer();
  const Call& c = v.call();
  std::vector<Input> in(c.in.size());
  for (std::size_t i = 0; i < c.in.size(); ++i) {
    if (c.in[i].tensor != nullptr) {
      in[i].use = t.read(*c.in[i].tensor);
    } else {
      in[i].number = c.in[i];
      in[i].is_number = true;
    }
  }
  const NodeRef n = make_node(NodeKind::call, std::move(in), target);
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
    write(t, n, *target);
    return Outputs(TensorRef::share(target));
  }
  Outputs o;
  for (int k = 0; k < c.op.outputs; ++k) {
    n->out.push_back(form_of(v.out_dtype(k), v.shape(k), v.strides(k), 0));
    o.add(t.foreseen(n, k));
  }
  return o;
}

TensorRef allocate(Dtype dtype, Dims shape, Dims strides) {
  checked_numel(shape, itemsize(dtype));
  const NodeRef n = Node::make(NodeKind::empty);
  n->out.push_back(form_of(dtype, shape, strides, 0));
  return tracer().foreseen(n, 0);
}

void copy(const TensorImpl& from, TensorImpl& to) {
  Tracer& t = tracer();
  std::vector<Input> in(1);
  in[0].use = t.read(from);
  const NodeRef n = make_node(NodeKind::copy, std::move(in), &to);
  n->computed = to.dtype();
  write(t, n, to);
}

void fill(TensorImpl& to, const std::byte* value) {
  std::vector<Input> in(1);
  in[0].is_number = true;
  in[0].number.dtype = to.dtype();
  std::memcpy(in[0].number.bytes.data(), value, itemsize(to.dtype()));
  const NodeRef n = make_node(NodeKind::fill, std::move(in), &to);
  n->computed = to.dtype();
  write(tracer(), n, to);
}

Tensor gradient(const GradientRequest& q) {
  if (!at_once({}).has_gradient(q)) return {};
  Tracer& t = tracer();
  DimList shape;
  std::vector<Input> in(q.leaves.size());
  for (std::size_t i = 0; i < q.leaves.size(); ++i) {
    const Tensor& leaf = q.leaves[i];
    if (!leaf) continue;
    if (!broadcast_into(shape, leaf.impl()->shape())) {
      throw ShapeMismatch("a gradient does not fit its operand", {});
    }
    if (!leaf.impl()->is_form()) in[i].use = t.read(*leaf.impl());
  }
  const NodeRef n = make_node(NodeKind::gradient, std::move(in), nullptr);
  n->op = &q.op;
  n->attrs = AttrRef::share(q.attrs);
  n->computed = q.dtype;
  n->operand = static_cast<std::int8_t>(q.operand);
  n->from_nothings = q.from_nothings;
  n->numbers_and_nothings = q.numbers_and_nothings;
  n->out.push_back(form_of(q.dtype, shape, row_major(shape), 0));
  return Tensor::adopt(t.foreseen(n, 0).leak());
}

Backend* backend() {
  static Backend b = [] {
    const Backend& real = at_once({});
    Backend made{real.name,
                 allocate,
                 nullptr,
                 copy,
                 fill,
                 [] {},
                 gradient,
                 real.has_gradient,
                 real.folds,
                 real.fuse,
                 real.generates,
                 std::vector<RunFn>(op_table().size())};
    for (std::size_t i = 0; i < made.run.size(); ++i) made.run[i] = real.run[i] != nullptr ? run : nullptr;
    return made;
  }();
  return &b;
}

void check_readable(const Storage& s) {
  if (tracer().may_read(s)) return;
  const Location here = capture_location();
  const std::string line = describe(here);
  release_location(here);
  throw Unsupported("compile(): " + (line.empty() ? std::string("the function") : line) +
                        " asks for a value while the function is only traced, so there is none yet; write "
                        "hl.where(condition, a, b) instead of if, and item(), print() or numpy() outside of it",
                    {{"line", line}});
}

[[maybe_unused]] const bool installed = [] {
  install_tracing_hooks({backend, check_readable, [](Storage& s) { tracer().allow_reading(s); },
                         [](TensorImpl& t) {
                           if (t.storage()->cell() == nullptr) tracer().meet(t);
                         }});
  return true;
}();

}  // namespace

Tracer::~Tracer() {
  while (cells_ != nullptr) {
    TracedCell* const c = cells_;
    c->leave();
    c->now = {};
  }
}

const Node* Tracer::held_by_others() const {
  const Node* last = nullptr;
  for (const TracedCell* c = cells_; c != nullptr; c = c->after) last = c->now.node.get();
  return last;
}

Tracer::Captured& Tracer::captured_of(Storage& s) {
  const auto [at, fresh] = places_.try_emplace(&s, captured_.size());
  if (fresh) {
    const NodeRef n = Node::make(NodeKind::input);
    n->slot = static_cast<int>(captured_.size());
    n->constant = may_read(s);
    const std::int64_t bytes = static_cast<std::int64_t>(s.bytes());
    n->out.push_back(form_of(Dtype::uint8, DimList{bytes}, DimList{1}, 0));
    captured_.push_back({Ref<Storage>::share(&s), {n, 0}, {n, 0}});
  }
  return captured_[at->second];
}

void Tracer::meet(const TensorImpl& t) {
  if (may_read(*t.storage())) return;
  auto& tensor = const_cast<TensorImpl&>(t);
  if (tensors_.try_emplace(&t, TensorRef::share(&tensor)).second && met_) met_(tensor);
}

lazy::Value Tracer::value_of(Storage& s) {
  if (s.cell() == nullptr) return captured_of(s).now;
  TracedCell& c = TracedCell::of(s);
  if (c.tracer != this) find_present(traced({}));  // which refuses it
  return c.now;
}

void Tracer::set_value(Storage& s, lazy::Value v) {
  if (s.cell() == nullptr) {
    captured_of(s).now = std::move(v);
    return;
  }
  TracedCell& c = TracedCell::of(s);
  if (c.tracer != this) find_present(traced({}));  // which refuses it
  c.now = std::move(v);
}

Use Tracer::read(const TensorImpl& t) {
  if (t.storage()->cell() == nullptr) meet(t);
  return {value_of(*t.storage()), form_of(t)};
}

TensorRef Tracer::given(Dtype dtype, Dims shape) {
  const NodeRef n = Node::make(NodeKind::input);
  n->out.push_back(form_of(dtype, shape, row_major(shape), 0));
  return foreseen(n, 0);
}

TensorRef Tracer::foreseen(const NodeRef& node, int k) {
  const TensorImpl& form = *node->out[static_cast<std::size_t>(k)];
  auto* cell = new TracedCell{this, {node, k}};
  cell->enter(*this);
  Ref<Storage> s = Storage::deferred(static_cast<std::size_t>(form.nbytes()), TracedCell::release, cell);
  return TensorImpl::make(form.dtype(), traced({}), form.shape(), form.strides(), std::move(s));
}

}  // namespace hyalite
