/// Reductions over any axes. The order of the additions is fixed by docs/reduction.md.
#pragma once

#include "ops/op_info.h"

namespace hyalite {

namespace reduction {

/// The reduced axes as a mask; all for None. Throws IndexError, and ValueError for a repeated axis.
inline std::uint64_t axes_mask(const std::optional<Ints>& axes, int ndim, std::string_view op) {
  if (!axes) return ndim == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << ndim) - 1;
  std::uint64_t mask = 0;
  for (const std::int64_t axis : *axes) {
    const std::uint64_t one = std::uint64_t{1} << normalize_axis(axis, ndim, std::string(op).c_str());
    if ((mask & one) != 0) {
      throw ValueError(std::string(op) + "(): axis " + std::to_string(axis) + " appears twice; name each axis once",
                       {{"axis", axis}});
    }
    mask |= one;
  }
  return mask;
}

/// The same of one axis.
inline std::uint64_t axes_mask(const std::optional<std::int64_t>& axis, int ndim, std::string_view op) {
  if (!axis) return axes_mask(std::optional<Ints>(), ndim, op);
  return std::uint64_t{1} << normalize_axis(*axis, ndim, std::string(op).c_str());
}

inline DimList reduced_shape(Dims shape, std::uint64_t mask, bool keepdims) {
  DimList out;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if ((mask >> i & 1) == 0) {
      out.push_back(shape[i]);
    } else if (keepdims) {
      out.push_back(1);
    }
  }
  return out;
}

/// Refuses a reduction of nothing to something, for ops that have no value for it.
inline void need_elements(Dims shape, std::uint64_t mask, std::string_view op) {
  bool nothing = false;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] != 0) continue;
    if ((mask >> i & 1) == 0) return;  // there is no result either
    nothing = true;
  }
  if (nothing) throw ValueError(std::string(op) + "(): an axis of size 0 has no " + std::string(op), {});
}

inline Dtype sum_dtype(Dtype t) {
  if (t == Dtype::boolean || is_signed_integer(t)) return Dtype::int64;
  return is_unsigned_integer(t) ? Dtype::uint64 : t;
}

/// The reduced tensor with its axes back, as size 1.
auto keep_axes(auto t, const auto& x, const std::optional<Ints>& axes) {
  return reshape(t, to_vector(reduced_shape(x.shape(), axes_mask(axes, x.ndim(), ""), true)));
}
auto expand(auto t, const auto& x, const std::optional<Ints>& axes) {
  return broadcast_to(keep_axes(t, x, axes), to_vector(x.shape()));
}

/// The reduced axes behind the others, as one: the layout of the primitive `others`.
template <class T>
struct Rows {
  Shape64 order, inverse, permuted;
  T matrix;
};
template <class T>
Rows<T> rows(const T& x, const std::optional<Ints>& axes) {
  Rows<T> r;
  const std::uint64_t mask = axes_mask(axes, x.ndim(), "");
  std::int64_t kept = 1, reduced = 1;
  for (const bool behind : {false, true}) {
    for (int i = 0; i < x.ndim(); ++i) {
      if ((mask >> i & 1) != static_cast<std::uint64_t>(behind)) continue;
      r.order.push_back(i);
      r.permuted.push_back(x.shape()[i]);
      (behind ? reduced : kept) *= x.shape()[i];
    }
  }
  r.inverse.resize(r.order.size());
  for (std::size_t i = 0; i < r.order.size(); ++i) r.inverse[r.order[i]] = static_cast<std::int64_t>(i);
  r.matrix = reshape(permute_dims(x, r.order), {kept, reduced});
  return r;
}

/// The tangent of a reduction each of whose elements goes into one of the results: slopes times tangents, summed. The
/// slopes are what the op's gradient gives for a gradient of ones.
template <class Op>
auto contract(auto t, auto x, auto out, const auto& a) {
  const auto one = full(to_vector(out.shape()), Scalar(1), out.dtype(), out.device());
  const auto slopes = std::get<0>(Op::gradient(one, x, out, a))();
  const auto summed = sum(conj(slopes) * t, to_axes(a.axis), {}, a.keepdims);
  return summed.dtype() == out.dtype() ? summed : astype(summed, out.dtype());
}

}  // namespace reduction

struct ReductionAttr {
  std::optional<Ints> axis;
  bool keepdims = false;
  static constexpr std::array<std::string_view, 2> names{"axis", "keepdims"};
};
struct SumAttr {
  std::optional<Ints> axis;
  std::optional<Dtype> dtype;
  bool keepdims = false;
  static constexpr std::array<std::string_view, 3> names{"axis", "dtype", "keepdims"};
};
struct PlaceAttr {
  std::optional<std::int64_t> axis;
  bool keepdims = false;
  static constexpr std::array<std::string_view, 2> names{"axis", "keepdims"};
};

