/// What the CPU does for each primitive.
#include "compute/cpu/backend.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <optional>

#include "compute/blocking.h"
#include "compute/cpu/compare.h"
#include "compute/cpu/gemm.h"
#include "compute/cpu/indexing.h"
#include "compute/cpu/loops.h"
#include "compute/cpu/others.h"
#include "compute/cpu/threads.h"
#include "ops/linear.h"
#include "ops/movement.h"
#include "ops/reduce.h"

namespace hyalite::cpu {
namespace {

/// The dtype kernels compute `t` in.
constexpr Dtype computed(Dtype t) { return t == Dtype::float16 || t == Dtype::bfloat16 ? Dtype::float32 : t; }

constexpr std::int64_t small_bytes = 16 << 10;  // up to here one plain call of the kernel does

using ByteStrides = std::array<std::int64_t, max_rank>;

/// Strides in bytes of `t` broadcast to a shape of `rank` dimensions.
void byte_strides(const TensorImpl& t, Dims shape, ByteStrides& to) {
  const std::int64_t size = static_cast<std::int64_t>(itemsize(t.dtype()));
  const int extra = static_cast<int>(shape.size()) - t.ndim();
  for (int i = 0; i < static_cast<int>(shape.size()); ++i) {
    const bool repeats = i < extra || (t.shape()[i - extra] == 1 && shape[i] != 1);
    to[i] = repeats ? 0 : t.strides()[i - extra] * size;
  }
}

LoopOperand operand(const TensorImpl& t, Dims shape, ByteStrides& strides) {
  byte_strides(t, shape, strides);
  return {t.data(), strides.data(), t.dtype(), computed(t.dtype())};
}

/// Row-major, unless every operand that fills the shape lies alike in another dense order: then that order.
TensorRef make_output(const Call& c, Dtype dtype, Dims shape) {
  const TensorImpl* model = nullptr;
  for (const Operand& o : c.in) {
    if (o.tensor == nullptr || !same_dims(o.tensor->shape(), shape)) continue;
    if (model != nullptr && !same_dims(model->strides(), o.tensor->strides())) return TensorImpl::empty(dtype, shape);
    model = o.tensor;
  }
  if (model == nullptr || model->contiguous() || model->numel() == 0) return TensorImpl::empty(dtype, shape);
  std::array<int, max_rank> order;
  const int n = model->ndim();
  for (int i = 0; i < n; ++i) order[i] = i;
  const Dims strides = model->strides();
  std::stable_sort(order.begin(), order.begin() + n, [&](int a, int b) { return strides[a] > strides[b]; });
  DimList fresh(n, 0);
  std::int64_t step = 1;
  for (int i = n - 1; i >= 0; --i) {
    if (shape[order[i]] != 1 && strides[order[i]] != step) return TensorImpl::empty(dtype, shape);
    fresh[order[i]] = step;
    step *= shape[order[i]];
  }
  return TensorImpl::make(dtype, {}, shape, fresh, Storage::allocate(step * itemsize(dtype)));
}

/// A row-major tensor with the shape of `like`, which is contiguous.
TensorRef empty_like(const TensorImpl& like, Dtype dtype) {
  return TensorImpl::make_like(like, dtype, Storage::allocate(like.numel() * itemsize(dtype)));
}

/// The bytes from the first to the last element of `t`.
std::pair<const std::byte*, const std::byte*> extent(const TensorImpl& t) {
  const std::int64_t size = static_cast<std::int64_t>(itemsize(t.dtype()));
  std::int64_t low = 0, high = size;
  for (int i = 0; i < t.ndim(); ++i) {
    const std::int64_t reach = (t.shape()[i] - 1) * t.strides()[i] * size;
    (reach < 0 ? low : high) += reach;
  }
  return {t.data() + low, t.data() + high};
}
/// Two storages may be borrowed from one array, so addresses count.
bool share_memory(const TensorImpl& a, const TensorImpl& b) {
  if (a.numel() == 0 || b.numel() == 0) return false;
  const auto [a0, a1] = extent(a);
  const auto [b0, b1] = extent(b);
  return a0 < b1 && b0 < a1;
}
/// Element for element in the same bytes: only then may an operand be read while the target is written.
bool same_place(const TensorImpl& a, const TensorImpl& b) {
  return a.data() == b.data() && itemsize(a.dtype()) == itemsize(b.dtype()) && same_dims(a.shape(), b.shape()) &&
         same_dims(a.strides(), b.strides());
}

void describe_output(Recorder* rec, const TensorImpl& out, bool in_place) {
  rec->stop();
  const Storage& s = *out.storage();
  const std::string bytes = std::to_string(out.nbytes()) + " bytes";
  if (in_place) {
    rec->end("output in place", {{"pool", "not asked"}, {"bytes", bytes}}, "the op writes its left side");
    return;
  }
  rec->end("output from the pool: " + bytes,
           {{"pool", std::string(s.hit() ? "hit" : "miss") + (s.huge() ? ", huge-page arena" : "")}, {"bytes", bytes}},
           s.hit() ? "a block of that size was free" : "no block of that size was free: fresh memory");
}

/// What any way of computing it must read and write, each byte once: empty where operands overlap.
std::optional<std::int64_t> least_bytes(const Call& c, const Outputs& o) {
  std::int64_t sum = o.first->nbytes() + (o.second ? o.second->nbytes() : 0);
  for (std::size_t i = 0; i < c.in.size(); ++i) {
    const TensorImpl* t = c.in[i].tensor;
    if (t == nullptr || t->numel() == 0) continue;
    bool again = false;
    for (std::size_t k = 0; k < i; ++k) {
      if (c.in[k].tensor == nullptr || !share_memory(*t, *c.in[k].tensor)) continue;
      if (!same_place(*t, *c.in[k].tensor)) return {};
      again = true;
    }
    std::int64_t elements = again ? 0 : 1;
    for (int d = 0; d < t->ndim(); ++d) {
      if (t->strides()[d] != 0 || t->shape()[d] == 0) elements *= t->shape()[d];
    }
    sum += elements * static_cast<std::int64_t>(itemsize(t->dtype()));
  }
  return sum;
}

std::string threads_text(int n) { return ", " + std::to_string(n) + (n == 1 ? " thread" : " threads"); }

/// Ends the kernel's step with what the loop says of itself, and nothing else.
void describe_kernel(Recorder& rec, const Validated& v, const LoopReport& r, const Outputs& o) {
  rec.stop();
  const Call& c = v.call();
  const std::string isa = instruction_set().name;
  Facts facts{{"kernel", std::string(c.op.name()) + "<" + std::string(name(computed(v.dtype()))) + "> " + isa}};
  if (r.shape != nullptr) facts.emplace_back("loop", r.shape);
  if (r.blocks) facts.emplace_back("operands", *r.blocks ? "in blocks of 1024 elements in L1" : "read where they lie");
  if (r.streaming) {
    facts.emplace_back("stores", *r.streaming ? "streaming: the output passes 3/4 of the last-level cache" : "cached");
  }
  if (r.threads) facts.emplace_back("threads", std::to_string(*r.threads));
  if (r.rows) facts.emplace_back("rows", std::to_string(*r.rows));
  rec.end(std::string(c.op.name()) + "_" + std::string(name(v.dtype())) + (r.threads ? threads_text(*r.threads) : ""),
          std::move(facts),
          isa + " is the widest instruction set that this processor, this build and HYALITE_ISA allow");
  Step& step = rec.last();
  if (r.bytes) {
    step.bytes_moved = *r.bytes + 2 * step.copied_bytes;  // a copy reads what it writes
    step.bytes_least = least_bytes(c, o);
  }
  step.source_op = std::string(c.op.name());
  rec.current_op().isa = isa;
  rec.current_op().threads = r.threads.value_or(0);
}

/// The same where a library computed.
void describe_product(Recorder& rec, const Validated& v, const GemmReport& r) {
  rec.stop();
  Facts facts{{"kernel", r.routine.empty() ? "none" : r.routine}};
  if (!r.library.empty()) facts.emplace_back("library", r.library);
  if (r.threads > 0) facts.emplace_back("threads", std::to_string(r.threads));
  rec.end(std::string(v.call().op.name()) + "_" + std::string(name(v.dtype())) +
              (r.threads > 0 ? threads_text(r.threads) : ""),
          std::move(facts),
          r.routine.empty()   ? "an axis is empty: nothing is multiplied"
          : r.library.empty() ? "integers wrap, which no BLAS does"
                              : "the library picks its own kernel");
  Step& step = rec.last();
  if (!r.routine.empty()) step.operations = r.operations;
  step.source_op = std::string(v.call().op.name());
  rec.current_op().library = r.library.substr(0, r.library.find(' '));
  rec.current_op().threads = r.threads;
}

/// sum / n, n > 0, as a double: rounded to the nearest, or, `to_odd`, so that any narrower rounding of it is the exact
/// quotient's.
double exact_quotient(__int128 sum, std::int64_t n, bool to_odd) {
  using Wide = unsigned __int128;
  const auto bits_of = [](Wide x) {
    const auto high = static_cast<std::uint64_t>(x >> 64);
    return high != 0 ? 64 + std::bit_width(high) : std::bit_width(static_cast<std::uint64_t>(x));
  };
  if (sum == 0) return 0;
  const Wide size = sum < 0 ? -static_cast<Wide>(sum) : static_cast<Wide>(sum);
  const int up = 128 - bits_of(size);
  const Wide dividend = size << up, quotient = dividend / static_cast<Wide>(n);
  const int down = bits_of(quotient) - 64;  // at least 1, since n has at most 63 bits
  auto mantissa = static_cast<std::uint64_t>(quotient >> down);
  // What is cut off only matters by being there.
  if (quotient * static_cast<Wide>(n) != dividend || quotient != static_cast<Wide>(mantissa) << down) mantissa |= 1;
  int exponent = down - up;
  if (to_odd) {
    mantissa = mantissa >> 11 | ((mantissa & 0x7ff) != 0 ? 1 : 0);
    exponent += 11;
  }
  const double r = std::ldexp(static_cast<double>(mantissa), exponent);
  return sum < 0 ? -r : r;
}

class CpuBackend final : public Backend {
 public:
  std::string name() const override { return "cpu"; }

