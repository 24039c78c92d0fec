/// What a trace saw becomes a plan, and what a plan needs is taken from the arguments.
#include "compile/compiled.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "apply.h"
#include "compile/compiled_node.h"
#include "record/autograd_meta.h"
#include "record/graph.h"

namespace hyalite {
namespace {

bool has_gradient(const TensorImpl& t) { return t.autograd != nullptr && t.autograd->grad; }

std::int64_t offset_of(const TensorImpl& t) { return t.offset() * static_cast<std::int64_t>(itemsize(t.dtype())); }

/// The keys of arguments, one after the other.
ArgumentKey key_of(std::span<TensorImpl* const> arguments, std::size_t i) {
  TensorImpl& t = *arguments[i];
  ArgumentKey k{t.dtype(),       t.device(),           wants_grad(t),         t.storage()->read_only(),
                has_gradient(t), to_vector(t.shape()), to_vector(t.strides())};
  k.memory = k.same = static_cast<int>(i);
  for (std::size_t j = 0; j < i; ++j) {
    if (arguments[j]->storage() == t.storage()) {
      k.memory = static_cast<int>(j);
      k.distance = offset_of(t) - offset_of(*arguments[j]);
      break;
    }
  }
  k.same = static_cast<int>(std::ranges::find(arguments.first(i), &t) - arguments.begin());
  return k;
}

bool serves(const ArgumentKey& k, std::span<TensorImpl* const> arguments, std::size_t i) {
  TensorImpl& t = *arguments[i];
  if (t.dtype() != k.dtype || !same_dims(t.shape(), k.shape) || !same_dims(t.strides(), k.strides)) return false;
  if (wants_grad(t) != k.wants_grad || t.storage()->read_only() != k.read_only || t.device() != k.device) return false;
  if (has_gradient(t) != k.has_gradient || is_traced(t.device())) return false;
  const auto self = static_cast<int>(i);
  for (int j = 0; j < self; ++j) {
    const TensorImpl& other = *arguments[static_cast<std::size_t>(j)];
    const bool same = &other == &t, memory = other.storage() == t.storage();
    if (j == k.same ? !same : same && j < k.same) return false;
    if (j == k.memory ? !memory || offset_of(t) - offset_of(other) != k.distance : memory && j < k.memory) return false;
  }
  return true;
}

}  // namespace

void ByteRange::add(const TensorImpl& form) {
  if (form.numel() == 0) {
    if (!any()) first = end = 0;
    return;
  }
  const auto size = static_cast<std::int64_t>(itemsize(form.dtype()));
  std::int64_t from = offset_of(form), to = from + size;
  for (int i = 0; i < form.ndim(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::int64_t reach = (form.shape()[at] - 1) * form.strides()[at] * size;
    (reach < 0 ? from : to) += reach;
  }
  *this = first < end ? ByteRange{std::min(first, from), std::max(end, to)} : ByteRange{from, to};
}

ModeKey ModeKey::now() {
  const Context& c = context();
  return {c.grad_mode, c.autocast.enabled, c.autocast.enabled ? c.autocast.dtype : Dtype::float32,
          hyalite::deterministic()};
}

// ---- tracing --------------------------------------------------------------------------------------------------------

Trace::Trace(std::span<TensorImpl* const> arguments, lazy::Tier tier)
    : since_(Node::next_sequence()), tier_(tier), compiled_(std::make_shared<Compiled>()) {
  compiled_->mode_ = ModeKey::now();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    compiled_->arguments_.push_back(key_of(arguments, i));
    arguments_.push_back(TensorRef::share(arguments[i]));
  }
  tracer_.watch([this](TensorImpl& t) { note(t); });
  for (TensorImpl* t : arguments) tracer_.meet(*t);
}

void Trace::note(TensorImpl& t) {
  const AutogradMeta* m = t.autograd;
  before_.push_back({TensorRef::share(&t), wants_grad(t), m != nullptr ? m->grad : TensorRef(),
                     m != nullptr ? m->grad_fn : NodeRef(), m != nullptr ? m->output : 0,
                     m != nullptr ? m->history : 0});
}

Trace::~Trace() { restore(); }

/// What the function did to tensors from outside is for the plan to do.
void Trace::restore() {
  for (Before& b : before_) {
    AutogradMeta* m = b.tensor->autograd;
    if (m == nullptr) continue;
    m->grad = std::move(b.gradient);
    if (m->grad_fn != b.grad_fn) {
      m->grad_fn = std::move(b.grad_fn);
      m->output = b.output;
      b.tensor->requires_grad = b.wants_grad;
    }
  }
  before_.clear();
  wanted_.clear();
  given_.clear();
}

int Trace::argument_of(const TensorImpl& t) const {
  const auto at = std::ranges::find_if(arguments_, [&](const TensorRef& a) { return a.get() == &t; });
  return at == arguments_.end() ? -1 : static_cast<int>(at - arguments_.begin());
}

Compiled::Result Trace::result_of(TensorImpl& t, lazy::Roots& roots) {
  Compiled::Result r;
  r.argument = argument_of(t);
  if (r.argument >= 0) return r;
  if (t.storage()->cell() == nullptr && !tracer_.may_read(*t.storage())) {
    // A view of an argument's memory moves with it; other memory stays where it is.
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      if (arguments_[i]->storage() != t.storage()) continue;
      const lazy::Use use = tracer_.read(t);
      r.form = use.form;
      for (std::size_t s = 0; s < tracer_.captured().size(); ++s) {
        if (tracer_.captured()[s].storage.get() == t.storage()) r.slot = static_cast<int>(s);
      }
      return r;
    }
    r.held = TensorRef::share(&t);
    return r;
  }
  const lazy::Use use = tracer_.read(t);
  r.form = use.form;
  for (std::size_t k = 0; k < roots.results.size(); ++k) {
    if (roots.results[k].memory == t.storage()) r.place = static_cast<int>(k);
  }
  if (r.place < 0) {
    r.place = static_cast<int>(roots.results.size());
    roots.results.push_back({use.from, t.storage()});
  }
  return r;
}

