/// Ranges and identities.
#include "creation.h"

#include <cmath>

#include "apply.h"
#include "compute/backend.h"
#include "tensor/context.h"

namespace hyalite {
namespace {

/// x + y * i, as a double whose last bit is odd when that is inexact: any narrower rounding of it is then the exact
/// one's.
double to_odd(double start, double step, double i) {
  const double product = i * step, product_error = std::fma(i, step, -product);
  const double sum = product + start, back = sum - product;
  const double sum_error = (product - (sum - back)) + (start - back);
  const double low = product_error + sum_error, value = sum + low, rest = (sum - value) + low;
  if (rest == 0 || !std::isfinite(value)) return value;
  if ((std::bit_cast<std::uint64_t>(value) & 1) != 0) return value;
  return std::nextafter(value, rest > 0 ? HUGE_VAL : -HUGE_VAL);
}

template <class T, class F>
Tensor filled(std::int64_t count, Dtype wide_dtype, Dtype dtype, F f) {
  const TensorRef wide = TensorImpl::empty(wide_dtype, DimList{count});
  T* p = reinterpret_cast<T*>(wide->data());
  for (std::int64_t i = 0; i < count; ++i) p[i] = f(i);
  if (dtype == wide_dtype) return Tensor::share(wide.get());
  TensorRef r = TensorImpl::empty(dtype, DimList{count});
  for_device(context(), {}).copy(*wide, *r);
  return Tensor::adopt(r.leak());
}

}  // namespace

Tensor range(double start, double step, std::int64_t count, Dtype dtype) {
  const bool exact = dtype == Dtype::float64 || dtype == Dtype::complex128;
  return filled<double>(count, Dtype::float64, dtype, [&](std::int64_t i) {
    const double n = static_cast<double>(i);
    return exact ? std::fma(n, step, start) : to_odd(start, step, n);
  });
}

Tensor range(std::int64_t start, std::int64_t step, std::int64_t count, Dtype dtype) {
  return filled<std::int64_t>(count, Dtype::int64, dtype, [&](std::int64_t i) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(start) +
                                     static_cast<std::uint64_t>(i) * static_cast<std::uint64_t>(step));
  });
}

Tensor linspace(double start, double stop, std::int64_t count, Dtype dtype, bool endpoint) {
  const double parts = static_cast<double>(endpoint ? count - 1 : count);
  // Halved, so that the difference of two large ends does not overflow.
  const double step = parts > 0 ? (stop / 2 - start / 2) / parts * 2 : 0;
  return filled<double>(count, Dtype::float64, dtype, [&](std::int64_t i) {
    if (endpoint && i == count - 1 && i > 0) return stop;
    return std::fma(static_cast<double>(i), step, start);
  });
}

Tensor eye(std::int64_t rows, std::int64_t columns, std::int64_t k, Dtype dtype) {
  const Tensor t = zeros({rows, columns}, dtype);
  if (k <= -rows || k >= columns) return t;  // also for a k whose negative does not fit
  const std::int64_t first_row = std::max<std::int64_t>(0, -k), first_column = std::max<std::int64_t>(0, k);
  const std::int64_t n = std::min(rows - first_row, columns - first_column);
  if (n > 0) {
    const TensorRef diagonal = TensorImpl::make(dtype, {}, DimList{n}, DimList{columns + 1}, t.impl()->storage_ref(),
                                                first_row * columns + first_column);
    alignas(16) std::byte one[16];
    encode_scalar(Scalar(1), dtype, one);
    for_device(context(), {}).fill(*diagonal, one);
  }
  return t;
}

}  // namespace hyalite
