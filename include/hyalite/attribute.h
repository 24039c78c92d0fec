/// What attributes of ops such as `axis` and `shape` are given as.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "hyalite/dtype.h"

namespace hyalite {

using Shape = std::vector<std::int64_t>;

/// Which axes to work on: all by default, one, or a list.
struct Axes {
  std::optional<Shape> list;
  Axes() = default;
  Axes(std::int64_t axis) : list(Shape{axis}) {}
  Axes(int axis) : Axes(std::int64_t{axis}) {}
  Axes(Shape axes) : list(std::move(axes)) {}
  Axes(std::initializer_list<std::int64_t> axes) : list(Shape(axes)) {}
};

/// The views that lead from a base to a tensor; internal.
struct ViewChain;
using ChainRef = std::shared_ptr<const ViewChain>;

}  // namespace hyalite