void Trace::differentiate(std::span<TensorImpl* const> results) {
  boundary_ = lazy::Node::make(lazy::NodeKind::empty)->sequence;
  std::vector<Tensor> outputs, weights;
  for (std::size_t k = 0; k < results.size(); ++k) {
    TensorImpl& t = *results[k];
    if (argument_of(t) >= 0 || !wants_grad(t) || (is_leaf(t) && !is_traced(t.device()))) continue;
    outputs.push_back(Tensor::share(&t));
    const TensorRef weight = tracer_.given(t.dtype(), t.shape());
    given_.push_back(tracer_.value_of(*weight->storage()).node);
    outputs_.push_back(static_cast<int>(k));
    weights.push_back(Tensor::share(weight.get()));
  }
  if (outputs.empty()) return;
  const std::vector<Edge> ends = frontier(outputs, since_);
  const std::vector<Tensor> gradients = gradients_at(ends, outputs, weights, false);
  for (const Before& b : before_) {
    if (!b.wants_grad) continue;
    const Edge mine = gradient_edge(*b.tensor);
    for (std::size_t i = 0; i < ends.size(); ++i) {
      if (ends[i].node != mine.node || ends[i].output != mine.output) continue;
      Wanted w;
      w.target.argument = argument_of(*b.tensor);
      if (w.target.argument < 0) w.target.held = b.tensor;
      if (gradients[i]) w.gradient = tracer_.read(*without_nothings(gradients[i]).impl());
      wanted_.push_back(std::move(w));
      break;
    }
  }
}