  Outputs compute(const Validated& v, TensorImpl* target, Recorder* rec) override {
    if (rec != nullptr) [[unlikely]]
      return computed_by(LiveRecorder{*rec}, v, target);
    return computed_by(NoRecorder{}, v, target);
  }

  template <class R>
  Outputs computed_by(R rec, const Validated& v, TensorImpl* target) {
    switch (v.call().op.schema.primitive) {
      case Primitive::elementwise:
        return elementwise(rec, v, target);
      case Primitive::reduce:
        return reduced(rec, v);
      case Primitive::cast:
        return converted(rec, v, target);
      case Primitive::matmul: {
        GemmReport report;
        return timed(
            rec, v, [&](TensorImpl& out) { matmul(v.call().x(0), v.call().x(1), out, R::on ? &report : nullptr); },
            [&](Recorder& r, const Outputs&) { describe_product(r, v, report); });
      }
      case Primitive::concat:
        return timed(rec, v, [&](TensorImpl& out) { concat(v.call(), out); });
      case Primitive::others:
        return timed(rec, v, [&](TensorImpl& out) { others(v.call().x(0), v.call().x(1), out); });
      case Primitive::take:
        return timed(rec, v, [&](TensorImpl& out) {
          take(v.call().x(0), v.call().x(1), v.call().attributes<TakeBackward::Attr>().axis, out);
        });
      case Primitive::scatter_add:
        return timed(rec, v, [&](TensorImpl& out) {
          scatter_add(v.call().x(0), v.call().x(1), v.call().attributes<ScatterAddBackward::Attr>().axis, out);
        });
      default:
        throw Unsupported(std::string(v.call().op.name()) + "() has no primitive on cpu");
    }
  }

