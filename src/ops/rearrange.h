/// Axes and pieces in another order, made of views and copies: composites, whose gradients are those of their parts.
#pragma once

#include "ops/reduce.h"

namespace hyalite {

/// The elements in reverse order along the axes (None: all), a view.
struct FlipBackward : Composite<FlipBackward, 1> {
  static constexpr OpSchema schema{.name = "flip", .types = movable, .kind = OpKind::composite};
  struct Attr {
    std::optional<Ints> axis;
    static constexpr std::array<std::string_view, 1> names{"axis"};
  };
  static auto compose(const auto& x, const auto& a) {
    const std::uint64_t flipped = reduction::axes_mask(a.axis, x.ndim(), "flip");
    const Shape64 sizes = to_vector(x.shape());
    Shape64 starts(sizes.size(), 0), steps(sizes.size(), 1);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if ((flipped >> i & 1) == 0) continue;
      starts[i] = sizes[i] - 1;
      steps[i] = -1;
    }
    return slice(x, starts, steps, sizes);
  }
};

/// The axes `source` at the places `destination`, the others in their order; a view.
struct MoveaxisBackward : Composite<MoveaxisBackward, 1> {
  static constexpr OpSchema schema{.name = "moveaxis", .types = movable, .kind = OpKind::composite};
  struct Attr {
    Ints source, destination;
    static constexpr std::array<std::string_view, 2> names{"source", "destination"};
    static constexpr int required = 2;
  };
  static auto compose(const auto& x, const auto& a) {
    if (a.source.size() != a.destination.size()) {
      throw ValueError("moveaxis(): source " + to_string(Dims(a.source)) + " and destination " +
                           to_string(Dims(a.destination)) + " differ in length; name as many axes",
                       {{"op", std::string("moveaxis")}});
    }
    const std::uint64_t moved = reduction::axes_mask(a.source, x.ndim(), "moveaxis"),
                        taken = reduction::axes_mask(a.destination, x.ndim(), "moveaxis");
    Shape64 order(static_cast<std::size_t>(x.ndim()));
    int rest = 0;
    for (int i = 0; i < x.ndim(); ++i) {
      if ((taken >> i & 1) != 0) continue;
      while ((moved >> rest & 1) != 0) ++rest;
      order[static_cast<std::size_t>(i)] = rest++;
    }
    for (std::size_t k = 0; k < a.source.size(); ++k) {
      order[static_cast<std::size_t>(normalize_axis(a.destination[k], x.ndim(), "moveaxis"))] =
          normalize_axis(a.source[k], x.ndim(), "moveaxis");
    }
    return permute_dims(x, order);
  }
};

/// The last two axes exchanged, a view.
struct MatrixTransposeBackward : Composite<MatrixTransposeBackward, 1> {
  static constexpr OpSchema schema{.name = "matrix_transpose", .types = movable, .kind = OpKind::composite};
  static auto compose(const auto& x) {
    if (x.ndim() < 2) {
      throw ValueError(
          "matrix_transpose(): " + to_string(x.shape()) + " has no two axes; write hl.expand_dims(x, 0) first",
          {{"op", std::string("matrix_transpose")}});
    }
    return swap_last(x);
  }
};

/// The tensors, all of one shape, along a new axis, in their common dtype.
struct StackBackward : Composite<StackBackward, -1> {
  static constexpr OpSchema schema{
      .name = "stack", .types = movable, .params = "arrays", .kind = OpKind::composite, .variadic = true};
  struct Attr {
    std::int64_t axis = 0;
    static constexpr std::array<std::string_view, 1> names{"axis"};
  };
  static auto compose(const auto& arrays, const auto& a) {
    const auto& first = arrays.front();
    const std::int64_t axis = normalize_axis(a.axis, first.ndim() + 1, "stack");
    auto raised = arrays;
    for (auto& x : raised) {
      if (!same_dims(x.shape(), first.shape())) {
        throw ShapeMismatch("stack(): " + to_string(first.shape()) + " and " + to_string(x.shape()) +
                                " differ; all shapes must be equal",
                            {{"op", std::string("stack")},
                             {"left_shape", to_vector(first.shape())},
                             {"right_shape", to_vector(x.shape())}});
      }
      x = expand_dims(x, {axis});
    }
    return concat(raised, axis);
  }
};

using Rearrangement = OpList<FlipBackward, MoveaxisBackward, MatrixTransposeBackward, StackBackward>;

}  // namespace hyalite
