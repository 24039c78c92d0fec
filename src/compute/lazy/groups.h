/// Groups of an ordered graph: they grow from operand to result, and say why they end.
#pragma once

#include <unordered_map>
#include <vector>

#include "compute/lazy/fuse.h"

namespace hyalite::lazy {

/// Nodes by place. Every edge leads from a lower to a higher place.
struct Ordered {
  std::vector<Node*> nodes;
  std::unordered_map<const Node*, int> place;
  std::vector<std::vector<int>> before;  ///< the nodes that have to run first
  /// Who reads an output of a node, through which form; null for all of its memory.
  struct Reader {
    int node;
    int output;
    const TensorImpl* form;
  };
  std::vector<std::vector<Reader>> readers;
  /// A node that writes where others have read.
  struct Overwrite {
    int reader, writer;
    bool aligned;  ///< element for element: then one pass may do both
  };
  std::vector<Overwrite> overwrites;
};

/// The groups, each after those that it needs, else as the program has them.
std::vector<Group> make_groups(const Ordered& graph, const Schedule& s, const Backend& backend, bool fuse);

}  // namespace hyalite::lazy
