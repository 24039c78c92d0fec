/// Runs formulas and gradients on Expr: leaves are the kernel's arguments, in the order of mark.h.
#include "compute/codegen/registry.h"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "hyalite/error.h"
#include "ops/elementwise.h"
#include "ops/mark.h"

namespace hyalite {
namespace {

/// What is known of an op without its formula, so that little is compiled for each.
struct Shape {
  const OpSchema& schema;
  int arity;
  int outputs;
};
template <class Op>
constexpr Shape shape_of{Op::schema, Op::arity, Op::outputs};

/// The name in C of an operand or attribute, which must not hide what the kernel's text uses.
std::string in_c(std::string_view called) {
  constexpr std::string_view taken[] = {"n",    "i",      "step",  "min",      "max",
                                        "half", "global", "local", "constant", "kernel"};
  return std::string(called) + (std::find(std::begin(taken), std::end(taken), called) != std::end(taken) ? "_" : "");
}

std::string operand_name(const Shape& op, int i) {
  if (op.schema.params.empty()) return op.arity == 1 ? "x" : "x" + std::to_string(i + 1);
  std::string_view rest = op.schema.params;
  for (; i > 0; --i) rest.remove_prefix(rest.find(", ") + 2);
  return in_c(rest.substr(0, rest.find(',')));
}

Dtype operand_dtype(const Shape& op, int i, Dtype t) {
  return op.schema.is_condition(static_cast<std::size_t>(i)) ? Dtype::boolean : t;
}

/// "out", or of several "out1", "out2"...
std::string result_name(const Shape& op, const char* stem, int k) {
  return op.outputs == 1 ? stem : stem + std::to_string(k + 1);
}

/// Name and dtype of leaf i of a gradient (mark.h).
std::pair<std::string, Dtype> gradient_leaf(const Shape& op, int i, Dtype dtype) {
  if (i >= 1 && i <= op.arity) return {operand_name(op, i - 1), operand_dtype(op, i - 1, dtype)};
  const int k = output_of_leaf(op.arity, op.outputs, i);
  const bool is_output = i != 0 && i <= op.arity + op.outputs;
  return {result_name(op, is_output ? "out" : "g", k), op.schema.result_dtype(dtype, k)};
}

/// Builds one kernel: arguments are added in order, and leaves refer to them.
class Builder {
 public:
  Builder(const Shape& op, Dtype dtype, const std::string& suffix) {
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

std::vector<Expr> operands(Builder& kernel, const Shape& op, Dtype dtype, int real_operand) {
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
  return select(abs(x) <= Constant{out == Dtype::float16 ? 0x1p-25 : 0x1p-134}, 0_c, x);
}

/// The gradient as it is stored: nothing where it is not taken, and where what came in may be nothing.
template <class V>
Expr finished(const V& value, Dtype out, const Expr* nothings) {
  if constexpr (is_taken<V>) {
    const Expr taken = nothings == nullptr ? value.where : value.where & !is_nothing(*nothings);
    return select(!taken, nothing, number(value.value, out));
  } else {
    return nothings == nullptr ? value : select(is_nothing(*nothings), nothing, number(value, out));
  }
}

/// All leaves of a gradient. One that is not read is no argument; formulas may still pass it on.
std::vector<Expr> gradient_leaves(Builder& kernel, const Shape& op, Dtype dtype, std::uint32_t reads) {
  std::vector<Expr> leaves;
  for (int i = 0; i < leaf_count(op.arity, op.outputs); ++i) {
    const auto [called, t] = gradient_leaf(op, i, dtype);
    leaves.push_back((reads >> i & 1) != 0 ? kernel.leaf(called, t, i) : decoded(Expr::leaf(-1, t)));
  }
  return leaves;
}

/// f(attributes...), of which most ops have none.
template <class Op, class F>
auto with_attributes(Builder& kernel, Dtype dtype, F f) {
  if constexpr (HasAttr<Op>) {
    const Dtype t = real_part(computed_in(dtype));
    return f(make_attr<Op, Expr>([&](int i) {
      return kernel.attribute(in_c(Op::template Attr<double>::names[static_cast<std::size_t>(i)]), t, i);
    }));
  } else {
    return f();
  }
}

template <class Op>
ExprKernel build_forward(Dtype dtype, int real_operand) {
  const Shape& op = shape_of<Op>;
  Builder kernel(op, dtype, real_operand < 0 ? "" : "_real_" + operand_name(op, real_operand));
  const std::vector<Expr> x = operands(kernel, op, dtype, real_operand);
  const auto value = with_attributes<Op>(kernel, dtype, [&](auto... attr) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) { return Op::formula(x[I]..., attr...); }
    (std::make_index_sequence<Op::arity>());
  });
  const auto result = [&](int k, const auto& v) {
    kernel.result(result_name(op, "out", k), op.schema.result_dtype(dtype, k), v);
  };
  if constexpr (Op::outputs > 1) {
    std::apply([&, k = 0](const auto&... v) mutable { (result(k++, v), ...); }, value.of);
  } else {
    result(0, value);
  }
  return kernel.finish();
}

template <class Op>
std::optional<ExprKernel> build(Dtype dtype, int gradient_operand, int real_operand, bool nothings) {
  if (gradient_operand == forward_kernel) return build_forward<Op>(dtype, real_operand);
  const Shape& op = shape_of<Op>;
  static constexpr auto reads = gradient_reads<Op>();
  const std::string operand = operand_name(op, gradient_operand);
  Builder kernel(op, dtype, (nothings ? "_settled_gradient_" : "_gradient_") + operand);
  const GradientReads read = reads[static_cast<std::size_t>(gradient_operand)];
  const auto leaves = gradient_leaves(kernel, op, dtype, read.reads);
  const Dtype out = operand_dtype(op, gradient_operand, dtype);
  bool exists = false;
  with_attributes<Op>(kernel, dtype, [&](auto... attr) {
    const auto lazy = gradients_over<Op>([&](auto i) { return leaves[i]; }, attr...);
    auto one = [&](const auto& gradient, int operand_number) {
      if constexpr (!std::is_same_v<std::decay_t<decltype(gradient)>, None>) {
        if (operand_number != gradient_operand) return;
        exists = true;
        if constexpr (std::is_same_v<decltype(gradient()), Constant>) {
          kernel.result("grad_" + operand, out, gradient());
        } else {
          const Expr& g = leaves[static_cast<std::size_t>(first_incoming(op.arity, op.outputs, read.reads))];
          kernel.result("grad_" + operand, out, finished(gradient(), out, nothings && !read.passes_g ? &g : nullptr));
        }
      }
    };
    std::apply([&, i = 0](const auto&... g) mutable { (one(g, i++), ...); }, lazy);
  });
  return exists ? std::optional(kernel.finish()) : std::nullopt;
}

/// What is needed of an op once its type is forgotten.
struct Entry {
  std::string_view name;
  DtypeSet types;
  int arity;
  bool real_with_complex;
  std::optional<ExprKernel> (*build)(Dtype, int gradient_operand, int real_operand, bool nothings);
};

const Entry& find(std::string_view op) {
  static constexpr auto table = []<class... Ops>(OpList<Ops...>) {
    return std::array{
        Entry{Ops::schema.name, Ops::schema.types, Ops::arity, Ops::schema.real_with_complex, &build<Ops>}...};
  }(Elementwise());
  for (const Entry& e : table) {
    if (e.name == op) return e;
  }
  throw ValueError("generated_source(): no elementwise op is called " + std::string(op));
}

void check_operand(const Entry& entry, int first, int operand) {
  if (first <= operand && operand < entry.arity) return;
  throw ValueError("generated_source(): " + std::string(entry.name) + " has " + std::to_string(entry.arity) +
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
  const Entry& entry = find(op);
  const bool gradient = gradient_operand != forward_kernel;
  check_operand(entry, forward_kernel, gradient_operand);
  if (!contains(entry.types, dtype) || (gradient && !is_differentiable(dtype))) {
    throw DtypeMismatch("generated_source(): " + std::string(op) + (gradient ? " has no gradient of " : " has no ") +
                        std::string(name(dtype)));
  }
  return entry.build(dtype, gradient_operand, -1, nothings);
}

ExprKernel real_operand_kernel(std::string_view op, Dtype dtype, int real_operand) {
  const Entry& entry = find(op);
  check_operand(entry, 0, real_operand);
  if (!entry.real_with_complex || !contains(entry.types, dtype) || !is_complex(dtype)) {
    throw DtypeMismatch("generated_source(): " + std::string(op) + " of " + std::string(name(dtype)) +
                        " takes no real operand");
  }
  return *entry.build(dtype, forward_kernel, real_operand, false);
}

std::string generated_source(std::string_view op, Dtype dtype, Language language, int gradient_operand) {
  return kernel_source(language, existing_kernel(op, dtype, gradient_operand));
}

KernelSignature generated_signature(std::string_view op, Dtype dtype, int gradient_operand) {
  return existing_kernel(op, dtype, gradient_operand).signature;
}

}  // namespace hyalite
