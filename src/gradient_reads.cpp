/// What the gradients of ops that are no formulas read: found by running each where there is no memory.
#include <algorithm>

#include "apply.h"
#include "compute/meta/backend.h"
#include "tensor/context.h"

namespace hyalite {
namespace {

using Reads = std::array<GradientReads, most_operands>;

/// An operand on the meta device, as small as shows everything.
Tensor example(const OpInfo& op, std::size_t operand, Dtype dtype, int rank) {
  const Dtype own = op.schema.is_index(operand)       ? Dtype::int64
                    : op.schema.is_condition(operand) ? Dtype::boolean
                                                      : dtype;
  return empty(Shape(static_cast<std::size_t>(rank), 2), own, Device{DeviceKind::meta});
}

/// Runs the op and each of its gradients on operands of these ranks, and adds what the gradients read. False where the
/// op does not take such operands.
bool look(const OpInfo& op, Dtype dtype, std::span<const int> ranks, Reads& reads) {
  std::vector<Tensor> leaves(static_cast<std::size_t>(leaf_count(op.arity, op.outputs)));
  const auto leaf = [&](int i) -> Tensor& { return leaves[static_cast<std::size_t>(i)]; };
  try {
    std::vector<Operand> in;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      leaf(1 + static_cast<int>(i)) = example(op, i, dtype, ranks[i]);
      in.push_back(tensor_operand(leaf(1 + static_cast<int>(i)).impl()));
    }
    Outputs results = apply_all(op, in, op.defaults.get());
    for (int k = 0; k < op.outputs; ++k) {
      const TensorImpl& o = *results[k];
      leaf(incoming_leaf(op.arity, op.outputs, k)) = empty(to_vector(o.shape()), o.dtype(), o.device());
      leaf(1 + op.arity + k) = Tensor::share(results[k]);
    }
    meta::Watch watch;
    for (int i = 0; i < op.arity; ++i) {
      GradientReads& of = reads[static_cast<std::size_t>(i)];
      if (!of.exists) continue;
      watch.clear();
      (void)op.gradient({leaves, op.defaults.get(), dtype}, i);
      for (std::size_t k = 0; k < leaves.size(); ++k) {
        if (watch.reads(*leaves[k].impl())) of.reads |= std::uint32_t{1} << k;
      }
    }
    return true;
  } catch (const OutOfMemory&) {
    throw;
  } catch (const Error&) {
    return false;
  }
}

/// The first operands, of ranks 2, 3 and 1, that the op and its gradients take.
bool look(const OpInfo& op, Dtype dtype, std::vector<int>& ranks, Reads& reads) {
  if (static_cast<int>(ranks.size()) == op.arity) return look(op, dtype, std::span<const int>(ranks), reads);
  for (const int rank : {2, 3, 1}) {
    ranks.push_back(rank);
    if (look(op, dtype, ranks, reads)) return true;
    ranks.pop_back();
  }
  return false;
}

Reads find(const OpInfo& op) {
  Reads reads = op.reads;
  if (op.elementwise >= 0 || !op.has_gradient || op.arity < 1) return reads;
  bool found = false;
  if (op.schema.is_linear()) {
    // Nothing but where the elements go: the slope of a linear op is the same everywhere.
    for (GradientReads& r : reads) {
      for (int k = 0; r.exists && k < op.outputs; ++k) {
        r.reads |= std::uint32_t{1} << incoming_leaf(op.arity, op.outputs, k);
      }
      for (int i = 0; r.exists && i < op.arity; ++i) {
        if (op.schema.is_index(static_cast<std::size_t>(i))) r.reads |= std::uint32_t{2} << i;
      }
    }
    return reads;
  }
  for (const Dtype dtype : {Dtype::float32, Dtype::complex64}) {
    std::vector<int> ranks;
    Reads more = op.reads;
    if (!contains(op.schema.types, dtype) || !look(op, dtype, ranks, more)) continue;
    found = true;
    for (std::size_t i = 0; i < reads.size(); ++i) reads[i].reads |= more[i].reads;
  }
  // An op that no example fits keeps everything.
  const std::uint32_t all = (std::uint32_t{1} << leaf_count(op.arity, op.outputs)) - 1;
  for (GradientReads& r : reads) r.reads = found || !r.exists ? r.reads : all;
  return reads;
}

}  // namespace

std::span<const GradientReads> gradient_reads(const OpInfo& op) {
  if (op.elementwise >= 0) return op.reads;
  static const std::vector<Reads> all = [] {
    Context quiet;
    quiet.grad_mode = false;
    const ScopedSet<Context> plain(context(), quiet);
    std::vector<Reads> found;
    for (const OpInfo& o : op_table()) found.push_back(find(o));
    return found;
  }();
  return all[static_cast<std::size_t>(op.index)];
}

}  // namespace hyalite