  Tensor gradient(const GradientRequest& q) override {
    const Dtype dtype = computed(q.dtype);
    const ElementwiseFn fn = kernels().gradient[q.op.elementwise][q.operand][static_cast<std::size_t>(dtype)];
    if (fn == nullptr) return {};
    const TensorImpl* like = nullptr;
    DimList shape;
    std::array<LoopOperand, max_operands> in{};
    std::array<ByteStrides, max_operands> strides;
    for (const Tensor& t : q.leaves) {
      if (t && !broadcast_into(shape, t.impl()->shape()))
        throw ShapeMismatch("a gradient does not fit its operand", {});
      if (t && like == nullptr) like = t.impl();
    }
    for (std::size_t i = 0; i < q.leaves.size(); ++i) {
      if (!q.leaves[i]) {
        strides[i].fill(0);
        in[i] = {nullptr, strides[i].data(), dtype, dtype};
      } else {
        in[i] = operand(*q.leaves[i].impl(), shape, strides[i]);
      }
    }
    TensorRef out = TensorImpl::empty(q.dtype, shape, like->device());
    ByteStrides out_strides;
    const LoopOperand to = operand(*out, shape, out_strides);
    // After them, what tells numbers from nothings.
    std::array<double, 4> attr{};
    const std::size_t own = q.op.fields().size();
    std::copy_n(kernel_attributes(q.attrs), own, attr.begin());
    attr[own] = q.numbers_and_nothings ? least_number(q.dtype) : -1.0;
    attr[own + 1] = q.from_nothings ? 1.0 : 0.0;
    run({.kernel = fn,
         .attr = attr.data(),
         .shape = shape,
         .in = {in.data(), q.leaves.size()},
         .out = {&to, 1},
         .heavy = true},
        nullptr);
    return Tensor::adopt(out.leak());
  }

