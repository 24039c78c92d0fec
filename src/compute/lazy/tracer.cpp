/// The backend of a tracer: each entry makes a node.
#include "compute/lazy/tracer.h"

#include <utility>

namespace hyalite {

using lazy::form_of;
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

Backend* backend() {
  static Backend b = [] {
    const Backend& real = at_once({});
    Backend made{
        real.name,
        [](Dtype dtype, Dims shape, Dims strides) { return lazy::add_memory(tracer(), dtype, shape, strides); },
        nullptr,
        [](const TensorImpl& from, TensorImpl& to) { lazy::add_copy(tracer(), from, to); },
        [](TensorImpl& to, const std::byte* value) { lazy::add_fill(tracer(), to, value); },
        [] {},
        [](const GradientRequest& q) { return lazy::add_gradient(tracer(), q, at_once({})); },
        real.has_gradient,
        real.folds,
        real.fuse,
        real.generates,
        std::vector<RunFn>(op_table().size())};
    const RunFn run = [](const Validated& v, TensorImpl* target, Recorder*) {
      return lazy::add_call(tracer(), v, target);
    };
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
