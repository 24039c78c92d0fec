/// Which nodes run together, in which order, and why a group begins where it does.
#pragma once

#include <atomic>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "compute/lazy/pass.h"

namespace hyalite::lazy {

/// What a graph is computed for.
struct Roots {
  /// A value that somebody gets; values with one `memory` share it.
  struct Result {
    Value value;
    const void* memory = nullptr;
  };
  /// Memory that was there before, and what it holds at the end.
  struct Effect {
    Value first, last;
  };
  std::vector<Result> results;
  std::vector<Effect> effects;
  /// Values that are given when the graph runs, with the inputs that stand for them.
  std::vector<std::pair<Value, Value>> given;
};

/// Nodes that run as one kernel, or one call of the backend.
struct Group {
  bool fused = false;
  std::vector<Node*> nodes;  ///< in the order in which they run
  Pass pass;                 ///< of a fused group
  Moved moved;
  const char* reason = nullptr;  ///< why it does not go on with what its operands come from
};

/// The groups in their order, and what of the graph they stand for.
class Schedule {
 public:
  /// Orders and groups all that the roots need, for a backend. Without `fuse` each op is a group.
  Schedule(const Roots& roots, const Backend& backend, bool fuse = true);

  const std::vector<Group>& groups() const { return groups_; }
  /// The value that stands for `v`: equal calls are made once.
  Value resolve(const Value& v) const;
  /// What the node's write leaves as it was: its own base, or a copy of that, where somebody still reads it.
  Value base_of(const Node& n) const;
  /// The roots as they are scheduled: a result that would lie in memory of somebody else is a copy.
  const Roots& roots() const { return roots_; }
  /// Whether the effect's last value is computed where its first one lies; if not, it has to be brought there.
  bool in_place(std::size_t effect) const { return in_place_[effect]; }

  /// Throws std::logic_error naming the first rule that is broken.
  void check() const;
  /// Whether every schedule is checked when it is made: in tests, and in builds without optimisation.
  static std::atomic<bool> checked;

 private:
  struct Draft;
  Roots roots_;
  std::vector<Group> groups_;
  std::vector<bool> in_place_;
  std::vector<NodeRef> keep_;                           // what the roots need, and the nodes that were added
  std::map<std::pair<const Node*, int>, Value> given_;  // of the roots, and of copies that need not be made
  std::unordered_map<const Node*, NodeRef> same_;
  std::unordered_map<const Node*, Value> bases_;
};

}  // namespace hyalite::lazy
