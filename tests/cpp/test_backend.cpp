/// The table of a backend: complete for the list of ops, and asked before anything runs.
#include "compute/backend.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "apply.h"
#include "compute/cpu/backend.h"
#include "compute/cpu/primitives.h"
#include "hyalite/error.h"

namespace hyalite {
namespace {

RunFn& entry(const OpInfo& op) { return cpu::backend().run[static_cast<std::size_t>(op.index)]; }

TEST(Backend, OfTheCpuHasAnEntryForEachOpThatIsComputed) {
  ASSERT_EQ(cpu::backend().run.size(), op_table().size());
  for (const OpInfo& op : op_table()) {
    const bool computed = op.schema.kind == OpKind::elementwise || op.schema.kind == OpKind::primitive;
    EXPECT_EQ(entry(op) != nullptr, computed) << op.name();
  }
}

TEST(Backend, OwnListNamesEachPrimitiveOnce) {
  std::set<std::string_view> named;
  for (const cpu::Entry& e : cpu::primitives()) {
    EXPECT_TRUE(named.insert(e.op).second) << e.op;
    EXPECT_EQ(find_op(e.op).schema.kind, OpKind::primitive) << e.op;
  }
}

/// Without its entry an op raises, and has allocated, written and recorded nothing.
TEST(Backend, AnAbsentEntryIsSaidBeforeAnythingRuns) {
  const Tensor x = full({3, 3}, 2.0, Dtype::float32);
  for (const char* name : {"add", "sum", "astype", "concat"}) {
    const OpInfo& op = find_op(name);
    const Operand in[] = {tensor_operand(x.impl()), tensor_operand(x.impl())};
    const std::size_t operands = op.arity == 1 ? 1 : 2;
    const RunFn kept = std::exchange(entry(op), nullptr);
    const std::int64_t before = pool::stats().allocated_bytes;
    try {
      apply(op, {in, operands}, op.defaults.get());
      ADD_FAILURE() << name;
    } catch (const Unsupported& e) {
      EXPECT_NE(std::string(e.what()).find(std::string(name) + "(): cpu has no such op"), std::string::npos)
          << e.what();
    }
    EXPECT_EQ(pool::stats().allocated_bytes, before) << name;
    entry(op) = kept;
    EXPECT_TRUE(static_cast<bool>(apply(op, {in, operands}, op.defaults.get()))) << name;
  }
}

/// In place, the version goes back too.
TEST(Backend, AnAbsentEntryLeavesTheTargetAsItWas) {
  const Tensor x = full({4}, 2.0, Dtype::float32);
  const OpInfo& op = find_op("add");
  const Operand in[] = {tensor_operand(x.impl()), tensor_operand(x.impl())};
  const RunFn kept = std::exchange(entry(op), nullptr);
  const std::uint32_t version = x.impl()->storage()->version();
  EXPECT_THROW(apply(op, in, nullptr, x.impl()), Unsupported);
  EXPECT_EQ(x.impl()->storage()->version(), version);
  entry(op) = kept;
  apply(op, in, nullptr, x.impl());
  EXPECT_EQ(x.impl()->storage()->version(), version + 1);
}

TEST(Backend, CopiesFillsAndAllocatesWithoutARecord) {
  Backend& b = cpu::backend();
  const TensorRef t = b.empty(Dtype::float64, DimList{2, 3});
  const double one = 1.5;
  b.fill(*t, reinterpret_cast<const std::byte*>(&one));
  const TensorRef copy = b.empty(Dtype::float32, DimList{2, 3});
  b.copy(*t, *copy);
  b.synchronise();
  for (int i = 0; i < 6; ++i) EXPECT_EQ(reinterpret_cast<const float*>(copy->address())[i], 1.5f);
  EXPECT_EQ(copy->autograd, nullptr);
}

/// The leaves (mark.h) that are saved for the gradient of each operand: the incoming gradient is not.
std::vector<std::uint32_t> saved(const OpInfo& op) {
  std::vector<std::uint32_t> r;
  for (int i = 0; i < op.arity; ++i) r.push_back(gradient_reads(op)[static_cast<std::size_t>(i)].reads & ~1u);
  return r;
}

/// By hand: g is leaf 0, the operands follow, then the output.
TEST(GradientReads, AreFoundForOpsThatAreNoFormulas) {
  const std::map<std::string_view, std::vector<std::uint32_t>> expected = {{"sum", {0}},
                                                                           {"mean", {0}},
                                                                           {"prod", {0b010}},
                                                                           {"max", {0b110}},
                                                                           {"min", {0b110}},
                                                                           {"any", {0}},
                                                                           {"argmax", {0}},
                                                                           {"others", {0b110, 0b110}},
                                                                           {"reshape", {0}},
                                                                           {"slice", {0}},
                                                                           {"astype", {0}},
                                                                           {"contiguous", {0}},
                                                                           {"matmul", {0b100, 0b010}},
                                                                           {"take", {0b100, 0}},
                                                                           {"scatter_add", {0b100, 0}},
                                                                           {"softmax", {0b010}},
                                                                           {"log_softmax", {0b010}},
                                                                           {"write_view", {0, 0}},
                                                                           {"embed_slice", {0}}};
  for (const auto& [name, reads] : expected) EXPECT_EQ(saved(find_op(name)), reads) << name;
}

TEST(Meta, OpsGiveTheFormsThatTheGuardForesees) {
  const Tensor x = empty({4, 3}, Dtype::float32, Device{DeviceKind::meta});
  const Tensor y = matmul(tanh(x), permute_dims(x, {1, 0}));
  EXPECT_EQ(y.device().kind, DeviceKind::meta);
  EXPECT_EQ(to_vector(y.shape()), (Shape{4, 4}));
  EXPECT_EQ(y.impl()->address(), nullptr);
  EXPECT_FALSE(y.impl()->is_form());
  const auto [q, r] = divmod(x, x);
  EXPECT_EQ(to_vector(r.shape()), to_vector(q.shape()));
  EXPECT_THROW((void)sum(x).item(), Unsupported);
  EXPECT_THROW((void)add(x, zeros({4, 3})), DeviceMismatch);
}

}  // namespace
}  // namespace hyalite
