/// From a schedule to steps over numbered memory, and running them.
#include "compute/lazy/plan.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <unordered_map>

#include "compute/lazy/running.h"
#include "tensor/context.h"

namespace hyalite::lazy {

constinit thread_local const Node* running_node HYALITE_INITIAL_EXEC = nullptr;

std::string running_line() { return running_node != nullptr ? describe(running_node->location) : ""; }

std::int64_t bytes_in_memory(const TensorImpl& t) {
  std::int64_t elements = 1;
  for (std::size_t i = 0; i < t.shape().size(); ++i) {
    if (t.strides()[i] != 0 || t.shape()[i] == 0) elements *= t.shape()[i];
  }
  return elements * static_cast<std::int64_t>(itemsize(t.dtype()));
}

TensorRef tensor_over(const TensorImpl& form, const Memory& m, Device device) {
  const std::int64_t shift = m.shift / static_cast<std::int64_t>(itemsize(form.dtype()));
  return TensorImpl::make(form.dtype(), device, form.shape(), form.strides(), Ref<Storage>::share(m.storage),
                          form.offset() + shift);
}

struct Plan::Running {
  std::span<const Memory> inputs;
  SmallVector<Ref<Storage>, 8> storages;  // by buffer; null of an input
  const std::vector<Buffer>& buffers;

