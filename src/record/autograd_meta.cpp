/// Histories: leaves, results, views, and what in-place writes do to them.
#include "record/autograd_meta.h"

#include <algorithm>

#include "apply.h"
#include "tensor/context.h"

namespace hyalite {
namespace {

constexpr std::size_t meta_capacity = std::size_t{1} << (6 + pool::detail::small_class(sizeof(AutogradMeta)));

const bool installed = [] {
  destroy_autograd_meta = [](AutogradMeta* m) noexcept {
    m->~AutogradMeta();
    pool::release(m, meta_capacity);
  };
  return true;
}();

std::shared_ptr<HookList> hooks_of(TensorImpl& t) { return t.autograd != nullptr ? t.autograd->hooks : nullptr; }

/// The base that `t` is a view of, itself for others.
TensorImpl& base_of(TensorImpl& t) { return t.autograd != nullptr && t.autograd->base ? *t.autograd->base : t; }

/// Builds the nodes of a view's chain again, on top of the base's present history.
void regenerate(TensorImpl& view) {
  AutogradMeta& m = *view.autograd;
  AutogradMeta& base = meta_of(*m.base);
  if (m.base_history == base.history) return;
  const ScopedSet<bool> recording(context().grad_mode, true);
  Tensor t = Tensor::share(m.base.get());
  for (const ViewStep& s : m.chain->steps) t = apply_one(*s.op, t, s.attrs);
  m.grad_fn = t.impl()->autograd != nullptr ? t.impl()->autograd->grad_fn : NodeRef();
  m.output = 0;
  m.base_history = base.history;
  view.requires_grad = view.requires_grad || t.impl()->requires_grad;
  if (m.hooks && m.grad_fn) {
    m.grad_fn->hooks.resize(1);
    m.grad_fn->hooks[0] = m.hooks;
  }
}

}  // namespace

bool wants_grad_slowly(TensorImpl& t) {
  grad_fn(t);
  return t.requires_grad;
}

AutogradMeta& meta_of(TensorImpl& t) {
  if (t.autograd == nullptr) t.autograd = new (pool::allocate(sizeof(AutogradMeta)).data) AutogradMeta();
  return *t.autograd;
}

NodeRef grad_fn(TensorImpl& t) {
  if (t.autograd == nullptr) return {};
  if (t.autograd->base) regenerate(t);
  return t.autograd->grad_fn;
}

bool is_leaf(TensorImpl& t) { return !grad_fn(t); }

Edge gradient_edge(TensorImpl& t) {
  const NodeRef node = grad_fn(t);
  if (node) return {node, t.autograd->output};
  Ref<AccumulateGrad> leaf = AccumulateGrad::make(&t);
  if (const auto hooks = hooks_of(t)) {
    leaf->hooks.resize(1);
    leaf->hooks[0] = hooks;
  }
  return {NodeRef::adopt(leaf.leak()), 0};
}

void set_requires_grad(TensorImpl& t, bool on) {
  if (on == t.requires_grad) return;
  if (on && !is_differentiable(t.dtype())) {
    throw AutogradError(
        "requires_grad: " + std::string(name(t.dtype())) + " has no gradient; write x.astype(hl.float32) first",
        {{"dtype", std::string(name(t.dtype()))}});
  }
  if (!on && !is_leaf(t)) {
    throw AutogradError("requires_grad: only a leaf can give it up; write y = x.detach()", {});
  }
  if (on) meta_of(t);
  t.requires_grad = on;
}

void set_history(TensorImpl& out, NodeRef node, std::uint32_t output) {
  AutogradMeta& m = meta_of(out);
  m.grad_fn = std::move(node);
  m.output = output;
  out.requires_grad = true;
}

void set_view(TensorImpl& view, TensorImpl& source, const OpInfo& op, const Attrs& attrs) {
  AutogradMeta& m = meta_of(view);
  TensorImpl& base = base_of(source);
  auto chain = std::make_shared<ViewChain>();
  if (&base != &source) chain->steps = source.autograd->chain->steps;
  chain->steps.push_back({&op, attrs});
  m.base = TensorRef::share(&base);
  m.chain = std::move(chain);
  m.base_history = meta_of(base).history;
}

Node* record(const Call& call, std::span<const TensorRef> outputs, Dtype computed) {
  const auto differentiable = [](const TensorRef& o) { return is_differentiable(o->dtype()); };
  if (std::ranges::none_of(outputs, differentiable)) return nullptr;
  const Ref<OpNode> node = OpNode::make(call, outputs, computed);
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    // An integer or boolean output has no gradient, and one whose op has none neither.
    if (is_differentiable(outputs[k]->dtype())) {
      set_history(*outputs[k], NodeRef::share(node.get()), static_cast<std::uint32_t>(k));
    }
  }
  return node.get();
}

