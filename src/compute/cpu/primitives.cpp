/// The CPU's primitives: what it does for each op that is neither elementwise, nor a view, nor made of other ops.
#include "compute/cpu/primitives.h"

#include <bit>
#include <cmath>
#include <cstdio>
#include <optional>

#include "compute/blocking.h"
#include "compute/cpu/backend.h"
#include "compute/cpu/creation.h"
#include "compute/cpu/describe.h"
#include "compute/cpu/gemm.h"
#include "compute/cpu/indexing.h"
#include "compute/cpu/operands.h"
#include "compute/cpu/others.h"
#include "compute/cpu/threads.h"
#include "ops/indexing.h"
#include "ops/movement.h"
#include "ops/reduce.h"

namespace hyalite::cpu {
namespace {

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

/// Outputs, fresh or the target, filled by f as one kernel step. `describe(recorder, outputs)` ends the step.
template <class F, class Describe>
Outputs timed(Recorder* rec, const Validated& v, TensorImpl* target, F f, Describe describe) {
  Span made(rec, Phase::compute, Who::backend, Who::backend, StepKind::self);
  Outputs o = outputs_or(target, v);
  if (made.over()) describe_output(made, *o[0], target != nullptr);
  Span span(rec, Phase::compute, Who::backend, Who::kernel, StepKind::request);
  f(o);
  if (span.over()) describe(*rec, o);
  return o;
}
/// The same where nothing is counted but the threads.
template <class F>
Outputs timed(Recorder* rec, const Validated& v, TensorImpl* target, F f) {
  threads_detail::last_threads = 1;
  return timed(rec, v, target, f, [&v](Recorder& r, const Outputs& o) {
    LoopReport report;
    report.threads = threads_detail::last_threads;
    describe_kernel(r, v, report, o);
  });
}

/// The axes that a reduction reduces, one bit each.
std::uint64_t reduced_axes(const Call& c) {
  const int ndim = c.x(0).ndim();
  const auto mask = [&](const std::optional<Ints>& axes) { return reduction::axes_mask(axes, ndim, c.op.name()); };
  if (const auto* a = c.attrs->get_if<SumAttr>()) return mask(a->axis);
  if (const auto* a = c.attrs->get_if<ReductionAttr>()) return mask(a->axis);
  return reduction::axes_mask(c.attributes<PlaceAttr>().axis, ndim, c.op.name());
}

void reduce_all(const ReduceArgs& args, std::int64_t bytes) {
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
    TensorRef r = backend().empty(dtype, out.shape());
    reduce_all({op, x.dtype(), dtype, x.address(), r->address(), x.ndim(), x.shape().data(), strides.data(), mask},
               x.nbytes());
    return r;
  };
  const bool is_unsigned = is_unsigned_integer(x.dtype());
  const TensorRef wrapped = reduced(ReduceOp::sum, is_unsigned ? Dtype::uint64 : Dtype::int64);
  // 64 bits hold the sum modulo 2^64; a sum in float64 tells how often 2^64 went in.
  const bool may_wrap = itemsize(x.dtype()) == 8 || n >= std::int64_t{1} << 31;
  const TensorRef near = may_wrap ? reduced(ReduceOp::mean, Dtype::float64) : TensorRef();
  const TensorRef quotient = backend().empty(Dtype::float64, out.shape());
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    const std::uint64_t low = reinterpret_cast<const std::uint64_t*>(wrapped->address())[i];
    __int128 sum = is_unsigned ? static_cast<__int128>(low) : static_cast<std::int64_t>(low);
    if (may_wrap) {
      const double about = reinterpret_cast<const double*>(near->address())[i] * static_cast<double>(n);
      const double times = std::nearbyint((about - static_cast<double>(sum)) * 0x1p-64);
      sum += static_cast<__int128>(times) << 64;
    }
    reinterpret_cast<double*>(quotient->address())[i] = exact_quotient(sum, n, out.dtype() != Dtype::float64);
  }
  backend().copy(*quotient, out);
  return true;
}

