/// Which nodes run in one pass.
#include "compute/lazy/groups.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <unordered_set>

#include "compute/lazy/program.h"

namespace hyalite::lazy {
namespace {

/// Nodes that will run together.
struct Part {
  std::vector<int> nodes;  // ascending
  bool fuses = false;      // more may join
  const char* reason = nullptr;
  Pass pass;
  Moved moved;
};

/// What a node is to a pass.
enum class Role : std::uint8_t { full, kept, reduction, none };

class Groups {
 public:
  Groups(const Ordered& g, const Schedule& s, const Backend& b, bool fuse)
      : g_(g), s_(s), fuse_(fuse), part_of_(g.nodes.size(), -1), words_((g.nodes.size() + 63) / 64) {
    for (const Node* n : g.nodes) {
      axes_.push_back(reduced_axes(*n, b));
      multiplies_.push_back(is_product(*n, b));
    }
  }

  std::vector<Group> make() {
    for (int i = 0; i < static_cast<int>(g_.nodes.size()); ++i) place(i);
    return ordered();
  }

 private:
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  Part& part(int p) { return parts_[at(p)]; }
  const Node& node(int i) const { return *g_.nodes[at(i)]; }
  int part_of(const Value& v) const { return part_of_[at(g_.place.at(v.node.get()))]; }
  bool is_memory(int i) const { return node(i).kind == NodeKind::input || node(i).kind == NodeKind::empty; }

  // ---- which parts need which ----

  bool needs(int p, int q) const { return (needed_[at(p)][at(q) / 64] >> (q % 64) & 1) != 0; }
  void set(std::vector<std::uint64_t>& bits, int q) { bits[at(q) / 64] |= std::uint64_t{1} << (q % 64); }
  /// Part p needs part q from now on, and all that q needs; so does whoever needs p.
  void add_need(int p, int q) {
    if (p == q || needs(p, q)) return;
    const std::vector<std::uint64_t> more = needed_[at(q)];
    for (int r = 0; r < static_cast<int>(parts_.size()); ++r) {
      if (r != p && !needs(r, p)) continue;
      for (std::size_t w = 0; w < words_; ++w) needed_[at(r)][w] |= more[w];
      set(needed_[at(r)], q);
    }
  }

  // ---- what may join ----

  /// Whether the node is computed in the order of one who reads it through a view.
  bool is_moved(int i) const {
    const int p = part_of_[at(i)];
    return p >= 0 && parts_[at(p)].moved.contains(&node(i));
  }
  /// How the node reads its operand k.
  const TensorImpl& form_of(int i, std::size_t k) const {
    const int p = part_of_[at(i)];
    if (p >= 0) {
      const auto found = parts_[at(p)].moved.find(&node(i));
      if (found != parts_[at(p)].moved.end() && found->second[k]) return *found->second[k];
    }
    return *node(i).in[k].use.form;
  }

  /// Part q as the operand k of node i sees it: null unless i, through that view, is all that needs anything of q.
  std::optional<Moved> moved_to(int q, int i, std::size_t k) {
    if (!part(q).fuses || part(q).pass.kind != Pass::flat) return {};
    const TensorImpl& seen = *node(i).in[k].use.form;
    const Value v = s_.resolve(node(i).in[k].use.from);
    const TensorImpl& made = *v.node->out[at(v.output)];
    // A view of the parts of complex numbers sees other elements.
    if (part(q).moved.contains(v.node.get()) || seen.dtype() != made.dtype()) return {};
    Moved moved;
    const std::unordered_set<int> inside(part(q).nodes.begin(), part(q).nodes.end());
    for (const int member : part(q).nodes) {
      const Node& n = node(member);
      if (n.base.node || is_root(&n)) return {};
      for (const Ordered::Reader& r : g_.readers[at(member)]) {
        const bool here = inside.contains(r.node) || (r.node == i && &n == v.node.get() && r.form == &seen);
        if (!here) return {};
      }
      for (const Ordered::Overwrite& o : g_.overwrites) {
        if (o.writer == member || o.reader == member) return {};
      }
      // All of it is in one order, so that one view serves for all.
      if (!is_moved(member) && !same_form_but_dtype(*n.out[0], made)) return {};
      std::vector<TensorRef> forms(n.in.size());
      for (std::size_t j = 0; j < n.in.size(); ++j) {
        const Value from = s_.resolve(n.in[j].use.from);
        if (!from.node || inside.contains(g_.place.at(from.node.get()))) continue;
        const TensorRef as_seen = TensorImpl::make(made.dtype(), {}, seen.shape(), seen.strides(), {}, seen.offset());
        const std::optional<TensorRef> form = seen_through(form_of(member, j), made, *as_seen);
        if (!form) return {};
        forms[j] = *form;
      }
      moved.emplace(&n, std::move(forms));
    }
    return moved;
  }
  static bool same_form_but_dtype(const TensorImpl& a, const TensorImpl& b) {
    return a.offset() == b.offset() && same_dims(a.shape(), b.shape()) && same_dims(a.strides(), b.strides());
  }