/// A reduction with the attributes axis and keepdims; the gradient is given by the op.
template <class Op>
struct ReductionKernel : UnaryKernel<Op> {
  using Attr = ReductionAttr;
  static OutputSpec infer(const Call& c, const Attr& a) {
    const Dtype out = Op::schema.result_dtype(c.x(0).dtype());
    const std::uint64_t mask = reduction::axes_mask(a.axis, c.x(0).ndim(), Op::schema.name);
    return {out, reduction::reduced_shape(c.x(0).shape(), mask, a.keepdims)};
  }
};

/// As ReductionKernel, with dtype: the elements are cast before they are reduced.
template <class Op>
struct SumKernel : UnaryKernel<Op> {
  using Attr = SumAttr;
  static OutputSpec infer(const Call& c, const Attr& a) {
    const Dtype in = c.x(0).dtype();
    const bool rounds = Op::schema.integers == Integers::in_result && kind(in) <= Kind::integer;
    const Dtype usual = rounds                                       ? Dtype::float32
                        : Op::schema.integers == Integers::in_result ? in
                                                                     : reduction::sum_dtype(in);
    const std::uint64_t mask = reduction::axes_mask(a.axis, c.x(0).ndim(), Op::schema.name);
    return {a.dtype.value_or(usual), reduction::reduced_shape(c.x(0).shape(), mask, a.keepdims)};
  }
};

/// Sum over the axes (None: all). Integers and booleans give int64 or uint64 unless dtype says otherwise; an empty sum
/// is 0. float32 and float64 accumulate in float64, so the error is below 1 ULP of the result.
struct SumBackward : SumKernel<SumBackward> {
  static constexpr OpSchema schema{.name = "sum", .types = all_types, .kind = OpKind::primitive, .linear = true};
  static auto gradient(auto g, auto x, auto, const auto& a) {
    return grads([=, &a] { return reduction::expand(gradient_as(g, x.dtype()), x, a.axis); });
  }
};

/// Product over the axes (None: all); an empty product is 1. Its gradient is the product of the other elements, made
/// without dividing, so that zeros, infinities and products out of range do no harm.
struct ProdBackward : SumKernel<ProdBackward> {
  static constexpr OpSchema schema{.name = "prod", .types = all_types, .kind = OpKind::primitive};
  static auto gradient(auto g, auto x, auto, const auto& a) {
    return grads([=, &a] {
      const auto wide =
          widened(is_complex(g.dtype()) || itemsize(x.dtype()) < itemsize(g.dtype()) ? astype_if(x, g.dtype()) : x);
      const auto r = reduction::rows(wide, a.axis);
      const auto none = zeros({0, r.matrix.shape()[0], r.matrix.shape()[1]}, wide.dtype(), x.device());
      const auto rest = permute_dims(reshape(others(r.matrix, none), r.permuted), r.inverse);
      const auto incoming = reduction::expand(g, x, a.axis);
      const auto slope = astype_if(incoming, wide.dtype()) * conj(rest);
      return settled(gradient_as(slope, x.dtype()), incoming);
    });
  }
  static auto tangent(auto t, auto x, auto out, const auto& a) {
    return reduction::contract<ProdBackward>(t, x, out, a);
  }
};

/// Arithmetic mean over the axes (None: all): the sum divided in float64, rounded once. Integers give float32; the mean
/// of nothing is NaN.
struct MeanBackward : SumKernel<MeanBackward> {
  static constexpr OpSchema schema{
      .name = "mean", .types = all_types, .integers = Integers::in_result, .kind = OpKind::primitive, .linear = true};
  static auto gradient(auto g, auto x, auto out, const auto& a) {
    return grads([=, &a] {
      const double count = static_cast<double>(x.numel()) / static_cast<double>(std::max<std::int64_t>(out.numel(), 1));
      return reduction::expand(divided(g, Constant{count}, x.dtype()), x, a.axis);
    });
  }
};

/// The product of the other elements of each row of x, along directions: the coefficient of e1 * ... * em in the
/// product of (x + e1 * directions[0] + ...) over all elements of the row but one. It is linear in each direction, in
/// which -0 is nothing, and its gradients are of the same kind with one direction more, so it serves `prod` to every
/// order.
struct OthersBackward : BinaryKernel<OthersBackward> {
  static constexpr OpSchema schema{.name = "others",
                                   .types = bit(Dtype::float32) | bit(Dtype::float64) | complex_types,
                                   .params = "x, directions",
                                   .kind = OpKind::primitive,
                                   .internal = true};
  static OutputSpec infer(const Call& c) {
    if (c.x(1).shape()[0] > 8) {
      throw Unsupported(
          "prod(): a derivative of an order above 9 takes 2 to that power of memory; write x1 * x2 * ...");
    }
    return {c.x(0).dtype(), c.x(0).shape()};
  }
  static auto gradient(auto g, auto x, auto directions, auto) {
    // conj(others along conj(g)): the slope is conj(d others), as of any analytic function.
    const auto along = [=](auto rest) {
      return settled_over(conj(others(x, concat({rest, expand_dims(conj(numbers_of(g)), {0})}, 0))), g, -1);
    };
    return grads([=] { return along(directions); },
                 [=] {
                   const std::int64_t m = directions.shape()[0], rows = x.shape()[0], n = x.shape()[1];
                   const auto part = [&](std::int64_t from, std::int64_t count) {
                     return slice(directions, {from, 0, 0}, {1, 1, 1}, {count, rows, n});
                   };
                   auto all = part(0, 0);
                   for (std::int64_t i = 0; i < m; ++i) {
                     const auto rest = concat({part(0, i), part(i + 1, m - i - 1)}, 0);
                     all = concat({all, expand_dims(along(rest), {0})}, 0);
                   }
                   return all;
                 });
  }
};

