/// What the phases tell the recorder: which step it was, and its facts as values. Words are found in explain/words.cpp.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "hyalite/device.h"
#include "hyalite/dtype.h"

namespace hyalite {

/// The five phases of an op.
enum class Phase : std::uint8_t { python, validate, compute, record, result };
/// Who takes part, from left to right on the page.
enum class Who : std::uint8_t { user, slot, binding, op, guard, backend, kernel, autograd };
inline constexpr int who_count = 8;
enum class StepKind : std::uint8_t { request, self, guard, result, lazy };

/// What a step was, by phase.
enum class Event : std::uint8_t {
  slot_called,
  function_called,
  function_direct,  ///< with operands that the op takes as they are
  aligned,
  not_promoted,
  indices_unwrapped,
  dtype_given,
  numbers_compared,
  no_operands,
  unknown_operand,
  handed_over,
  wrapped,
  imported,
  import_failed,

  checked,
  dtype_settled,

  backend_found,
  viewed,
  output_made,
  kernel_ran,
  fused_ran,  ///< several ops in one pass
  library_ran,
  node_added,  ///< to the graph of a device that computes later
  queued,      ///< a kernel, on such a device
  fetched,     ///< values came from it
  nothing_computed,
  result_made,

  node_made,
  no_node,

  handle_returned,
  raised,
};

enum class Fact : std::uint8_t {
  op,
  door,     ///< through which the op was entered, such as `__add__`
  operand,  ///< in words, by name
  dtype,    ///< of an operand, by its place, or of the result
  device,
  shape,      ///< of an operand that is a tensor, by its place
  gives,      ///< the result's shape
  repeats,    ///< an axis along which the named operand has stride 0
  attribute,  ///< in words, by name
  in_place,
  mixed,     ///< the dtypes are compared as they are
  weak,      ///< a number takes the tensor's dtype
  promoted,  ///< to this dtype
  instead,   ///< the op of one operand that is called, which this one is of these operands
  by_autocast,
  amp,       ///< the op's policy
  autocast,  ///< its dtype, while it is on
  determinism_asked,
  deterministic,
  backends,
  strides,
  copied,
  bytes,
  line,  ///< of Python, that holds the most
  pool_hit,
  huge_pages,
  computed,  ///< the dtype that the kernel computes in
  isa,
  generated,  ///< how many kernels of a fused group were generated
  nodes,      ///< that wait
  kernel,     ///< where it came from, in words
  loop,
  blocks,
  streaming,
  threads,
  rows,
  tiles,  ///< into which a result was cut, in words
  routine,
  library,
  node,
  edges,
  saved,
  grad_mode,
  wanted,    ///< an operand requires grad
  parts,     ///< the op is made of others that record themselves
  gradient,  ///< the op has one
  swapped,   ///< the byte order was another
  reason,
};

using Value = std::variant<bool, std::int64_t, Dtype, Device, std::vector<std::int64_t>, std::string>;

/// One fact of a step; `name` tells those of one kind apart.
struct Said {
  Fact fact;
  Value value;
  std::string name;

  template <class T>
  Said(Fact f, const T& v, std::string_view n = {}) : fact(f), value(value_of(v)), name(n) {}

 private:
  template <class T>
  static Value value_of(const T& v) {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      return static_cast<std::int64_t>(v);
    } else if constexpr (std::is_convertible_v<T, std::string_view>) {
      return std::string(std::string_view(v));
    } else if constexpr (std::is_convertible_v<T, std::span<const std::int64_t>>) {
      const std::span<const std::int64_t> s = v;
      return std::vector<std::int64_t>(s.begin(), s.end());
    } else {
      return v;
    }
  }
};
using Sayings = std::vector<Said>;

}  // namespace hyalite
