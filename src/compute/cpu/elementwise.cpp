/// Elementwise ops and their fused gradients on the CPU.
#include "compute/cpu/elementwise.h"

#include <algorithm>
#include <cstring>

#include "compute/codegen/registry.h"
#include "compute/cpu/backend.h"
#include "compute/cpu/compare.h"
#include "compute/cpu/describe.h"
#include "compute/cpu/operands.h"

namespace hyalite::cpu {
namespace {

/// The attributes of an elementwise op as its kernel takes them: an aggregate of doubles.
const double* kernel_attributes(const Attributes* a) {
  return a != nullptr ? static_cast<const double*>(a->values()) : nullptr;
}

static_assert(leaf_count(max_arity, most_outputs) + 1 <= max_operands);

constexpr std::size_t few_bytes = 2048;  // of an operand that is written out, for a small kernel call

/// A number as an operand of `n` elements, or of as many as `few_bytes` hold, if these are fewer: how many. `to` has
/// room up to a multiple of 16 bytes.
std::size_t write_out(const Operand& number, std::size_t n, std::byte* to) {
  const std::size_t size = itemsize(number.dtype), all = std::min(n * size, few_bytes);
  const auto first = [&]<class T>(T pattern) {
    std::memcpy(&pattern, number.bytes.data(), sizeof pattern);
    return static_cast<std::uint64_t>(pattern);
  };
  std::array<std::uint64_t, 2> word;
  if (size == 16) {
    std::memcpy(word.data(), number.bytes.data(), 16);
  } else {
    word[0] = size == 4   ? first(std::uint32_t{}) * 0x1'0000'0001
              : size == 8 ? first(std::uint64_t{})
              : size == 2 ? first(std::uint16_t{}) * 0x1'0001'0001'0001
                          : first(std::uint8_t{}) * 0x0101'0101'0101'0101;
    word[1] = word[0];
  }
  for (std::size_t at = 0; at < all; at += 16) std::memcpy(to + at, word.data(), 16);
  return all / size;
}

/// `n` elements of T, `step` bytes apart.
template <class T>
void pick(const std::byte* from, std::int64_t step, std::int64_t n, std::byte* to) {
  for (std::int64_t i = 0; i < n; ++i)
    std::memcpy(to + i * static_cast<std::int64_t>(sizeof(T)), from + i * step, sizeof(T));
}

/// Elements that are broadcast, one behind the other in memory.
class Written {
 public:
  Written(const TensorImpl& t, Dims shape) : shape_(shape), size_(itemsize(t.dtype())) {
    byte_strides(t, shape, strides_);
  }
  /// Those of the axes from `axis` on; where they end. There is at least one axis.
  std::byte* write(const std::byte* from, std::byte* to, int axis = 0) const {
    const std::int64_t n = shape_[axis], step = strides_[axis];
    const bool innermost = axis + 1 == static_cast<int>(shape_.size());
    if (step == 0) {
      std::byte* end = innermost ? copy(from, 1, step, to) : write(from, to, axis + 1);
      const auto once = static_cast<std::size_t>(end - to), all = once * static_cast<std::size_t>(n);
      repeat(to, once, all);
      return to + all;
    }
    if (innermost) return copy(from, n, step, to);
    for (std::int64_t i = 0; i < n; ++i) to = write(from + i * step, to, axis + 1);
    return to;
  }

 private:
  std::byte* copy(const std::byte* from, std::int64_t n, std::int64_t step, std::byte* to) const {
    const std::size_t all = static_cast<std::size_t>(n) * size_;
    if (step == static_cast<std::int64_t>(size_)) {
      std::memcpy(to, from, all);
    } else {
      size_ == 1   ? pick<std::uint8_t>(from, step, n, to)
      : size_ == 2 ? pick<std::uint16_t>(from, step, n, to)
      : size_ == 4 ? pick<std::uint32_t>(from, step, n, to)
      : size_ == 8 ? pick<std::uint64_t>(from, step, n, to)
                   : pick<std::array<std::uint64_t, 2>>(from, step, n, to);
    }
    return to + all;
  }

