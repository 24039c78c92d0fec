/// Equal calls once, an order that writes after all who read, and groups that grow from operand to result.
#include "compute/lazy/fuse.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <stdexcept>
#include <unordered_set>

#include "compute/lazy/groups.h"

namespace hyalite::lazy {

// A build without optimisation is one for tests.
#ifdef __OPTIMIZE__
std::atomic<bool> Schedule::checked{false};
#else
std::atomic<bool> Schedule::checked{true};
#endif

namespace {

std::size_t joined(std::size_t a, std::size_t b) { return detail::joined_hash(a, b); }

std::size_t hash_of(const TensorImpl& form) {
  std::size_t h = joined(static_cast<std::size_t>(form.dtype()), static_cast<std::size_t>(form.offset()));
  for (int i = 0; i < form.ndim(); ++i) {
    h = joined(h, static_cast<std::size_t>(form.shape()[static_cast<std::size_t>(i)]));
    h = joined(h, static_cast<std::size_t>(form.strides()[static_cast<std::size_t>(i)]));
  }
  return h;
}

/// Whether another node that is equal would make the same values.
bool is_pure(const Node& n) {
  if (n.base.node || n.kind == NodeKind::input || n.kind == NodeKind::empty) return false;
  return n.kind != NodeKind::call || n.op->schema.deterministic;
}

/// The memory at the beginning of a chain of writes.
const Node* origin(const Schedule& s, const Node* n) {
  for (Value b = s.base_of(*n); b.node; b = s.base_of(*n)) n = s.resolve(b).node.get();
  return n;
}

}  // namespace

Value Schedule::resolve(const Value& v) const {
  const auto at = same_.find(v.node.get());
  const Value known = at == same_.end() ? v : Value{at->second, v.output};
  const auto given = given_.find({known.node.get(), known.output});
  return given == given_.end() ? known : given->second;
}

Value Schedule::base_of(const Node& n) const {
  const auto at = bases_.find(&n);
  return at != bases_.end() ? at->second : n.base.node ? resolve(n.base) : Value{};
}

/// The schedule while it is made.
struct Schedule::Draft : Ordered {
  Schedule& s;

  explicit Draft(Schedule& schedule) : s(schedule) {}

  // ---- equal calls ----

  std::size_t hash_of_node(const Node& n) const {
    std::size_t h = joined(static_cast<std::size_t>(n.kind), reinterpret_cast<std::size_t>(n.op));
    if (n.attrs) h = joined(h, n.attrs->hash());
    for (const Input& in : n.in) {
      if (in.is_number) {
        std::size_t word = 0;
        std::memcpy(&word, in.number.bytes.data(), std::min<std::size_t>(sizeof word, itemsize(in.number.dtype)));
        h = joined(h, word);
      } else if (in.use.from.node) {
        h = joined(h, reinterpret_cast<std::size_t>(s.resolve(in.use.from).node.get()));
        h = joined(h, hash_of(*in.use.form));
      }
    }
    for (const TensorRef& form : n.out) h = joined(h, hash_of(*form));
    return h;
  }
  bool equal(const Node& a, const Node& b) const {
    if (a.kind != b.kind || a.op != b.op || a.computed != b.computed || a.real_operand != b.real_operand ||
        a.mixed != b.mixed || a.operand != b.operand || a.from_nothings != b.from_nothings ||
        a.numbers_and_nothings != b.numbers_and_nothings || a.in.size() != b.in.size() || a.out.size() != b.out.size())
      return false;
    if (static_cast<bool>(a.attrs) != static_cast<bool>(b.attrs) || (a.attrs && !(*a.attrs == *b.attrs))) return false;
    for (std::size_t i = 0; i < a.in.size(); ++i) {
      const Input &x = a.in[i], &y = b.in[i];
      if (x.is_number != y.is_number || x.absent() != y.absent()) return false;
      if (x.is_number && !same_number(x.number, y.number)) return false;
      if (x.is_number || x.absent()) continue;
      if (s.resolve(x.use.from) != s.resolve(y.use.from) || !same_form(*x.use.form, *y.use.form)) return false;
    }
    for (std::size_t k = 0; k < a.out.size(); ++k) {
      if (!same_form(*a.out[k], *b.out[k])) return false;
    }
    return true;
  }
  void find_equal_calls(const std::vector<Node*>& all) {
    std::unordered_multimap<std::size_t, Node*> seen;
    for (Node* n : all) {
      if (!is_pure(*n) || s.given_.contains({n, 0})) continue;
      const std::size_t h = hash_of_node(*n);
      const auto [from, to] = seen.equal_range(h);
      const auto at = std::find_if(from, to, [&](const auto& entry) { return equal(*entry.second, *n); });
      if (at != to) {
        s.same_.emplace(n, NodeRef::share(at->second));
      } else {
        seen.emplace(h, n);
      }
    }
  }

