/// What a plan depends on, as words that can be compared.
#include "compute/lazy/plan_cache.h"

#include <algorithm>
#include <cstring>

namespace hyalite::lazy {
namespace {

constexpr std::size_t most_kept_nodes = 16 << 10;  // of all kept plans together

/// The same graph anew, over inputs without memory.
Roots copied(const Roots& roots, std::span<Node* const> nodes) {
  std::unordered_map<const Node*, NodeRef> copies;
  const auto value = [&](const Value& v) { return v.node ? Value{copies.at(v.node.get()), v.output} : v; };
  for (const Node* n : nodes) {
    NodeRef c = Node::like(*n);
    for (Input& in : c->in) in.use.from = value(in.use.from);
    c->base = value(c->base);
    copies.emplace(n, std::move(c));
  }
  Roots all;
  for (const Roots::Result& r : roots.results) all.results.push_back({value(r.value), r.memory});
  return all;
}

}  // namespace

Structure::Structure(const Roots& roots, std::span<Node* const> nodes) {
  std::unordered_map<const Node*, std::uint64_t> places;
  const auto value = [&](const Value& v) {
    words_.push_back(v.node ? places.at(v.node.get()) << 8 | static_cast<std::uint64_t>(v.output) : ~std::uint64_t{0});
  };
  for (const Node* n : nodes) {
    const auto bit = [](bool on, int at) { return std::uint64_t{on} << at; };
    words_.push_back(static_cast<std::uint64_t>(n->kind) | static_cast<std::uint64_t>(n->computed) << 8 |
                     static_cast<std::uint64_t>(static_cast<std::uint8_t>(n->real_operand)) << 16 |
                     static_cast<std::uint64_t>(static_cast<std::uint8_t>(n->operand)) << 24 | bit(n->mixed, 32) |
                     bit(n->converts, 33) | bit(n->from_nothings, 34) | bit(n->numbers_and_nothings, 35) |
                     bit(n->constant, 36) | bit(static_cast<bool>(n->attrs), 37) |
                     static_cast<std::uint64_t>(n->in.size()) << 40 | static_cast<std::uint64_t>(n->out.size()) << 56);
    words_.push_back(reinterpret_cast<std::uintptr_t>(n->op));
    words_.push_back(reinterpret_cast<std::uintptr_t>(n->location.code));
    words_.push_back(static_cast<std::uint64_t>(n->location.position));
    if (n->attrs) attrs_.push_back(n->attrs);
    for (const Input& in : n->in) {
      value(in.use.from);
      if (in.use.from.node) add(*in.use.form);
      if (!in.is_number) continue;
      std::uint64_t bytes[2] = {};
      std::memcpy(bytes, in.number.bytes.data(), itemsize(in.number.dtype));
      words_.insert(words_.end(), {static_cast<std::uint64_t>(in.number.dtype), bytes[0], bytes[1]});
    }
    for (const TensorRef& form : n->out) add(*form);
    value(n->base);
    words_.push_back(static_cast<std::uint64_t>(n->base_bytes));
    places.emplace(n, places.size());
  }
  for (const Roots::Result& r : roots.results) value(r.value);
  for (const std::uint64_t w : words_) hash_ = detail::joined_hash(hash_, w);
  for (const AttrRef& a : attrs_) hash_ = detail::joined_hash(hash_, a->hash());
}

void Structure::add(const TensorImpl& form) {
  words_.push_back(static_cast<std::uint64_t>(form.dtype()) | static_cast<std::uint64_t>(form.ndim()) << 8);
  words_.push_back(static_cast<std::uint64_t>(form.offset()));
  for (const Dims dims : {form.shape(), form.strides()}) {
    for (const std::int64_t d : dims) words_.push_back(static_cast<std::uint64_t>(d));
  }
}

bool Structure::operator==(const Structure& o) const {
  return words_ == o.words_ && std::ranges::equal(attrs_, o.attrs_, [](const AttrRef& a, const AttrRef& b) {
           return a.get() == b.get() || *a == *b;
         });
}

std::shared_ptr<const Plan> PlanCache::find(const Roots& roots, std::span<Node* const> nodes, int inputs,
                                            Backend& executor, Device device) {
  Structure s(roots, nodes);
  const auto [from, to] = by_hash_.equal_range(s.hash());
  const auto known = std::find_if(from, to, [&](const auto& entry) { return entry.second->structure == s; });
  if (known != to) {
    entries_.splice(entries_.begin(), entries_, known->second);
    return entries_.front().plan;
  }
  auto plan = std::make_shared<const Plan>(copied(roots, nodes), inputs, executor, Tier::automatic, true, device);
  ++made_;
  const std::size_t hash = s.hash();
  entries_.push_front({std::move(s), nodes.size(), plan});
  by_hash_.emplace(hash, entries_.begin());
  nodes_ += nodes.size();
  while (nodes_ > most_kept_nodes && entries_.size() > 1) {
    const auto last = std::prev(entries_.end());
    const auto [first, end] = by_hash_.equal_range(last->structure.hash());
    by_hash_.erase(std::find_if(first, end, [&](const auto& entry) { return entry.second == last; }));
    nodes_ -= last->nodes;
    entries_.erase(last);
  }
  return plan;
}

}  // namespace hyalite::lazy