  Memory memory(int b) const {
    const auto at = static_cast<std::size_t>(b);
    const int input = buffers[at].input;
    return input >= 0 ? inputs[static_cast<std::size_t>(input)] : Memory{storages[at].get(), 0};
  }
};

Plan::Plan(const Roots& roots, int inputs, Backend& backend, Tier tier, bool fuse, Device device)
    : schedule_(roots, backend, fuse), backend_(backend), tier_(tier), device_(device) {
  for (int i = 0; i < inputs; ++i) buffers_.push_back({0, i, false});
  const Roots& r = schedule_.roots();
  for (std::size_t e = 0; e < r.effects.size(); ++e) {
    const Roots::Effect& effect = r.effects[e];
    if (schedule_.in_place(e)) places_[{effect.last.node.get(), effect.last.output}] = effect.first.node->slot;
  }
  find_needed();
  for (const Group& g : schedule_.groups()) add_step(g);
  needed_.clear();
  for (const Roots::Result& result : r.results) {
    const int b = buffer_of(result.value);
    buffers_[static_cast<std::size_t>(b)].result = true;
    results_.push_back(b);
  }
  for (std::size_t e = 0; e < r.effects.size(); ++e) {
    const Roots::Effect& effect = r.effects[e];
    if (!schedule_.in_place(e)) write_back_.emplace_back(buffer_of(effect.last), effect.first.node->slot);
  }
  // Memory begins where it is first written, and ends with whoever needs it last.
  std::vector<int> last(buffers_.size(), -1);
  for (int i = 0; i < static_cast<int>(steps_.size()); ++i) {
    for (const std::vector<int>* list :
         {&steps_[static_cast<std::size_t>(i)].in, &steps_[static_cast<std::size_t>(i)].out}) {
      for (const int b : *list) last[static_cast<std::size_t>(b)] = i;
    }
  }
  for (const auto& [from, to] : write_back_) buffers_[static_cast<std::size_t>(from)].result = true;
  for (int i = 0; i < static_cast<int>(steps_.size()); ++i) {
    Step& s = steps_[static_cast<std::size_t>(i)];
    for (const std::vector<int>* list : {&s.in, &s.out}) {
      for (const int b : *list) {
        const Buffer& buffer = buffers_[static_cast<std::size_t>(b)];
        if (buffer.input < 0 && !buffer.result && last[static_cast<std::size_t>(b)] == i &&
            std::ranges::find(s.done, b) == s.done.end())
          s.done.push_back(b);
      }
    }
  }
  for (Step& s : steps_) reuse(s);
  std::vector<bool> begun(buffers_.size());
  for (Step& s : steps_) {
    for (const std::vector<int>* list : {&s.in, &s.out}) {
      for (const int b : *list) {
        const auto at = static_cast<std::size_t>(b);
        if (buffers_[at].input >= 0 || begun[at]) continue;
        begun[at] = true;
        s.fresh.push_back(b);
      }
    }
    if (s.group->fused) s.kernel = backend_.fuse(s.program, tier_);
  }
}

/// What has to be in memory: what the graph is run for, and what one group has from another.
void Plan::find_needed() {
  const auto need = [&](const Value& v) {
    if (v.node) needed_.insert({v.node.get(), v.output});
  };
  for (const Roots::Result& r : schedule_.roots().results) need(r.value);
  for (const Roots::Effect& e : schedule_.roots().effects) need(e.last);
  std::unordered_map<const Node*, const Group*> home;
  for (const Group& g : schedule_.groups()) {
    for (const Node* n : g.nodes) home.emplace(n, &g);
  }
  for (const Group& g : schedule_.groups()) {
    for (const Node* n : g.nodes) {
      for (const Input& in : n->in) {
        const Value v = in.use.from.node ? schedule_.resolve(in.use.from) : Value{};
        const auto at = home.find(v.node.get());
        if (at == home.end() || at->second != &g) need(v);
      }
      need(schedule_.base_of(*n));
    }
  }
}

int Plan::new_buffer(std::int64_t bytes) {
  buffers_.push_back({bytes, -1, false});
  return static_cast<int>(buffers_.size()) - 1;
}

int Plan::buffer_of(const Value& v) {
  const auto at = places_.find({v.node.get(), v.output});
  if (at != places_.end()) return at->second;
  // Along the chain of writes to where the memory comes from.
  std::vector<Value> chain{v};
  int b = -1;
  while (b < 0) {
    const Value now = chain.back();
    const auto known = places_.find({now.node.get(), now.output});
    if (known != places_.end()) {
      b = known->second;
    } else if (now.node->kind == NodeKind::input) {
      b = now.node->slot;
    } else if (const Value base = schedule_.base_of(*now.node); base.node) {
      chain.push_back(base);
    } else {
      b = new_buffer(now.node->bytes(now.output));
    }
  }
  for (const Value& value : chain) places_[{value.node.get(), value.output}] = b;
  return b;
}

void Plan::add_step(const Group& g) {
  Step s;
  s.group = &g;
  const auto resolve = [&](const Value& v) { return v.node ? schedule_.resolve(v) : v; };
  if (!g.fused) {
    const Node& n = *g.nodes[0];
    if (backend_.run[static_cast<std::size_t>(n.op->index)] == nullptr) {
      throw Unsupported(std::string(n.op->name()) + "(): " + std::string(backend_.name) + " has no such op",
                        {{"op", std::string(n.op->name())}, {"device", std::string(backend_.name)}});
    }
    for (const Input& in : n.in) s.in.push_back(in.is_number ? -1 : buffer_of(resolve(in.use.from)));
    for (int k = 0; k < static_cast<int>(n.out.size()); ++k) {
      s.made.push_back({NodeRef::share(g.nodes[0]), k});
      s.out.push_back(buffer_of(s.made.back()));
    }
    std::erase(s.in, -1);
    steps_.push_back(std::move(s));
    return;
  }
  const auto stores = [&](const Node& n, int k) { return n.base.node || needed_.contains({&n, k}); };
  std::vector<Value> in, out;
  s.program = make_program(g.pass, g.nodes, g.moved, resolve, stores, in, out);
  if (out.empty() || in.size() + out.size() > static_cast<std::size_t>(most_operands_of_group)) {
    throw std::logic_error("plan: a group of " + std::to_string(in.size()) + " inputs and " +
                           std::to_string(out.size()) + " outputs: " + text(s.program));
  }
  for (const Value& v : in) s.in.push_back(buffer_of(v));
  for (const Value& v : out) s.out.push_back(buffer_of(v));
  s.made = out;
  for (std::size_t k = 0; k < s.out.size(); ++k) {
    for (std::size_t i = 0; i < s.in.size(); ++i) {
      if (s.in[i] == s.out[k] && !s.program.whole[i]) s.program.replaces[k] = static_cast<int>(i);
    }
    if (buffers_[static_cast<std::size_t>(s.out[k])].input >= 0) s.program.interruptible = false;
  }
  steps_.push_back(std::move(s));
}

void Plan::reuse(Step& s) {
  if (!s.group->fused) return;
  for (std::size_t k = 0; k < s.out.size(); ++k) {
    const int fresh = s.out[k];
    const Buffer& wanted = buffers_[static_cast<std::size_t>(fresh)];
    const TensorImpl& form = *s.program.out[k];
    // Only what begins here: no chain of writes has it before.
    bool begins = wanted.input < 0 && !wanted.result && form.nbytes() == wanted.bytes;
    for (const Step& other : steps_) {
      if (&other == &s) break;
      begins = begins && std::ranges::find(other.out, fresh) == other.out.end();
    }
    // A product is there before anything else of its tile is read.
    const bool product = s.program.pass.kind == Pass::product && !s.made[k].node->is_elementwise();
    if (!begins || product || s.program.replaces[k] >= 0) continue;
    for (std::size_t i = 0; i < s.in.size(); ++i) {
      const int dying = s.in[i];
      if (std::ranges::find(s.done, dying) == s.done.end() || std::ranges::count(s.in, dying) != 1 ||
          std::ranges::find(s.out, dying) != s.out.end() || s.program.whole[i])
        continue;
      const TensorImpl& read = *s.program.in[i];
      if (!same_places(read, form) || buffers_[static_cast<std::size_t>(dying)].bytes != wanted.bytes) continue;
      s.program.replaces[k] = static_cast<int>(i);
      // From here on the old number stands for both.
      for (Step& other : steps_) {
        std::ranges::replace(other.in, fresh, dying);
        std::ranges::replace(other.out, fresh, dying);
        std::ranges::replace(other.done, fresh, dying);
      }
      std::erase(s.done, dying);
      std::ranges::replace(results_, fresh, dying);
      for (auto& [from, to] : write_back_) from = from == fresh ? dying : from;
      break;
    }
  }
}

std::int64_t Plan::temporary_bytes() const {
  std::int64_t now = 0, most = 0;
  for (const Step& s : steps_) {
    for (const int b : s.fresh) {
      const Buffer& buffer = buffers_[static_cast<std::size_t>(b)];
      if (!buffer.result) now += buffer.bytes;
    }
    most = std::max(most, now);
    for (const int b : s.done) now -= buffers_[static_cast<std::size_t>(b)].bytes;
  }
  return most;
}

void Plan::call(const Step& s, Running& r, Recorder* rec) const {
  const Node& n = *s.group->nodes[0];
  SmallVector<Operand, most_operands> operands;
  SmallVector<TensorRef, most_operands> held;
  std::size_t next = 0;
  for (const Input& in : n.in) {
    Operand o;
    if (in.is_number) {
      o = in.number;
    } else {
      held.push_back(tensor_over(*in.use.form, r.memory(s.in[next++]), device_));
      o.tensor = held.back().get();
    }
    operands.push_back(o);
  }
  TensorRef target;
  const bool own_place = n.base.node || buffers_[static_cast<std::size_t>(s.out[0])].input >= 0;
  if (own_place) target = tensor_over(*n.out[0], r.memory(s.out[0]), device_);
  const Call c{*n.op, {operands.data(), operands.size()}, n.attrs.get()};
  try {
    const Validated v = SchemaGuard::check(rec, c, target.get());
    const Outputs o = backend_.run[static_cast<std::size_t>(n.op->index)](v, target.get(), rec);
    for (std::size_t k = 0; !own_place && k < s.out.size(); ++k)
      r.storages[static_cast<std::size_t>(s.out[k])] = o[static_cast<int>(k)]->storage_ref();
  } catch (const Interrupted&) {
    throw;
  } catch (const Error& e) {
    const std::string line = describe(n.location);
    if (line.empty()) throw;
    Error::Attributes attributes = e.attributes();
    attributes.emplace_back("line", line);
    throw Error(e.kind(), std::string(e.what()) + " (" + line + ")", attributes);
  }
}

std::string Plan::machine_code(int step) const {
  const Step& s = steps_[static_cast<std::size_t>(step)];
  return s.kernel != nullptr ? s.kernel->machine_code() : "";
}

PlanKernel Plan::text_of(const Step& s) const {
  PlanKernel k;
  k.fused = s.kernel != nullptr;
  k.nodes = static_cast<int>(s.group->nodes.size());
  k.reason = s.group->reason != nullptr ? s.group->reason : "";
  for (const Node* n : s.group->nodes) k.name += (k.name.empty() ? "" : ", ") + n->name();
  const Node& last = *s.group->nodes.back();
  k.shape = to_vector(last.out[0]->shape());
  if (k.fused) {
    k.source = text(s.program);
    k.tier = s.kernel->tier();
    for (const TensorRef& form : s.program.in) k.read += bytes_in_memory(*form);
    for (const TensorRef& form : s.program.out) k.written += bytes_in_memory(*form);
  } else {
    for (const Input& in : last.in) k.read += in.is_number || in.absent() ? 0 : bytes_in_memory(*in.use.form);
    for (const TensorRef& form : last.out) k.written += bytes_in_memory(*form);
  }
  return k;
}

PlanGraph Plan::graph() const {
  PlanGraph g;
  g.temporary_bytes = temporary_bytes();
  std::unordered_map<const Node*, int> places;
  std::map<const Node*, std::vector<const TensorImpl*>> read;  // of memory from outside, each piece once
  const auto made_text = [](const TensorImpl& form) {
    return std::string(name(form.dtype())) + " " + to_string(form.shape());
  };
  const auto place_of = [&](const Value& v, const TensorImpl& form) {
    if (v.node->kind == NodeKind::input) {
      std::vector<const TensorImpl*>& forms = read[v.node.get()];
      if (std::ranges::none_of(forms, [&](const TensorImpl* f) { return same_places(*f, form); }))
        forms.push_back(&form);
    }
    const auto [at, added] = places.emplace(v.node.get(), static_cast<int>(g.nodes.size()));
    if (added)
      g.nodes.push_back(
          {v.node->kind == NodeKind::input ? "input" : v.node->name(), made_text(form), "", -1, v.node->slot});
    return at->second;
  };
  for (const Step& s : steps_) {
    const int kernel = static_cast<int>(g.kernels.size());
    g.kernels.push_back(text_of(s));
    for (const Node* n : s.group->nodes) {
      PlanNode made{n->name(), made_text(*n->out[0]), describe(n->location), kernel};
      const auto from = [&](const Value& v, const TensorImpl& form) {
        const int place = place_of(v, form);
        if (std::ranges::find(made.from, place) == made.from.end()) made.from.push_back(place);
      };
      for (const Input& in : n->in) {
        if (in.use.from.node) from(schedule_.resolve(in.use.from), *in.use.form);
      }
      if (const Value base = schedule_.base_of(*n); base.node) from(base, *n->out[0]);
      places[n] = static_cast<int>(g.nodes.size());
      g.nodes.push_back(std::move(made));
    }
  }
  for (const auto& [node, forms] : read) {
    std::int64_t bytes = 0;
    for (const TensorImpl* f : forms) bytes += bytes_in_memory(*f);
    g.bytes_least += std::min(bytes, node->bytes(0));
  }
  std::set<std::pair<const Node*, int>> given;
  const auto give = [&](const Value& v) {
    const auto at = places.find(v.node.get());
    if (at == places.end() || v.node->kind == NodeKind::input || !given.emplace(v.node.get(), v.output).second) return;
    g.nodes[static_cast<std::size_t>(at->second)].given = true;
    g.bytes_least += bytes_in_memory(*v.node->out[static_cast<std::size_t>(v.output)]);
  };
  for (const Roots::Result& r : schedule_.roots().results) give(r.value);
  for (const Roots::Effect& e : schedule_.roots().effects) give(e.last);
  return g;
}

/// Tells a recorder which kernel of the plan runs; ends the plan, however it ends.
class Plan::Told {
 public:
  Told(const Plan& p, Recorder* rec) : rec_(rec != nullptr && rec->keeps_plans() ? rec : nullptr) {
    if (rec_ == nullptr) return;
    PlanGraph g = p.graph();
    g.name = rec->current_op().name;
    for (std::size_t k = 0; k < g.kernels.size(); ++k) g.kernels[k].assembly = p.machine_code(static_cast<int>(k));
    rec_->begin_plan(std::move(g));
  }
  ~Told() {
    if (rec_ != nullptr) rec_->end_plan();
  }
  Told(const Told&) = delete;
  Told& operator=(const Told&) = delete;
  /// A fused kernel reads and writes each operand once where it has to; how often it did, a CPU's kernel counts itself.
  void ended() const {
    if (rec_ == nullptr) return;
    hyalite::Step& s = rec_->last();
    const PlanGraph& g = rec_->plans[static_cast<std::size_t>(s.plan)];
    const PlanKernel& k = g.kernels[static_cast<std::size_t>(s.plan_kernel)];
    s.bytes_least = k.read + k.written;
    if (!s.launches.empty()) s.bytes_moved = s.bytes_least;
  }
  void begins(std::size_t kernel) const {
    if (rec_ != nullptr) rec_->begin_plan_kernel(static_cast<int>(kernel));
  }