  // ---- copies ----

  /// Copies of elements as they lie, which only read what nobody overwrites before: they stand for the original. A
  /// gradient's node keeps such a copy of what others may write.
  void find_needless_copies(const std::vector<Node*>& all) {
    const auto key = [&](const Value& v) { return std::pair<const Node*, int>(v.node.get(), v.output); };
    std::map<std::pair<const Node*, int>, std::uint64_t> first_write, last_read;
    const auto written = [&](const Value& v, std::uint64_t when) {
      const auto [at, fresh] = first_write.emplace(key(v), when);
      if (!fresh) at->second = std::min(at->second, when);
    };
    for (const Node* n : all) {
      if (n->base.node) written(n->base, n->sequence);
      for (const Input& in : n->in) {
        if (in.use.from.node) last_read[key(in.use.from)] = n->sequence;  // they come in their order
      }
    }
    constexpr std::uint64_t at_the_end = ~std::uint64_t{0};
    for (const Roots::Result& r : s.roots_.results) last_read[key(r.value)] = at_the_end;
    std::set<std::pair<const Node*, int>> last_of_effects;
    for (const Roots::Effect& e : s.roots_.effects) {
      last_of_effects.insert(key(e.last));
      written(e.first, e.last.node->sequence);
    }
    for (const Node* n : all) {
      if ((n->kind != NodeKind::copy && !n->converts) || n->base.node || n->in.size() != 1 || !n->in[0].use.from.node)
        continue;
      const Value from = s.resolve(n->in[0].use.from), made{NodeRef::share(const_cast<Node*>(n)), 0};
      if (!same_form(*n->in[0].use.form, *n->out[0]) || first_write.contains(key(made)) || from.node == made.node)
        continue;
      const auto ends = first_write.find(key(from));
      const std::uint64_t read = last_read.contains(key(made)) ? last_read[key(made)] : 0;
      // What is given out is no memory that was there before.
      if (last_of_effects.contains(key(made)) || (read == at_the_end && from.node->kind == NodeKind::input) ||
          (ends != first_write.end() && read >= ends->second))
        continue;
      s.given_.emplace(key(made), from);
      last_read[key(from)] = std::max(last_read[key(from)], read);
    }
  }

  // ---- nodes and edges ----

  /// What the resolved roots need, operands first.
  void collect() {
    std::unordered_set<Node*> seen;
    const auto visit = [&](const Value& v) {
      if (v.node && seen.insert(v.node.get()).second) nodes.push_back(v.node.get());
    };
    for (const Roots::Result& r : s.roots_.results) visit(r.value);
    for (const Roots::Effect& e : s.roots_.effects) visit(e.last);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      for (const Input& in : nodes[i]->in) visit(s.resolve(in.use.from));
      visit(s.base_of(*nodes[i]));
    }
    // What is given stands before everything, whenever it was made.
    const auto rank = [](const Node* n) { return std::pair(n->kind != NodeKind::input, n->sequence); };
    std::ranges::sort(nodes, [&](const Node* a, const Node* b) { return rank(a) < rank(b); });
  }

