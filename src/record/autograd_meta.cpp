/// Histories: leaves, results, views, and what in-place writes do to them.
#include "record/autograd_meta.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <ranges>

#include "apply.h"
#include "tensor/context.h"

namespace hyalite {
namespace {

constexpr std::size_t meta_capacity = std::size_t{1} << (6 + pool::detail::small_class(sizeof(AutogradMeta)));

const bool installed = [] {
  destroy_view_link = [](ViewLink& v) noexcept {
    if (v.attrs != nullptr) v.attrs->release();
    v.parent->release();
  };
  destroy_autograd_meta = [](AutogradMeta* m) noexcept {
    m->~AutogradMeta();
    pool::release(m, meta_capacity);
  };
  return true;
}();

/// The base that `t` is a view of, itself for others.
TensorImpl& base_of(TensorImpl& t) { return t.view.parent != nullptr ? *t.view.base : t; }

/// How often the history of `t` was replaced.
std::uint64_t history_of(const TensorImpl& t) { return t.autograd != nullptr ? t.autograd->history : 0; }

/// Makes the nodes of a view again, and of those that it is a view of, on top of the base's present history.
[[gnu::noinline]] void regenerate(TensorImpl& view, std::uint64_t now) {
  std::vector<TensorImpl*> late;
  for (TensorImpl* t = &view; t->view.parent != nullptr && t->view.base_history != now; t = t->view.parent) {
    late.push_back(t);
  }
  // Whoever asks first makes the nodes, so they belong to no program that is being explained.
  const ScopedSet<bool> recording(context().grad_mode, true);
  const ScopedSet<Recorder*> hidden(context().recorder, nullptr);
  for (TensorImpl* t : std::views::reverse(late)) {
    const Tensor again = apply_one(*t->view.op, Tensor::share(t->view.parent), t->view.attrs);
    const AutogradMeta* made = again.impl()->autograd;
    AutogradMeta& m = meta_of(*t);
    m.hooks.reset();  // they stay with the nodes of the old value
    m.grad_fn = made != nullptr ? made->grad_fn : NodeRef();
    m.output = 0;
    t->view.base_history = now;
    t->requires_grad = t->requires_grad || again.impl()->requires_grad;
  }
}

/// Brings the history of a view up to that of its base.
void refresh(TensorImpl& t) {
  if (t.view.parent == nullptr) return;
  if (const std::uint64_t now = history_of(*t.view.base); t.view.base_history != now) regenerate(t, now);
}

}  // namespace

ViewChain::~ViewChain() {
  // One after the other: a chain of a million views must not recurse.
  std::shared_ptr<const ViewChain> next = std::move(before);
  while (next && next.use_count() == 1) {
    std::shared_ptr<const ViewChain> after = std::move(const_cast<ViewChain&>(*next).before);
    next = std::move(after);
  }
}

std::vector<const ViewStep*> ViewChain::steps() const {
  std::vector<const ViewStep*> all;
  for (const ViewChain* c = this; c != nullptr; c = c->before.get()) all.push_back(&c->step);
  std::ranges::reverse(all);
  return all;
}

std::shared_ptr<const ViewChain> chain_to(const TensorImpl& view) {
  std::vector<const ViewLink*> links;
  for (const TensorImpl* t = &view; t->view.parent != nullptr; t = t->view.parent) links.push_back(&t->view);
  std::shared_ptr<const ViewChain> chain;
  for (const ViewLink* v : std::views::reverse(links)) {
    chain = std::make_shared<const ViewChain>(ViewStep{v->op, AttrRef::share(v->attrs)}, std::move(chain));
  }
  return chain;
}

std::shared_ptr<const ViewChain> chain_after(ViewStep first, const ViewChain& rest) {
  auto chain = std::make_shared<const ViewChain>(std::move(first), nullptr);
  for (const ViewStep* s : rest.steps()) chain = std::make_shared<const ViewChain>(*s, std::move(chain));
  return chain;
}

bool wants_grad_slowly(TensorImpl& view) {
  refresh(view);
  return view.requires_grad;
}

AutogradMeta& meta_of(TensorImpl& t) {
  const std::atomic_ref<AutogradMeta*> place(t.autograd);
  AutogradMeta* m = place.load(std::memory_order_acquire);
  if (m != nullptr) return *m;
  AutogradMeta* fresh = new (pool::allocate(sizeof(AutogradMeta)).data) AutogradMeta();
  if (place.compare_exchange_strong(m, fresh, std::memory_order_acq_rel)) return *fresh;
  destroy_autograd_meta(fresh);  // another thread was first
  return *m;
}

NodeRef grad_fn(TensorImpl& t) {
  refresh(t);
  return t.autograd != nullptr ? t.autograd->grad_fn : NodeRef();
}

bool is_leaf(TensorImpl& t) { return !grad_fn(t); }

Edge gradient_edge(TensorImpl& t) {
  const NodeRef node = grad_fn(t);
  if (node) return {node, t.autograd->output};
  return {NodeRef::adopt(AccumulateGrad::make(t).leak()), 0};
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

void set_view(TensorImpl& view, TensorImpl& source, const OpInfo& op, AttrRef attrs) {
  TensorImpl& base = base_of(source);
  source.retain();
  view.view = {&source, &base, &op, attrs.leak(), history_of(base)};
}

NodeRef record(const Call& call, std::span<TensorImpl* const> outputs, Dtype computed) {
  const auto differentiable = [](const TensorImpl* o) { return is_differentiable(o->dtype()); };
  if (std::ranges::none_of(outputs, differentiable)) return {};
  NodeRef node = NodeRef::adopt(OpNode::make(call, outputs, computed).leak());
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    if (differentiable(outputs[k])) set_history(*outputs[k], node, static_cast<std::uint32_t>(k));
  }
  return node;
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

bool write_wants_grad(TensorImpl& target) { return wants_grad(target) || wants_grad(base_of(target)); }

InPlaceRecord::InPlaceRecord(const Call& call, TensorImpl& target, Dtype computed)
    : target_(target), base_(base_of(target)) {
  TensorImpl* const written = &target;
  Writing writing{target.storage(), 0};
  const bool view = &base_ != &target_;
  if (view && wants_grad(base_)) {
    for (std::size_t i = 0; i < call.in.size(); ++i) {
      if (call.in[i].tensor == &target) writing.through |= std::uint64_t{1} << i;
    }
  }
  // The op's edges are those of the operands as they are, and what it reads of them is saved now.
  op_ = OpNode::make(call, {&written, 1}, computed, writing);
  if (view) {
    Edge old = wants_grad(base_) ? gradient_edge(base_) : Edge();
    node_ = NodeRef::adopt(
        ViewWriteNode::make(op_, std::move(old), base_, chain_to(target), writing.through, target.shape()).leak());
  } else {
    node_ = NodeRef::share(op_.get());
  }
  meta_of(base_);
}

void InPlaceRecord::commit() noexcept {
  op_->keep_output(target_);
  AutogradMeta& m = *base_.autograd;
  m.grad_fn = node_;
  m.output = 0;
  ++m.history;
  m.hooks.reset();  // they stay with the node of the value they were hung on
  base_.requires_grad = true;
  target_.requires_grad = true;
}

namespace {
// Held for bookkeeping only.
std::mutex hook_lists_mutex;
std::vector<std::weak_ptr<HookList>>& known_hook_lists() {
  static std::vector<std::weak_ptr<HookList>> all;
  return all;
}

std::shared_ptr<HookList> make_hook_list() {
  auto list = std::make_shared<HookList>();
  const std::lock_guard lock(hook_lists_mutex);
  auto& all = known_hook_lists();
  if (all.size() == all.capacity()) std::erase_if(all, [](const auto& w) { return w.expired(); });
  all.push_back(list);
  return list;
}
}  // namespace

std::vector<std::shared_ptr<HookList>> hook_lists() {
  const std::lock_guard lock(hook_lists_mutex);
  std::vector<std::shared_ptr<HookList>> held;
  for (const auto& w : known_hook_lists()) {
    if (auto list = w.lock()) held.push_back(std::move(list));
  }
  return held;
}

HookPlace add_hook(TensorImpl& t, std::function<Tensor(const Tensor&)> hook, void* owner, bool last) {
  static std::atomic<std::uint64_t> next{1};
  const NodeRef made = grad_fn(t);  // first: a view whose base was written gets a new one
  AutogradMeta& m = meta_of(t);
  if (!m.hooks) m.hooks = make_hook_list();
  const std::uint64_t id = next.fetch_add(1, std::memory_order_relaxed);
  const auto at = last ? m.hooks->hooks.end() : std::ranges::find(m.hooks->hooks, true, &Hook::last);
  m.hooks->hooks.insert(at, {id, std::move(hook), owner, last});
  Node* node = m.accumulator.load(std::memory_order_acquire);
  std::uint32_t output = 0;
  if (made) {
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