/// Adds what the backward plan needs of the first one to its roots.
void Trace::plan_backward(lazy::Roots& roots) {
  Compiled::Backward& back = compiled_->backward_.emplace();
  lazy::Roots wanted;
  for (const Wanted& w : wanted_) {
    back.targets.push_back(w.target);
    back.gradients.push_back(w.gradient.form);
    int place = -1;
    if (w.gradient.from.node) {
      place = static_cast<int>(wanted.results.size());
      wanted.results.push_back({w.gradient.from, &w});
    }
    back.places.push_back(place);
  }
  const bool writes = std::ranges::any_of(tracer_.captured(), [](const auto& c) { return c.written(); });
  const int inputs = static_cast<int>(tracer_.captured().size());
  back.reads.resize(static_cast<std::size_t>(inputs));
  int slot = inputs;
  for (const lazy::NodeRef& n : given_) n->slot = slot++;
  std::vector<lazy::Value> open;
  const auto read = [&](const lazy::Value& v, const TensorImpl& form) {
    if (v.node->kind == lazy::NodeKind::input && v.node->slot >= 0 && v.node->slot < inputs)
      back.reads[static_cast<std::size_t>(v.node->slot)].add(form);
    open.push_back(v);
  };
  for (const lazy::Roots::Result& r : wanted.results) read(r.value, *r.value.node->out[0]);
  std::set<std::pair<const lazy::Node*, int>> seen;
  while (!open.empty()) {
    const lazy::Value v = open.back();
    open.pop_back();
    if (!v.node || !seen.emplace(v.node.get(), v.output).second) continue;
    lazy::Node& n = *v.node;
    if (n.kind == lazy::NodeKind::input) {
      if (n.slot >= inputs) continue;
      if (tracer_.captured()[static_cast<std::size_t>(n.slot)].written()) {
        throw Unsupported(
            "compile(): a gradient reads a tensor that the function writes in place; return a new one instead, or "
            "compile the gradient too, as hl.compile(hl.value_and_grad(f))");
      }
      continue;
    }
    if (n.sequence < boundary_ && n.kind != lazy::NodeKind::empty && (writes || !n.is_elementwise())) {
      const lazy::NodeRef kept = lazy::Node::make(lazy::NodeKind::input);
      kept->out.push_back(n.out[static_cast<std::size_t>(v.output)]);
      kept->slot = slot++;
      wanted.given.push_back({v, {kept, 0}});
      const auto known = std::ranges::find_if(roots.results, [&](const auto& r) { return r.value == v; });
      back.kept.push_back(static_cast<int>(known - roots.results.begin()));
      if (known == roots.results.end()) roots.results.push_back({v, kept.get()});
      continue;
    }
    for (const lazy::Input& in : n.in) {
      if (in.use.from.node) read(in.use.from, *in.use.form);
    }
    if (n.base.node) read(n.base, *n.base.node->out[static_cast<std::size_t>(n.base.output)]);
  }
  for (std::size_t i = 0; i < given_.size(); ++i) {
    back.outputs.push_back(outputs_[i]);
    back.forms.push_back(given_[i]->out[0]);
  }
  back.reads_values = !back.kept.empty() || std::ranges::any_of(back.reads, &ByteRange::any);
  for (const ArgumentKey& k : compiled_->arguments_) {
    const auto at = std::ranges::find(back.targets, k.same, &Compiled::Backward::Target::argument);
    back.edges.push_back(at == back.targets.end() ? -1 : static_cast<int>(at - back.targets.begin()));
  }
  back.plan.emplace(wanted, slot, at_once({}), tier_);
}

