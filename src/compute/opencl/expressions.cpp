/// From the steps of a program to expressions.
#include "compute/opencl/expressions.h"

#include <cstring>
#include <utility>

#include "compute/codegen/registry.h"
#include "tensor/float_formats.h"

namespace hyalite::opencl {
namespace {

using lazy::Node;
using lazy::NodeKind;

/// How two numbers of unlike types compare, as one of float32 beside 0: below, equal, above, or NaN. Exactly: integers
/// beyond what a float holds are compared as integers.
Expr compared(Expr a, Expr b) {
  const auto constant = [](double v, Dtype t) { return Expr::constant(v, t); };
  const auto answer = [&](Expr less, Expr equal) {
    const Dtype f = Dtype::float32;
    return select(less, constant(-1, f), select(equal, constant(0, f), constant(1, f)));
  };
  if (is_floating(a.dtype())) {
    const Expr other = compared(b, a);
    return Expr(ExprOp::negative, Dtype::float32, other);
  }
  if (!is_floating(b.dtype())) {
    // A signed number beside an unsigned one.
    if (is_unsigned_integer(a.dtype())) return Expr(ExprOp::negative, Dtype::float32, compared(b, a));
    const Expr wide(ExprOp::cast, b.dtype(), a);
    const Expr below = a < constant(0, a.dtype());
    return answer(below | (wide < b), (!below) & (wide == b));
  }
  const Dtype integer = a.dtype();
  const Expr whole(ExprOp::cast, integer, b), back(ExprOp::cast, b.dtype(), whole);
  const double end = is_unsigned_integer(integer) ? 0x1p64 : 0x1p63, begin = is_unsigned_integer(integer) ? 0 : -0x1p63;
  const Expr above = !(b < constant(end, b.dtype())), under = b < constant(begin, b.dtype());
  const Expr less = above | ((!under) & ((a < whole) | ((a == whole) & (back < b))));
  const Expr equal = (!above) & (!under) & (a == whole) & (back == b);
  return select(isnan(b), b.dtype() == Dtype::float32 ? b : Expr(ExprOp::cast, Dtype::float32, b), answer(less, equal));
}

Dtype hub(Dtype t) { return is_floating(t) ? Dtype::float64 : is_unsigned_integer(t) ? Dtype::uint64 : Dtype::int64; }

}  // namespace

int Expressions::add(Argument a) {
  arguments_.push_back(std::move(a));
  return static_cast<int>(arguments_.size()) - 1;
}

void Expressions::load(const Argument& a) {
  const Dtype t = a.dtype;
  registers_.push_back(decoded(Expr::leaf(add(a), t)));
  dtypes_.push_back(t);
}

void Expressions::number(const Operand& o) {
  registers_.push_back(value_of(o));
  dtypes_.push_back(o.dtype);
}

Expr Expressions::keep(int r, const std::string& variable) {
  Expr& now = registers_[static_cast<std::size_t>(r)];
  const Dtype t = now.dtype();
  return std::exchange(now, Expr::attribute(add({variable, t, false, true, -1, "", true}), t));
}

Expr Expressions::scalar_argument(Dtype t, const KernelArgument& value) {
  const int at = add({"s" + std::to_string(scalars_.size()), t, false, true, static_cast<int>(scalars_.size())});
  scalars_.push_back(value);
  return Expr::attribute(at, t);
}

Expr Expressions::value_of(const Operand& o) {
  Bytes b{itemsize(o.dtype), {}};
  std::memcpy(b.value, o.bytes.data(), b.size);
  if (o.dtype == Dtype::boolean) return Expr::constant(b.value[0] != std::byte{} ? 1 : 0, Dtype::boolean);
  if (o.dtype == Dtype::float16 || o.dtype == Dtype::bfloat16) {
    std::uint16_t bits;
    std::memcpy(&bits, b.value, 2);
    const float v = o.dtype == Dtype::float16 ? decode_float<Dtype::float16, float>(bits)
                                              : decode_float<Dtype::bfloat16, float>(bits);
    return scalar_argument(Dtype::float32, scalar(v));
  }
  return scalar_argument(o.dtype, b);
}

/// The attributes of an op, as its formula takes them.
std::vector<Expr> Expressions::attributes(const Node& n, Dtype dtype) {
  std::vector<Expr> all;
  const std::size_t count = n.op->fields().size();
  const auto* values = n.attrs ? static_cast<const double*>(n.attrs->values()) : nullptr;
  const Dtype t = real_part(computed_in(dtype));
  for (std::size_t i = 0; i < count; ++i) {
    const double v = values[i];
    all.push_back(t == Dtype::float32   ? scalar_argument(t, scalar(static_cast<float>(v)))
                  : t == Dtype::float64 ? scalar_argument(t, scalar(v))
                                        : Expr::constant(v, t));
  }
  return all;
}

Expr Expressions::in(int r, Dtype t) const {
  return cast_to(registers_[static_cast<std::size_t>(r)], dtypes_[static_cast<std::size_t>(r)], t);
}

Expr Expressions::stored(int r, Dtype t) const {
  const Expr value = in(r, t);
  return computed_in(t) == t ? value : Expr(ExprOp::encode, t, value);
}

void Expressions::push(const Expr& value, Dtype made, Dtype stored) {
  registers_.push_back(cast_to(value, made, stored));
  dtypes_.push_back(stored);
}

void Expressions::step(const lazy::Program::Step& s) {
  const Node& n = *s.node;
  if (n.kind == NodeKind::copy || n.kind == NodeKind::fill || n.converts) {
    const auto r = static_cast<std::size_t>(s.from[0]);
    return push(registers_[r], dtypes_[r], n.out[0]->dtype());
  }
  const Dtype dtype = computed_in(n.computed);
  ExprKernel k;
  std::vector<Expr> leaves;
  Dtype computed = dtype;
  if (n.kind == NodeKind::gradient) {
    const double tiny = n.numbers_and_nothings ? least_number(n.computed) : -1;
    k = *gradient_kernel(n.op->name(), dtype, n.operand, {n.from_nothings, tiny});
  } else if (n.mixed) {
    const auto a = static_cast<std::size_t>(s.from[0]), b = static_cast<std::size_t>(s.from[1]);
    const Dtype left = hub(dtypes_[a]), right = hub(dtypes_[b]);
    computed = left == right ? left : Dtype::float32;
    k = *elementwise_kernel(n.op->name(), computed);
    if (left == right) {
      leaves = {in(s.from[0], left), in(s.from[1], right)};
    } else {
      leaves = {compared(in(s.from[0], left), in(s.from[1], right)), Expr::constant(0, Dtype::float32)};
    }
  } else if (n.real_operand >= 0) {
    k = real_operand_kernel(n.op->name(), dtype, n.real_operand);
  } else {
    k = *elementwise_kernel(n.op->name(), dtype);
  }
  const std::vector<Expr> attr = attributes(n, computed);
  std::vector<Expr> arguments(k.signature.arguments.size());
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const Argument& a = k.signature.arguments[i];
    if (a.is_output) continue;
    const auto leaf = static_cast<std::size_t>(a.leaf);
    arguments[i] = a.is_attribute ? attr[leaf] : !leaves.empty() ? leaves[leaf] : in(s.from[leaf], a.dtype);
  }
  for (std::size_t j = 0; j < k.results.size(); ++j) {
    const Dtype made = k.results[j].dtype();
    push(with_leaves(k.results[j], arguments), made, n.out[j]->dtype());
  }
}

}  // namespace hyalite::opencl
