/// Equal calls once, an order that writes after all who read, and groups that grow from operand to result.
#include "compute/lazy/fuse.h"

#include <algorithm>
#include <cstring>
#include <queue>
#include <stdexcept>
#include <unordered_set>

#include "compute/lazy/program.h"

namespace hyalite::lazy {
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

bool same_number(const Operand& a, const Operand& b) {
  return a.dtype == b.dtype && std::memcmp(a.bytes.data(), b.bytes.data(), itemsize(a.dtype)) == 0;
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

bool same_form(const TensorImpl& a, const TensorImpl& b) {
  return a.dtype() == b.dtype() && a.offset() == b.offset() && same_dims(a.shape(), b.shape()) &&
         same_dims(a.strides(), b.strides());
}

Value Schedule::resolve(const Value& v) const {
  const auto at = same_.find(v.node.get());
  return at == same_.end() ? v : Value{at->second, v.output};
}

Value Schedule::base_of(const Node& n) const {
  const auto at = bases_.find(&n);
  return at != bases_.end() ? at->second : n.base.node ? resolve(n.base) : Value{};
}

/// The schedule while it is made. Nodes are places in `nodes`; every edge leads from a lower to a higher place.
struct Schedule::Draft {
  Schedule& s;
  std::vector<Node*> nodes;
  std::unordered_map<const Node*, int> place;
  std::vector<std::vector<int>> before;  // the nodes that have to run first
  /// Who reads an output of a node, through which form.
  struct Reader {
    int node;
    int output;
    const TensorImpl* form;
  };
  std::vector<std::vector<Reader>> readers;
  /// A node that writes where others have read.
  struct Overwrite {
    int reader, writer;
    bool aligned;  // element for element: then one pass may do both
  };
  std::vector<Overwrite> overwrites;

  struct Part {
    std::vector<int> nodes;  // ascending
    bool elementwise = false;
    const char* reason = nullptr;
  };
  std::vector<Part> parts;
  std::vector<int> part_of;

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
      if (!is_pure(*n)) continue;
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
    std::ranges::sort(nodes, [](const Node* a, const Node* b) { return a->sequence < b->sequence; });
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
      const bool aligned = r.form != nullptr && itemsize(r.form->dtype()) == itemsize(form.dtype()) &&
                           r.form->offset() == form.offset() && same_dims(r.form->shape(), form.shape()) &&
                           same_dims(r.form->strides(), form.strides());
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

  // ---- groups ----

  Part& part(int p) { return parts[static_cast<std::size_t>(p)]; }
  Node& node(int i) const { return *nodes[static_cast<std::size_t>(i)]; }

  /// By part: the parts that it needs, itself or through others, a bit each.
  std::vector<std::vector<std::uint64_t>> needed;
  std::size_t words = 0;

  bool needs(int p, int q) const {
    const auto at = static_cast<std::size_t>(q);
    return (needed[static_cast<std::size_t>(p)][at / 64] >> (at % 64) & 1) != 0;
  }
  /// Part p needs part q from now on, and all that q needs; so does whoever needs p.
  void add_need(int p, int q) {
    if (p == q || needs(p, q)) return;
    const auto add = [&](std::vector<std::uint64_t>& to) {
      const std::vector<std::uint64_t>& from = needed[static_cast<std::size_t>(q)];
      for (std::size_t w = 0; w < words; ++w) to[w] |= from[w];
      to[static_cast<std::size_t>(q) / 64] |= std::uint64_t{1} << (q % 64);
    };
    add(needed[static_cast<std::size_t>(p)]);
    for (std::size_t r = 0; r < parts.size(); ++r) {
      if (needs(static_cast<int>(r), p)) add(needed[r]);
    }
  }

  /// Whether the node reads what the part makes element for element, wherever it does.
  const char* why_not_read_here(int i, int p) {
    const Node& n = node(i);
    for (const Input& in : n.in) {
      const Value v = s.resolve(in.use.from);
      if (!v.node) continue;
      const int from = place.at(v.node.get());
      if (part_of[static_cast<std::size_t>(from)] != p) continue;
      const TensorImpl& made = *v.node->out[static_cast<std::size_t>(v.output)];
      if (same_form(*in.use.form, made)) continue;
      return same_dims(in.use.form->shape(), n.out[0]->shape()) ? "it reads its operand through a view"
                                                                : "its operand is broadcast: computed once";
    }
    if (const Value base = s.base_of(n); base.node) {
      if (part_of[static_cast<std::size_t>(place.at(base.node.get()))] == p) return "it writes a part of its operand";
    }
    for (const Overwrite& o : overwrites) {
      const bool here = (o.writer == i && part_of[static_cast<std::size_t>(o.reader)] == p) ||
                        (o.reader == i && part_of[static_cast<std::size_t>(o.writer)] == p);
      if (here && !(o.aligned && o.reader <= o.writer)) return "it writes what others read elsewhere";
    }
    return nullptr;
  }

  /// Operands of the nodes together, those that stay inside left out; an estimate from above.
  int operands_of(const std::vector<int>& members) {
    std::vector<std::pair<Value, const TensorImpl*>> seen;
    int count = 0;
    const std::unordered_set<int> inside(members.begin(), members.end());
    for (const int i : members) {
      for (const Input& in : node(i).in) {
        const Value v = s.resolve(in.use.from);
        if (!v.node || inside.contains(place.at(v.node.get()))) continue;
        const bool known = std::ranges::any_of(
            seen, [&](const auto& o) { return o.first == v && same_form(*o.second, *in.use.form); });
        if (known) continue;
        seen.emplace_back(v, in.use.form.get());
        ++count;
      }
      bool stored = node(i).base.node || is_root(&node(i));
      for (const Reader& r : readers[static_cast<std::size_t>(i)]) stored |= !inside.contains(r.node);
      if (stored) count += static_cast<int>(node(i).out.size());
    }
    return count;
  }
  bool is_root(const Node* n) const {
    return std::ranges::any_of(s.roots_.results, [&](const auto& r) { return r.value.node.get() == n; }) ||
           std::ranges::any_of(s.roots_.effects, [&](const auto& e) { return e.last.node.get() == n; });
  }

  /// Why node i cannot go on in part p; null if it can.
  const char* why_not(int i, int p) {
    if (!part(p).elementwise) return "its operand comes from no elementwise op";
    if (!same_dims(node(part(p).nodes[0]).out[0]->shape(), node(i).out[0]->shape())) return "it has another shape";
    if (const char* why = why_not_read_here(i, p)) return why;
    if (static_cast<int>(part(p).nodes.size()) >= most_nodes_of_group) return "the group is full";
    std::vector<int> members = part(p).nodes;
    members.push_back(i);
    if (operands_of(members) > most_operands_of_group) return "the group has as many operands as it can";
    for (const int b : before[static_cast<std::size_t>(i)]) {
      const int q = part_of[static_cast<std::size_t>(b)];
      if (q != p && needs(q, p)) return "something between them has to run first";
    }
    return nullptr;
  }

  /// Joins part q, from which part p reads, to it, where that is possible.
  void merge(int p, int q) {
    if (p == q || !part(q).elementwise) return;
    if (!same_dims(node(part(p).nodes[0]).out[0]->shape(), node(part(q).nodes[0]).out[0]->shape())) return;
    if (static_cast<int>(part(p).nodes.size() + part(q).nodes.size()) > most_nodes_of_group) return;
    for (const int i : part(p).nodes) {
      if (why_not_read_here(i, q) != nullptr) return;
    }
    for (const int i : part(q).nodes) {
      if (why_not_read_here(i, p) != nullptr) return;
    }
    std::vector<int> members = part(p).nodes;
    members.insert(members.end(), part(q).nodes.begin(), part(q).nodes.end());
    std::ranges::sort(members);
    if (operands_of(members) > most_operands_of_group || needs(q, p)) return;
    // Through a third part, p would need itself.
    for (const int i : part(p).nodes) {
      for (const int b : before[static_cast<std::size_t>(i)]) {
        const int x = part_of[static_cast<std::size_t>(b)];
        if (x != p && x != q && needs(x, q)) return;
      }
    }
    for (const int i : part(q).nodes) part_of[static_cast<std::size_t>(i)] = p;
    part(p).nodes = std::move(members);
    part(q).nodes.clear();
    std::vector<std::uint64_t>& mine = needed[static_cast<std::size_t>(p)];
    mine[static_cast<std::size_t>(q) / 64] &= ~(std::uint64_t{1} << (q % 64));
    for (std::size_t r = 0; r < parts.size(); ++r) {
      if (!needs(static_cast<int>(r), q) && !needs(static_cast<int>(r), p)) continue;
      for (std::size_t w = 0; w < words; ++w) needed[r][w] |= mine[w];
      needed[r][static_cast<std::size_t>(p) / 64] |= std::uint64_t{1} << (p % 64);
    }
  }

  void group() {
    part_of.assign(nodes.size(), -1);
    words = (nodes.size() + 63) / 64;
    const auto begin = [&](int i, bool elementwise, const char* reason) {
      part_of[static_cast<std::size_t>(i)] = static_cast<int>(parts.size());
      parts.push_back({{i}, elementwise, reason});
      needed.emplace_back(words);
    };
    for (int i = 0; i < static_cast<int>(nodes.size()); ++i) {
      const Node& n = node(i);
      if (n.kind == NodeKind::input || n.kind == NodeKind::empty) {
        begin(i, false, nullptr);
        continue;
      }
      const char* reason = n.is_elementwise() ? nullptr : "it is no elementwise op";
      std::vector<int> sources;
      if (n.is_elementwise()) {
        for (const int b : before[static_cast<std::size_t>(i)]) {
          if (node(b).kind == NodeKind::input || node(b).kind == NodeKind::empty) continue;
          sources.push_back(part_of[static_cast<std::size_t>(b)]);
        }
        std::ranges::sort(sources, std::greater());
        sources.erase(std::ranges::unique(sources).begin(), sources.end());
      }
      int home = -1;
      for (const int p : sources) {
        const char* why = why_not(i, p);
        if (why == nullptr) {
          home = p;
          break;
        }
        if (reason == nullptr) reason = why;
      }
      if (home < 0) {
        home = static_cast<int>(parts.size());
        begin(i, n.is_elementwise(), reason != nullptr ? reason : "its operands were there before");
      } else {
        part_of[static_cast<std::size_t>(i)] = home;
        part(home).nodes.push_back(i);
      }
      for (const int b : before[static_cast<std::size_t>(i)]) add_need(home, part_of[static_cast<std::size_t>(b)]);
      for (const int p : sources) merge(home, p);
    }
  }

  /// Parts in an order in which each comes after what it needs, else as the program has them.
  void order() {
    std::vector<std::unordered_set<int>> direct(parts.size());
    std::vector<std::vector<int>> after(parts.size());
    for (int i = 0; i < static_cast<int>(nodes.size()); ++i) {
      const int p = part_of[static_cast<std::size_t>(i)];
      for (const int b : before[static_cast<std::size_t>(i)]) {
        const int q = part_of[static_cast<std::size_t>(b)];
        if (q != p && direct[static_cast<std::size_t>(p)].insert(q).second)
          after[static_cast<std::size_t>(q)].push_back(p);
      }
    }
    std::priority_queue<std::pair<int, int>, std::vector<std::pair<int, int>>, std::greater<>> ready;
    std::vector<std::size_t> waits(parts.size());
    for (std::size_t p = 0; p < parts.size(); ++p) {
      waits[p] = direct[p].size();
      if (!parts[p].nodes.empty() && waits[p] == 0) ready.emplace(parts[p].nodes.back(), static_cast<int>(p));
    }
    while (!ready.empty()) {
      const int p = ready.top().second;
      ready.pop();
      Group g;
      g.elementwise = part(p).elementwise;
      g.reason = part(p).reason;
      for (const int i : part(p).nodes) g.nodes.push_back(nodes[static_cast<std::size_t>(i)]);
      if (g.nodes[0]->kind != NodeKind::input && g.nodes[0]->kind != NodeKind::empty) s.groups_.push_back(std::move(g));
      for (const int q : after[static_cast<std::size_t>(p)]) {
        if (--waits[static_cast<std::size_t>(q)] == 0) ready.emplace(part(q).nodes.back(), q);
      }
    }
  }
};

Schedule::Schedule(const Roots& roots) : roots_(roots) {
  std::vector<Value> all;
  for (const Roots::Result& r : roots.results) all.push_back(r.value);
  for (const Roots::Effect& e : roots.effects) all.push_back(e.last);
  Draft d(*this);
  const std::vector<Node*> given = reachable(all);
  for (Node* n : given) keep_.push_back(NodeRef::share(n));
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
  d.group();
  d.order();
#ifndef NDEBUG
  check();
#endif
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
      for (const Input& in : n->in) {
        const Value v = resolve(in.use.from);
        need(v);
        if (!v.node || !rank.contains(v.node.get()) || rank.at(v.node.get()) != rank.at(n)) continue;
        if (!same_form(*in.use.form, *v.node->out[static_cast<std::size_t>(v.output)]))
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
    if (g.elementwise) {
      for (const Node* n : g.nodes) {
        if (!n->is_elementwise()) fail(*n, "is no elementwise op");
        if (!same_dims(n->out[0]->shape(), g.nodes[0]->out[0]->shape())) fail(*n, "has another shape than its group");
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
