/// All kernels of one instruction set: casts, reductions, and those of the families; CMake compiles this file once for
/// each set.
#define HWY_COMPILE_ONLY_STATIC
#include <hwy/highway.h>

#include "compute/cpu/cast_loops.h"
#include "compute/cpu/kernels.h"
#include "compute/cpu/reduce_loops.h"
#include "ops/families.h"

#define HYALITE_JOIN(a, b) a##b
#define HYALITE_FILL(isa) HYALITE_JOIN(hyalite_fill_, isa)

namespace hyalite::HWY_NAMESPACE {
#define HYALITE_DECLARE(name, List) void fill_##name(cpu::KernelTable& table);
HYALITE_FAMILIES(HYALITE_DECLARE, HYALITE_NO_FAMILY)
}  // namespace hyalite::HWY_NAMESPACE

/// The only symbol that leaves the set: everything else is localised after compilation.
extern "C" void HYALITE_FILL(HYALITE_ISA_NAME)(hyalite::cpu::KernelTable& table) {
  namespace set = hyalite::HWY_NAMESPACE;
#define HYALITE_ENTER(name, List) set::fill_##name(table);
  HYALITE_FAMILIES(HYALITE_ENTER, HYALITE_NO_FAMILY)
  set::fill(table.cast);
  set::fill(table.reduce);
}
