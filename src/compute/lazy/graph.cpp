/// Nodes: making, freeing and walking them without recursion.
#include "compute/lazy/graph.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>

namespace hyalite::lazy {
namespace {

std::atomic<std::uint64_t> next_sequence{1};

}  // namespace

Node::Node(NodeKind k) : kind(k), sequence(next_sequence.fetch_add(1, std::memory_order_relaxed)) {}

NodeRef Node::make(NodeKind kind) {
  NodeRef n = NodeRef::adopt(new Node(kind));
  n->location = capture_location();
  return n;
}

NodeRef Node::like(const Node& n) {
  NodeRef c = NodeRef::adopt(new Node(n.kind));
  retain_location(n.location);
  c->location = n.location;
  c->op = n.op;
  c->attrs = n.attrs;
  c->in = n.in;
  c->out = n.out;
  c->base = n.base;
  c->base_bytes = n.base_bytes;
  c->computed = n.computed;
  c->real_operand = n.real_operand;
  c->mixed = n.mixed;
  c->converts = n.converts;
  c->operand = n.operand;
  c->from_nothings = n.from_nothings;
  c->numbers_and_nothings = n.numbers_and_nothings;
  c->slot = n.slot;
  c->constant = n.constant;
  return c;
}

void Node::destroy() noexcept {
  // A chain of nodes hangs by its last: each waits its turn instead of being freed inside the one before.
  static constinit thread_local Node* waiting HYALITE_INITIAL_EXEC = nullptr;
  static constinit thread_local bool freeing HYALITE_INITIAL_EXEC = false;
  next_doomed_ = waiting;
  waiting = this;
  if (freeing) return;
  freeing = true;
  while (Node* n = waiting) {
    waiting = n->next_doomed_;
    delete n;
  }
  freeing = false;
}

std::string Node::name() const {
  switch (kind) {
    case NodeKind::input:
      return "input";
    case NodeKind::call:
      return std::string(op->name());
    case NodeKind::gradient:
      return std::string(op->name()) + " gradient of " + op->params[static_cast<std::size_t>(operand)];
    case NodeKind::copy:
      return op != nullptr ? std::string(op->name()) : "copy";
    case NodeKind::fill:
      return op != nullptr ? std::string(op->name()) : "fill";
    default:
      return "memory";
  }
}

bool Node::is_elementwise() const {
  if (kind != NodeKind::call) return kind == NodeKind::gradient || kind == NodeKind::copy || kind == NodeKind::fill;
  // An exponent is looked at before anything is written.
  const bool checks = op->schema.check == Check::integer_exponent && hyalite::kind(computed) == Kind::integer;
  return converts || (op->elementwise >= 0 && !checks);
}

std::int64_t Node::bytes(int output) const {
  return base.node ? base_bytes : out[static_cast<std::size_t>(output)]->nbytes();
}

bool same_form(const TensorImpl& a, const TensorImpl& b) { return a.dtype() == b.dtype() && same_places(a, b); }

bool same_places(const TensorImpl& a, const TensorImpl& b) {
  return itemsize(a.dtype()) == itemsize(b.dtype()) && a.offset() == b.offset() && same_dims(a.shape(), b.shape()) &&
         same_dims(a.strides(), b.strides());
}

bool same_number(const Operand& a, const Operand& b) {
  return a.dtype == b.dtype && std::memcmp(a.bytes.data(), b.bytes.data(), itemsize(a.dtype)) == 0;
}

std::vector<Node*> reachable(std::span<const Value> roots) {
  std::unordered_set<Node*> seen;
  std::vector<Node*> all;
  const auto visit = [&](const NodeRef& n) {
    if (n && seen.insert(n.get()).second) all.push_back(n.get());
  };
  for (const Value& v : roots) visit(v.node);
  for (std::size_t i = 0; i < all.size(); ++i) {
    Node* const n = all[i];
    for (const Input& in : n->in) visit(in.use.from.node);
    visit(n->base.node);
  }
  std::ranges::sort(all, [](const Node* a, const Node* b) { return a->sequence < b->sequence; });
  return all;
}

}  // namespace hyalite::lazy
