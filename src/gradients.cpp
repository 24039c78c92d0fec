/// What gradients are written with beside the ops: nothings, counts, sums over what was broadcast.
#include <algorithm>
#include <cmath>
#include <complex>

#include "apply.h"

namespace hyalite {
namespace {

Scalar nothing_of(Dtype dtype) { return is_complex(dtype) ? Scalar(std::complex<double>(-0.0, -0.0)) : Scalar(-0.0); }

/// The largest elements over the axes along which `shape` was broadcast.
Tensor max_to_shape(const Tensor& t, Dims shape) {
  const int extra = t.ndim() - static_cast<int>(shape.size());
  Shape axes, kept;
  for (int i = 0; i < t.ndim(); ++i) {
    const bool over = i < extra || (shape[static_cast<std::size_t>(i - extra)] == 1 && t.shape()[i] != 1);
    if (over) axes.push_back(i);
    if (i >= extra) kept.push_back(over ? 1 : t.shape()[i]);
  }
  return axes.empty() ? t : reshape(max(t, axes, true), kept);
}

/// Whether `count` axes from `from` on lie in memory as one.
bool one_run(const Tensor& t, int from, int count) {
  std::int64_t size = 1, stride = 0;
  for (int i = from + count - 1; i >= from; --i) {
    if (t.shape()[i] == 1) continue;
    if (size != 1 && t.strides()[i] != stride * size) return false;
    if (size == 1) stride = t.strides()[i];
    size *= t.shape()[i];
  }
  return true;
}

}  // namespace

Tensor with_nothings(Tensor g) {
  g.impl()->nothings = true;
  return g;
}

Tensor nothings(const Shape& shape, Dtype dtype, Device device) {
  return with_nothings(full(shape, nothing_of(dtype), dtype, device));
}

Tensor numbers_of(const Tensor& g) { return has_nothings(g) ? g : add(g, Scalar(0)); }

Tensor without_nothings(const Tensor& g) { return has_nothings(g) ? add(g, Scalar(0)) : g; }

Tensor add_gradients(const Tensor& a, const Tensor& b) {
  const Tensor r = add(a, b);
  return has_nothings(a) && has_nothings(b) ? with_nothings(r) : r;
}

Tensor settled(const Tensor& value, const Tensor& g) {
  if (!has_nothings(g)) return value;
  return with_nothings(settle(value, g.dtype() == value.dtype() ? g : astype_if(numbers(g), value.dtype())));
}

Tensor settled_over(const Tensor& value, const Tensor& g, std::int64_t axis) {
  if (!has_nothings(g) || g.numel() == 0) return value;
  const Tensor any = max_to_shape(max(numbers(g), Shape{axis}, true), value.shape());
  return with_nothings(settle(value, astype_if(any, value.dtype())));
}

Tensor take_where(const Tensor& condition, const Tensor& g) {
  return with_nothings(where(condition, numbers_of(g), nothing_of(g.dtype())));
}

Tensor gradient_as(const Tensor& g, Dtype dtype) {
  if (g.dtype() == dtype) return g;
  return settled(astype_if(is_complex(g.dtype()) && !is_complex(dtype) ? real(g) : g, dtype), g);
}

Dtype widened(Dtype dtype) { return dtype == Dtype::float16 || dtype == Dtype::bfloat16 ? Dtype::float32 : dtype; }

Tensor divided(const Tensor& g, const Tensor& count, Dtype dtype) {
  const Tensor wide = widened(g);
  return settled(astype_if(wide / astype(count, real_part(wide.dtype())), dtype), g);
}

Tensor divided(const Tensor& g, Constant count, Dtype dtype) {
  const Tensor r = widened(g) / Scalar(count.value);
  return settled(astype_if(is_complex(r.dtype()) && !is_complex(dtype) ? real(r) : r, dtype), g);
}

Tensor first_largest(const Tensor& x, std::int64_t axis) {
  const auto at = static_cast<std::size_t>(axis < 0 ? axis + x.ndim() : axis);
  Shape shape(static_cast<std::size_t>(x.ndim()), 1);
  shape[at] = x.shape()[at];
  const Tensor places = arange(Scalar(0), Scalar(1), shape[at], Dtype::int64, x.device());
  return equal(argmax(x, axis, true), reshape(places, shape));
}

Tensor matmul_to_shape(const Tensor& a, const Tensor& b, Dims shape) {
  const int n = std::max(a.ndim(), b.ndim()) - 2;
  // Sizes of the batch axes, aligned at the right, and which of them the result is summed over.
  Shape batch(static_cast<std::size_t>(n), 1);
  std::vector<bool> summed(static_cast<std::size_t>(n));
  const auto size = [n](Dims s, int i) {
    const int at = static_cast<int>(s.size()) - 2 - n + i;
    return at < 0 ? 1 : s[static_cast<std::size_t>(at)];
  };
  std::int64_t folded = 1;
  for (int i = 0; i < n; ++i) {
    batch[i] = size(a.shape(), i) == 1 ? size(b.shape(), i) : size(a.shape(), i);
    summed[i] = batch[i] != 1 && size(shape, i) == 1;
    if (summed[i]) folded *= batch[i];
  }
  if (folded == 1) return sum_to_shape(matmul(a, b), shape);
  // The summed batch axes join the one that the product sums over. Both operands have them in full: what was broadcast
  // is the third.
  const std::int64_t p = shape[shape.size() - 2], q = a.shape()[a.ndim() - 1], r = shape[shape.size() - 1];
  Shape order, over;
  for (int i = 0; i < n; ++i) (summed[i] ? over : order).push_back(i);
  const auto apart = [&](const Tensor& t, bool left) {
    Shape full(static_cast<std::size_t>(n - (t.ndim() - 2)), 1), axes = order;
    full.insert(full.end(), t.shape().begin(), t.shape().end());
    if (left) axes.push_back(n);
    axes.insert(axes.end(), over.begin(), over.end());
    axes.push_back(left ? n + 1 : n);
    if (!left) axes.push_back(n + 1);
    return permute_dims(reshape(t, full), axes);
  };
  const Tensor left = apart(a, true), right = apart(b, false);
  const auto from = static_cast<int>(order.size()), count = static_cast<int>(over.size()) + 1;
  const std::int64_t copied =
      (one_run(left, from + 1, count) ? 0 : left.numel()) + (one_run(right, from, count) ? 0 : right.numel());
  const std::int64_t most = std::max<std::int64_t>(1 << 15, checked_numel(shape, 1));
  const std::int64_t longest = batch[static_cast<std::size_t>(over[0])];
  if (copied > most && longest > 1) {
    // In pieces, of which each is copied alone; 16-bit ones are added in float32.
    const std::int64_t step = std::max<std::int64_t>(1, longest * most / copied);
    Tensor sum;
    for (std::int64_t at = 0; at < longest; at += step) {
      const auto piece = [&](const Tensor& t, int axis) {
        Shape starts(static_cast<std::size_t>(t.ndim())), steps(starts.size(), 1), sizes = to_vector(t.shape());
        starts[static_cast<std::size_t>(axis)] = at;
        sizes[static_cast<std::size_t>(axis)] = std::min(step, longest - at);
        return widened(slice(t, starts, steps, sizes));
      };
      const auto axis = static_cast<int>(over[0]) - n - 2;
      const Tensor part = matmul_to_shape(piece(a, a.ndim() + axis), piece(b, b.ndim() + axis), shape);
      sum = sum ? add(sum, part) : part;
    }
    return astype_if(sum, a.dtype());
  }
  const auto fold = [&](const Tensor& t, bool is_left) {
    Shape sizes(t.shape().begin(), t.shape().begin() + from);
    sizes.push_back(is_left ? p : folded * q);
    sizes.push_back(is_left ? folded * q : r);
    return reshape(t, sizes);
  };
  return reshape(matmul(fold(left, true), fold(right, false)), to_vector(shape));
}

}  // namespace hyalite