  void copy(const TensorImpl& from, TensorImpl& to) override {
    copy_elements(from, to);
    if (Recorder* r = active_recorder(context())) [[unlikely]]
      r->copied(to.nbytes());
  }

  void fill(TensorImpl& to, const std::byte* value) override {
    ByteStrides none{}, b;
    const LoopOperand in{const_cast<std::byte*>(value), none.data(), to.dtype(), to.dtype()};
    const LoopOperand out{to.data(), (byte_strides(to, to.shape(), b), b.data()), to.dtype(), to.dtype()};
    cpu::copy(in, out, to.shape(), nullptr);
  }

 private:
  /// The attributes of an elementwise op as its kernel takes them: an aggregate of doubles.
  static const double* kernel_attributes(const Attributes* a) {
    return a != nullptr ? static_cast<const double*>(a->values()) : nullptr;
  }

  /// The largest number that becomes 0 when it is stored as `dtype`.
  static double least_number(Dtype dtype) {
    return dtype == Dtype::float16 ? 0x1p-25 : dtype == Dtype::bfloat16 ? 0x1p-134 : 0;
  }

  static constexpr const char* one_call = "one call of the kernel";

  /// What one call of the kernel for contiguous operands reads and writes.
  static LoopReport call_report(const Call& c, const Outputs& o) {
    std::optional<std::int64_t> bytes = o.first->nbytes() + (o.second ? o.second->nbytes() : 0);
    for (std::size_t i = 0; i < c.in.size() && bytes; ++i) {
      bool again = false;
      for (std::size_t k = 0; k < i; ++k) {
        const TensorImpl &x = *c.in[i].tensor, &y = *c.in[k].tensor;
        again |= x.data() == y.data();
        if (x.data() != y.data() && share_memory(x, y)) bytes.reset();
      }
      if (bytes && !again) *bytes += c.in[i].tensor->nbytes();
    }
    return {one_call, 1, false, false, 1, bytes};
  }

