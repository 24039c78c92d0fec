/// Puts kernels together from formulas: leaves are the kernel's arguments, in the order of mark.h.
#include "compute/codegen/registry.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "compute/codegen/formulas.h"
#include "hyalite/error.h"

namespace hyalite {
namespace {

/// The name in C of an operand or attribute, which must not hide what the kernel's text uses.
std::string in_c(std::string_view called) {
  constexpr std::string_view taken[] = {"n",    "i",      "step",  "min",      "max",
                                        "half", "global", "local", "constant", "kernel"};
  return std::string(called) + (std::find(std::begin(taken), std::end(taken), called) != std::end(taken) ? "_" : "");
}

std::string operand_name(const OpFormulas& op, int i) {
  if (op.schema.params.empty()) return op.arity == 1 ? "x" : "x" + std::to_string(i + 1);
  std::string_view rest = op.schema.params;
  for (; i > 0; --i) rest.remove_prefix(rest.find(", ") + 2);
  return in_c(rest.substr(0, rest.find(',')));
}

Dtype operand_dtype(const OpFormulas& op, int i, Dtype t) {
  return op.schema.is_condition(static_cast<std::size_t>(i)) ? Dtype::boolean : t;
}

/// "out", or of several "out1", "out2"...
std::string result_name(const OpFormulas& op, const char* stem, int k) {
  return op.outputs == 1 ? stem : stem + std::to_string(k + 1);
}

/// Name and dtype of leaf i of a gradient (mark.h).
std::pair<std::string, Dtype> gradient_leaf(const OpFormulas& op, int i, Dtype dtype) {
  if (i >= 1 && i <= op.arity) return {operand_name(op, i - 1), operand_dtype(op, i - 1, dtype)};
  const int k = output_of_leaf(op.arity, op.outputs, i);
  const bool is_output = i != 0 && i <= op.arity + op.outputs;
  return {result_name(op, is_output ? "out" : "g", k), op.schema.result_dtype(dtype, k)};
}

/// Builds one kernel: arguments are added in order, and leaves refer to them.
class Builder {
 public:
  Builder(const OpFormulas& op, Dtype dtype, const std::string& suffix) {
    kernel_.signature.name = "hyalite_" + std::string(op.schema.name) + suffix + "_" + std::string(name(dtype));
  }

  Expr leaf(std::string called, Dtype t, int number) {
    return decoded(Expr::leaf(add({std::move(called), t, false, false, number}), t));
  }
  Expr attribute(std::string called, Dtype t, int number) {
    return Expr::attribute(add({std::move(called), t, false, true, number}), t);
  }
  void result(std::string called, Dtype t, const Expr& value) {
    add({std::move(called), t, true, false, static_cast<int>(kernel_.results.size())});
    kernel_.results.push_back(encoded(value, t));
  }
  void result(std::string called, Dtype t, Constant c) {
    result(std::move(called), t, Expr::constant(c.value, computed_in(t)));
  }
  ExprKernel finish() { return std::move(kernel_); }