void check_in_place(TensorImpl& target) {
  if (!context().grad_mode) return;
  TensorImpl& base = base_of(target);
  for (TensorImpl* t : {&target, &base}) {
    if (t->requires_grad && is_leaf(*t)) {
      throw AutogradError(
          std::string(t == &target ? "a leaf" : "a view of a leaf") +
              " that requires grad cannot be written in place; write it inside `with hl.no_grad():`, or "
              "y = x + ... for a new tensor",
          {});
    }
  }
}

Node* record_in_place(const Call& call, TensorImpl& target, Dtype computed) {
  TensorImpl& base = base_of(target);
  const TensorRef handle = TensorRef::share(&target);
  // The op's edges are those of the operands as they were, so its node is made before the target is rebased.
  const Ref<OpNode> node = OpNode::make(call, {&handle, 1}, computed, target.storage());
  if (&base == &target) {
    set_history(target, NodeRef::adopt(Ref<OpNode>(node).leak()), 0);
    ++meta_of(target).history;
    meta_of(target).hooks.reset();  // they stay with the node of the value they were hung on
    return node.get();
  }
  std::uint64_t targets = 0;
  for (std::size_t i = 0; i < call.in.size(); ++i) {
    if (call.in[i].tensor == &target) targets |= std::uint64_t{1} << i;
  }
  Edge old = base.requires_grad ? gradient_edge(base) : Edge();
  const Ref<ViewWriteNode> written =
      ViewWriteNode::make(node, std::move(old), base, target.autograd->chain, targets, target.shape());
  set_history(base, NodeRef::share(written.get()), 0);
  ++meta_of(base).history;
  meta_of(base).hooks.reset();
  target.requires_grad = true;
  return written.get();
}

HookPlace add_hook(TensorImpl& t, std::function<Tensor(const Tensor&)> hook, void* owner) {
  static std::atomic<std::uint64_t> next{1};
  AutogradMeta& m = meta_of(t);
  if (!m.hooks) m.hooks = std::make_shared<HookList>();
  const std::uint64_t id = next.fetch_add(1, std::memory_order_relaxed);
  m.hooks->hooks.push_back({id, std::move(hook), owner});
  Node* node = m.accumulator.get();
  std::uint32_t output = 0;
  if (const NodeRef made = grad_fn(t)) {
    node = made.get();
    output = m.output;
  }
  if (node != nullptr) {
    if (node->hooks.size() <= output) node->hooks.resize(output + 1);
    node->hooks[output] = m.hooks;
  }
  return {m.hooks, id};
}

void remove_hook(const HookPlace& place) {
  const std::shared_ptr<HookList> list = place.list.lock();
  if (list == nullptr) return;
  const auto at = std::ranges::find(list->hooks, place.id, &Hook::id);
  if (at == list->hooks.end()) return;
  const Hook dropped = std::move(*at);  // goes last: what it holds may run code that changes the list
  list->hooks.erase(at);
}

TensorRef detached(TensorImpl& t) {
  return TensorImpl::make(t.dtype(), t.device(), t.shape(), t.strides(), t.storage_ref(), t.offset());
}

}  // namespace hyalite
