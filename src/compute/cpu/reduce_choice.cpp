/// Picks the kernel of a reduction.
#include "compute/cpu/reduce_choice.h"

#include <bit>

namespace hyalite {
namespace {

int log2_size(int bytes) { return std::countr_zero(static_cast<unsigned>(bytes)); }

std::uint64_t magnitude_mask(Dtype t) {
  switch (t) {
    case Dtype::float16:
    case Dtype::bfloat16:
      return 0x7fff;
    case Dtype::float32:
      return 0x7fffffff;
    case Dtype::complex64:
      return 0x7fffffff7fffffff;
    case Dtype::float64:
    case Dtype::complex128:
      return 0x7fffffffffffffff;
    default:
      return ~std::uint64_t{0};
  }
}

std::uint64_t flip_mask(Dtype t) {
  if (!is_floating(t)) return ~std::uint64_t{0};
  return t == Dtype::float64 ? std::uint64_t{1} << 63
                             : std::uint64_t{1} << 31;  // the 16-bit types are flipped in float32
}

/// The type whose kernel sums or multiplies elements of type `t` for a result of type `result`.
Dtype accumulated_as(ReduceOp op, Dtype t, Dtype result) {
  const bool half = t == Dtype::float16 || t == Dtype::bfloat16;
  if (is_complex(t)) return op == ReduceOp::prod ? Dtype::complex128 : t;
  if (half) return result == t ? t : Dtype::float64;
  if (is_floating(t)) return op == ReduceOp::prod ? Dtype::float64 : t;
  return op == ReduceOp::mean ? Dtype::float64 : op == ReduceOp::prod ? Dtype::int64 : t;
}

void choose_fold(ReduceChoice& p, Dtype t, Dtype result, const ReduceKernels& k) {
  const Dtype as = accumulated_as(p.op, t, result);
  if (p.op != ReduceOp::prod) {
    p.kernel = &k.sum[static_cast<int>(as)];
    if (as != t) p.convert = convert_fn(t, as);
    p.finish = finish_fold(
        is_floating(as) || is_complex(as) ? (itemsize(as) == 2 ? Dtype::float32 : Dtype::float64) : Dtype::int64,
        real_part(result));
    return;
  }
  const Dtype in = itemsize(as) == 2 ? Dtype::float32 : as;
  p.kernel = in == Dtype::int64     ? &k.prod_int64
             : in == Dtype::float32 ? &k.prod_float32
             : in == Dtype::float64 ? &k.prod_float64
                                    : &k.prod_complex128;
  if (in != t && t != Dtype::uint64) p.convert = convert_fn(t, in);
  p.finish = finish_fold(in, result);
}

}  // namespace

void begin_choice(ReduceChoice& p, ReduceOp op, Dtype t, Dtype result) {
  p.op = op;
  p.arg = is_arg(op);
  p.element = static_cast<int>(itemsize(t));
  p.out_size = static_cast<int>(itemsize(result));
}

void choose_kernel(ReduceChoice& p, Dtype t, Dtype result, const ReduceKernels& k) {
  const int size = log2_size(p.element);
  if (is_extreme(p.op)) {
    p.kernel = &k.max[static_cast<int>(t)];
    if (p.op == ReduceOp::min || p.op == ReduceOp::argmin) p.bits = flip_mask(t);
    if (!p.arg) p.finish = finish_extreme(t);
  } else if (p.op == ReduceOp::any) {
    p.kernel = &k.any[size];
    p.bits = magnitude_mask(t);
    p.finish = finish_flag(p.element, false);
  } else if (p.op == ReduceOp::all && t == Dtype::complex128) {
    p.kernel = &k.all[0];
    p.bits = 0xff;
    p.convert = convert_fn(Dtype::complex128, Dtype::boolean);
    p.finish = finish_flag(1, true);
  } else if (p.op == ReduceOp::all) {
    p.kernel = &k.all[size];
    p.bits = magnitude_mask(t);
    p.finish = finish_flag(p.element, true);
  } else {
    choose_fold(p, t, result, k);
  }
}

}  // namespace hyalite
