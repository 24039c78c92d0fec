/// Elements by their places along an axis, and what turns masks and index arrays into places.
#pragma once

#include <array>

#include "hyalite/error.h"
#include "ops/op_info.h"

namespace hyalite {

/// For an index that its axis does not have; `given` as the user wrote it. The message begins with `caller`.
inline IndexError index_error(const std::string& given, std::int64_t index, std::int64_t axis, std::int64_t size,
                              const char* caller = "") {
  return IndexError(
      caller + std::string("index ") + given + " is out of range for axis " + std::to_string(axis) + " of size " +
          std::to_string(size) +
          (size == 0 ? "" : "; write one from " + std::to_string(-size) + " to " + std::to_string(size - 1)),
      {{"index", index}, {"axis", axis}, {"size", size}});
}

/// The elements of x at `indices` along one axis. Negative indices count from the end; others out of range raise.
struct TakeBackward : BinaryKernel<TakeBackward> {
  static constexpr OpSchema schema{.name = "take",
                                   .types = all_types | float8_types,
                                   .params = "x, indices",
                                   .roles = {Role::data, Role::index},
                                   .check = Check::indices,
                                   .kind = OpKind::primitive,
                                   .linear = true};
  struct Attr {
    std::int64_t axis = 0;
    static constexpr std::array<std::string_view, 1> names{"axis"};
  };
  static OutputSpec infer(const Call& c, const Attr& a) {
    const TensorImpl &x = c.x(0), &indices = c.x(1);
    const int axis = normalize_axis(a.axis, x.ndim(), "take");
    DimList shape(x.shape().first(axis));
    for (const std::int64_t s : indices.shape()) shape.push_back(s);
    for (const std::int64_t s : x.shape().subspan(axis + 1)) shape.push_back(s);
    return {x.dtype(), shape};
  }
  static auto gradient(auto g, auto x, auto indices, auto, const auto& a) {
    return grads(
        [=, &a] {
          const std::int64_t axis = normalize_axis(a.axis, x.ndim(), "take");
          return with_nothings(scatter_add(numbers_of(g), indices, axis, x.shape()[axis]));
        },
        none);
  }
};

/// x added up at `indices` along one axis of the given size, in the order of the indices; -0 where none points.
struct ScatterAddBackward : BinaryKernel<ScatterAddBackward> {
  static constexpr OpSchema schema{.name = "scatter_add",
                                   .types = numeric,
                                   .params = "x, indices",
                                   .roles = {Role::data, Role::index},
                                   .check = Check::indices,
                                   .kind = OpKind::primitive,
                                   .internal = true,
                                   .linear = true};
  struct Attr {
    std::int64_t axis = 0, size = 0;
    static constexpr std::array<std::string_view, 2> names{"axis", "size"};
    static constexpr int required = 2;
  };
  static OutputSpec infer(const Call& c, const Attr& a) {
    const TensorImpl &x = c.x(0), &indices = c.x(1);
    const int axis = static_cast<int>(a.axis);
    DimList shape(x.shape().first(axis));
    shape.push_back(a.size);
    for (const std::int64_t s : x.shape().subspan(axis + indices.ndim())) shape.push_back(s);
    return {x.dtype(), shape};
  }
  static auto gradient(auto g, auto, auto indices, auto, const auto& a) {
    return grads([=, &a] { return take(g, indices, a.axis); }, none);
  }
};

/// Indices along `axis`, which has `size` elements, as int64 counted from its beginning: negative ones count from the
/// end, others out of range raise.
struct PositionsBackward : UnaryKernel<PositionsBackward> {
  static constexpr OpSchema schema{.name = "positions",
                                   .types = integer_types,
                                   .results = {Result::index},
                                   .check = Check::indices,
                                   .kind = OpKind::primitive,
                                   .internal = true};
  struct Attr {
    std::int64_t axis = 0, size = 0;
    static constexpr std::array<std::string_view, 2> names{"axis", "size"};
    static constexpr int required = 2;
  };
  static OutputSpec infer(const Call& c, const Attr&) { return {Dtype::int64, c.x(0).shape()}; }
  static auto gradient(auto, auto, auto, const auto&) { return grads(none); }
};

/// Where a mask is true, as places in row-major order. `count`, how many these are, is known before: it is the result's
/// size.
struct TruePositionsBackward : UnaryKernel<TruePositionsBackward> {
  static constexpr OpSchema schema{.name = "true_positions",
                                   .types = boolean_types,
                                   .results = {Result::index},
                                   .kind = OpKind::primitive,
                                   .internal = true};
  struct Attr {
    std::int64_t count = 0;
    static constexpr std::array<std::string_view, 1> names{"count"};
    static constexpr int required = 1;
  };
  static OutputSpec infer(const Call&, const Attr& a) { return {Dtype::int64, DimList{a.count}}; }
  static auto gradient(auto, auto, auto, const auto&) { return grads(none); }
};

/// Of `size` places, from the places x that are written one after the other: whether each is, and which of x does it
/// last.
struct LastWritersBackward : UnaryKernel<LastWritersBackward> {
  static constexpr int outputs = 2;
  static constexpr OpSchema schema{.name = "last_writers",
                                   .types = bit(Dtype::int64),
                                   .results = {Result::boolean, Result::index},
                                   .kind = OpKind::primitive,
                                   .internal = true};
  struct Attr {
    std::int64_t size = 0;
    static constexpr std::array<std::string_view, 1> names{"size"};
    static constexpr int required = 1;
  };
  static std::array<OutputSpec, 2> infer(const Call&, const Attr& a) {
    return {{{Dtype::boolean, DimList{a.size}}, {Dtype::int64, DimList{a.size}}}};
  }
  static auto gradient(auto, auto, auto, const auto&) { return grads(none); }
};

using Indexing =
    OpList<TakeBackward, ScatterAddBackward, PositionsBackward, TruePositionsBackward, LastWritersBackward>;

}  // namespace hyalite
