/// Which shapes and strides a fused group can walk.
#include "compute/lazy/pass.h"

#include "ops/reduce.h"

namespace hyalite::lazy {
namespace {

constexpr std::int64_t held_bytes = 128 << 10;  // of a row that is read again: half of a second-level cache, or less

std::int64_t product(Dims sizes) {
  std::int64_t n = 1;
  for (const std::int64_t s : sizes) n *= s;
  return n;
}

/// Whether the axes from `first` to `last` of a form that is broadcast to the shape are one axis in memory.
bool one_axis(const TensorImpl& form, Dims shape, int first, int last) {
  const int extra = static_cast<int>(shape.size()) - form.ndim();
  std::int64_t expected = 0;
  bool any = false;
  for (int i = last - 1; i >= first; --i) {
    const auto at = static_cast<std::size_t>(i);
    if (shape[at] == 1) continue;
    const bool repeats = i < extra || form.shape()[static_cast<std::size_t>(i - extra)] == 1;
    const std::int64_t stride = repeats ? 0 : form.strides()[static_cast<std::size_t>(i - extra)];
    if (any && stride != expected) return false;
    expected = stride * shape[at];
    any = true;
  }
  return true;
}

}  // namespace

std::int64_t Pass::outer() const { return product(Dims(shape).first(static_cast<std::size_t>(split))); }
std::int64_t Pass::inner() const { return product(Dims(shape).subspan(static_cast<std::size_t>(split))); }

bool Pass::is_kept(const TensorImpl& form) const {
  return kind != flat && form.contiguous() && form.offset() == 0 && form.numel() == kept();
}

bool Pass::repeats_kept(const TensorImpl& form) const {
  if (kind == flat || form.offset() != 0) return false;
  const int n = shape.size(), extra = n - form.ndim();
  if (extra < 0) return false;
  const int first = kind == columns ? split : 0, last = kind == columns ? n : split;  // the kept axes
  std::int64_t step = 1;
  for (int i = n - 1; i >= 0; --i) {
    if (shape[i] == 1) continue;
    const bool repeats = i < extra || form.shape()[static_cast<std::size_t>(i - extra)] == 1;
    const std::int64_t stride = repeats ? 0 : form.strides()[static_cast<std::size_t>(i - extra)];
    const bool is_kept_axis = i >= first && i < last;
    if (stride != (is_kept_axis ? step : 0)) return false;
    if (is_kept_axis) step *= shape[i];
  }
  return true;
}

bool Pass::can_read(const TensorImpl& form) const {
  const int n = shape.size();
  if (form.ndim() > n) return false;
  const bool behind = one_axis(form, shape, split, n);
  return kind != columns ? behind : behind && one_axis(form, shape, 0, split);
}

std::optional<std::uint64_t> reduced_axes(const Node& n, const Backend& backend) {
  if (n.kind != NodeKind::call || n.op->schema.kind != OpKind::primitive || !n.attrs || n.in.size() != 1 ||
      n.in[0].is_number || n.base.node)
    return {};
  const std::optional<Ints>* axes = nullptr;
  if (const auto* a = n.attrs->get_if<SumAttr>()) axes = &a->axis;
  if (const auto* a = n.attrs->get_if<ReductionAttr>()) axes = &a->axis;
  const TensorImpl& x = *n.in[0].use.form;
  if (axes == nullptr || !backend.folds(*n.op, x.dtype(), n.out[0]->dtype())) return {};
  return reduction::axes_mask(*axes, x.ndim(), n.op->name());
}

std::optional<Pass> pass_of(const TensorImpl& x, std::uint64_t axes) {
  Pass p;
  p.shape = DimList(x.shape());
  const int n = x.ndim();
  if (x.numel() == 0) return {};
  const auto reduced = [&](int i) { return (axes >> i & 1) != 0; };
  const auto one = [&](int i) { return x.shape()[static_cast<std::size_t>(i)] == 1; };
  int last = n, first = 0;
  while (last > 0 && (reduced(last - 1) || one(last - 1))) --last;
  while (first < n && (reduced(first) || one(first))) ++first;
  const auto kept_within = [&](int from, int to) {
    for (int i = from; i < to; ++i) {
      if (reduced(i) && !one(i)) return false;
    }
    return true;
  };
  if (kept_within(0, last)) {
    p.kind = Pass::rows;
    p.split = last;
  } else if (kept_within(first, n)) {
    p.kind = Pass::columns;
    p.split = first;
  } else {
    return {};
  }
  if (p.reduced() <= 1 || p.kept() == x.numel()) return {};
  if (p.kind == Pass::rows && p.inner() * static_cast<std::int64_t>(itemsize(x.dtype())) > held_bytes)
    p.kind = Pass::long_rows;
  return p;
}

}  // namespace hyalite::lazy
