/// Cells, and running what they hold.
#include "compute/lazy/lazy_device.h"

#include <optional>
#include <utility>

#include "compute/blocking.h"
#include "explain/record_op.h"
#include "tensor/context.h"
#include "tensor/device.h"

namespace hyalite::lazy {
namespace {

// What may wait before it runs by itself.
constexpr std::int64_t enough_nodes = 1024, most_nodes = 2 * enough_nodes, enough_bytes = std::int64_t{1} << 29;

bool is_memory(const Node& n) { return n.kind == NodeKind::input; }

NodeRef input_over(Ref<Storage> memory) {
  const NodeRef n = Node::make(NodeKind::input);
  const std::int64_t bytes = static_cast<std::int64_t>(memory->bytes());
  n->out.push_back(form_of(Dtype::uint8, DimList{bytes}, DimList{1}, 0));
  n->memory = std::move(memory);
  return n;
}

}  // namespace

struct LazyDevice::Cell {
  LazyDevice* device;
  Value now;
  std::int64_t bytes = 0;
  Cell *before = nullptr, *after = nullptr;

  bool waits() const { return !is_memory(*now.node); }

  static void release(void* p) {
    auto* c = static_cast<Cell*>(p);
    Value last;
    {
      const Lock lock(*c->device);
      if (c->waits()) c->device->waiting_bytes_ -= c->bytes;
      (c->before != nullptr ? c->before->after : c->device->cells_) = c->after;
      if (c->after != nullptr) c->after->before = c->before;
      last = std::move(c->now);
    }
    delete c;
  }
};

LazyDevice::Lock::Lock(const LazyDevice& d) : lock_(d.mutex_, std::try_to_lock) {
  if (lock_.owns_lock()) return;
  const Blocking released;
  lock_.lock();
}

LazyDevice::Cell& LazyDevice::cell_of(const Storage& s) const { return *static_cast<Cell*>(s.cell()); }

Value LazyDevice::value_of(Storage& s) { return cell_of(s).now; }

void LazyDevice::set_value(Storage& s, Value v) {
  Cell& c = cell_of(s);
  if (!c.waits()) waiting_bytes_ += c.bytes;
  c.now = std::move(v);
  ++nodes_;
}

Use LazyDevice::read(const TensorImpl& t) { return {cell_of(*t.storage()).now, form_of(t)}; }

TensorRef LazyDevice::foreseen(const NodeRef& node, int k) {
  const TensorImpl& form = *node->out[static_cast<std::size_t>(k)];
  auto* cell = new Cell{this, {node, k}, form.nbytes()};
  cell->after = cells_;
  if (cells_ != nullptr) cells_->before = cell;
  cells_ = cell;
  if (cell->waits()) waiting_bytes_ += cell->bytes;
  nodes_ += k == 0 ? 1 : 0;
  Ref<Storage> s = Storage::deferred(static_cast<std::size_t>(form.nbytes()), Cell::release, cell);
  return TensorImpl::make(form.dtype(), device_, form.shape(), form.strides(), std::move(s));
}

TensorRef LazyDevice::over(Dtype dtype, Dims shape, Dims strides, Ref<Storage> memory) {
  const Lock lock(*this);
  const NodeRef n = Node::make(NodeKind::input);
  n->out.push_back(form_of(dtype, shape, strides, 0));
  n->memory = std::move(memory);
  return foreseen(n, 0);
}

Ref<Storage> LazyDevice::memory_of(const TensorImpl& t) {
  const Lock lock(*this);
  if (cell_of(*t.storage()).waits()) run();
  return cell_of(*t.storage()).now.node->memory;
}

void LazyDevice::run() {
  const Lock lock(*this);
  Roots roots;
  std::vector<Cell*> waiting;
  for (Cell* c = cells_; c != nullptr; c = c->after) {
    if (!c->waits()) continue;
    waiting.push_back(c);
    roots.results.push_back({c->now, c});
  }
  nodes_ = 0;
  mark_ = {};
  if (waiting.empty()) return;
  std::vector<Value> values;
  for (const Roots::Result& r : roots.results) values.push_back(r.value);
  std::vector<Memory> inputs;
  const std::vector<Node*> nodes = reachable(values);
  for (Node* n : nodes) {
    if (!is_memory(*n)) continue;
    n->slot = static_cast<int>(inputs.size());
    inputs.push_back({n->memory.get(), 0});
  }
  std::vector<Ref<Storage>> made;
  Recorder* const rec = active_recorder(context());
  const auto name = [&] { return "what waits on " + to_string(device_); };
  record_op(rec, name, [&] {
    const std::shared_ptr<const Plan> plan =
        plans_.find(roots, nodes, static_cast<int>(inputs.size()), executor_, device_);
    made.resize(plan->results());
    std::optional<Blocking> released;
    if (rec == nullptr) released.emplace();  // a recorder is its thread's
    plan->run(inputs, made, rec);
    kernels_ += plan->kernels();
  });
  ++runs_;
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    waiting_bytes_ -= waiting[i]->bytes;
    waiting[i]->now = {input_over(std::move(made[i])), 0};
  }
}

void LazyDevice::run_if_enough() {
  if (nodes_ < enough_nodes && waiting_bytes_ < enough_bytes) {
    if (nodes_ == 0) {
      const Location here = capture_location();
      mark_ = here;
      release_location(here);
    }
    return;
  }
  // A loop is cut at the same line each time, so that its stretches are alike and their kernels are found again.
  if (nodes_ < most_nodes && waiting_bytes_ < 2 * enough_bytes) {
    const Location here = capture_location();
    const bool same = here.code == mark_.code && here.position == mark_.position;
    release_location(here);
    if (!same) return;
  }
  ++flushes_;
  run();
}

void LazyDevice::tell(Recorder& rec, std::string_view op) const {
  const Pending p = pending();
  rec.end(Event::node_added, {{Fact::op, op}, {Fact::nodes, p.nodes}, {Fact::bytes, p.bytes}, {Fact::line, p.line}});
}

Pending LazyDevice::pending() const {
  const Lock lock(*this);
  Pending p{nodes_, waiting_bytes_, "", runs_, kernels_, flushes_, plans_.made()};
  const Cell* largest = nullptr;
  for (const Cell* c = cells_; c != nullptr; c = c->after) {
    if (c->waits() && (largest == nullptr || c->bytes > largest->bytes)) largest = c;
  }
  if (largest != nullptr) p.line = describe(largest->now.node->location);
  return p;
}

}  // namespace hyalite::lazy