  template <class R>
  static void call_kernel(R rec, const Validated& v, const Outputs& o, ElementwiseFn fn, const void* const* in,
                          void* const* out, const double* attr) {
    if constexpr (R::on) rec.r.begin(Phase::compute, Who::backend, Who::kernel, StepKind::request);
    fn(in, out, static_cast<std::size_t>(o.first->numel()), attr, false);
    if constexpr (R::on) {
      describe_kernel(rec.r, v, call_report(v.call(), o), o);
      rec.r.last().kernel = reinterpret_cast<const void*>(fn);
    }
  }

  /// Tensors of one shape, contiguous and small, without attributes: a block from the pool and one plain call.
  template <class R>
  static bool quick(R rec, const Validated& v, Outputs& o) {
    const Call& c = v.call();
    const TensorImpl* like = v.like();
    const std::size_t n = c.in.size();
    if (like == nullptr || c.attrs != nullptr || c.op.outputs != 1 || v.mixed() || v.real_operand() >= 0) return false;
    const ElementwiseFn fn = kernels().forward[c.op.elementwise][static_cast<std::size_t>(v.dtype())];
    if (fn == nullptr || like->nbytes() > small_bytes || c.op.schema.check != Check::none) return false;
    const void* in[max_arity];
    for (std::size_t i = 0; i < n; ++i) {
      if (c.in[i].tensor == nullptr) return false;
      in[i] = c.in[i].tensor->data();
    }
    o.first = empty_like(*like, v.out_dtype());
    if constexpr (R::on) describe_output(&rec.r, *o.first, false);
    void* out = o.first->data();
    call_kernel(rec, v, o, fn, in, &out, nullptr);
    return true;
  }

  template <class R>
  [[gnu::always_inline]] inline Outputs elementwise(R rec, const Validated& v, TensorImpl* target) {
    const Call& c = v.call();
    Outputs o;
    if constexpr (R::on) rec.r.begin(Phase::compute, Who::backend, Who::backend, StepKind::self);
    if (target == nullptr && quick(rec, v, o)) return o;
    if (c.op.schema.check == Check::integer_exponent && kind(v.dtype()) == Kind::integer) check_exponents(c);
    if (target != nullptr) {
      o.first = TensorRef::share(target);
    } else if (v.like() != nullptr) {
      o.first = empty_like(*v.like(), v.out_dtype());
    } else {
      o.first = make_output(c, v.out_dtype(), v.shape());
    }
    if (c.op.outputs == 2) {
      o.second = TensorImpl::make(v.out_dtype(), o.first->device(), o.first->shape(), row_major(o.first->shape()),
                                  Storage::allocate(o.first->nbytes()));
    }
    if constexpr (R::on) describe_output(&rec.r, *o.first, target != nullptr);
    if (!small(rec, v, o) && !general(rec, v, target, o)) {
      throw Interrupted("interrupted; the unfinished result is dropped");
    }
    return o;
  }

  /// One plain call of the kernel, for small contiguous operands without conversion.
  template <class R>
  bool small(R rec, const Validated& v, const Outputs& o) {
    const Call& c = v.call();
    const ElementwiseFn fn = forward_kernel(v, v.dtype());
    if (v.like() == nullptr || fn == nullptr || v.mixed() || o.first->nbytes() > small_bytes ||
        !o.first->contiguous()) {
      return false;
    }
    const void* in[max_arity];
    void* out[2] = {o.first->data(), o.second ? o.second->data() : nullptr};
    for (std::size_t i = 0; i < c.in.size(); ++i) {
      if (c.in[i].tensor == nullptr) return false;
      in[i] = c.in[i].tensor->data();
      // In place, an operand that overlaps the target elsewhere than at its own place must be copied first.
      const std::byte *x = c.in[i].tensor->data(), *z = o.first->data();
      if (!same_place(*c.in[i].tensor, *o.first) && x < z + o.first->nbytes() && z < x + c.in[i].tensor->nbytes())
        return false;
    }
    call_kernel(rec, v, o, fn, in, out, kernel_attributes(c.attrs));
    return true;
  }

