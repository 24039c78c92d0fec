/// The table of CPU kernels: filled once for each instruction set, one of them chosen at start.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

#include "compute/cpu/cast.h"
#include "compute/cpu/reduce.h"
#include "hyalite/dtype.h"

namespace hyalite::cpu {

/// Computes n contiguous elements. `attr` are the op's attributes; `stream` writes past the caches and needs outputs
/// aligned to 64 bytes.
using ElementwiseFn = void (*)(const void* const* in, void* const* out, std::size_t n, const double* attr, bool stream);

inline constexpr int max_arity = 3;

/// A function of one vector of the set, or of two, for generated kernels.
struct VectorFunction {
  const char* name;  ///< as formulas spell it
  Dtype dtype;
  const void* address;
};

/// By elementwise op, in the order of the list.
struct KernelTable {
  using Row = std::array<ElementwiseFn, dtype_count>;
  std::vector<Row> forward;
  /// By op and operand; the inputs are the incoming gradient, the operands and the output(s).
  std::vector<std::array<Row, max_arity>> gradient;
  /// By op and operand: that operand is real beside a complex one.
  std::vector<std::array<Row, 2>> real_operand;
  CastTable cast{};
  ReduceKernels reduce{};
  std::vector<VectorFunction> functions;

  /// The rows of one more family, whose ops follow those that are there.
  struct Family {
    Row* forward;
    std::array<Row, max_arity>* gradient;
    std::array<Row, 2>* real_operand;
  };
  Family add_family(int ops);
};

struct InstructionSet {
  std::string name;     ///< x86-64-v2, avx2, avx512 or neon
  bool (*available)();  ///< this processor has it
  void (*fill)(KernelTable&);
};

/// The sets this build holds, from the narrowest.
const std::vector<InstructionSet>& instruction_sets();
/// The set in use: the widest available, or what HYALITE_ISA names. Throws ValueError for an unknown name and
/// Unsupported for a set this processor lacks.
const InstructionSet& instruction_set();

namespace detail {
extern std::atomic<const KernelTable*> active_kernels;
const KernelTable& fill_kernels();
}  // namespace detail
inline const KernelTable& kernels() {
  const KernelTable* t = detail::active_kernels.load(std::memory_order_acquire);
  return t != nullptr ? *t : detail::fill_kernels();
}

}  // namespace hyalite::cpu