/// Shared by max and min: equal extremes take equal parts of the gradient, and the others get nothing.
template <class Op>
struct ExtremeKernel : ReductionKernel<Op> {
  static OutputSpec infer(const Call& c, const ReductionAttr& a) {
    const TensorImpl& x = c.x(0);
    reduction::need_elements(x.shape(), reduction::axes_mask(a.axis, x.ndim(), Op::schema.name), Op::schema.name);
    return ReductionKernel<Op>::infer(c, a);
  }
  static auto gradient(auto g, auto x, auto out, const auto& a) {
    return grads([=, &a] {
      const auto extreme = reduction::keep_axes(out, x, a.axis);
      const auto chosen = (x == extreme) | (isnan(x) & isnan(extreme));
      const auto share = divided(reduction::keep_axes(g, x, a.axis), sum(chosen, to_axes(a.axis), {}, true), x.dtype());
      return take_where(chosen, broadcast_to(share, to_vector(x.shape())));
    });
  }
  static auto tangent(auto t, auto x, auto out, const auto& a) {
    return reduction::contract<ExtremeKernel>(t, x, out, a);
  }
};

/// Largest element over the axes (None: all). NaN wins, +0 is larger than -0; of nothing it raises.
struct MaxBackward : ExtremeKernel<MaxBackward> {
  static constexpr OpSchema schema{.name = "max", .types = boolean_types | real_types, .kind = OpKind::primitive};
};

/// Smallest element over the axes (None: all). NaN wins, -0 is smaller than +0; of nothing it raises.
struct MinBackward : ExtremeKernel<MinBackward> {
  static constexpr OpSchema schema{.name = "min", .types = boolean_types | real_types, .kind = OpKind::primitive};
};

template <class Op>
struct TestKernel : ReductionKernel<Op> {
  static auto gradient(auto, auto, auto, const auto&) { return grads(none); }
};

/// Whether any element over the axes (None: all) is nonzero; NaN counts as nonzero.
struct AnyBackward : TestKernel<AnyBackward> {
  static constexpr OpSchema schema{
      .name = "any", .types = all_types, .results = {Result::boolean}, .kind = OpKind::primitive};
};

/// Whether all elements over the axes (None: all) are nonzero; NaN counts as nonzero.
struct AllBackward : TestKernel<AllBackward> {
  static constexpr OpSchema schema{
      .name = "all", .types = all_types, .results = {Result::boolean}, .kind = OpKind::primitive};
};

/// The place of an element along one axis.
template <class Op>
struct PlaceKernel : UnaryKernel<Op> {
  using Attr = PlaceAttr;
  static OutputSpec infer(const Call& c, const Attr& a) {
    const std::uint64_t mask = reduction::axes_mask(a.axis, c.x(0).ndim(), Op::schema.name);
    reduction::need_elements(c.x(0).shape(), mask, Op::schema.name);
    return {Op::schema.result_dtype(c.x(0).dtype()), reduction::reduced_shape(c.x(0).shape(), mask, a.keepdims)};
  }
  static auto gradient(auto, auto, auto, const auto&) { return grads(none); }
};

/// Index of the first largest element along one axis, or in row-major order for None; the first NaN if there is one.
struct ArgmaxBackward : PlaceKernel<ArgmaxBackward> {
  static constexpr OpSchema schema{
      .name = "argmax", .types = boolean_types | real_types, .results = {Result::index}, .kind = OpKind::primitive};
};

/// Index of the first smallest element along one axis, or in row-major order for None; the first NaN if there is one.
struct ArgminBackward : PlaceKernel<ArgminBackward> {
  static constexpr OpSchema schema{
      .name = "argmin", .types = boolean_types | real_types, .results = {Result::index}, .kind = OpKind::primitive};
};

using Reductions = OpList<SumBackward, ProdBackward, OthersBackward, MeanBackward, MaxBackward, MinBackward,
                          AnyBackward, AllBackward, ArgmaxBackward, ArgminBackward>;

}  // namespace hyalite
