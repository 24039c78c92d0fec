/// The graph of what is to be computed: calls that know where their operands come from, and nothing of when they run.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "compute/backend.h"
#include "ops/op_info.h"
#include "tensor/location.h"
#include "tensor/tensor_impl.h"

namespace hyalite::lazy {

class Node;
using NodeRef = Ref<Node>;

/// One output of a node: the elements of a whole piece of memory, as that node leaves them.
struct Value {
  NodeRef node;
  int output = 0;
  bool operator==(const Value&) const = default;
};

/// Elements of a value, and how they lie in its memory: dtype, shape, strides, offset, as a tensor without storage.
struct Use {
  Value from;
  TensorRef form;
};

/// An operand: elements of a value, a number, or neither, for a leaf that a gradient does not read.
struct Input {
  Use use;
  Operand number;
  bool is_number = false;
  bool absent() const { return !use.from.node && !is_number; }
};

enum class NodeKind : std::uint8_t {
  input,     ///< memory that is there when the graph runs
  call,      ///< of an op
  gradient,  ///< of an elementwise op, by its fused kernel
  copy,      ///< of the elements, into the form's dtype
  fill,      ///< every element is one number
  empty,     ///< memory with any values
};

/// One step of the graph. It never changes once others can see it; counted, and freed without recursion.
class Node {
 public:
  static NodeRef make(NodeKind kind);
  /// A node that does the same, of the same operands, without an input's memory.
  static NodeRef like(const Node& n);

  void retain() noexcept { refs_.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept {
    if (give_count_back(refs_)) destroy();
  }

  /// What it does, for texts: an op's name.
  std::string name() const;
  bool is_elementwise() const;
  std::int64_t bytes(int output) const;

  const NodeKind kind;
  const OpInfo* op = nullptr;
  AttrRef attrs;
  std::vector<Input> in;
  std::vector<TensorRef> out;  ///< the forms of what it makes, each in memory of its own
  Value base;                  ///< the memory of which `out[0]` is a part: what an in-place write leaves as it was
  std::int64_t base_bytes = 0;

  Dtype computed = Dtype::float32;
  std::int8_t real_operand = -1;  ///< Validated::real_operand
  bool mixed = false;             ///< Validated::mixed
  bool converts = false;          ///< a call that only moves elements, into the form's dtype
  // Of a gradient (GradientRequest):
  std::int8_t operand = 0;
  bool from_nothings = false, numbers_and_nothings = false;

  int slot = -1;          ///< of an input
  Ref<Storage> memory;    ///< of an input of a device that computes later
  bool constant = false;  ///< an input that no run may overwrite: the function made it, and makes it anew each time
  const std::uint64_t sequence;
  Location location;

 private:
  explicit Node(NodeKind k);
  ~Node() { release_location(location); }
  void destroy() noexcept;
  std::atomic<std::uint32_t> refs_{1};
  Node* next_doomed_ = nullptr;
};

/// Whether the forms name the same elements in the same order and dtype.
bool same_form(const TensorImpl& a, const TensorImpl& b);
/// Whether they name the same places of a memory in the same order, for elements of one size.
bool same_places(const TensorImpl& a, const TensorImpl& b);
bool same_number(const Operand& a, const Operand& b);

/// Every node that the values need, in the order in which they were made, so that operands come first.
std::vector<Node*> reachable(std::span<const Value> roots);

}  // namespace hyalite::lazy