 private:
  int add(Argument a) {
    kernel_.signature.arguments.push_back(std::move(a));
    return static_cast<int>(kernel_.signature.arguments.size()) - 1;
  }
  ExprKernel kernel_;
};

std::vector<Expr> operands(Builder& kernel, const OpFormulas& op, Dtype dtype, int real_operand) {
  std::vector<Expr> x;
  for (int i = 0; i < op.arity; ++i) {
    const Dtype t = i == real_operand ? real_part(dtype) : operand_dtype(op, i, dtype);
    x.push_back(kernel.leaf(operand_name(op, i), t, i));
  }
  return x;
}

/// A gradient whose zeros are +0, also when it is stored as `out`, as in the CPU's kernels.
Expr number(Expr x, Dtype out) {
  if (computed_in(out) == out) return x + 0_c;
  return select(abs(x) <= Constant{least_number(out)}, 0_c, x);
}

/// The gradient as it is stored: nothing where it is not taken, and where what came in may be nothing.
Expr finished(const ExprGradient& g, Dtype out, const Expr* nothings) {
  if (g.where) {
    const Expr taken = nothings == nullptr ? *g.where : *g.where & !is_nothing(*nothings);
    return select(!taken, nothing, number(g.value, out));
  }
  return nothings == nullptr ? g.value : select(is_nothing(*nothings), nothing, number(g.value, out));
}

/// All leaves of a gradient. One that is not read is no argument; formulas may still pass it on.
std::vector<Expr> gradient_leaves(Builder& kernel, const OpFormulas& op, Dtype dtype, std::uint32_t reads) {
  std::vector<Expr> leaves;
  for (int i = 0; i < leaf_count(op.arity, op.outputs); ++i) {
    const auto [called, t] = gradient_leaf(op, i, dtype);
    leaves.push_back((reads >> i & 1) != 0 ? kernel.leaf(called, t, i) : decoded(Expr::leaf(-1, t)));
  }
  return leaves;
}

std::vector<Expr> attributes(Builder& kernel, const OpFormulas& op, Dtype dtype) {
  std::vector<Expr> made;
  for (std::size_t i = 0; i < op.attributes.size(); ++i) {
    made.push_back(kernel.attribute(in_c(op.attributes[i]), real_part(computed_in(dtype)), static_cast<int>(i)));
  }
  return made;
}

ExprKernel build_forward(const OpFormulas& op, Dtype dtype, int real_operand) {
  Builder kernel(op, dtype, real_operand < 0 ? "" : "_real_" + operand_name(op, real_operand));
  const std::vector<Expr> x = operands(kernel, op, dtype, real_operand), attr = attributes(kernel, op, dtype);
  Expr results[most_outputs];
  op.forward(x.data(), attr.data(), results);
  for (int k = 0; k < op.outputs; ++k) {
    kernel.result(result_name(op, "out", k), op.schema.result_dtype(dtype, k), results[k]);
  }
  return kernel.finish();
}

std::optional<ExprKernel> build(const OpFormulas& op, Dtype dtype, int gradient_operand, int real_operand,
                                bool nothings) {
  if (gradient_operand == forward_kernel) return build_forward(op, dtype, real_operand);
  const std::string operand = operand_name(op, gradient_operand);
  Builder kernel(op, dtype, (nothings ? "_settled_gradient_" : "_gradient_") + operand);
  const GradientReads read = op.reads[static_cast<std::size_t>(gradient_operand)];
  const std::vector<Expr> leaves = gradient_leaves(kernel, op, dtype, read.reads), attr = attributes(kernel, op, dtype);
  const std::optional<ExprGradient> gradient = op.gradient(leaves.data(), attr.data(), gradient_operand);
  if (!gradient) return std::nullopt;
  const Dtype out = operand_dtype(op, gradient_operand, dtype);
  if (gradient->constant) {
    kernel.result("grad_" + operand, out, *gradient->constant);
  } else {
    const Expr& g = leaves[static_cast<std::size_t>(first_incoming(op.arity, op.outputs, read.reads))];
    kernel.result("grad_" + operand, out, finished(*gradient, out, nothings && !read.passes_g ? &g : nullptr));
  }
  return kernel.finish();
}

const OpFormulas& find(std::string_view name) {
#define HYALITE_FORMULAS(family, List) formulas_of_##family(),
  for (const std::span<const OpFormulas> family : {HYALITE_FAMILIES(HYALITE_FORMULAS, HYALITE_NO_FAMILY)}) {
    for (const OpFormulas& op : family) {
      if (op.schema.name == name) return op;
    }
  }
  throw ValueError("generated_source(): no elementwise op is called " + std::string(name));
}

void check_operand(const OpFormulas& entry, int first, int operand) {
  if (first <= operand && operand < entry.arity) return;
  throw ValueError("generated_source(): " + std::string(entry.schema.name) + " has " + std::to_string(entry.arity) +
                   " operands, the first of them 0; got " + std::to_string(operand));
}

ExprKernel existing_kernel(std::string_view op, Dtype dtype, int gradient_operand) {
  auto kernel = elementwise_kernel(op, dtype, gradient_operand);
  if (!kernel) {
    throw ValueError("generated_source(): " + std::string(op) + " has no gradient for operand " +
                     std::to_string(gradient_operand));
  }
  return *std::move(kernel);
}

}  // namespace

std::optional<ExprKernel> elementwise_kernel(std::string_view op, Dtype dtype, int gradient_operand, bool nothings) {
  const OpFormulas& entry = find(op);
  const bool gradient = gradient_operand != forward_kernel;
  check_operand(entry, forward_kernel, gradient_operand);
  if (!contains(entry.schema.types, dtype) || (gradient && !is_differentiable(dtype))) {
    throw DtypeMismatch("generated_source(): " + std::string(op) + (gradient ? " has no gradient of " : " has no ") +
                        std::string(name(dtype)));
  }
  return build(entry, dtype, gradient_operand, -1, nothings);
}

std::optional<ExprKernel> gradient_kernel(std::string_view op, Dtype dtype, int operand, const GradientFinish& finish) {
  const OpFormulas& entry = find(op);
  check_operand(entry, 0, operand);
  const GradientReads read = entry.reads[static_cast<std::size_t>(operand)];
  Builder kernel(entry, dtype, "_gradient_" + operand_name(entry, operand));
  const std::vector<Expr> leaves = gradient_leaves(kernel, entry, dtype, read.reads);
  const std::vector<Expr> attr = attributes(kernel, entry, dtype);
  const std::optional<ExprGradient> gradient = entry.gradient(leaves.data(), attr.data(), operand);
  if (!gradient || gradient->constant) return std::nullopt;
  Expr value = gradient->value;
  if (finish.tiny >= 0) value = select(abs(value) <= Constant{finish.tiny}, 0_c, value);
  std::optional<Expr> none;
  if (gradient->where) none = !*gradient->where;
  if (finish.from_nothings) {
    const Expr& g = leaves[static_cast<std::size_t>(first_incoming(entry.arity, entry.outputs, read.reads))];
    none = none ? is_nothing(g) | *none : is_nothing(g);
  }
  kernel.result("grad", operand_dtype(entry, operand, dtype), none ? select(*none, nothing, value) : value);
  return kernel.finish();
}

ExprKernel real_operand_kernel(std::string_view op, Dtype dtype, int real_operand) {
  const OpFormulas& entry = find(op);
  check_operand(entry, 0, real_operand);
  if (!entry.schema.real_with_complex || !contains(entry.schema.types, dtype) || !is_complex(dtype)) {
    throw DtypeMismatch("generated_source(): " + std::string(op) + " of " + std::string(name(dtype)) +
                        " takes no real operand");
  }
  return build_forward(entry, dtype, real_operand);
}

std::string generated_source(std::string_view op, Dtype dtype, Language language, int gradient_operand) {
  return kernel_source(language, existing_kernel(op, dtype, gradient_operand));
}

KernelSignature generated_signature(std::string_view op, Dtype dtype, int gradient_operand) {
  return existing_kernel(op, dtype, gradient_operand).signature;
}

}  // namespace hyalite
