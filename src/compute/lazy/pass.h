/// How a fused group walks its elements.
#pragma once

#include <map>
#include <optional>

#include "compute/lazy/graph.h"

namespace hyalite::lazy {

/// One walk over a shape. With axes that are reduced there are values for each element, and values for each place of
/// the axes that are kept: what a reduction gives, and what is computed of that.
struct Pass {
  enum Kind : std::uint8_t {
    flat,       ///< nothing is reduced
    rows,       ///< the last axes are reduced, and a row of them stays in the cache: it may be read again
    long_rows,  ///< the same for rows that do not stay
    columns,    ///< the first axes are reduced
    product,    ///< of matrices, a tile of the result after the other; nothing else is reduced
  } kind = flat;
  DimList shape;
  int split = 0;  ///< the axis at which the last ones begin

  bool reduces() const { return kind != flat && kind != product; }
  std::int64_t outer() const;  ///< places of the axes before the split
  std::int64_t inner() const;  ///< and of those behind it
  std::int64_t kept() const { return kind == columns ? inner() : outer(); }
  std::int64_t reduced() const { return kind == columns ? outer() : inner(); }
  /// Whether there is one value for each element.
  bool is_full(Dims of) const { return same_dims(of, shape); }
  /// Whether a form holds one value for each kept place, in their order.
  bool is_kept(const TensorImpl& form) const;
  /// Whether a form that is broadcast to the shape repeats such values along the reduced axes, each in its place.
  bool repeats_kept(const TensorImpl& form) const;
  /// Whether the operand's axes on each side of the split are one axis in memory. Of rows, only those that are reduced.
  bool can_read(const TensorImpl& form) const;
};

/// Nodes that are computed in the order of the one who reads them through a view, with the forms of their operands by
/// place; null for what comes from the group itself.
using Moved = std::map<const Node*, std::vector<TensorRef>>;

/// How an operand of an elementwise node lies where the node's result is read through a view, so that the node can be
/// computed in the view's order: `made` is what the node makes, `seen` the view of it. None where the view is no
/// selection of whole axes, in steps.
std::optional<TensorRef> seen_through(const TensorImpl& operand, const TensorImpl& made, const TensorImpl& seen);

/// The axes that a call reduces, if it is a reduction that the backend takes into a fused group.
std::optional<std::uint64_t> reduced_axes(const Node& n, const Backend& backend);
/// Whether it is a matrix product that the backend takes into a fused group: it needs all of its operands before.
bool is_product(const Node& n, const Backend& backend);
/// The pass in which the axes are reduced; none where they neither begin nor end the shape, or hold one element.
std::optional<Pass> pass_of(const TensorImpl& operand, std::uint64_t axes);

}  // namespace hyalite::lazy