  void number() {
    place.clear();
    before.assign(nodes.size(), {});
    readers.assign(nodes.size(), {});
    for (std::size_t i = 0; i < nodes.size(); ++i) place.emplace(nodes[i], static_cast<int>(i));
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const int at = static_cast<int>(i);
      const auto reads = [&](const Value& v, const TensorImpl* form) {
        if (!v.node) return;
        const int from = place.at(v.node.get());
        before[i].push_back(from);
        readers[static_cast<std::size_t>(from)].push_back({at, v.output, form});
      };
      for (const Input& in : nodes[i]->in) reads(s.resolve(in.use.from), in.use.form.get());
      reads(s.base_of(*nodes[i]), nullptr);
    }
  }

  bool is_result(const Value& v) const {
    return std::ranges::any_of(s.roots_.results, [&](const Roots::Result& r) { return r.value == v; });
  }

  /// Whether all who read `v`, but the writer, stand before it.
  bool may_overwrite(const Value& v, int writer) const {
    if (is_result(v) || v.node->constant) return false;
    for (const Reader& r : readers[static_cast<std::size_t>(place.at(v.node.get()))]) {
      if (r.output == v.output && r.node > writer) return false;
    }
    return true;
  }
  void overwrite(const Value& v, int writer) {
    const TensorImpl& form = *nodes[static_cast<std::size_t>(writer)]->out[0];
    for (const Reader& r : readers[static_cast<std::size_t>(place.at(v.node.get()))]) {
      if (r.output != v.output || (r.node == writer && r.form == nullptr)) continue;
      const bool aligned = r.form != nullptr && same_places(*r.form, form);
      overwrites.push_back({r.node, writer, aligned});
      if (r.node != writer) before[static_cast<std::size_t>(writer)].push_back(r.node);
    }
  }

  static NodeRef copy_node(const Value& v, std::int64_t bytes) {
    const NodeRef c = Node::make(NodeKind::copy);
    const TensorRef whole = TensorImpl::make(Dtype::uint8, {}, DimList{bytes}, DimList{1}, {});
    c->computed = Dtype::uint8;
    c->in.resize(1);
    c->in[0].use = {v, whole};
    c->out.push_back(whole);
    return c;
  }

  /// Writes to a part of a value that somebody reads later get a copy to write to.
  void copy_bases() {
    std::vector<Node*> with_copies;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      Node& n = *nodes[i];
      const Value base = s.base_of(n);
      if (base.node && !may_overwrite(base, static_cast<int>(i))) {
        const NodeRef c = copy_node(base, n.base_bytes);
        s.keep_.push_back(c);
        s.bases_[&n] = {c, 0};
        with_copies.push_back(c.get());
      }
      with_copies.push_back(&n);
    }
    nodes = std::move(with_copies);
  }

  /// Results in memory of their own.
  void copy_results() {
    std::vector<std::pair<Value, const void*>> owners;
    for (Roots::Result& r : s.roots_.results) {
      const Node* first = origin(s, r.value.node.get());
      bool shared = first->kind == NodeKind::input;
      for (const Roots::Effect& e : s.roots_.effects) shared |= e.last == r.value;
      const auto owner = std::ranges::find_if(owners, [&](const auto& o) { return o.first == r.value; });
      if (owner != owners.end()) shared |= owner->second != r.memory;
      if (!shared) {
        if (owner == owners.end()) owners.emplace_back(r.value, r.memory);
        continue;
      }
      const NodeRef c = copy_node(r.value, r.value.node->bytes(r.value.output));
      s.keep_.push_back(c);
      nodes.push_back(c.get());
      for (Roots::Result& other : s.roots_.results) {
        if (&other != &r && other.memory == r.memory && other.value == r.value) other.value = {c, 0};
      }
      r.value = {c, 0};
    }
  }

  /// Which effects are computed where they belong.
  void place_effects() {
    for (const Roots::Effect& e : s.roots_.effects) {
      Node* const last = e.last.node.get();
      const Node* first = origin(s, last);
      bool in_place = first == e.first.node.get();
      if (!in_place && first == last && e.last.output == 0 && last->is_elementwise() && place.contains(last)) {
        const int writer = place.at(last);
        const auto used = std::ranges::count_if(s.roots_.effects, [&](const auto& o) { return o.last == e.last; });
        const bool read = place.contains(e.first.node.get());
        in_place = used == 1 && last->kind != NodeKind::empty && (!read || may_overwrite(e.first, writer));
        if (in_place && read) overwrite(e.first, writer);
      }
      s.in_place_.push_back(in_place);
    }
  }
};