void check_survival(const TensorImpl& x, Dtype to) {
  const TensorRef source = dense(x, x.dtype());
  const std::int64_t bad = first_that_does_not_survive(kernels().cast, x.dtype(), source->address(), to,
                                                       static_cast<std::size_t>(x.numel()));
  if (bad < 0) return;
  std::string index;
  std::int64_t rest = bad;
  for (int i = x.ndim() - 1; i >= 0; --i) {
    index = std::to_string(rest % x.shape()[i]) + (index.empty() ? "" : ", ") + index;
    rest /= x.shape()[i];
  }
  double value[2] = {};  // a complex number has two
  cast(kernels().cast, x.dtype(), source->address() + bad * static_cast<std::int64_t>(itemsize(x.dtype())),
       is_complex(x.dtype()) ? Dtype::complex128 : Dtype::float64, value, 1);
  char text[40];
  std::snprintf(text, sizeof text, std::fabs(value[0]) < 1e20 && value[0] == std::trunc(value[0]) ? "%.0f" : "%.17g",
                value[0]);
  throw ValueError("astype(): element [" + index + "] of " + std::string(hyalite::name(x.dtype())) + ", " + text +
                       ", has no equal in " + std::string(hyalite::name(to)) + "; write check=False to round",
                   {{"op", std::string("astype")}, {"position", bad}, {"value", value[0]}});
}

template <ReduceOp op>
Outputs run_reduction(const Validated& v, TensorImpl*, Recorder* rec) {
  const Call& c = v.call();
  const TensorImpl& x = c.x(0);
  const std::uint64_t mask = reduced_axes(c);
  ByteStrides strides;
  byte_strides(x, x.shape(), strides);
  return timed(rec, v, nullptr, [&](const Outputs& o) {
    TensorImpl& out = *o[0];
    if (op == ReduceOp::mean && kind(x.dtype()) <= Kind::integer && is_floating(out.dtype())) {
      if (integer_mean(x, mask, strides, out)) return;
    }
    TensorRef source = TensorRef::share(const_cast<TensorImpl*>(&x));
    if (!reduce_supports(op, x.dtype(), out.dtype())) {
      source = copy_of(x, out.dtype());
      byte_strides(*source, x.shape(), strides);
    }
    const ReduceArgs args{
        op,  source->dtype(), out.dtype(), source->address(), out.address(), x.ndim(), x.shape().data(), strides.data(),
        mask};
    reduce_all(args, x.nbytes());
  });
}

Outputs run_conversion(const Validated& v, TensorImpl* target, Recorder* rec) {
  const Call& c = v.call();
  const TensorImpl& x = c.x(0);
  Span made(rec, Phase::compute, Who::backend, Who::backend, StepKind::self);
  const auto* cast = c.attrs != nullptr ? c.attrs->get_if<AstypeBackward::Attr>() : nullptr;
  if (cast != nullptr && cast->check) check_survival(x, v.out_dtype());
  TensorRef source = TensorRef::share(c.in[0].tensor);
  if (target != nullptr && share_memory(x, *target) && !same_place(x, *target)) {
    // As if the operand were copied first.
    source = copy_of(x, x.dtype());
  }
  Outputs o = outputs_or(target, v);
  if (made.over()) describe_output(made, *o[0], target != nullptr);
  Span span(rec, Phase::compute, Who::backend, Who::kernel, StepKind::request);
  LoopReport report;
  if (copy_few(*source, *o[0])) {
    report = {one_call, 1, false, false, 1, source->nbytes() + o[0]->nbytes()};
  } else {
    ByteStrides a, b;
    cpu::copy(stored(*source, x.shape(), a), stored(*o[0], x.shape(), b), x.shape(),
              rec != nullptr ? &report : nullptr);
  }
  if (span.over()) describe_kernel(*rec, v, report, o);
  return o;
}

