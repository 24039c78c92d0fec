/// Steps become one expression for each output; sizes, strides, numbers and attributes are arguments.
#include "compute/opencl/group.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "compute/codegen/registry.h"
#include "compute/opencl/kernels.h"
#include "compute/opencl/layout.h"
#include "hyalite/error.h"
#include "tensor/float_formats.h"

namespace hyalite::opencl {
namespace {

using lazy::Memory;
using lazy::Node;
using lazy::NodeKind;
using lazy::Program;

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

class Builder {
 public:
  explicit Builder(const Program& p) : p_(p), layout_(p.pass.shape, operands(p)) {}

  /// The kernel, and the scalars that are its arguments.
  ExprKernel build() {
    ExprKernel k;
    k.signature.name = "hyalite_group";
    kernel_ = &k;
    const int inputs = static_cast<int>(p_.in.size());
    for (int i = 0; i < inputs; ++i) {
      const Dtype t = p_.in[static_cast<std::size_t>(i)]->dtype();
      const Expr leaf = Expr::leaf(add({"x" + std::to_string(i), t, false, false, i, layout_.place(i)}), t);
      registers_.push_back(decoded(leaf));
      dtypes_.push_back(t);
    }
    for (const Operand& o : p_.numbers) {
      registers_.push_back(number(o));
      dtypes_.push_back(o.dtype);
    }
    for (const Program::Step& s : p_.steps) step(s);
    for (std::size_t j = 0; j < p_.out.size(); ++j) {
      const Dtype t = p_.out[j]->dtype();
      const auto r = static_cast<std::size_t>(p_.stored[j]);
      add({"out" + std::to_string(j), t, true, false, static_cast<int>(j),
           layout_.place(inputs + static_cast<int>(j))});
      const Expr value = cast_to(registers_[r], dtypes_[r], t);
      k.results.push_back(computed_in(t) == t ? value : Expr(ExprOp::encode, t, value));
    }
    k.parameters = ", __constant const long* m";
    k.prologue = layout_.coordinates();
    return k;
  }
  const std::vector<KernelArgument>& scalars() const { return scalars_; }
  const Layout& layout() const { return layout_; }

 private:
  static std::vector<const TensorImpl*> operands(const Program& p) {
    std::vector<const TensorImpl*> all;
    for (const TensorRef& t : p.in) all.push_back(t.get());
    for (const TensorRef& t : p.out) all.push_back(t.get());
    return all;
  }

  int add(Argument a) {
    kernel_->signature.arguments.push_back(std::move(a));
    return static_cast<int>(kernel_->signature.arguments.size()) - 1;
  }

  Expr argument(Dtype t, const KernelArgument& value) {
    const int at = add({"s" + std::to_string(scalars_.size()), t, false, true, static_cast<int>(scalars_.size())});
    scalars_.push_back(value);
    return Expr::attribute(at, t);
  }

  Expr number(const Operand& o) {
    Bytes b{itemsize(o.dtype), {}};
    std::memcpy(b.value, o.bytes.data(), b.size);
    if (o.dtype == Dtype::boolean) return Expr::constant(b.value[0] != std::byte{} ? 1 : 0, Dtype::boolean);
    if (o.dtype == Dtype::float16 || o.dtype == Dtype::bfloat16) {
      std::uint16_t bits;
      std::memcpy(&bits, b.value, 2);
      const float v = o.dtype == Dtype::float16 ? decode_float<Dtype::float16, float>(bits)
                                                : decode_float<Dtype::bfloat16, float>(bits);
      return argument(Dtype::float32, scalar(v));
    }
    return argument(o.dtype, b);
  }

  /// The attributes of an op, as its formula takes them.
  std::vector<Expr> attributes(const Node& n, Dtype dtype) {
    std::vector<Expr> all;
    const std::size_t count = n.op->fields().size();
    const auto* values = n.attrs ? static_cast<const double*>(n.attrs->values()) : nullptr;
    const Dtype t = real_part(computed_in(dtype));
    for (std::size_t i = 0; i < count; ++i) {
      const double v = values[i];
      all.push_back(t == Dtype::float32   ? argument(t, scalar(static_cast<float>(v)))
                    : t == Dtype::float64 ? argument(t, scalar(v))
                                          : Expr::constant(v, t));
    }
    return all;
  }

  Expr in(int r, Dtype t) const {
    return cast_to(registers_[static_cast<std::size_t>(r)], dtypes_[static_cast<std::size_t>(r)], t);
  }

  void push(const Expr& value, Dtype made, Dtype stored) {
    registers_.push_back(cast_to(value, made, stored));
    dtypes_.push_back(stored);
  }

  void step(const Program::Step& s) {
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

  const Program& p_;
  Layout layout_;
  ExprKernel* kernel_ = nullptr;
  std::vector<Expr> registers_;  // of 16 bits decoded
  std::vector<Dtype> dtypes_;
  std::vector<KernelArgument> scalars_;
};

class Group final : public lazy::FusedKernel {
 public:
  Group(ClDevice& device, const Program& p) : device_(device) {
    for (const TensorRef& t : p.in) check_dtype(device, t->dtype(), p.steps.front().node->name());
    for (const Program::Step& s : p.steps) {
      for (const TensorRef& t : s.node->out) check_dtype(device, t->dtype(), s.node->name());
    }
    Builder builder(p);
    const ExprKernel k = builder.build();
    text_ = kernel_source(Language::opencl, k);
    const ClDevice::Counts before = device.counts();
    kernel_ = &device.kernel(text_, k.signature.name);
    came_ = device.came_since(before);
    seconds_ = kernel_->seconds();
    from_disk_ = kernel_->from_disk();
    for (const Program::Step& s : p.steps) ops_ += (ops_.empty() ? "" : ", ") + s.node->name();
    signature_ = k.signature;
    scalars_ = builder.scalars();
    count_ = builder.layout().count();
    numbers_ = sent(device, builder.layout().numbers());
  }

  void run(std::span<const Memory> in, std::span<const Memory> out, Recorder* rec) const override {
    Span span(rec, Phase::compute, Who::backend, Who::kernel, StepKind::request);
    std::vector<KernelArgument> all{scalar(count_)};
    for (const Argument& a : signature_.arguments) {
      const auto at = static_cast<std::size_t>(a.leaf);
      if (a.is_attribute) {
        all.push_back(scalars_[at]);
      } else {
        all.emplace_back(ClDevice::buffer(*(a.is_output ? out : in)[at].storage));
      }
    }
    all.emplace_back(ClDevice::buffer(*numbers_));
    device_.launch(*kernel_, all, static_cast<std::size_t>(count_), group_size);
    if (span.over()) rec->end(Event::queued, {{Fact::op, ops_}, {Fact::kernel, came_}});
  }
  TierText tier() const override { return {1, "", text_, "opencl", seconds_, 1, from_disk_ ? 1 : 0}; }

 private:
  ClDevice& device_;
  std::string text_, ops_, came_;
  double seconds_ = 0;
  bool from_disk_ = false;
  const Kernel* kernel_ = nullptr;
  KernelSignature signature_;
  std::vector<KernelArgument> scalars_;
  std::int64_t count_ = 0;
  Ref<Storage> numbers_;
};

}  // namespace

std::unique_ptr<lazy::FusedKernel> fuse(ClDevice& device, const Program& program) {
  return std::make_unique<Group>(device, program);
}

}  // namespace hyalite::opencl
