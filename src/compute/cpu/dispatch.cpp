/// Picks the instruction set once, at the first use.
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>

#include "compute/cpu/kernels.h"
#include "hyalite/error.h"

#if defined(__x86_64__)
extern "C" void hyalite_fill_x86_64_v2(hyalite::cpu::KernelTable& table);
extern "C" void hyalite_fill_avx2(hyalite::cpu::KernelTable& table);
extern "C" void hyalite_fill_avx512(hyalite::cpu::KernelTable& table);
#else
extern "C" void hyalite_fill_neon(hyalite::cpu::KernelTable& table);
#endif

namespace hyalite::cpu {
namespace {

#if defined(__x86_64__)
bool has_v2() { return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt"); }
/// clang 14 does not know the feature by name.
bool has_f16c() {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
bool has_avx2() {
  return has_v2() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
         __builtin_cpu_supports("bmi2") && has_f16c() && __builtin_cpu_supports("aes") &&
         __builtin_cpu_supports("pclmul");
}
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#else
bool has_neon() { return true; }
#endif

const InstructionSet& choose() {
  const auto& sets = instruction_sets();
  const char* wanted = std::getenv("HYALITE_ISA");
  if (wanted == nullptr || *wanted == '\0') {
    const auto best = std::find_if(sets.rbegin(), sets.rend(), [](const InstructionSet& s) { return s.available(); });
    if (best == sets.rend()) throw Unsupported("this processor has none of the instruction sets of this build");
    return *best;
  }
  std::string names;
  for (const InstructionSet& s : sets) {
    names += (names.empty() ? "" : ", ") + s.name;
    if (s.name != wanted) continue;
    if (s.available()) return s;
    throw Unsupported("HYALITE_ISA=" + s.name + ": this processor lacks it; unset HYALITE_ISA", {{"isa", s.name}});
  }
  throw ValueError(std::string("HYALITE_ISA=") + wanted + " is unknown; write one of " + names,
                   {{"isa", std::string(wanted)}});
}

}  // namespace

const std::vector<InstructionSet>& instruction_sets() {
  // Never destroyed: threads may compute until the process is gone.
  static const auto& sets = *new std::vector<InstructionSet> {
#if defined(__x86_64__)
    {"x86-64-v2", has_v2, hyalite_fill_x86_64_v2}, {"avx2", has_avx2, hyalite_fill_avx2},
        {"avx512", has_avx512, hyalite_fill_avx512}
#else
    { "neon", has_neon, hyalite_fill_neon }
#endif
  };
  return sets;
}

KernelTable::Family KernelTable::add_family(int ops) {
  const std::size_t first = forward.size(), size = first + static_cast<std::size_t>(ops);
  forward.resize(size);
  gradient.resize(size);
  real_operand.resize(size);
  return {&forward[first], &gradient[first], &real_operand[first]};
}

const InstructionSet& instruction_set() {
  static const InstructionSet& set = choose();
  return set;
}

namespace detail {
std::atomic<const KernelTable*> active_kernels{nullptr};

const KernelTable& fill_kernels() {
  static const KernelTable* const table = [] {
    auto t = std::make_unique<KernelTable>();
    instruction_set().fill(*t);
    return t.release();  // never destroyed, as above
  }();
  active_kernels.store(table, std::memory_order_release);
  return *table;
}
}  // namespace detail

}  // namespace hyalite::cpu

namespace hyalite {
const CastTable& cast_table() { return cpu::kernels().cast; }
}  // namespace hyalite