  static ElementwiseFn forward_kernel(const Validated& v, Dtype dtype) {
    const KernelTable& t = kernels();
    const int op = v.call().op.elementwise;
    const auto column = static_cast<std::size_t>(dtype);
    return v.real_operand() < 0 ? t.forward[op][column] : t.real_operand[op][v.real_operand()][column];
  }

  template <class R>
  bool general(R rec, const Validated& v, TensorImpl* target, const Outputs& o) {
    const Call& c = v.call();
    if constexpr (R::on) rec.r.begin(Phase::compute, Who::backend, Who::kernel, StepKind::request);
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
        copies[i] = TensorImpl::empty(t->dtype(), t->shape());
        copy(*t, *copies[i]);
        t = copies[i].get();
      }
      in[i] = operand(*t, shape, strides[i]);
    }
    ElementwiseFn fn = forward_kernel(v, computed(v.dtype()));
    if (v.mixed()) fn = widen_comparison(c, in);
    std::array<ByteStrides, 2> out_strides;
    std::array<LoopOperand, 2> out{operand(*o.first, shape, out_strides[0])};
    if (o.second) out[1] = operand(*o.second, shape, out_strides[1]);
    [[maybe_unused]] LoopReport report;
    const bool finished = run({.kernel = fn,
                               .attr = kernel_attributes(c.attrs),
                               .shape = shape,
                               .in = {in.data(), c.in.size()},
                               .out = {out.data(), o.second ? 2u : 1u},
                               .heavy = c.op.schema.ulp > 0,
                               .interruptible = target == nullptr},
                              R::on ? &report : nullptr);
    if constexpr (R::on) {
      describe_kernel(rec.r, v, report, o);
      rec.r.last().kernel = reinterpret_cast<const void*>(fn);
    }
    return finished;
  }