  Dims shape_;
  std::size_t size_;
  ByteStrides strides_;
};

/// Calls of the kernel for `piece` elements each, beside which the numbers stay where they are.
[[gnu::noinline]] void call_in_pieces(const Call& c, const Outputs& o, ElementwiseFn fn, const void* const* in,
                                      void* const* out, std::size_t piece) {
  const auto n = static_cast<std::size_t>(o[0]->numel());
  const void* from[max_arity];
  void* to[most_outputs];
  for (std::size_t at = 0; at < n; at += piece) {
    for (std::size_t i = 0; i < c.in.size(); ++i) {
      const TensorImpl* t = c.in[i].tensor;
      from[i] = t == nullptr ? in[i] : static_cast<const std::byte*>(in[i]) + at * itemsize(t->dtype());
    }
    for (int k = 0; k < c.op.outputs; ++k) to[k] = static_cast<std::byte*>(out[k]) + at * itemsize(o[k]->dtype());
    fn(from, to, std::min(piece, n - at), kernel_attributes(c.attrs), false);
  }
}

/// What the calls of the kernel for contiguous operands, of so many elements each, read and write.
LoopReport call_report(const Call& c, const Outputs& o, std::size_t piece) {
  std::optional<std::int64_t> bytes = 0;
  for (const TensorImpl* t : o.all()) *bytes += t->nbytes();
  for (std::size_t i = 0; i < c.in.size() && bytes; ++i) {
    bool again = false;
    if (c.in[i].tensor == nullptr) continue;  // a number is not read from the caller's memory
    for (std::size_t k = 0; k < i; ++k) {
      if (c.in[k].tensor == nullptr) continue;
      const TensorImpl &x = *c.in[i].tensor, &y = *c.in[k].tensor;
      again |= x.address() == y.address();
      if (x.address() != y.address() && share_memory(x, y)) bytes.reset();
    }
    if (bytes && !again) *bytes += c.in[i].tensor->nbytes();
  }
  bool blocks = false;
  for (const Operand& in : c.in) {
    if (in.tensor == nullptr) continue;
    blocks |= !in.tensor->contiguous() || in.tensor->numel() != o[0]->numel();
    if (!in.tensor->contiguous()) bytes.reset();  // whole lines are read for single elements
  }
  const auto n = static_cast<std::size_t>(o[0]->numel());
  const bool pieces = piece < n;
  const auto calls = static_cast<std::int64_t>(pieces ? (n + piece - 1) / piece : 1);
  return {pieces ? "calls of the kernel, a piece each" : one_call, 1, false, blocks, calls, bytes};
}

[[gnu::always_inline]] inline void call_kernel(Recorder* rec, const Validated& v, const Outputs& o, ElementwiseFn fn,
                                               const void* const* in, void* const* out, std::size_t piece) {
  Span span(rec, Phase::compute, Who::backend, Who::kernel, StepKind::request);
  const auto n = static_cast<std::size_t>(o[0]->numel());
  if (piece >= n) [[likely]] {
    fn(in, out, n, kernel_attributes(v.call().attrs), false);
  } else {
    call_in_pieces(v.call(), o, fn, in, out, piece);
  }
  if (span.over()) {
    describe_kernel(*rec, v, call_report(v.call(), o, piece), o);
    rec->last().kernel = reinterpret_cast<const void*>(fn);
  }
}

/// Tensors of one shape, contiguous and small, without attributes: a block from the pool and one plain call.
[[gnu::always_inline]] inline bool quick(Recorder* rec, Span& span, const Validated& v, Outputs& o) {
  const Call& c = v.call();
  const TensorImpl* like = v.like();
  const std::size_t n = c.in.size();
  if (!v.uniform() || c.attrs != nullptr || c.op.outputs != 1 || v.mixed() || v.real_operand() >= 0) return false;
  const ElementwiseFn fn = kernels().forward[c.op.elementwise][static_cast<std::size_t>(v.dtype())];
  if (fn == nullptr || like->nbytes() > small_bytes || c.op.schema.check != Check::none) return false;
  const void* in[max_arity];
  for (std::size_t i = 0; i < n; ++i) {
    if (c.in[i].tensor == nullptr) return false;
    in[i] = c.in[i].tensor->address();
  }
  o.add(output_like(*like, v.out_dtype()));
  if (span.over()) describe_output(span, *o[0], false);
  void* out = o[0]->address();
  call_kernel(rec, v, o, fn, in, &out, static_cast<std::size_t>(like->numel()));
  return true;
}

ElementwiseFn kernel_of(const OpInfo& op, Dtype dtype, int real_operand) {
  const KernelTable& t = kernels();
  const auto column = static_cast<std::size_t>(dtype);
  return real_operand < 0 ? t.forward[op.elementwise][column] : t.real_operand[op.elementwise][real_operand][column];
}
ElementwiseFn forward_kernel(const Validated& v, Dtype dtype) {
  return kernel_of(v.call().op, dtype, v.real_operand());
}

/// Unequal dtypes are compared in their hubs: by the plain kernel if it is one hub, else by an exact mixed one.
ElementwiseFn mixed_kernel(const OpInfo& op, Hub left, Hub right) {
  if (left == right) return kernels().forward[op.elementwise][static_cast<std::size_t>(dtype_of(left))];
  return mixed_comparison(op.elementwise, left, right);
}
ElementwiseFn widen_comparison(const Call& c, std::array<LoopOperand, max_arity>& in) {
  const Hub left = hub_of(in[0].stored), right = hub_of(in[1].stored);
  in[0].computed = dtype_of(left);
  in[1].computed = dtype_of(right);
  return mixed_kernel(c.op, left, right);
}

/// Plain calls of the kernel, usually one, for small operands without conversion: those that do not lie as the output
/// are written out first.
bool small(Recorder* rec, const Validated& v, const Outputs& o) {
  const Call& c = v.call();
  const ElementwiseFn fn = forward_kernel(v, v.dtype());
  if (fn == nullptr || v.mixed() || o[0]->nbytes() > small_bytes || !o[0]->contiguous()) return false;
  const void* in[max_arity];
  alignas(64) std::byte written[max_arity][few_bytes];
  void* out[most_outputs];
  for (int k = 0; k < c.op.outputs; ++k) out[k] = o[k]->address();
  std::size_t piece = static_cast<std::size_t>(o[0]->numel());
  for (std::size_t i = 0; i < c.in.size(); ++i) {
    if (c.in[i].tensor == nullptr) {
      piece = std::min(piece, write_out(c.in[i], piece, written[i]));
      in[i] = written[i];
      continue;
    }
    const TensorImpl& t = *c.in[i].tensor;
    if (!v.uniform() && !(t.contiguous() && t.numel() == o[0]->numel())) {
      const std::size_t all = static_cast<std::size_t>(o[0]->numel()) * itemsize(t.dtype());
      if (all > few_bytes || all == 0) return false;
      Written(t, o[0]->shape()).write(t.address(), written[i]);
      in[i] = written[i];
      continue;
    }
    in[i] = t.address();
    // In place, an operand that overlaps the target elsewhere than at its own place must be copied first.
    const std::byte *x = t.address(), *z = o[0]->address();
    if (!same_place(t, *o[0]) && x < z + o[0]->nbytes() && z < x + t.nbytes()) return false;
  }
  call_kernel(rec, v, o, fn, in, out, piece);
  return true;
}

bool general(Recorder* rec, const Validated& v, TensorImpl* target, const Outputs& o) {
  const Call& c = v.call();
  Span span(rec, Phase::compute, Who::backend, Who::kernel, StepKind::request);
  const Dims shape = v.shape();
  std::array<LoopOperand, max_arity> in;
  std::array<ByteStrides, max_arity> strides;
  std::array<TensorRef, max_arity> copies;
  for (std::size_t i = 0; i < c.in.size(); ++i) {
    const Operand& x = c.in[i];
    if (x.tensor == nullptr) {
      strides[i].fill(0);
      in[i] = {const_cast<std::byte*>(x.bytes.data()), strides[i].data(), x.dtype, computed(x.dtype), true};
      continue;
    }
    const TensorImpl* t = x.tensor;
    if (target != nullptr && share_memory(*t, *target) && !same_place(*t, *target)) {
      copies[i] = copy_of(*t, t->dtype());
      t = copies[i].get();
    }
    in[i] = operand(*t, shape, strides[i]);
  }
  ElementwiseFn fn = forward_kernel(v, computed(v.dtype()));
  if (v.mixed()) fn = widen_comparison(c, in);
  std::array<ByteStrides, most_outputs> out_strides;
  std::array<LoopOperand, most_outputs> out;
  for (int k = 0; k < c.op.outputs; ++k) out[k] = operand(*o[k], shape, out_strides[k]);
  LoopReport report;
  const bool finished = run({.kernel = fn,
                             .attr = kernel_attributes(c.attrs),
                             .shape = shape,
                             .in = {in.data(), c.in.size()},
                             .out = {out.data(), static_cast<std::size_t>(c.op.outputs)},
                             .heavy = c.op.schema.ulp > 0,
                             .interruptible = target == nullptr},
                            rec != nullptr ? &report : nullptr);
  if (span.over()) {
    describe_kernel(*rec, v, report, o);
    rec->last().kernel = reinterpret_cast<const void*>(fn);
  }
  return finished;
}

/// A negative exponent of an integer raises before anything is written.
void check_exponents(const Call& c) {
  const Operand& y = c.in[1];
  const Dtype dtype = y.tensor != nullptr ? y.tensor->dtype() : y.dtype;
  if (!is_signed_integer(dtype)) return;
  std::int64_t least = 0;
  if (y.tensor == nullptr) {
    least = y.scalar.integer;
  } else if (y.tensor->numel() > 0) {
    const TensorRef wide = copy_of(*y.tensor, Dtype::int64);
    const auto* p = reinterpret_cast<const std::int64_t*>(wide->address());
    least = *std::min_element(p, p + wide->numel());
  }
  if (least < 0) {
    throw ValueError("pow(): an integer to the negative power " + std::to_string(least) +
                         " is no integer; write x.astype(hl.float32) ** y",
                     {{"op", std::string("pow")}, {"exponent", least}});
  }
}

[[gnu::always_inline]] inline Outputs elementwise(Recorder* rec, const Validated& v, TensorImpl* target) {
  const Call& c = v.call();
  Span span(rec, Phase::compute, Who::backend, Who::backend, StepKind::self);
  if (Outputs o; target == nullptr && quick(rec, span, v, o)) return o;
  if (c.op.schema.check == Check::integer_exponent && kind(v.dtype()) == Kind::integer) check_exponents(c);
  Outputs o = outputs_or(target, v);
  if (span.over()) describe_output(span, *o[0], target != nullptr);
  if (!small(rec, v, o) && !general(rec, v, target, o)) {
    throw Interrupted("interrupted; the unfinished result is dropped");
  }
  return o;
}

/// Out of line, so that it costs the common path nothing but the question.
[[gnu::cold, gnu::noinline]] Outputs elementwise_recorded(Recorder* rec, const Validated& v, TensorImpl* target) {
  return elementwise(rec, v, target);
}

}  // namespace

Kernel forward_kernel(const OpInfo& op, std::span<const Dtype> in, Dtype dtype, bool mixed, int real_operand,
                      const Attributes* attrs) {
  Kernel k;
  if (attrs != nullptr) std::copy_n(kernel_attributes(attrs), op.fields().size(), k.attr.begin());
  if (mixed) {
    const Hub left = hub_of(in[0]), right = hub_of(in[1]);
    k.run = mixed_kernel(op, left, right);
    k.in = {dtype_of(left), dtype_of(right)};
    return k;
  }
  k.run = kernel_of(op, computed(dtype), real_operand);
  for (std::size_t i = 0; i < in.size(); ++i) k.in[i] = computed(in[i]);
  return k;
}

Kernel gradient_kernel(const OpInfo& op, int operand, Dtype dtype, const Attributes* attrs, bool from_nothings,
                       bool numbers_and_nothings) {
  Kernel k;
  k.run = kernels().gradient[op.elementwise][operand][static_cast<std::size_t>(computed(dtype))];
  const std::size_t own = op.fields().size();
  if (own != 0) std::copy_n(kernel_attributes(attrs), own, k.attr.begin());
  // After them, what tells numbers from nothings.
  k.attr[own] = numbers_and_nothings ? least_number(dtype) : -1.0;
  k.attr[own + 1] = from_nothings ? 1.0 : 0.0;
  return k;
}

bool has_gradient(const GradientRequest& q) {
  return kernels().gradient[q.op.elementwise][q.operand][static_cast<std::size_t>(computed(q.dtype))] != nullptr;
}

Tensor gradient(const GradientRequest& q) {
  const Dtype dtype = computed(q.dtype);
  const Kernel k = gradient_kernel(q.op, q.operand, q.dtype, q.attrs, q.from_nothings, q.numbers_and_nothings);
  if (k.run == nullptr) return {};
  DimList shape;
  std::array<LoopOperand, max_operands> in{};
  std::array<ByteStrides, max_operands> strides;
  for (const Tensor& t : q.leaves) {
    if (t && !broadcast_into(shape, t.impl()->shape())) throw ShapeMismatch("a gradient does not fit its operand", {});
  }
  for (std::size_t i = 0; i < q.leaves.size(); ++i) {
    if (!q.leaves[i]) {
      strides[i].fill(0);
      in[i] = {nullptr, strides[i].data(), dtype, dtype};
    } else {
      in[i] = operand(*q.leaves[i].impl(), shape, strides[i]);
    }
  }
  TensorRef out = backend().empty(q.dtype, shape);
  ByteStrides out_strides;
  const LoopOperand to = operand(*out, shape, out_strides);
  run({.kernel = k.run,
       .attr = k.attr.data(),
       .shape = shape,
       .in = {in.data(), q.leaves.size()},
       .out = {&to, 1},
       .heavy = true},
      nullptr);
  return Tensor::adopt(out.leak());
}

Outputs run_elementwise(const Validated& v, TensorImpl* target, Recorder* rec) {
  if (rec != nullptr) [[unlikely]]
    return elementwise_recorded(rec, v, target);
  return elementwise(nullptr, v, target);
}

}  // namespace hyalite::cpu
