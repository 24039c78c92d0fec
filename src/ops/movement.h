/// Ops that move no data: views of their operand. And those that only copy: astype, concat, stack.
#pragma once

#include <algorithm>

#include "ops/op_info.h"

namespace hyalite {

/// The one attribute of several views.
struct ShapeAttr {
  Ints shape;
  static constexpr std::array<std::string_view, 1> names{"shape"};
  static constexpr int required = 1;
};

/// The same elements in row-major order under another shape; one size may be -1. A view where the strides allow it.
struct ReshapeBackward : UnaryKernel<ReshapeBackward> {
  static constexpr OpSchema schema{.name = "reshape", .types = movable, .kind = OpKind::view};
  using Attr = ShapeAttr;
  static bool view(const TensorImpl& x, const Attr& a, OutputSpec& v) {
    v.shape = target(x, a.shape);
    v.strides = row_major(v.shape);
    if (x.contiguous()) return true;
    DimList shape, strides;  // axes of size 1 neither join nor separate runs
    for (int i = 0; i < x.ndim(); ++i) {
      if (x.shape()[i] == 1) continue;
      shape.push_back(x.shape()[i]);
      strides.push_back(x.strides()[i]);
    }
    // Each group of old dimensions that lie in one run may be cut anew.
    int from = 0, to = 0;
    while (from < shape.size() && to < v.shape.size()) {
      std::int64_t old_count = shape[from], new_count = v.shape[to];
      int from_end = from + 1, to_end = to + 1;
      while (old_count != new_count) {
        if (old_count < new_count) {
          if (from_end == shape.size()) break;
          old_count *= shape[from_end++];
        } else {
          if (to_end == v.shape.size()) break;
          new_count *= v.shape[to_end++];
        }
      }
      for (int i = from; i + 1 < from_end; ++i) {
        if (strides[i] != wrapping_multiply(strides[i + 1], shape[i + 1])) return false;
      }
      std::int64_t step = strides[from_end - 1];
      for (int i = to_end - 1; i >= to; --i) {
        v.strides[i] = step;
        step = wrapping_multiply(step, v.shape[i]);
      }
      from = from_end;
      to = to_end;
    }
    return true;
  }
  static DimList target(const TensorImpl& x, Dims wanted) {
    DimList shape(wanted);
    int unknown = -1;
    std::int64_t known = has_zero(shape) ? 0 : 1;  // beside a size of 0 the others may be too large to multiply
    bool overflow = false;
    for (int i = 0; i < shape.size(); ++i) {
      if (shape[i] == -1 && unknown < 0) {
        unknown = i;
      } else if (known != 0) {
        overflow |= __builtin_mul_overflow(known, shape[i], &known);
      }
    }
    if (unknown >= 0 && !overflow && known > 0 && x.numel() % known == 0) shape[unknown] = x.numel() / known;
    bool fits = !overflow && (unknown < 0 || shape[unknown] >= 0);
    for (const std::int64_t s : shape) fits &= s >= 0;
    if (!fits || checked_numel(shape, 1) != x.numel()) {
      throw ShapeMismatch(
          "reshape(): " + to_string(x.shape()) + " has " + std::to_string(x.numel()) + " elements, which do not fill " +
              to_string(wanted) + "; write sizes whose product is that, with at most one -1",
          {{"op", std::string("reshape")}, {"left_shape", to_vector(x.shape())}, {"right_shape", to_vector(wanted)}});
    }
    return shape;
  }
  static auto gradient(auto g, auto x, auto, const auto&) {
    return grads([=] { return reshape(g, to_vector(x.shape())); });
  }
};

/// The axes in another order: axis i of the result is axis axes[i] of x.
struct PermuteDimsBackward : UnaryKernel<PermuteDimsBackward> {
  static constexpr OpSchema schema{.name = "permute_dims", .types = movable, .kind = OpKind::view};
  struct Attr {
    Ints axes;
    static constexpr std::array<std::string_view, 1> names{"axes"};
    static constexpr int required = 1;
  };
  static bool view(const TensorImpl& x, const Attr& a, OutputSpec& v) {
    const Dims axes = a.axes;
    std::uint64_t seen = 0;
    bool once = static_cast<int>(axes.size()) == x.ndim();
    for (const std::int64_t axis : axes) {
      const int i = normalize_axis(axis, x.ndim(), "permute_dims");
      const std::uint64_t bit = std::uint64_t{1} << i;
      once &= (seen & bit) == 0;
      seen |= bit;
      v.shape.push_back(x.shape()[i]);
      v.strides.push_back(x.strides()[i]);
    }
    if (!once) {
      throw ValueError("permute_dims(): axes " + to_string(axes) + " are no order of the " + std::to_string(x.ndim()) +
                           " axes; name each once",
                       {{"axes", to_vector(axes)}});
    }
    return true;
  }
  static auto gradient(auto g, auto x, auto, const auto& a) {
    return grads([=, &a] {
      Shape64 inverse(a.axes.size());
      for (std::size_t i = 0; i < inverse.size(); ++i) {
        inverse[normalize_axis(a.axes[i], x.ndim(), "permute_dims")] = static_cast<std::int64_t>(i);
      }
      return permute_dims(g, inverse);
    });
  }
};

/// The elements start, start + step, ... of each axis, `sizes` of them; steps may be negative or 0 < |step|. Then the
/// axes in `drop`, of size 1, fall away, and new ones come in at the places `fresh` of the result, in ascending order.
struct SliceBackward : UnaryKernel<SliceBackward> {
  static constexpr OpSchema schema{.name = "slice", .types = movable, .kind = OpKind::view, .internal = true};
  struct Attr {
    Ints starts, steps, sizes, drop, fresh;
    static constexpr std::array<std::string_view, 5> names{"starts", "steps", "sizes", "drop", "fresh"};
    static constexpr int required = 3;
  };
  static bool view(const TensorImpl& x, const Attr& a, OutputSpec& v) {
    const Dims strides = x.strides();
    const std::int64_t *dropped = a.drop.begin(), *fresh = a.fresh.begin();
    const auto add_fresh = [&] {
      for (; fresh != a.fresh.end() && *fresh == v.shape.size(); ++fresh) {
        v.shape.push_back(1);
        v.strides.push_back(1);
      }
    };
    for (std::size_t i = 0; i < strides.size(); ++i) {
      if (a.sizes[i] > 0) v.offset = wrapping_add(v.offset, wrapping_multiply(a.starts[i], strides[i]));
      if (dropped != a.drop.end() && *dropped == static_cast<std::int64_t>(i)) {
        ++dropped;
        continue;
      }
      add_fresh();
      v.shape.push_back(a.sizes[i]);
      // A step from the only element of an axis may be any number.
      v.strides.push_back(wrapping_multiply(strides[i], a.steps[i]));
    }
    add_fresh();
    return true;
  }
  static auto gradient(auto g, auto x, auto, const auto& a) {
    return grads([=, &a] {
      const bool same_axes = a.drop.empty() && a.fresh.empty();
      return embed_slice(same_axes ? g : reshape(g, a.sizes), to_vector(x.shape()), a.starts, a.steps, a.sizes);
    });
  }
};

/// The gradient of slicing: x in a tensor of `shape` that is nothing outside the slice.
struct EmbedSliceBackward : UnaryKernel<EmbedSliceBackward> {
  static constexpr OpSchema schema{
      .name = "embed_slice", .types = movable, .kind = OpKind::composite, .internal = true, .linear = true};
  struct Attr {
    Ints shape, starts, steps, sizes;
    static constexpr std::array<std::string_view, 4> names{"shape", "starts", "steps", "sizes"};
    static constexpr int required = 4;
  };
  static OutputSpec infer(const Call& c, const Attr& a) { return {c.x(0).dtype(), a.shape}; }
  static auto compose(const auto& x, const auto& a) {
    auto out = nothings(a.shape, x.dtype(), x.device());
    copy_into(slice(out, a.starts, a.steps, a.sizes), numbers_of(x));
    return out;
  }
  static auto gradient(auto g, auto, auto, const auto& a) {
    return grads([=, &a] { return slice(g, a.starts, a.steps, a.sizes); });
  }
};

/// base with the view at the end of a chain of views replaced by value.
struct WriteViewBackward : BinaryKernel<WriteViewBackward> {
  static constexpr OpSchema schema{.name = "write_view",
                                   .types = movable,
                                   .params = "base, value",
                                   .kind = OpKind::composite,
                                   .internal = true,
                                   .linear = true};
  struct Attr {
    ChainRef chain;
    static constexpr std::array<std::string_view, 1> names{"chain"};
    static constexpr int required = 1;
  };
  static OutputSpec infer(const Call& c, const Attr&) { return {c.x(0).dtype(), c.x(0).shape()}; }
  static auto compose(const auto& base, const auto& value, const auto& a) {
    // Gradients, of which either may be nothing somewhere.
    const bool any = has_nothings(base) || has_nothings(value);
    auto out = copy_of(any ? numbers_of(base) : base);
    copy_into(follow(out, a.chain), any ? numbers_of(value) : value);
    return any ? with_nothings(out) : out;
  }
  static auto gradient(auto g, auto, auto value, auto, const auto& a) {
    return grads(
        [=, &a] { return write_view(g, nothings(to_vector(value.shape()), value.dtype(), g.device()), a.chain); },
        [=, &a] { return follow(g, a.chain); });
  }
};

/// x seen under a larger shape: axes of size 1, and new ones in front, repeat with stride 0.
struct BroadcastToBackward : UnaryKernel<BroadcastToBackward> {
  static constexpr OpSchema schema{.name = "broadcast_to", .types = movable, .kind = OpKind::view};
  using Attr = ShapeAttr;
  static bool view(const TensorImpl& x, const Attr& a, OutputSpec& v) {
    v.shape = DimList(Dims(a.shape));
    const int extra = v.shape.size() - x.ndim();
    bool fits = extra >= 0;
    for (int i = 0; fits && i < x.ndim(); ++i) fits = x.shape()[i] == v.shape[extra + i] || x.shape()[i] == 1;
    if (!fits) {
      throw ShapeMismatch("broadcast_to(): " + to_string(x.shape()) + " does not broadcast to " + to_string(v.shape) +
                              "; sizes must match from the right or be 1",
                          {{"op", std::string("broadcast_to")},
                           {"left_shape", to_vector(x.shape())},
                           {"right_shape", to_vector(v.shape)}});
    }
    checked_numel(v.shape, itemsize(x.dtype()));
    v.strides = DimList(v.shape.size(), 0);
    for (int i = 0; i < x.ndim(); ++i) {
      if (x.shape()[i] != 1 || v.shape[extra + i] == 1) v.strides[extra + i] = x.strides()[i];
    }
    return true;
  }
  static auto gradient(auto g, auto x, auto, const auto&) {
    return grads([=] { return sum_to_shape(g, x.shape()); });
  }
};

/// Without the named axes (None: every axis) of size 1.
struct SqueezeBackward : UnaryKernel<SqueezeBackward> {
  static constexpr OpSchema schema{.name = "squeeze", .types = movable, .kind = OpKind::view};
  struct Attr {
    std::optional<Ints> axis;
    static constexpr std::array<std::string_view, 1> names{"axis"};
  };
  static bool view(const TensorImpl& x, const Attr& attr, OutputSpec& v) {
    std::uint64_t drop = 0;
    if (!attr.axis) {
      for (int i = 0; i < x.ndim(); ++i) drop |= std::uint64_t{x.shape()[i] == 1} << i;
    } else {
      for (const std::int64_t a : *attr.axis) {
        const int i = normalize_axis(a, x.ndim(), "squeeze");
        if (x.shape()[i] != 1) {
          throw ValueError("squeeze(): axis " + std::to_string(a) + " has size " + std::to_string(x.shape()[i]) +
                               "; only axes of size 1 can go",
                           {{"axis", a}, {"size", x.shape()[i]}});
        }
        drop |= std::uint64_t{1} << i;
      }
    }
    for (int i = 0; i < x.ndim(); ++i) {
      if ((drop >> i & 1) != 0) continue;
      v.shape.push_back(x.shape()[i]);
      v.strides.push_back(x.strides()[i]);
    }
    return true;
  }
  static auto gradient(auto g, auto x, auto, const auto&) {
    return grads([=] { return reshape(g, to_vector(x.shape())); });
  }
};

/// With new axes of size 1 at the named places of the result.
struct ExpandDimsBackward : UnaryKernel<ExpandDimsBackward> {
  static constexpr OpSchema schema{.name = "expand_dims", .types = movable, .kind = OpKind::view};
  struct Attr {
    Ints axis;
    static constexpr std::array<std::string_view, 1> names{"axis"};
    static constexpr int required = 1;
  };
  static bool view(const TensorImpl& x, const Attr& attr, OutputSpec& v) {
    const Dims axes = attr.axis;
    const int n = x.ndim() + static_cast<int>(axes.size());
    if (n > max_rank)
      throw ValueError("expand_dims(): a tensor has at most 64 dimensions", {{"ndim", std::int64_t{n}}});
    std::uint64_t fresh = 0;
    for (const std::int64_t a : axes) fresh |= std::uint64_t{1} << normalize_axis(a, n, "expand_dims");
    if (std::popcount(fresh) != static_cast<int>(axes.size())) {
      throw ValueError("expand_dims(): axes " + to_string(axes) + " name a place twice", {{"axis", to_vector(axes)}});
    }
    int from = 0;
    for (int i = 0; i < n; ++i) {
      const bool added = (fresh >> i & 1) != 0;
      v.shape.push_back(added ? 1 : x.shape()[from]);
      v.strides.push_back(added ? (from < x.ndim() ? wrapping_multiply(x.shape()[from], x.strides()[from]) : 1)
                                : x.strides()[from]);
      from += !added;
    }
    return true;
  }
  static auto gradient(auto g, auto x, auto, const auto&) {
    return grads([=] { return reshape(g, to_vector(x.shape())); });
  }
};

/// The real part: a view of complex tensors, real ones unchanged.
struct RealBackward : UnaryKernel<RealBackward> {
  static constexpr OpSchema schema{.name = "real",
                                   .types = numeric,
                                   .results = {Result::real_part},
                                   .identity_on_reals = true,
                                   .kind = OpKind::view};
  static bool view(const TensorImpl& x, OutputSpec& v) { return part(x, 0, v); }
  /// Component i of each element, in elements of the real type.
  static bool part(const TensorImpl& x, int i, OutputSpec& v) {
    const int scale = is_complex(x.dtype()) ? 2 : 1;
    v.shape = DimList(x.shape());
    v.strides = DimList(x.strides());
    for (int d = 0; d < x.ndim(); ++d) v.strides[d] = wrapping_multiply(v.strides[d], scale);
    v.offset = i;
    return true;
  }
  static auto gradient(auto g, auto x, auto) {
    return grads([=] { return gradient_as(g, x.dtype()); });
  }
};

/// The imaginary part, a view. Real types have none: TypeError.
struct ImagBackward : UnaryKernel<ImagBackward> {
  static constexpr OpSchema schema{
      .name = "imag", .types = complex_types, .results = {Result::real_part}, .kind = OpKind::view};
  static bool view(const TensorImpl& x, OutputSpec& v) { return RealBackward::part(x, 1, v); }
  static auto gradient(auto g, auto x, auto) {
    return grads([=] { return settled(astype(g, x.dtype()) * imaginary_unit(x), g); });
  }
};

/// x in another dtype, rounded once, as new memory; check=True raises naming the first element that does not survive.
struct AstypeBackward : UnaryKernel<AstypeBackward> {
  static constexpr OpSchema schema{.name = "astype",
                                   .types = movable,
                                   .check = Check::cast,
                                   .kind = OpKind::primitive,
                                   .keeps_layout = true,
                                   .numpy = "-",
                                   .linear = true};
  struct Attr {
    Dtype dtype = Dtype::boolean;
    bool check = false;
    static constexpr std::array<std::string_view, 2> names{"dtype", "check"};
    static constexpr int required = 1;
  };
  static OutputSpec infer(const Call& c, const Attr& a) {
    const Dtype to = a.dtype, from = c.x(0).dtype();
    if (is_complex(from) && !is_complex(to) && to != Dtype::boolean) {
      throw TypeError("astype(): " + std::string(name(from)) + " does not become " + std::string(name(to)) +
                          "; write hl.real(x) or hl.imag(x) first",
                      {{"from_dtype", std::string(name(from))}, {"to_dtype", std::string(name(to))}});
    }
    return {to, c.x(0).shape()};
  }
  static auto gradient(auto g, auto x, auto, const auto&) {
    return grads([=] { return gradient_as(g, x.dtype()); });
  }
};

/// A copy in row-major order.
struct ContiguousBackward : UnaryKernel<ContiguousBackward> {
  static constexpr OpSchema schema{
      .name = "contiguous", .types = movable, .kind = OpKind::primitive, .numpy = "-", .linear = true};
  static OutputSpec infer(const Call& c) { return {c.x(0).dtype(), c.x(0).shape()}; }
  static auto gradient(auto g, auto, auto) {
    return grads([=] { return g; });
  }
};

/// The tensors one behind the other along an axis (None: flattened).
struct ConcatBackward : Kernel<ConcatBackward, -1> {
  static constexpr OpSchema schema{.name = "concat",
                                   .types = movable,
                                   .params = "arrays",
                                   .kind = OpKind::primitive,
                                   .variadic = true,
                                   .linear = true};
  struct Attr {
    std::optional<std::int64_t> axis = 0;
    static constexpr std::array<std::string_view, 1> names{"axis"};
  };
  static OutputSpec infer(const Call& c, const Attr& a) {
    const TensorImpl& first = c.x(0);
    if (!a.axis) {
      std::int64_t count = 0;
      for (const Operand& o : c.in) {
        if (__builtin_add_overflow(count, o.tensor->numel(), &count)) throw too_many(0);
      }
      return {first.dtype(), DimList{count}};
    }
    if (first.ndim() == 0) throw ShapeMismatch("concat(): tensors need at least one axis; write stack()", {});
    const int axis = normalize_axis(*a.axis, first.ndim(), "concat");
    DimList shape(first.shape());
    for (std::size_t i = 1; i < c.in.size(); ++i) {
      const Dims s = c.x(static_cast<int>(i)).shape();
      bool fits = static_cast<int>(s.size()) == shape.size();
      for (int d = 0; fits && d < shape.size(); ++d) fits = d == axis || s[d] == first.shape()[d];
      if (!fits) {
        const bool ranks = static_cast<int>(s.size()) != shape.size();
        throw ShapeMismatch(
            "concat(): " + to_string(first.shape()) + " and " + to_string(s) +
                (ranks ? " have different numbers of axes; write hl.expand_dims(x, 0)"
                       : " differ on another axis than " + std::to_string(axis)),
            {{"op", std::string("concat")}, {"left_shape", to_vector(first.shape())}, {"right_shape", to_vector(s)}});
      }
      if (__builtin_add_overflow(shape[axis], s[axis], &shape[axis])) throw too_many(axis);
    }
    return {first.dtype(), shape};
  }
  static ValueError too_many(int axis) {
    return ValueError("concat(): the sizes along axis " + std::to_string(axis) + " add up to more than 2^63 - 1",
                      {{"op", std::string("concat")}, {"axis", std::int64_t{axis}}});
  }
  /// The parts of g that the wanted operands made.
  static void gradients_of(const auto& g, const auto& operands, const auto& wanted, auto result, const auto& a) {
    const int axis = a.axis ? normalize_axis(*a.axis, operands[0].ndim(), "concat") : 0;
    std::int64_t start = 0;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const auto& x = operands[i];
      const std::int64_t size = a.axis ? x.shape()[static_cast<std::size_t>(axis)] : x.numel();
      if (wanted[i]) {
        Shape64 sizes = a.axis ? to_vector(x.shape()) : Shape64{size}, starts(sizes.size(), 0), steps(sizes.size(), 1);
        starts[static_cast<std::size_t>(axis)] = start;
        result[i] = slice(g, starts, steps, sizes);
        if (!a.axis) result[i] = reshape(result[i], to_vector(x.shape()));
      }
      start += size;
    }
  }
};

using Movement = OpList<ReshapeBackward, PermuteDimsBackward, SliceBackward, EmbedSliceBackward, WriteViewBackward,
                        BroadcastToBackward, SqueezeBackward, ExpandDimsBackward, RealBackward, ImagBackward,
                        AstypeBackward, ContiguousBackward, ConcatBackward>;

}  // namespace hyalite