  /// Takes the parts that node i, which has just begun or joined part p, reads through views into p.
  void take_through_views(int i, int p) {
    for (std::size_t k = 0; k < node(i).in.size(); ++k) {
      const Value v = s_.resolve(node(i).in[k].use.from);
      if (!v.node || v.node->kind == NodeKind::input || v.node->kind == NodeKind::empty) continue;
      const int q = part_of(v);
      const TensorImpl& seen = *node(i).in[k].use.form;
      const TensorImpl& made = *v.node->out[at(v.output)];
      if (q == p || part(p).pass.kind != Pass::flat || !part(p).pass.is_full(seen.shape()) || same_form(seen, made))
        continue;
      // What is repeated is computed once, and kept.
      if (seen.numel() > made.numel() || is_moved(i)) continue;
      std::optional<Moved> moved = moved_to(q, i, k);
      if (!moved || needs(q, p)) continue;
      std::vector<int> members = part(p).nodes;
      members.insert(members.end(), part(q).nodes.begin(), part(q).nodes.end());
      std::ranges::sort(members);
      if (static_cast<int>(members.size()) > most_nodes_of_group ||
          operands_of(members, part(p).pass) > most_operands_of_group)
        continue;
      bool between = false;
      for (const int member : part(p).nodes) {
        for (const int b : g_.before[at(member)]) {
          const int x = part_of_[at(b)];
          between |= x != p && x != q && needs(x, q);
        }
      }
      if (between) continue;
      part(p).moved.merge(*moved);
      join(p, q, std::move(members));
    }
  }

  /// Makes one part of both.
  void join(int p, int q, std::vector<int> members) {
    if (part(q).nodes.front() < part(p).nodes.front()) part(p).reason = part(q).reason;
    for (const int i : part(q).nodes) part_of_[at(i)] = p;
    part(p).nodes = std::move(members);
    part(p).moved.merge(part(q).moved);
    part(q).nodes.clear();
    std::vector<std::uint64_t>& own = needed_[at(p)];
    for (std::size_t w = 0; w < words_; ++w) own[w] |= needed_[at(q)][w];
    own[at(q) / 64] &= ~(std::uint64_t{1} << (q % 64));
    const std::vector<std::uint64_t> all = own;
    for (int r = 0; r < static_cast<int>(parts_.size()); ++r) {
      if (r == p || (!needs(r, q) && !needs(r, p))) continue;
      for (std::size_t w = 0; w < words_; ++w) needed_[at(r)][w] |= all[w];
      set(needed_[at(r)], p);
    }
  }

  Role role(int i, const Pass& pass) const {
    const Node& n = node(i);
    if (multiplies_[at(i)])
      return pass.kind == Pass::product && pass.is_full(n.out[0]->shape()) ? Role::full : Role::none;
    if (axes_[at(i)]) {
      const bool whole = pass.is_full(n.in[0].use.form->shape());
      return whole && pass.reduces() && pass.is_kept(*n.out[0]) ? Role::reduction : Role::none;
    }
    if (!n.is_elementwise()) return Role::none;
    if (is_moved(i)) return Role::full;
    if (pass.is_full(n.out[0]->shape())) return Role::full;
    return pass.is_kept(*n.out[0]) ? Role::kept : Role::none;
  }

