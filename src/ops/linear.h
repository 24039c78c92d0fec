/// Matrix products and the normalised exponentials.
#pragma once

#include "ops/op_info.h"

namespace hyalite {

/// Matrix product over the last two axes, the others broadcast; a vector counts as a row on the left, a column on the
/// right. float32 stays float32 throughout; integers wrap.
struct MatmulBackward : BinaryKernel<MatmulBackward> {
  static constexpr OpSchema schema{
      .name = "matmul", .types = numeric, .amp = Amp::low, .slot = Slot::matmul, .kind = OpKind::primitive};
  static OutputSpec infer(const Call& c) {
    const TensorImpl &a = c.x(0), &b = c.x(1);
    const Dims sa = a.shape(), sb = b.shape();
    const std::size_t na = sa.size(), nb = sb.size();
    const bool scalar = na == 0 || nb == 0;
    if (scalar || sa[na - 1] != sb[nb >= 2 ? nb - 2 : 0]) throw mismatch(sa, sb);
    DimList shape(na > 2 ? sa.first(na - 2) : Dims{});
    if (!broadcast_into(shape, nb > 2 ? sb.first(nb - 2) : Dims{})) throw mismatch(sa, sb);
    if (na >= 2) shape.push_back(sa[na - 2]);
    if (nb >= 2) shape.push_back(sb[nb - 1]);
    return {a.dtype(), shape};
  }
  static ShapeMismatch mismatch(Dims a, Dims b) {
    return ShapeMismatch("matmul(): " + to_string(a) + " and " + to_string(b) +
                             " do not multiply; the last size of the left must be the second to last of the right, and "
                             "the axes before them must broadcast",
                         {{"op", std::string("matmul")}, {"left_shape", to_vector(a)}, {"right_shape", to_vector(b)}});
  }
  static auto gradient(auto g, auto x, auto y, auto) {
    // Vectors become matrices, so that one rule holds: dX = G Y^H, dY = X^H G.
    const auto rows = [](const auto& v) { return v.ndim() == 1 ? expand_dims(v, {0}) : v; };
    const auto columns = [](const auto& v) { return v.ndim() == 1 ? expand_dims(v, {1}) : v; };
    auto matrix = g;
    if (y.ndim() == 1) matrix = expand_dims(matrix, {-1});
    if (x.ndim() == 1) matrix = expand_dims(matrix, {-2});
    return grads(
        [=] {
          // A row of dX is nothing where that row of G is, a column of dY where that column is.
          const auto product = matmul_to_shape(matrix, conj(swap_last(columns(y))), rows(x).shape());
          return reshape(settled_over(product, matrix, -1), to_vector(x.shape()));
        },
        [=] {
          const auto product = matmul_to_shape(conj(swap_last(rows(x))), matrix, columns(y).shape());
          return reshape(settled_over(product, matrix, -2), to_vector(y.shape()));
        });
  }
  static auto tangent(auto tx, auto ty, auto x, auto y, auto) {
    // Not !tx, which is an op here.
    if (tx && ty) return matmul(tx, y) + matmul(x, ty);
    return tx ? matmul(tx, y) : matmul(x, ty);
  }
};

/// An op along one axis, whose result has the shape of its operand.
template <class Op>
struct AxisKernel : UnaryKernel<Op> {
  struct Attr {
    std::int64_t axis = -1;
    static constexpr std::array<std::string_view, 1> names{"axis"};
  };
  static OutputSpec infer(const Call& c, const Attr& a) {
    normalize_axis(a.axis, c.x(0).ndim(), Op::schema.name.data());
    return {c.x(0).dtype(), c.x(0).shape()};
  }
};

/// exp(x) / sum(exp(x)) along an axis, computed from x - max(x) so that nothing overflows; 16-bit types in float32.
struct SoftmaxBackward : AxisKernel<SoftmaxBackward> {
  static constexpr OpSchema schema{.name = "softmax",
                                   .types = real_floating,
                                   .amp = Amp::full,
                                   .integers = Integers::to_default,
                                   .kind = OpKind::composite,
                                   .numpy = "-"};
  static auto compose(const auto& x, const auto& a) {
    const Shape64 axis{a.axis};
    if (x.numel() == 0) return exp(x);
    const auto wide = widened(x);
    const auto e = exp(wide - max(wide, axis, true));
    return astype_if(e / sum(e, axis, {}, true), x.dtype());
  }
  static auto gradient(auto g, auto x, auto, const auto& a) {
    // p * (g - sum(p * g)) would lose the largest p's own slope, p * (1 - p): its g is taken from all others first.
    return grads([=, &a] {
      const Shape64 axis{a.axis};
      if (x.numel() == 0) return g * x;
      const auto p = softmax(widened(x), a.axis), wide = widened(g);
      const auto largest = first_largest(p, a.axis);
      const auto apart = select(largest, 0_c, wide - sum(select(largest, wide, 0_c), axis, {}, true));
      const auto slope = p * (apart - sum(p * apart, axis, {}, true));
      return settled_over(astype_if(slope, x.dtype()), g, a.axis);
    });
  }
  static auto tangent(auto t, auto x, auto out, const auto& a) {
    return std::get<0>(gradient(t, x, out, a))();  // the Jacobian is symmetric
  }
};

/// log(softmax(x)) along an axis: x - max(x) - log(sum(exp(x - max(x)))), 16-bit types in float32.
struct LogSoftmaxBackward : AxisKernel<LogSoftmaxBackward> {
  static constexpr OpSchema schema{.name = "log_softmax",
                                   .types = real_floating,
                                   .amp = Amp::full,
                                   .integers = Integers::to_default,
                                   .kind = OpKind::composite,
                                   .numpy = "-"};
  static auto compose(const auto& x, const auto& a) {
    const Shape64 axis{a.axis};
    if (x.numel() == 0) return exp(x);
    const auto wide = widened(x);
    const auto shifted = wide - max(wide, axis, true);
    return astype_if(shifted - log(sum(exp(shifted), axis, {}, true)), x.dtype());
  }
  static auto gradient(auto g, auto x, auto, const auto& a) {
    // g - p * sum(g), with 1 - p of the largest p as the sum of the others.
    return grads([=, &a] {
      const Shape64 axis{a.axis};
      if (x.numel() == 0) return g * x;
      const auto p = softmax(widened(x), a.axis), wide = widened(g);
      const auto largest = first_largest(p, a.axis);
      const auto others = [&](const auto& v) { return sum(select(largest, 0_c, v), axis, {}, true); };
      const auto slope = select(largest, wide * others(p) - p * others(wide), wide - p * sum(wide, axis, {}, true));
      return settled_over(astype_if(slope, x.dtype()), g, a.axis);
    });
  }
  static auto tangent(auto t, auto x, auto, const auto& a) {
    // t - sum(p * t), from differences to the tangent of the largest p.
    const Shape64 axis{a.axis};
    if (x.numel() == 0) return t * x;
    const auto p = softmax(widened(x), a.axis), wide = widened(t);
    const auto largest = first_largest(p, a.axis);
    const auto apart = select(largest, 0_c, wide - sum(select(largest, wide, 0_c), axis, {}, true));
    return astype_if(apart - sum(p * apart, axis, {}, true), x.dtype());
  }
};

using Linear = OpList<MatmulBackward, SoftmaxBackward, LogSoftmaxBackward>;

}  // namespace hyalite
