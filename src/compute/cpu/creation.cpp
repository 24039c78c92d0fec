/// Constants, ranges and identities on the CPU. Values are computed exactly and rounded once.
#include "compute/cpu/creation.h"

#include <algorithm>
#include <cmath>

#include "compute/cpu/backend.h"
#include "ops/creation.h"

namespace hyalite::cpu {
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

/// Writes f(i) to each element of `out`, through `wide` where that is another dtype.
template <class T, class F>
void fill_with(TensorImpl& out, Dtype wide_dtype, F f) {
  const bool direct = out.dtype() == wide_dtype;
  const TensorRef wide = direct ? TensorRef::share(&out) : backend().empty(wide_dtype, out.shape());
  T* p = reinterpret_cast<T*>(wide->address());
  for (std::int64_t i = 0; i < out.numel(); ++i) p[i] = f(i);
  if (!direct) copy_elements(*wide, out);
}

void fill_with_number(TensorImpl& out, const Scalar& value) {
  std::array<std::uint64_t, 2> words{};
  auto* bytes = reinterpret_cast<std::byte*>(words.data());
  encode_scalar(value, out.dtype(), bytes);
  const bool zero = (words[0] | words[1]) == 0;
  if (!(zero && out.storage()->zeroed())) backend().fill(out, bytes);
}

}  // namespace

void leave_empty(const Call&, TensorImpl&) {}

void fill_full(const Call& c, TensorImpl& out) { fill_with_number(out, c.attributes<FullBackward::Attr>().value); }

void fill_range(const Call& c, TensorImpl& out) {
  const auto& a = c.attributes<ArangeBackward::Attr>();
  if (a.start.kind <= Kind::integer && a.step.kind <= Kind::integer) {
    const auto start = static_cast<std::uint64_t>(a.start.integer), step = static_cast<std::uint64_t>(a.step.integer);
    return fill_with<std::int64_t>(out, Dtype::int64, [&](std::int64_t i) {
      return static_cast<std::int64_t>(start + static_cast<std::uint64_t>(i) * step);
    });
  }
  const double start = a.start.real(), step = a.step.real();
  const bool exact = out.dtype() == Dtype::float64 || out.dtype() == Dtype::complex128;
  fill_with<double>(out, Dtype::float64, [&](std::int64_t i) {
    const double n = static_cast<double>(i);
    return exact ? std::fma(n, step, start) : to_odd(start, step, n);
  });
}

void fill_linspace(const Call& c, TensorImpl& out) {
  const auto& a = c.attributes<LinspaceBackward::Attr>();
  const double parts = static_cast<double>(a.endpoint ? a.count - 1 : a.count);
  // Halved, so that the difference of two large ends does not overflow.
  const double step = parts > 0 ? (a.stop / 2 - a.start / 2) / parts * 2 : 0;
  fill_with<double>(out, Dtype::float64, [&](std::int64_t i) {
    if (a.endpoint && i == a.count - 1 && i > 0) return a.stop;
    return std::fma(static_cast<double>(i), step, a.start);
  });
}

void fill_eye(const Call& c, TensorImpl& out) {
  const auto& a = c.attributes<EyeBackward::Attr>();
  fill_with_number(out, Scalar(0));
  if (a.k <= -a.rows || a.k >= a.columns) return;  // also for a k whose negative does not fit
  const std::int64_t first_row = std::max<std::int64_t>(0, -a.k), first_column = std::max<std::int64_t>(0, a.k);
  const std::int64_t n = std::min(a.rows - first_row, a.columns - first_column);
  if (n <= 0) return;
  const TensorRef diagonal = TensorImpl::make(out.dtype(), {}, DimList{n}, DimList{a.columns + 1}, out.storage_ref(),
                                              first_row * a.columns + first_column);
  fill_with_number(*diagonal, Scalar(1));
}

}  // namespace hyalite::cpu