  /// Whether the node can read an operand as it does, where part p walks by `pass`.
  const char* why_not_read(int i, int p, const Pass& pass) const {
    const Role mine = role(i, pass);
    for (std::size_t k = 0; k < node(i).in.size(); ++k) {
      const Value v = s_.resolve(node(i).in[k].use.from);
      if (!v.node) continue;
      const TensorImpl& form = form_of(i, k);
      if (multiplies_[at(i)]) {
        if (part_of(v) == p) return "a product needs all of its operands first";
        continue;
      }
      if (part_of(v) != p) {
        if (!pass.reduces()) continue;
        const bool readable = mine == Role::kept ? pass.is_kept(form) || form.numel() == 1 : pass.can_read(form);
        if (!readable) return "an operand lies in memory in a way that the pass cannot follow";
        continue;
      }
      const TensorImpl& made = *v.node->out[at(v.output)];
      const Role other = role(g_.place.at(v.node.get()), pass);
      if (other == Role::full && mine != Role::kept) {
        // What was moved is in the order of those who read it here.
        if (same_form(form, made) || is_moved(g_.place.at(v.node.get()))) continue;
        return same_dims(form.shape(), made.shape()) ? "it reads its operand through a view"
                                                     : "its operand is broadcast: computed once";
      }
      if (other == Role::full) return "it reads single elements";
      if (mine == Role::kept && pass.is_kept(form)) continue;
      if (mine != Role::full || !pass.repeats_kept(form)) return "it reads its operand through a view";
      if (pass.kind != Pass::rows) return "all of it is reduced before the first is known";
    }
    return nullptr;
  }

  /// Whether what one node writes is read by the other element for element.
  const char* why_not_write(int i, int p) const {
    const Node& n = node(i);
    if (const Value base = s_.base_of(n); base.node && part_of(base) == p) return "it writes a part of its operand";
    for (const Ordered::Overwrite& o : g_.overwrites) {
      const bool here =
          (o.writer == i && part_of_[at(o.reader)] == p) || (o.reader == i && part_of_[at(o.writer)] == p);
      const bool in_time = o.aligned && o.reader <= o.writer && !multiplies_[at(o.reader)];
      if (here && !in_time) return "it writes what others read elsewhere";
    }
    return nullptr;
  }

  /// Operands of the nodes together, those that stay inside left out.
  int operands_of(const std::vector<int>& members, const Pass& pass) const {
    struct Seen {
      Value value;
      const TensorImpl* form;
      bool kept;  // read as one value for each kept place, which is an operand of its own
    };
    std::vector<Seen> seen;
    int count = 0;
    const std::unordered_set<int> inside(members.begin(), members.end());
    for (const int i : members) {
      const bool kept = role(i, pass) == Role::kept;
      for (std::size_t k = 0; k < node(i).in.size(); ++k) {
        const Value v = s_.resolve(node(i).in[k].use.from);
        if (!v.node || inside.contains(g_.place.at(v.node.get()))) continue;
        const TensorImpl& form = form_of(i, k);
        const bool known = std::ranges::any_of(
            seen, [&](const Seen& o) { return o.value == v && o.kept == kept && same_form(*o.form, form); });
        if (known) continue;
        seen.push_back({v, &form, kept});
        ++count;
      }
      bool stored = static_cast<bool>(node(i).base.node) || is_root(&node(i));
      for (const Ordered::Reader& r : g_.readers[at(i)]) stored |= !inside.contains(r.node);
      if (stored) count += static_cast<int>(node(i).out.size());
    }
    return count;
  }
  bool is_root(const Node* n) const {
    const Roots& r = s_.roots();
    return std::ranges::any_of(r.results, [&](const auto& x) { return x.value.node.get() == n; }) ||
           std::ranges::any_of(r.effects, [&](const auto& x) { return x.last.node.get() == n; });
  }

  /// The pass of the part with node i in it; none, and why, where it cannot be.
  std::optional<Pass> joint_pass(int i, int p, const char*& why) {
    const Part& home = part(p);
    Pass pass = home.pass;
    if (axes_[at(i)]) {
      const std::optional<Pass> mine = pass_of(*node(i).in[0].use.form, *axes_[at(i)]);
      if (!mine) {
        why = "the axes that it reduces neither begin nor end its shape";
        return {};
      }
      if (!same_dims(mine->shape, pass.shape)) {
        why = "it has another shape";
        return {};
      }
      if (pass.kind == Pass::product) {
        why = "it reduces what a product makes by tiles";
        return {};
      }
      if (pass.reduces() && (pass.kind != mine->kind || pass.split != mine->split)) {
        why = "it reduces other axes";
        return {};
      }
      pass = *mine;
    }
    if (role(i, pass) == Role::none) {
      why = "it has another shape";
      return {};
    }
    return pass;
  }

