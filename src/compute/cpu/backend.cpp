/// What the CPU does for each primitive.
#include "compute/cpu/backend.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "compute/blocking.h"
#include "compute/cpu/compare.h"
#include "compute/cpu/gemm.h"
#include "compute/cpu/indexing.h"
#include "compute/cpu/loops.h"
#include "compute/cpu/others.h"
#include "compute/cpu/threads.h"

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

/// What must come from memory: an element that stride 0 repeats counts once, and take reads only what it gives.
std::int64_t bytes_read(const TensorImpl& t, const Validated& v) {
  if (t.numel() == 0) return 0;
  std::int64_t elements = 1;
  for (int i = 0; i < t.ndim(); ++i) {
    if (t.strides()[i] != 0 || t.shape()[i] == 0) elements *= t.shape()[i];
  }
  if (v.call().op.schema.primitive == Primitive::take) elements = std::min(elements, checked_numel(v.shape(), 1));
  return elements * static_cast<std::int64_t>(itemsize(t.dtype()));
}

void describe_kernel(Recorder* rec, const Validated& v, const LoopReport& r, const TensorImpl& out) {
  rec->stop();
  const Call& c = v.call();
  std::int64_t bytes = out.nbytes() * c.op.outputs;
  for (const Operand& o : c.in) {
    if (o.tensor != nullptr) bytes += bytes_read(*o.tensor, v);
  }
  const std::string isa = instruction_set().name;
  rec->end(std::string(c.op.name()) + "_" + std::string(name(v.dtype())) + ", " + std::to_string(r.threads) +
               (r.threads == 1 ? " thread" : " threads"),
           {{"kernel", std::string(c.op.name()) + "<" + std::string(name(computed(v.dtype()))) + "> " + isa},
            {"loop", r.shape},
            {"operands", r.blocks ? "in blocks of 1024 elements in L1" : "read where they lie"},
            {"stores", r.streaming ? "streaming: the output passes 3/4 of the last-level cache" : "cached"},
            {"threads", std::to_string(r.threads)},
            {"rows", std::to_string(r.rows)}},
           isa + " is the widest instruction set that this processor, this build and HYALITE_ISA allow");
  rec->last().bytes_moved = rec->last().bytes_least = bytes;
  rec->last().source_op = std::string(c.op.name());
  rec->current_op().isa = isa;
  rec->current_op().threads = r.threads;
}

class CpuBackend final : public Backend {
 public:
  std::string name() const override { return "cpu"; }