std::shared_ptr<const Compiled> Trace::finish(std::span<TensorImpl* const> results, Compiled::Again again) {
  Compiled& c = *compiled_;
  c.again_ = std::move(again);
  lazy::Roots roots;
  for (TensorImpl* t : results) c.results_.push_back(result_of(*t, roots));
  for (const Before& b : before_) {
    const AutogradMeta* m = b.tensor->autograd;
    const TensorRef now = m != nullptr ? m->grad : TensorRef();
    if (m != nullptr && m->history != b.history) {
      throw Unsupported(
          "compile(): a tensor from outside is written in place by an op that is recorded, so its history would be "
          "lost; write under hl.no_grad(), or return the new value");
    }
    if (now == b.gradient) continue;
    Compiled::Gradient g;
    g.argument = argument_of(*b.tensor);
    if (g.argument < 0) g.of = b.tensor;
    g.none = !now;
    if (now) g.value = result_of(*now, roots);
    c.gradients_.push_back(std::move(g));
  }
  if (!wanted_.empty()) plan_backward(roots);
  // After the results: a view of an argument may have made an input of it.
  for (const Before& b : before_) {
    if (argument_of(*b.tensor) < 0) c.held_.push_back({b.tensor, b.wants_grad, b.gradient});
  }
  for (const Tracer::Captured& captured : tracer_.captured()) {
    Compiled::Slot s;
    for (std::size_t i = 0; i < arguments_.size() && s.argument < 0; ++i) {
      if (arguments_[i]->storage() != captured.storage.get()) continue;
      s.argument = static_cast<int>(i);
      s.offset = offset_of(*arguments_[i]);
    }
    if (s.argument < 0) s.held = captured.storage;
    s.written = captured.written();
    c.slots_.push_back(std::move(s));
    if (captured.written()) roots.effects.push_back({captured.first, captured.now});
  }
  c.roots_ = roots;
  c.plan_.emplace(roots, static_cast<int>(tracer_.captured().size()), at_once({}), tier_);
  tracer_.watch({});
  restore();
  return compiled_;
}

std::string Trace::escaped() const {
  const lazy::Node* n = tracer_.held_by_others();
  if (n == nullptr) return "";
  const std::string line = describe(n->location);
  return n->name() + (line.empty() ? "" : " (" + line + ")");
}

// ---- running --------------------------------------------------------------------------------------------------------

bool Compiled::serves(const ModeKey& mode, std::span<TensorImpl* const> arguments) const {
  if (arguments.size() != arguments_.size() || mode != mode_) return false;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!hyalite::serves(arguments_[i], arguments, i)) return false;
  }
  for (const Held& h : held_) {
    if (wants_grad(*h.tensor) != h.wants_grad) return false;
    if (has_gradient(*h.tensor) != static_cast<bool>(h.gradient)) return false;
    if (h.gradient && h.tensor->autograd->grad->storage() != h.gradient->storage()) return false;
  }
  return true;
}

Compiled::Difference Compiled::difference(const ModeKey& mode, std::span<TensorImpl* const> arguments,
                                          std::span<const std::string> names) const {
  if (mode.grad_mode != mode_.grad_mode)
    return {mode.grad_mode ? "gradients are on, and were off" : "gradients are off, and were on"};
  if (mode != mode_) return {"autocast or determinism is another"};
  if (arguments.size() != arguments_.size()) return {"there are other tensors"};
  Difference sizes;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const TensorImpl& t = *arguments[i];
    const ArgumentKey& k = arguments_[i];
    const std::string& who = names[i];
    const auto other = [&](const std::string& now, const std::string& then) {
      return Difference{who + " is " + now + ", and was " + then};
    };
    if (t.dtype() != k.dtype) return other(std::string(name(t.dtype())), std::string(name(k.dtype)));
    if (t.device() != k.device) return other("on " + to_string(t.device()), "on " + to_string(k.device));
    if (t.shape().size() != k.shape.size()) {
      return other(std::to_string(t.ndim()) + "-dimensional", std::to_string(k.shape.size()) + "-dimensional");
    }
    for (std::size_t d = 0; d < k.shape.size(); ++d) {
      if ((t.shape()[d] == 1) != (k.shape[d] == 1)) return other(to_string(t.shape()), to_string(Dims(k.shape)));
    }
    if (wants_grad(*arguments[i]) != k.wants_grad) {
      return other(k.wants_grad ? "without requires_grad" : "with requires_grad", k.wants_grad ? "with it" : "without");
    }
    if (t.storage()->read_only() != k.read_only) return other(k.read_only ? "writable" : "read-only", "not");
    if (has_gradient(t) != k.has_gradient) return other(k.has_gradient ? "without a grad" : "with a grad", "not");
    if (!same_dims(t.shape(), k.shape)) {
      sizes = {who + " is " + to_string(t.shape()) + ", and was " + to_string(Dims(k.shape)), true};
    } else if (!same_dims(t.strides(), k.strides)) {
      sizes = {who + " lies in memory in another way", true};
    }
  }
  if (!sizes.what.empty()) return sizes;
  if (!serves(mode, arguments)) return {"arguments share memory in another way, or a tensor from outside has changed"};
  return {};
}