Outputs run_matmul(const Validated& v, TensorImpl*, Recorder* rec) {
  GemmReport report;
  return timed(
      rec, v, nullptr,
      [&](const Outputs& o) { matmul(v.call().x(0), v.call().x(1), *o[0], rec != nullptr ? &report : nullptr); },
      [&](Recorder& r, const Outputs&) { describe_product(r, v, report); });
}

/// An op whose work is one function of its call and its output, or all its outputs. In place it fills the target,
/// whatever its strides.
template <auto work>
Outputs run_plainly(const Validated& v, TensorImpl* target, Recorder* rec) {
  return timed(rec, v, target, [&](const Outputs& o) {
    if constexpr (std::is_invocable_v<decltype(work), const Call&, TensorImpl&>) {
      work(v.call(), *o[0]);
    } else {
      work(v.call(), o);
    }
  });
}

void others_of(const Call& c, TensorImpl& out) { others(c.x(0), c.x(1), out); }
void take_from(const Call& c, TensorImpl& out) { take(c.x(0), c.x(1), c.attributes<TakeBackward::Attr>().axis, out); }
void scatter_add_to(const Call& c, TensorImpl& out) {
  scatter_add(c.x(0), c.x(1), c.attributes<ScatterAddBackward::Attr>().axis, out);
}

constexpr Entry entries[] = {
    {"sum", run_reduction<ReduceOp::sum>, ReduceOp::sum},
    {"prod", run_reduction<ReduceOp::prod>, ReduceOp::prod},
    {"mean", run_reduction<ReduceOp::mean>, ReduceOp::mean},
    {"max", run_reduction<ReduceOp::max>, ReduceOp::max},
    {"min", run_reduction<ReduceOp::min>, ReduceOp::min},
    {"any", run_reduction<ReduceOp::any>, ReduceOp::any},
    {"all", run_reduction<ReduceOp::all>, ReduceOp::all},
    {"argmax", run_reduction<ReduceOp::argmax>, ReduceOp::argmax},
    {"argmin", run_reduction<ReduceOp::argmin>, ReduceOp::argmin},
    {"astype", run_conversion},
    {"contiguous", run_conversion},
    {"matmul", run_matmul, {}, true},
    {"concat", run_plainly<concat>},
    {"others", run_plainly<others_of>},
    {"take", run_plainly<take_from>},
    {"scatter_add", run_plainly<scatter_add_to>},
    {"positions", run_plainly<positions>},
    {"true_positions", run_plainly<true_positions>},
    {"last_writers", run_plainly<last_writers>},
    {"empty", run_plainly<leave_empty>},
    {"full", run_plainly<fill_full>},
    {"arange", run_plainly<fill_range>},
    {"linspace", run_plainly<fill_linspace>},
    {"eye", run_plainly<fill_eye>},
};

}  // namespace

std::span<const Entry> primitives() { return entries; }

std::optional<ReduceOp> reduction_of(const OpInfo& op) {
  const Entry* at = std::ranges::find(entries, op.name(), &Entry::op);
  return at == std::end(entries) ? std::nullopt : at->reduces;
}

Folds folds(const OpInfo& op, Dtype in, Dtype out) {
  const std::optional<ReduceOp> reduces = reduction_of(op);
  // Complex numbers are reduced by component, and means of integers exactly: by ways of their own.
  if (!reduces || is_complex(in) || (*reduces == ReduceOp::mean && kind(in) <= Kind::integer) ||
      !reduce_supports(*reduces, in, out))
    return Folds::no;
  return *reduces == ReduceOp::argmax || *reduces == ReduceOp::argmin ? Folds::rows : Folds::yes;
}

bool multiplies(const OpInfo& op, Dtype dtype) {
  const Entry* at = std::ranges::find(entries, op.name(), &Entry::op);
  return at != std::end(entries) && at->multiplies && kind(dtype) != Kind::integer;
}

}  // namespace hyalite::cpu
