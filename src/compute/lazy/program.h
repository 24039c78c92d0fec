/// A fused group as a backend takes it: what is read, the steps between, what is written.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "compute/lazy/pass.h"

namespace hyalite::lazy {

/// The most operands of a fused kernel, inputs and outputs together, and the most nodes.
inline constexpr int most_operands_of_group = 20;
inline constexpr int most_nodes_of_group = 64;

/// A straight line of steps over one shape. A register holds one element, or one value for each kept place of a pass
/// that reduces: first those of the inputs, then the numbers, then what the steps make.
struct Program {
  struct Step {
    NodeRef node;
    std::vector<int> from;  ///< registers, -1 for a leaf that is not read
    int to;                 ///< the first of its results
  };
  Pass pass;
  std::vector<bool> kept;     ///< by register: one value for each kept place
  std::vector<TensorRef> in;  ///< forms, to be broadcast to the shape
  std::vector<bool> whole;    ///< by input: an operand of a product, not read element by element
  std::vector<Operand> numbers;
  std::vector<Step> steps;
  std::vector<TensorRef> out;  ///< forms
  std::vector<int> stored;     ///< the register of each output
  std::vector<int> replaces;   ///< by output: the input in whose memory it lies, element for element; -1: none
  int registers = 0;
  bool interruptible = true;  ///< an unfinished result does no harm

  int number(std::size_t k) const { return static_cast<int>(in.size() + k); }
};

/// A program of the nodes, which stand in an order in which they can run. `stores(node, k)` says whether somebody else
/// needs an output.
Program make_program(const Pass& pass, const std::vector<Node*>& nodes, const Moved& moved,
                     const std::function<Value(const Value&)>& resolve,
                     const std::function<bool(const Node&, int)>& stores, std::vector<Value>& in,
                     std::vector<Value>& out);

/// The program as text, a line a step.
std::string text(const Program& p);

}  // namespace hyalite::lazy
