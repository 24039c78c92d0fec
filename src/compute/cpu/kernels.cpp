/// Kernels of one family of ops for one instruction set; CMake compiles this file once for each pair.
#define HWY_COMPILE_ONLY_STATIC
// Ops come before the vectors that they are about: a formula finds what it calls by its arguments alone.
#include HYALITE_FAMILY_HEADER

#include "compute/cpu/kernel_loops.h"

#define HYALITE_JOIN(a, b) a##b
#define HYALITE_FILL(family) HYALITE_JOIN(fill_, family)

namespace hyalite::HWY_NAMESPACE {

void HYALITE_FILL(HYALITE_FAMILY)(cpu::KernelTable& table) { fill_family<HYALITE_OPS>(table); }

}  // namespace hyalite::HWY_NAMESPACE