  /// Whether the nodes can all walk by the pass.
  const char* why_not_walk(const std::vector<int>& members, int p, const Pass& pass) const {
    if (pass.kind == Pass::flat) return nullptr;
    for (const int i : members) {
      const Role mine = role(i, pass);
      if (mine == Role::none) return "it has another shape";
      for (const TensorRef& out : node(i).out) {
        if (pass.reduces() && mine == Role::full && !is_moved(i) &&
            (!out->contiguous() || out->offset() != 0 || node(i).base.node))
          return "a result lies in memory in a way that the pass cannot follow";
      }
      if (const char* why = why_not_read(i, p, pass)) return why;
    }
    return nullptr;
  }

  /// Why node i cannot go on in part p; null if it can, and `pass` is the part's from then on.
  const char* why_not(int i, int p, Pass& pass) {
    if (!part(p).fuses) return "its operand comes from no op that fuses";
    if (multiplies_[at(i)]) return "a product needs all of its operands first";
    const char* why = nullptr;
    const std::optional<Pass> joint = joint_pass(i, p, why);
    if (!joint) return why;
    if ((why = why_not_read(i, p, *joint)) != nullptr || (why = why_not_write(i, p)) != nullptr) return why;
    if (static_cast<int>(part(p).nodes.size()) >= most_nodes_of_group) return "the group is full";
    std::vector<int> members = part(p).nodes;
    members.push_back(i);
    if ((why = why_not_walk(members, p, *joint)) != nullptr) return why;
    if (operands_of(members, *joint) > most_operands_of_group) return "the group has as many operands as it can";
    for (const int b : g_.before[at(i)]) {
      const int q = part_of_[at(b)];
      if (q != p && needs(q, p)) return "something between them has to run first";
    }
    pass = *joint;
    return nullptr;
  }

  /// Joins part q, from which part p reads, to it, where that is possible.
  void merge(int p, int q) {
    if (p == q || !part(q).fuses) return;
    const Pass &mine = part(p).pass, &other = part(q).pass;
    if (!same_dims(mine.shape, other.shape)) return;
    if (mine.kind != Pass::flat && other.kind != Pass::flat && (mine.kind != other.kind || mine.split != other.split))
      return;
    const Pass pass = mine.kind != Pass::flat ? mine : other;
    std::vector<int> members = part(p).nodes;
    members.insert(members.end(), part(q).nodes.begin(), part(q).nodes.end());
    std::ranges::sort(members);
    if (static_cast<int>(members.size()) > most_nodes_of_group || operands_of(members, pass) > most_operands_of_group)
      return;
    for (const int i : part(p).nodes) {
      if (why_not_read(i, q, pass) != nullptr || why_not_write(i, q) != nullptr) return;
    }
    for (const int i : part(q).nodes) {
      if (why_not_read(i, p, pass) != nullptr || why_not_write(i, p) != nullptr) return;
    }
    // What one has from the other counts as from outside here, which is no less strict.
    if (why_not_walk(part(p).nodes, q, pass) != nullptr || why_not_walk(part(q).nodes, p, pass) != nullptr) return;
    if (needs(q, p)) return;
    // Through a third part, p would need itself.
    for (const int i : part(p).nodes) {
      for (const int b : g_.before[at(i)]) {
        const int x = part_of_[at(b)];
        if (x != p && x != q && needs(x, q)) return;
      }
    }
    part(p).pass = pass;
    join(p, q, std::move(members));
  }

  // ---- growing ----

  int begin(int i, bool fuses, const char* reason, const Pass& pass = {}) {
    part_of_[at(i)] = static_cast<int>(parts_.size());
    parts_.push_back({{i}, fuses, reason, pass, {}});
    needed_.emplace_back(words_);
    return part_of_[at(i)];
  }

