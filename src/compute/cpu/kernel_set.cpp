/// All kernels of one instruction set: casts, reductions, and those of the families; CMake compiles this file once for
/// each set.
#define HWY_COMPILE_ONLY_STATIC
#include <hwy/highway.h>

#include "compute/cpu/cast_loops.h"
#include "compute/cpu/kernels.h"
#include "compute/cpu/reduce_loops.h"
#include "compute/cpu/vec.h"
#include "ops/families.h"

#define HYALITE_JOIN(a, b) a##b
#define HYALITE_FILL(isa) HYALITE_JOIN(hyalite_fill_, isa)

namespace hyalite::HWY_NAMESPACE {
#define HYALITE_DECLARE(name, List) void fill_##name(cpu::KernelTable& table);
HYALITE_FAMILIES(HYALITE_DECLARE, HYALITE_NO_FAMILY)

void fill_functions(std::vector<cpu::VectorFunction>& all) {
#define HYALITE_ENTER(name, arity, stem, accuracy, ...)                                                      \
  all.push_back({#name, Dtype::float32, reinterpret_cast<const void*>(&HYALITE_SLEEF_F32(stem, accuracy))}); \
  all.push_back({#name, Dtype::float64, reinterpret_cast<const void*>(&HYALITE_SLEEF_F64(stem, accuracy))});
  HYALITE_FUNCTIONS(HYALITE_ENTER)
  HYALITE_ENTER(power, 2, pow, _u10)
#undef HYALITE_ENTER
}
}  // namespace hyalite::HWY_NAMESPACE

/// The only symbol that leaves the set: everything else is localised after compilation.
extern "C" void HYALITE_FILL(HYALITE_ISA_NAME)(hyalite::cpu::KernelTable& table) {
  namespace set = hyalite::HWY_NAMESPACE;
#define HYALITE_ENTER(name, List) set::fill_##name(table);
  HYALITE_FAMILIES(HYALITE_ENTER, HYALITE_NO_FAMILY)
  set::fill(table.cast);
  set::fill(table.reduce);
  set::fill_functions(table.functions);
}