  Outputs compute(const Validated& v, TensorImpl* target, Recorder* rec) override {
    switch (v.call().op.schema.primitive) {
      case Primitive::elementwise:
        return elementwise(v, target, rec);
      case Primitive::reduce:
        return reduced(v, rec);
      case Primitive::cast:
        return converted(v, target, rec);
      case Primitive::matmul:
        return timed(v, rec, [&](TensorImpl& out) { matmul(v.call().x(0), v.call().x(1), out); });
      case Primitive::concat:
        return timed(v, rec, [&](TensorImpl& out) { concat(v.call(), out); });
      case Primitive::others:
        return timed(v, rec, [&](TensorImpl& out) { others(v.call().x(0), v.call().x(1), out); });
      case Primitive::take:
        return timed(v, rec,
                     [&](TensorImpl& out) { take(v.call().x(0), v.call().x(1), integer(*v.call().attrs, 0), out); });
      case Primitive::scatter_add:
        return timed(v, rec, [&](TensorImpl& out) {
          scatter_add(v.call().x(0), v.call().x(1), integer(*v.call().attrs, 0), out);
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
    AttrDoubles attr(q.attrs);
    attr.append({q.numbers_and_nothings ? least_number(q.dtype) : -1.0, q.from_nothings ? 1.0 : 0.0});
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
    ByteStrides a, b;
    const LoopOperand in{from.data(), (byte_strides(from, to.shape(), a), a.data()), from.dtype(), from.dtype()};
    const LoopOperand out{to.data(), (byte_strides(to, to.shape(), b), b.data()), to.dtype(), to.dtype()};
    cpu::copy(in, out, to.shape(), nullptr);
  }

  void fill(TensorImpl& to, const std::byte* value) override {
    ByteStrides none{}, b;
    const LoopOperand in{const_cast<std::byte*>(value), none.data(), to.dtype(), to.dtype()};
    const LoopOperand out{to.data(), (byte_strides(to, to.shape(), b), b.data()), to.dtype(), to.dtype()};
    cpu::copy(in, out, to.shape(), nullptr);
  }

 private:
  /// The attributes of an elementwise op as its kernel takes them.
  class AttrDoubles {
   public:
    explicit AttrDoubles(const Attrs* attrs) {
      if (attrs == nullptr) return;
      for (std::size_t i = 0; i < attrs->size() && i < values_.size(); ++i) {
        if (const double* d = std::get_if<double>(&(*attrs)[i])) values_[count_++] = *d;
      }
    }
    void append(std::initializer_list<double> more) {
      for (const double d : more) values_[count_++] = d;
    }
    const double* data() const { return values_.data(); }

   private:
    std::array<double, 4> values_{};
    std::size_t count_ = 0;
  };

  /// The largest number that becomes 0 when it is stored as `dtype`.
  static double least_number(Dtype dtype) {
    return dtype == Dtype::float16 ? 0x1p-25 : dtype == Dtype::bfloat16 ? 0x1p-134 : 0;
  }

  /// Tensors of one shape, contiguous and small, without attributes: a block from the pool and one plain call.
  static bool quick(const Validated& v, Outputs& o) {
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
    void* out = o.first->data();
    fn(in, &out, static_cast<std::size_t>(like->numel()), nullptr, false);
    return true;
  }

  Outputs elementwise(const Validated& v, TensorImpl* target, Recorder* rec) {
    const Call& c = v.call();
    if (Outputs o; target == nullptr && rec == nullptr && quick(v, o)) return o;
    if (c.op.schema.check == Check::integer_exponent && kind(v.dtype()) == Kind::integer) check_exponents(c);
    Outputs o;
    if (rec != nullptr) rec->begin(Phase::compute, Who::backend, Who::backend, StepKind::self);
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
    if (rec != nullptr) describe_output(rec, *o.first, target != nullptr);
    LoopReport report;
    if (rec != nullptr) rec->begin(Phase::compute, Who::backend, Who::kernel, StepKind::request);
    const bool finished = small(v, o) || general(v, target, o, rec != nullptr ? &report : nullptr);
    if (rec != nullptr) {
      describe_kernel(rec, v, report, *o.first);
      const auto dtype = static_cast<std::size_t>(computed(v.dtype()));
      if (!v.mixed()) rec->last().kernel = reinterpret_cast<const void*>(kernels().forward[c.op.elementwise][dtype]);
    }
    if (!finished) throw Interrupted("interrupted; the unfinished result is dropped");
    return o;
  }

  /// One plain call of the kernel, for small contiguous operands without conversion.
  bool small(const Validated& v, const Outputs& o) {
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
    fn(in, out, static_cast<std::size_t>(o.first->numel()), AttrDoubles(c.attrs).data(), false);
    return true;
  }

  static ElementwiseFn forward_kernel(const Validated& v, Dtype dtype) {
    const KernelTable& t = kernels();
    const int op = v.call().op.elementwise;
    const auto column = static_cast<std::size_t>(dtype);
    return v.real_operand() < 0 ? t.forward[op][column] : t.real_operand[op][v.real_operand()][column];
  }

  bool general(const Validated& v, TensorImpl* target, const Outputs& o, LoopReport* report) {
    const Call& c = v.call();
    const Dims shape = v.shape();
    std::array<LoopOperand, max_arity> in;
    std::array<ByteStrides, max_arity> strides;
    std::array<TensorRef, max_arity> copies;
    for (std::size_t i = 0; i < c.in.size(); ++i) {
      const Operand& x = c.in[i];
      if (x.tensor == nullptr) {
        strides[i].fill(0);
        in[i] = {const_cast<std::byte*>(x.bytes.data()), strides[i].data(), x.dtype, computed(x.dtype)};
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
    const AttrDoubles attr(c.attrs);
    return run({.kernel = fn,
                .attr = attr.data(),
                .shape = shape,
                .in = {in.data(), c.in.size()},
                .out = {out.data(), o.second ? 2u : 1u},
                .heavy = c.op.schema.ulp > 0,
                .interruptible = target == nullptr},
               report);
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

  /// A fresh row-major output, filled by f as one kernel step.
  template <class F>
  Outputs timed(const Validated& v, Recorder* rec, F f) {
    if (rec != nullptr) rec->begin(Phase::compute, Who::backend, Who::backend, StepKind::self);
    Outputs o{TensorImpl::empty(v.out_dtype(), v.shape(), v.device()), {}};
    if (rec != nullptr) describe_output(rec, *o.first, false);
    if (rec != nullptr) rec->begin(Phase::compute, Who::backend, Who::kernel, StepKind::request);
    LoopReport report;
    report.shape = "its own";
    threads_detail::last_threads = 1;
    f(*o.first);
    report.threads = threads_detail::last_threads;
    if (rec != nullptr) describe_kernel(rec, v, report, *o.first);
    return o;
  }

  Outputs reduced(const Validated& v, Recorder* rec) {
    const Call& c = v.call();
    const TensorImpl& x = c.x(0);
    std::uint64_t mask = x.ndim() == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << x.ndim()) - 1;
    if (!is_none(*c.attrs, 0)) {
      mask = 0;
      for (const std::int64_t a : ints(*c.attrs, 0)) mask |= std::uint64_t{1} << normalize_axis(a, x.ndim(), "");
    }
    ByteStrides strides;
    byte_strides(x, x.shape(), strides);
    return timed(v, rec, [&](TensorImpl& out) {
      TensorRef source = TensorRef::share(const_cast<TensorImpl*>(&x));
      if (!reduce_supports(c.op.schema.reduce, x.dtype(), out.dtype())) {
        source = TensorImpl::empty(out.dtype(), x.shape());
        copy(x, *source);
        byte_strides(*source, x.shape(), strides);
      }
      const ReduceArgs args{c.op.schema.reduce, source->dtype(), out.dtype(), source->data(), out.data(), x.ndim(),
                            x.shape().data(),   strides.data(),  mask};
      bool finished = true;
      if (x.nbytes() > small_bytes) {
        const Blocking released;
        finished = reduce(args, kernels().reduce);
      } else {
        finished = reduce(args, kernels().reduce);
      }
      if (!finished) throw Interrupted("interrupted; the unfinished result is dropped");
    });
  }

  Outputs converted(const Validated& v, TensorImpl* target, Recorder* rec) {
    const Call& c = v.call();
    const TensorImpl& x = c.x(0);
    if (c.attrs != nullptr && c.attrs->size() > 1 && flag(*c.attrs, 1)) check_survival(x, v.out_dtype());
    TensorRef source = TensorRef::share(c.in[0].tensor);
    if (target != nullptr && share_memory(x, *target) && !same_place(x, *target)) {
      // As if the operand were copied first.
      source = TensorImpl::empty(x.dtype(), x.shape());
      copy(x, *source);
    }
    if (rec != nullptr) rec->begin(Phase::compute, Who::backend, Who::backend, StepKind::self);
    const bool row_major = c.op.schema.row_major;
    Outputs o{target != nullptr ? TensorRef::share(target)
              : row_major       ? TensorImpl::empty(v.out_dtype(), v.shape())
                                : make_output(c, v.out_dtype(), v.shape()),
              {}};
    if (rec != nullptr) describe_output(rec, *o.first, target != nullptr);
    LoopReport report;
    if (rec != nullptr) rec->begin(Phase::compute, Who::backend, Who::kernel, StepKind::request);
    ByteStrides a, b;
    byte_strides(*source, x.shape(), a);
    byte_strides(*o.first, x.shape(), b);
    cpu::copy({source->data(), a.data(), x.dtype(), x.dtype()},
              {o.first->data(), b.data(), o.first->dtype(), o.first->dtype()}, x.shape(), &report);
    if (rec != nullptr) describe_kernel(rec, v, report, *o.first);
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

Backend& backend() {
  static CpuBackend b;
  return b;
}

}  // namespace hyalite::cpu
