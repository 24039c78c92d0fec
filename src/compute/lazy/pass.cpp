/// Which shapes and strides a fused group can walk.
#include "compute/lazy/pass.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "ops/reduce.h"

namespace hyalite::lazy {
namespace {

constexpr std::int64_t held_bytes = 128 << 10;  // of a row that is read again: half of a second-level cache, or less

std::int64_t count_of(Dims sizes) {
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

std::int64_t Pass::outer() const { return count_of(Dims(shape).first(static_cast<std::size_t>(split))); }
std::int64_t Pass::inner() const { return count_of(Dims(shape).subspan(static_cast<std::size_t>(split))); }

bool Pass::is_kept(const TensorImpl& form) const {
  return reduces() && form.contiguous() && form.offset() == 0 && form.numel() == kept();
}

bool Pass::repeats_kept(const TensorImpl& form) const {
  if (!reduces() || form.offset() != 0) return false;
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

std::optional<TensorRef> seen_through(const TensorImpl& operand, const TensorImpl& made, const TensorImpl& seen) {
  const int n = made.ndim(), extra = n - operand.ndim();
  const auto at = [](int i) { return static_cast<std::size_t>(i); };
  if (extra < 0 || made.offset() != 0 || made.numel() == 0 || seen.numel() == 0 || made.dtype() != seen.dtype())
    return {};
  // Where the view begins, axis by axis: the made one is dense, so its strides are places of a number.
  std::array<int, max_rank> order;
  for (int i = 0; i < n; ++i) order[at(i)] = i;
  sort_axes(order.data(), order.data() + n,
            [&](int a, int b) { return made.strides()[at(a)] > made.strides()[at(b)]; });
  std::int64_t rest = seen.offset(), dense = 1;
  std::array<std::int64_t, max_rank> first{};
  for (int k = 0; k < n; ++k) {
    const auto d = at(order[at(k)]);
    if (made.shape()[d] == 1) continue;
    first[d] = rest / made.strides()[d];
    rest %= made.strides()[d];
    if (first[d] >= made.shape()[d]) return {};
  }
  for (int k = n - 1; k >= 0; --k) {
    const auto d = at(order[at(k)]);
    if (made.shape()[d] == 1) continue;
    if (made.strides()[d] != dense) return {};
    dense *= made.shape()[d];
  }
  if (rest != 0) return {};
  const auto operand_stride = [&](int d) {
    const bool repeats = d < extra || operand.shape()[at(d - extra)] == 1;
    return repeats ? 0 : operand.strides()[at(d - extra)];
  };
  std::int64_t offset = operand.offset();
  for (int d = 0; d < n; ++d) offset += first[at(d)] * operand_stride(d);
  DimList strides(seen.ndim(), 0);
  std::uint64_t used = 0;
  for (int j = 0; j < seen.ndim(); ++j) {
    const std::int64_t size = seen.shape()[at(j)], step = seen.strides()[at(j)];
    if (size == 1 || step == 0) continue;
    int axis = -1;
    for (int d = 0; d < n && axis < 0; ++d) {
      const std::int64_t unit = made.strides()[at(d)], extent = made.shape()[at(d)];
      if (extent > 1 && step % unit == 0 && std::abs(step) < unit * extent) axis = d;
    }
    if (axis < 0 || (used >> axis & 1) != 0) return {};
    used |= std::uint64_t{1} << axis;
    const std::int64_t by = step / made.strides()[at(axis)], last = first[at(axis)] + by * (size - 1);
    if (last < 0 || last >= made.shape()[at(axis)]) return {};
    strides[j] = by * operand_stride(axis);
  }
  return TensorImpl::make(operand.dtype(), {}, seen.shape(), strides, {}, offset);
}

std::optional<std::uint64_t> reduced_axes(const Node& n, const Backend& backend) {
  if (n.kind != NodeKind::call || n.op->schema.kind != OpKind::primitive || !n.attrs || n.in.size() != 1 ||
      n.in[0].is_number || n.base.node)
    return {};
  const TensorImpl& x = *n.in[0].use.form;
  std::optional<std::uint64_t> axes;
  if (const auto* a = n.attrs->get_if<SumAttr>()) axes = reduction::axes_mask(a->axis, x.ndim(), n.op->name());
  if (const auto* a = n.attrs->get_if<ReductionAttr>()) axes = reduction::axes_mask(a->axis, x.ndim(), n.op->name());
  if (const auto* a = n.attrs->get_if<PlaceAttr>()) axes = reduction::axes_mask(a->axis, x.ndim(), n.op->name());
  const Folds folds = axes ? backend.folds(*n.op, x.dtype(), n.out[0]->dtype()) : Folds::no;
  if (folds != Folds::rows) return folds == Folds::yes ? axes : std::nullopt;
  const std::optional<Pass> pass = pass_of(x, *axes);
  return pass && pass->kind == Pass::rows ? axes : std::nullopt;
}

bool is_product(const Node& n, const Backend& backend) {
  if (backend.multiplies == nullptr || n.kind != NodeKind::call || n.base.node || n.in.size() != 2) return false;
  if (!n.in[0].use.from.node || !n.in[1].use.from.node) return false;
  const TensorImpl &a = *n.in[0].use.form, &b = *n.in[1].use.form;
  // A vector's product lacks an axis of the walk over tiles.
  if (a.ndim() < 2 || b.ndim() < 2 || n.out[0]->numel() == 0) return false;
  return backend.multiplies(*n.op, a.dtype());
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
