/// The kernels of every instruction set that this processor has, against those of the narrowest.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "compute/cpu/kernels.h"
#include "ops/op_info.h"

namespace hyalite {
namespace {

constexpr std::size_t longest = 70;
using Block = std::vector<std::byte>;

/// Finite numbers of both signs for floats, anything for integers: instructions differ in which NaN they keep.
Block operand(Dtype t, unsigned seed) {
  Block block(longest * itemsize(t));
  for (std::size_t i = 0; i < longest; ++i) {
    const unsigned h = (static_cast<unsigned>(i) + 1 + seed * 97) * 2654435761u;
    std::byte* to = block.data() + i * itemsize(t);
    if (t == Dtype::boolean) {
      *to = static_cast<std::byte>(h >> 31);
    } else if (t == Dtype::float32) {
      const float x = (static_cast<float>(h >> 8) - 8e6f) / 65536.0f;
      std::memcpy(to, &x, sizeof x);
    } else if (t == Dtype::float64) {
      const double x = (static_cast<double>(h) - 2e9) / 1048576.0;
      std::memcpy(to, &x, sizeof x);
    } else {
      const std::uint64_t x = h * 0x9E3779B97F4A7C15u;
      std::memcpy(to, &x, itemsize(t));
    }
  }
  return block;
}

TEST(InstructionSets, ExactKernelsAgree) {
  std::string names;
  std::vector<std::unique_ptr<cpu::KernelTable>> tables;
  for (const cpu::InstructionSet& set : cpu::instruction_sets()) {
    if (!set.available()) continue;
    names += (names.empty() ? "" : ", ") + set.name;
    set.fill(*tables.emplace_back(std::make_unique<cpu::KernelTable>()));
  }
  std::printf("instruction sets: %s on this processor\n", names.c_str());
  ASSERT_FALSE(tables.empty());
  const auto elementwise = std::ranges::count_if(op_table(), [](const OpInfo& op) { return op.elementwise >= 0; });
  for (const auto& table : tables) ASSERT_EQ(table->forward.size(), static_cast<std::size_t>(elementwise));
  int compared = 0;
  for (const OpInfo& op : op_table()) {
    if (op.elementwise < 0 || op.schema.ulp > 0) continue;
    for (int d = 0; d < dtype_count; ++d) {
      const Dtype t = static_cast<Dtype>(d);
      if (tables[0]->forward[op.elementwise][d] == nullptr || is_complex(t)) continue;
      Block in[cpu::max_arity];
      const void* from[cpu::max_arity];
      for (int i = 0; i < op.arity; ++i) {
        in[i] = operand(op.schema.is_condition(0) && i == 0 ? Dtype::boolean : t, static_cast<unsigned>(i));
        from[i] = in[i].data();
      }
      const double attr[4] = {0.01, 0, 0, 0};
      for (std::size_t n = 1; n <= longest; ++n) {
        std::vector<Block> results;
        for (const auto& table : tables) {
          Block out(2 * 16 * longest, std::byte{0x5A});
          void* to[2] = {out.data(), out.data() + 16 * longest};
          table->forward[op.elementwise][d](from, to, n, attr, false);
          results.push_back(std::move(out));
        }
        for (const Block& r : results) ASSERT_EQ(r, results[0]) << op.name() << " " << name(t) << ", " << n;
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 70 * 100);
}

}  // namespace
}  // namespace hyalite