Schedule::Schedule(const Roots& roots, const Backend& backend, bool fuse) : roots_(roots) {
  std::vector<Value> all;
  for (const Roots::Result& r : roots.results) all.push_back(r.value);
  for (const Roots::Effect& e : roots.effects) all.push_back(e.last);
  for (const auto& [value, input] : roots.given) {
    all.push_back(value);
    all.push_back(input);
    given_.emplace(std::pair(value.node.get(), value.output), input);
  }
  Draft d(*this);
  const std::vector<Node*> given = reachable(all);
  for (Node* n : given) keep_.push_back(NodeRef::share(n));
  d.find_needless_copies(given);
  d.find_equal_calls(given);
  for (Roots::Result& r : roots_.results) r.value = resolve(r.value);
  for (Roots::Effect& e : roots_.effects) e.last = resolve(e.last);
  d.collect();
  d.copy_results();
  d.number();
  d.copy_bases();
  d.number();
  for (std::size_t i = 0; i < d.nodes.size(); ++i) {
    if (const Value base = base_of(*d.nodes[i]); base.node) d.overwrite(base, static_cast<int>(i));
  }
  d.place_effects();
  groups_ = make_groups(d, *this, backend, fuse);
  if (checked.load(std::memory_order_relaxed)) check();
}

void Schedule::check() const {
  std::unordered_set<const Node*> done;
  const auto fail = [](const Node& n, const char* rule) {
    throw std::logic_error("schedule: " + n.name() + " " + rule);
  };
  std::unordered_map<const Node*, int> rank;
  int at = 0;
  for (const Group& g : groups_) {
    for (const Node* n : g.nodes) {
      if (!rank.emplace(n, at).second) fail(*n, "stands in two groups");
    }
    ++at;
  }
  for (const Group& g : groups_) {
    for (const Node* n : g.nodes) {
      const auto need = [&](const Value& v) {
        if (!v.node || v.node->kind == NodeKind::input || v.node->kind == NodeKind::empty) return;
        if (!done.contains(v.node.get())) fail(*n, "runs before what it reads");
      };
      const auto moved = g.moved.find(n);
      for (std::size_t k = 0; k < n->in.size(); ++k) {
        const Value v = resolve(n->in[k].use.from);
        need(v);
        if (!v.node || !rank.contains(v.node.get()) || rank.at(v.node.get()) != rank.at(n)) continue;
        const TensorImpl& made = *v.node->out[static_cast<std::size_t>(v.output)];
        const bool as_seen = moved != g.moved.end() && moved->second[k];
        const TensorImpl& form = as_seen ? *moved->second[k] : *n->in[k].use.form;
        const bool kept = g.pass.is_kept(made) && g.pass.is_kept(form);
        const bool repeats = g.pass.is_kept(made) && g.pass.repeats_kept(form);
        if (!same_form(form, made) && !kept && !repeats && !g.moved.contains(v.node.get()))
          fail(*n, "reads in another order what its own group makes");
      }
      need(base_of(*n));
      // Whoever reads what this one overwrites has done so, or does so in this pass, element for element.
      if (const Value base = base_of(*n); base.node) {
        for (const Group& other : groups_) {
          for (const Node* r : other.nodes) {
            if (r == n || done.contains(r)) continue;
            for (const Input& in : r->in) {
              if (resolve(in.use.from) == base) fail(*n, "overwrites what is read later");
            }
          }
        }
      }
      done.insert(n);
    }
    if (g.fused) {
      for (const Node* n : g.nodes) {
        const TensorImpl& out = *n->out[0];
        if (!g.pass.is_full(out.shape()) && !g.pass.is_kept(out) && !g.moved.contains(n))
          fail(*n, "has another shape than its group");
      }
    } else if (g.nodes.size() != 1) {
      fail(*g.nodes[0], "is not alone");
    }
  }
  for (const Roots::Result& r : roots_.results) {
    if (r.value.node->kind != NodeKind::empty && !done.contains(r.value.node.get())) fail(*r.value.node, "never runs");
  }
}

}  // namespace hyalite::lazy
