/// Cycles that run through the graph of gradients and through Python's objects.
#pragma once

#include <cstddef>

namespace hyalite::python {

/// Frees what only such cycles hold: a hook on an inner tensor that holds a descendant of it, say. Returns the number
/// of lists of hooks and of custom functions' nodes that were given up. Needs the GIL.
std::size_t collect_cycles();

}  // namespace hyalite::python