 private:
  Recorder* rec_;
};

void Plan::run(std::span<const Memory> inputs, std::span<Ref<Storage>> results, Recorder* rec,
               const Watch* watch) const {
  Running r{inputs, SmallVector<Ref<Storage>, 8>(buffers_.size()), buffers_};
  const auto make = [&](int b) {
    Ref<Storage>& s = r.storages[static_cast<std::size_t>(b)];
    if (!s) s = backend_.memory(static_cast<std::size_t>(buffers_[static_cast<std::size_t>(b)].bytes));
  };
  Memory in[most_operands_of_group], out[most_operands_of_group];
  const ScopedSet<const Node*> nobody(running_node, nullptr);
  const Told told(*this, rec);
  for (const Step& s : steps_) {
    running_node = s.group->nodes[0];
    told.begins(static_cast<std::size_t>(&s - steps_.data()));
    const bool call_makes = s.kernel == nullptr && !s.group->nodes[0]->base.node;
    if (!call_makes) {
      for (const int b : s.fresh) make(b);
    } else {
      for (const int b : s.fresh) {
        if (std::ranges::find(s.out, b) == s.out.end()) make(b);  // memory with any values
      }
    }
    if (s.kernel != nullptr) {
      for (std::size_t i = 0; i < s.in.size(); ++i) in[i] = r.memory(s.in[i]);
      for (std::size_t k = 0; k < s.out.size(); ++k) out[k] = r.memory(s.out[k]);
      s.kernel->run({in, s.in.size()}, {out, s.out.size()}, rec);
      told.ended();
    } else {
      call(s, r, rec);
    }
    for (std::size_t k = 0; watch != nullptr && k < s.out.size(); ++k) {
      const TensorImpl& form = *s.made[k].node->out[static_cast<std::size_t>(s.made[k].output)];
      (*watch)(static_cast<int>(&s - steps_.data()), s.made[k], *tensor_over(form, r.memory(s.out[k])));
    }
    for (const int b : s.done) r.storages[static_cast<std::size_t>(b)] = {};
  }
  for (const auto& [from, to] : write_back_) {
    const std::int64_t bytes = buffers_[static_cast<std::size_t>(from)].bytes;
    const TensorRef whole = TensorImpl::make(Dtype::uint8, {}, DimList{bytes}, DimList{1}, {});
    backend_.copy(*tensor_over(*whole, r.memory(from)), *tensor_over(*whole, r.memory(to)));
  }
  for (std::size_t i = 0; i < results_.size(); ++i) {
    make(results_[i]);
    results[i] = r.storages[static_cast<std::size_t>(results_[i])];
  }
}

}  // namespace hyalite::lazy
