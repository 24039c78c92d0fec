/// Plans that are kept: a stretch of calls that was asked for before runs by the plan that it had then.
#pragma once

#include <list>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "compute/lazy/plan.h"

namespace hyalite::lazy {

/// A graph told apart from others by all that its plan depends on: ops, attributes, numbers, forms, how its nodes hang
/// together, and the Python lines. Not by the memory of its inputs.
class Structure {
 public:
  /// Of all nodes that the roots need, operands first.
  Structure(const Roots& roots, std::span<Node* const> nodes);
  std::size_t hash() const { return hash_; }
  bool operator==(const Structure& o) const;

 private:
  void add(const TensorImpl& form);
  std::vector<std::uint64_t> words_;
  std::vector<AttrRef> attrs_;
  std::size_t hash_ = 0;
};

/// The plans of one device, those used last. Not for several threads at once.
class PlanCache {
 public:
  /// The plan of these roots, made now if there is none: of a copy of the graph, so that it holds no memory.
  std::shared_ptr<const Plan> find(const Roots& roots, std::span<Node* const> nodes, int inputs, Backend& executor,
                                   Device device);
  std::int64_t made() const { return made_; }

 private:
  struct Entry {
    Structure structure;
    std::size_t nodes;
    std::shared_ptr<const Plan> plan;
  };
  std::list<Entry> entries_;  // used last first
  std::unordered_multimap<std::size_t, std::list<Entry>::iterator> by_hash_;
  std::size_t nodes_ = 0;
  std::int64_t made_ = 0;
};

}  // namespace hyalite::lazy