  /// Unequal dtypes are compared in their hubs: by the plain kernel if it is one hub, else by an exact mixed one.
  static ElementwiseFn widen_comparison(const Call& c, std::array<LoopOperand, max_arity>& in) {
    const Hub left = hub_of(in[0].stored), right = hub_of(in[1].stored);
    in[0].computed = dtype_of(left);
    in[1].computed = dtype_of(right);
    if (left == right) return kernels().forward[c.op.elementwise][static_cast<std::size_t>(dtype_of(left))];
    return mixed_comparison(c.op.elementwise, left, right);
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
      TensorRef wide = TensorImpl::empty(Dtype::int64, y.tensor->shape());
      copy(*y.tensor, *wide);
      const auto* p = reinterpret_cast<const std::int64_t*>(wide->data());
      least = *std::min_element(p, p + wide->numel());
    }
    if (least < 0) {
      throw ValueError("pow(): an integer to the negative power " + std::to_string(least) +
                           " is no integer; write x.astype(hl.float32) ** y",
                       {{"op", std::string("pow")}, {"exponent", least}});
    }
  }

  /// A fresh row-major output, filled by f as one kernel step. `describe(recorder, outputs)` ends the step.
  template <class R, class F, class Describe>
  Outputs timed(R rec, const Validated& v, F f, Describe describe) {
    if constexpr (R::on) rec.r.begin(Phase::compute, Who::backend, Who::backend, StepKind::self);
    Outputs o{TensorImpl::empty(v.out_dtype(), v.shape(), v.device()), {}};
    if constexpr (R::on) {
      describe_output(&rec.r, *o.first, false);
      rec.r.begin(Phase::compute, Who::backend, Who::kernel, StepKind::request);
    }
    f(*o.first);
    if constexpr (R::on) describe(rec.r, o);
    return o;
  }
  /// Of which nothing is counted but the threads.
  template <class R, class F>
  Outputs timed(R rec, const Validated& v, F f) {
    if constexpr (R::on) threads_detail::last_threads = 1;
    return timed(rec, v, f, [&](Recorder& r, const Outputs& o) {
      LoopReport report;
      report.threads = threads_detail::last_threads;
      describe_kernel(r, v, report, o);
    });
  }

  template <class R>
  Outputs reduced(R rec, const Validated& v) {
    const Call& c = v.call();
    const TensorImpl& x = c.x(0);
    const std::uint64_t mask = reduced_axes(c);
    ByteStrides strides;
    byte_strides(x, x.shape(), strides);
    return timed(rec, v, [&](TensorImpl& out) {
      if (c.op.schema.reduce == ReduceOp::mean && kind(x.dtype()) <= Kind::integer && is_floating(out.dtype())) {
        if (integer_mean(x, mask, strides, out)) return;
      }
      TensorRef source = TensorRef::share(const_cast<TensorImpl*>(&x));
      if (!reduce_supports(c.op.schema.reduce, x.dtype(), out.dtype())) {
        source = TensorImpl::empty(out.dtype(), x.shape());
        copy(x, *source);
        byte_strides(*source, x.shape(), strides);
      }
      const ReduceArgs args{c.op.schema.reduce, source->dtype(), out.dtype(), source->data(), out.data(), x.ndim(),
                            x.shape().data(),   strides.data(),  mask};
      reduce_all(args, x.nbytes());
    });
  }

  /// The axes that a reduction reduces, one bit each.
  static std::uint64_t reduced_axes(const Call& c) {
    const int ndim = c.x(0).ndim();
    const auto mask = [&](const std::optional<Ints>& axes) { return reduction::axes_mask(axes, ndim, c.op.name()); };
    if (const auto* a = c.attrs->get_if<SumAttr>()) return mask(a->axis);
    if (const auto* a = c.attrs->get_if<ReductionAttr>()) return mask(a->axis);
    const auto& axis = c.attributes<PlaceAttr>().axis;
    return axis ? std::uint64_t{1} << normalize_axis(*axis, ndim, "") : mask({});
  }

  static void reduce_all(const ReduceArgs& args, std::int64_t bytes) {
    std::optional<Blocking> released;
    if (bytes > small_bytes) released.emplace();
    const bool finished = reduce(args, kernels().reduce);
    released.reset();
    if (!finished) throw Interrupted("interrupted; the unfinished result is dropped");
  }

  /// The exact sum, divided and rounded once. False where nothing is reduced or written.
  [[gnu::noinline]] bool integer_mean(const TensorImpl& x, std::uint64_t mask, const ByteStrides& strides,
                                      TensorImpl& out) {
    if (x.numel() == 0) return false;
    std::int64_t n = 1;
    for (int i = 0; i < x.ndim(); ++i) n *= (mask >> i & 1) != 0 ? x.shape()[i] : 1;
    const auto reduced = [&](ReduceOp op, Dtype dtype) {
      TensorRef r = TensorImpl::empty(dtype, out.shape());
      reduce_all({op, x.dtype(), dtype, x.data(), r->data(), x.ndim(), x.shape().data(), strides.data(), mask},
                 x.nbytes());
      return r;
    };
    const bool is_unsigned = is_unsigned_integer(x.dtype());
    const TensorRef wrapped = reduced(ReduceOp::sum, is_unsigned ? Dtype::uint64 : Dtype::int64);
    // 64 bits hold the sum modulo 2^64; a sum in float64 tells how often 2^64 went in.
    const bool may_wrap = itemsize(x.dtype()) == 8 || n >= std::int64_t{1} << 31;
    const TensorRef near = may_wrap ? reduced(ReduceOp::mean, Dtype::float64) : TensorRef();
    const TensorRef quotient = TensorImpl::empty(Dtype::float64, out.shape());
    for (std::int64_t i = 0; i < out.numel(); ++i) {
      const std::uint64_t low = reinterpret_cast<const std::uint64_t*>(wrapped->data())[i];
      __int128 sum = is_unsigned ? static_cast<__int128>(low) : static_cast<std::int64_t>(low);
      if (may_wrap) {
        const double about = reinterpret_cast<const double*>(near->data())[i] * static_cast<double>(n);
        const double times = std::nearbyint((about - static_cast<double>(sum)) * 0x1p-64);
        sum += static_cast<__int128>(times) << 64;
      }
      reinterpret_cast<double*>(quotient->data())[i] = exact_quotient(sum, n, out.dtype() != Dtype::float64);
    }
    copy(*quotient, out);
    return true;
  }

  template <class R>
  Outputs converted(R rec, const Validated& v, TensorImpl* target) {
    const Call& c = v.call();
    const TensorImpl& x = c.x(0);
    if constexpr (R::on) rec.r.begin(Phase::compute, Who::backend, Who::backend, StepKind::self);
    if (!c.op.schema.row_major && c.attributes<AstypeBackward::Attr>().check) check_survival(x, v.out_dtype());
    TensorRef source = TensorRef::share(c.in[0].tensor);
    if (target != nullptr && share_memory(x, *target) && !same_place(x, *target)) {
      // As if the operand were copied first.
      source = TensorImpl::empty(x.dtype(), x.shape());
      copy(x, *source);
    }
    const bool row_major = c.op.schema.row_major;
    Outputs o{target != nullptr ? TensorRef::share(target)
              : row_major       ? TensorImpl::empty(v.out_dtype(), v.shape())
                                : make_output(c, v.out_dtype(), v.shape()),
              {}};
    if constexpr (R::on) {
      describe_output(&rec.r, *o.first, target != nullptr);
      rec.r.begin(Phase::compute, Who::backend, Who::kernel, StepKind::request);
    }
    [[maybe_unused]] LoopReport report;
    ByteStrides a, b;
    byte_strides(*source, x.shape(), a);
    byte_strides(*o.first, x.shape(), b);
    cpu::copy({source->data(), a.data(), x.dtype(), x.dtype()},
              {o.first->data(), b.data(), o.first->dtype(), o.first->dtype()}, x.shape(), R::on ? &report : nullptr);
    if constexpr (R::on) describe_kernel(rec.r, v, report, o);
    return o;
  }

  void check_survival(const TensorImpl& x, Dtype to) {
    TensorRef dense = TensorRef::share(const_cast<TensorImpl*>(&x));
    if (!x.contiguous()) {
      dense = TensorImpl::empty(x.dtype(), x.shape());
      copy(x, *dense);
    }
    const std::int64_t bad =
        first_that_does_not_survive(kernels().cast, x.dtype(), dense->data(), to, static_cast<std::size_t>(x.numel()));
    if (bad < 0) return;
    std::string index;
    std::int64_t rest = bad;
    for (int i = x.ndim() - 1; i >= 0; --i) {
      index = std::to_string(rest % x.shape()[i]) + (index.empty() ? "" : ", ") + index;
      rest /= x.shape()[i];
    }
    double value[2] = {};  // a complex number has two
    cast(kernels().cast, x.dtype(), dense->data() + bad * static_cast<std::int64_t>(itemsize(x.dtype())),
         is_complex(x.dtype()) ? Dtype::complex128 : Dtype::float64, value, 1);
    char text[40];
    std::snprintf(text, sizeof text, std::fabs(value[0]) < 1e20 && value[0] == std::trunc(value[0]) ? "%.0f" : "%.17g",
                  value[0]);
    throw ValueError("astype(): element [" + index + "] of " + std::string(hyalite::name(x.dtype())) + ", " + text +
                         ", has no equal in " + std::string(hyalite::name(to)) + "; write check=False to round",
                     {{"op", std::string("astype")}, {"position", bad}, {"value", value[0]}});
  }
};

}  // namespace

void copy_elements(const TensorImpl& from, TensorImpl& to) {
  ByteStrides a, b;
  const LoopOperand in{from.data(), (byte_strides(from, to.shape(), a), a.data()), from.dtype(), from.dtype()};
  const LoopOperand out{to.data(), (byte_strides(to, to.shape(), b), b.data()), to.dtype(), to.dtype()};
  copy(in, out, to.shape(), nullptr);
}

Backend& backend() {
  static CpuBackend b;
  return b;
}

}  // namespace hyalite::cpu