Compiled::Copies Compiled::copies(std::span<TensorImpl* const> arguments) const {
  Copies c;
  for (const Slot& s : slots_) {
    const TensorImpl* t = s.argument < 0 ? nullptr : arguments[static_cast<std::size_t>(s.argument)];
    const Ref<Storage> from = t == nullptr ? s.held : t->storage_ref();
    const TensorRef whole =
        TensorImpl::make(Dtype::uint8, {}, DimList{static_cast<std::int64_t>(from->bytes())}, DimList{1}, from);
    c.held.push_back(clone(*whole));
    c.memory.push_back({c.held.back()->storage(), t == nullptr ? 0 : offset_of(*t) - s.offset});
  }
  return c;
}

Compiled::Times Compiled::measure(std::span<TensorImpl* const> arguments, double seconds) const {
  using Clock = std::chrono::steady_clock;
  constexpr std::size_t fewest = 3, most = 200;
  const lazy::Plan one_by_one(roots_, static_cast<int>(slots_.size()), at_once({}), lazy::Tier::first, false);
  const bool writes = std::ranges::any_of(slots_, [](const Slot& s) { return s.written; });
  Copies c = copies(arguments);
  std::vector<double> took[2];
  const auto run = [&](const lazy::Plan& plan, std::vector<double>& times) {
    if (writes) c = copies(arguments);
    std::vector<Ref<Storage>> results(plan.results());
    const auto begin = Clock::now();
    plan.run(c.memory, results, nullptr);
    times.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  };
  const auto begin = Clock::now();
  const auto left = [&] { return std::chrono::duration<double>(Clock::now() - begin).count() < seconds; };
  while (took[0].size() <= fewest || (took[0].size() <= most && left())) {
    run(*plan_, took[0]);
    run(one_by_one, took[1]);
  }
  const auto median = [](std::vector<double>& times) {
    const auto middle = times.begin() + 1 + static_cast<std::ptrdiff_t>((times.size() - 1) / 2);  // the first warms up
    std::nth_element(times.begin() + 1, middle, times.end());
    return *middle;
  };
  return {median(took[0]), median(took[1]), static_cast<int>(took[0].size()) - 1};
}

