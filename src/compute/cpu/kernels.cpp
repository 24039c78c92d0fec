/// Kernels of one instruction set and one shard of the op list; CMake compiles this file once for each pair.
#define HWY_COMPILE_ONLY_STATIC
#include "compute/cpu/cast_loops.h"
#include "compute/cpu/kernel_loops.h"
#include "compute/cpu/reduce_loops.h"

#define HYALITE_JOIN(a, b, c, d) a##b##c##d
#define HYALITE_FILL(isa, shard) HYALITE_JOIN(hyalite_fill_, isa, _, shard)

/// The only symbol that leaves this object: everything else is localised after compilation.
extern "C" void HYALITE_FILL(HYALITE_ISA_NAME, HYALITE_SHARD)(hyalite::cpu::KernelTable& table) {
  namespace set = hyalite::HWY_NAMESPACE;
  set::fill_elementwise<HYALITE_SHARD, HYALITE_SHARDS>(table);
#if HYALITE_SHARD == 0
  set::fill(table.cast);
  set::fill(table.reduce);
#endif
}
