/// What of a plan this thread is running, for the messages of those who compute.
#pragma once

#include <string>

#include "tensor/pool.h"

namespace hyalite::lazy {

class Node;

/// Set while a step runs; null outside.
extern constinit thread_local const Node* running_node HYALITE_INITIAL_EXEC;
/// The Python line that asked for it; empty where it is not known.
std::string running_line();

}  // namespace hyalite::lazy