std::vector<Compiled::Pair> Compiled::compare(std::span<TensorImpl* const> arguments, Device device) const {
  const auto run_over = [](const lazy::Plan& plan, const Copies& c, const lazy::Plan::Watch& watch) {
    std::vector<Ref<Storage>> results(plan.results());
    plan.run(c.memory, results, nullptr, &watch);
  };
  std::map<std::pair<const lazy::Node*, int>, TensorRef> by_ops;
  const int inputs = static_cast<int>(slots_.size());
  const lazy::Plan one_by_one(roots_, inputs, at_once({}), lazy::Tier::first, false);
  run_over(one_by_one, copies(arguments), [&](int, const lazy::Value& v, const TensorImpl& t) {
    by_ops[{v.node.get(), v.output}] = clone(t);
  });
  std::vector<Pair> pairs;
  const auto beside = [&](const lazy::Plan& plan, const Copies& c, int tier, const auto& kept) {
    run_over(plan, c, [&](int step, const lazy::Value& v, const TensorImpl& t) {
      const auto at = by_ops.find({v.node.get(), v.output});
      if (at == by_ops.end()) return;
      pairs.push_back({tier, step, v.node->name(), describe(v.node->location), kept(t), at->second});
    });
  };
  if (device.kind == DeviceKind::cpu) {
    for (const int tier : {0, 1}) {
      if (tier == 1 && !at_once({}).generates()) break;
      const lazy::Plan plan(roots_, inputs, at_once({}), tier == 0 ? lazy::Tier::first : lazy::Tier::generated);
      beside(plan, copies(arguments), tier, [](const TensorImpl& t) { return clone(t); });
    }
    return pairs;
  }
  Backend& there = *at_once(device).executor;
  Copies c = copies(arguments);
  for (std::size_t i = 0; i < c.held.size(); ++i) {
    c.held[i] = there.upload(*c.held[i]);
    c.memory[i].storage = c.held[i]->storage();
  }
  beside(lazy::Plan(roots_, inputs, there, lazy::Tier::automatic, true, device), c, 0, [&](const TensorImpl& t) {
    const TensorRef dense = there.empty(t.dtype(), t.shape()), here = at_once({}).empty(t.dtype(), t.shape());
    there.copy(t, *dense);
    there.download(*dense, *here);
    return here;
  });
  return pairs;
}

TensorRef Compiled::result(const Result& r, std::span<TensorImpl* const> arguments,
                           std::span<const lazy::Memory> inputs, std::span<const Ref<Storage>> made) const {
  if (r.argument >= 0) return TensorRef::share(arguments[static_cast<std::size_t>(r.argument)]);
  if (r.held) return r.held;
  if (r.slot >= 0) return lazy::tensor_over(*r.form, inputs[static_cast<std::size_t>(r.slot)]);
  return lazy::tensor_over(*r.form, {made[static_cast<std::size_t>(r.place)].get(), 0});
}

void Compiled::run(std::span<TensorImpl* const> arguments, Recorder* rec, SmallVector<TensorRef, 4>& results) const {
  SmallVector<lazy::Memory, 8> inputs;
  for (const Slot& s : slots_) {
    if (s.argument < 0) {
      inputs.push_back({s.held.get(), 0});
    } else {
      const TensorImpl& t = *arguments[static_cast<std::size_t>(s.argument)];
      inputs.push_back({t.storage(), offset_of(t) - s.offset});
    }
    if (s.written) inputs.back().storage->bump(inputs.back().storage->saved() ? capture_location() : Location{});
  }
  const std::span<const lazy::Memory> memory{inputs.data(), inputs.size()};
  SmallVector<Ref<Storage>, 4> storages(plan_->results());
  const std::span<Ref<Storage>> made{storages.data(), storages.size()};
  plan_->run(memory, made, rec);
  for (const Gradient& g : gradients_) {
    TensorImpl& t = g.argument >= 0 ? *arguments[static_cast<std::size_t>(g.argument)] : *g.of;
    meta_of(t).grad = g.none ? TensorRef() : result(g.value, arguments, memory, made);
  }
  for (const Result& r : results_) results.push_back(result(r, arguments, memory, made));
  if (backward_) record(arguments, memory, made, results);
}

void Compiled::record(std::span<TensorImpl* const> arguments, std::span<const lazy::Memory> inputs,
                      std::span<const Ref<Storage>> made, SmallVector<TensorRef, 4>& results) const {
  const Ref<CompiledNode> node = CompiledNode::make(shared_from_this(), arguments, inputs, made);
  for (std::size_t k = 0; k < backward_->outputs.size(); ++k) {
    set_history(*results[static_cast<std::size_t>(backward_->outputs[k])], NodeRef::share(node.get()),
                static_cast<std::uint32_t>(k));
  }
}

}  // namespace hyalite