  /// A node that begins a part, with the pass that it walks alone; none where nothing can join it.
  std::optional<Pass> own_pass(int i) {
    const Node& n = node(i);
    if (n.is_elementwise()) {
      Pass flat;
      flat.shape = DimList(n.out[0]->shape());
      return flat;
    }
    if (multiplies_[at(i)]) {
      Pass product;
      product.kind = Pass::product;
      product.shape = DimList(n.out[0]->shape());
      return product;
    }
    if (!axes_[at(i)]) return {};
    std::optional<Pass> pass = pass_of(*n.in[0].use.form, *axes_[at(i)]);
    return pass && pass->can_read(*n.in[0].use.form) ? pass : std::nullopt;
  }

  void place(int i) {
    if (is_memory(i)) {
      begin(i, false, nullptr);
      return;
    }
    const std::optional<Pass> own = own_pass(i);
    std::vector<int> sources;
    const char* reason = own ? nullptr : "it is no op that fuses";
    int home = -1;
    if (own && fuse_) {
      for (const int b : g_.before[at(i)]) {
        if (!is_memory(b)) sources.push_back(part_of_[at(b)]);
      }
      std::ranges::sort(sources, std::greater());
      sources.erase(std::ranges::unique(sources).begin(), sources.end());
      for (const int p : sources) {
        Pass pass;
        const char* why = why_not(i, p, pass);
        if (why == nullptr) {
          home = p;
          part(p).pass = pass;
          part_of_[at(i)] = p;
          part(p).nodes.push_back(i);
          break;
        }
        if (reason == nullptr) reason = why;
      }
    }
    if (home < 0) {
      home = begin(i, own.has_value(), reason != nullptr ? reason : "its operands were there before",
                   own.value_or(Pass()));
    }
    for (const int b : g_.before[at(i)]) add_need(home, part_of_[at(b)]);
    for (const int p : sources) merge(home, p);
    if (own && fuse_) take_through_views(i, home);
  }

  std::vector<Group> ordered() {
    std::vector<std::unordered_set<int>> direct(parts_.size());
    std::vector<std::vector<int>> after(parts_.size());
    for (int i = 0; i < static_cast<int>(g_.nodes.size()); ++i) {
      const int p = part_of_[at(i)];
      for (const int b : g_.before[at(i)]) {
        const int q = part_of_[at(b)];
        if (q != p && direct[at(p)].insert(q).second) after[at(q)].push_back(p);
      }
    }
    std::priority_queue<std::pair<int, int>, std::vector<std::pair<int, int>>, std::greater<>> ready;
    std::vector<std::size_t> waits(parts_.size());
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      waits[p] = direct[p].size();
      if (!parts_[p].nodes.empty() && waits[p] == 0) ready.emplace(parts_[p].nodes.back(), static_cast<int>(p));
    }
    std::vector<Group> groups;
    while (!ready.empty()) {
      const int p = ready.top().second;
      ready.pop();
      Group g;
      g.reason = part(p).reason;
      g.pass = part(p).pass;
      g.moved = std::move(part(p).moved);
      for (const int i : part(p).nodes) g.nodes.push_back(g_.nodes[at(i)]);
      // A reduction alone has more ways than a fused pass has.
      g.fused = part(p).fuses && !(g.nodes.size() == 1 && !g.nodes[0]->is_elementwise());
      // Op by op means by the eager entries, where there is one.
      if (!fuse_ && g.nodes[0]->kind == NodeKind::call) g.fused = false;
      if (!is_memory(part(p).nodes[0])) groups.push_back(std::move(g));
      for (const int q : after[at(p)]) {
        if (--waits[at(q)] == 0) ready.emplace(part(q).nodes.back(), q);
      }
    }
    return groups;
  }

  const Ordered& g_;
  const Schedule& s_;
  bool fuse_;
  std::vector<std::optional<std::uint64_t>> axes_;  // by node: what a reduction reduces
  std::vector<bool> multiplies_;                    // by node
  std::vector<Part> parts_;
  std::vector<int> part_of_;
  std::vector<std::vector<std::uint64_t>> needed_;  // by part: the parts that it needs, a bit each
  std::size_t words_;
};

}  // namespace

std::vector<Group> make_groups(const Ordered& graph, const Schedule& s, const Backend& backend, bool fuse) {
  return Groups(graph, s, backend, fuse).make();
}

}  // namespace hyalite::lazy
