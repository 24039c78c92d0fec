/// The ops that are no formula, each by kernels of its own.
#pragma once

#include <optional>
#include <string_view>

#include "compute/backend.h"
#include "compute/opencl/folds.h"

namespace hyalite::opencl {

/// Computes a call that is no fused one. `target` is written in its place, else memory is made.
using Entry = Outputs (*)(ClDevice& device, const Validated& v, TensorImpl* target);
struct Named {
  std::string_view op;
  Entry run;
  std::optional<Fold> folds = {};  ///< of a reduction to a value, which a fused group can take
};
inline constexpr std::size_t primitive_count = 24;
std::span<const Named, primitive_count> primitives();
/// Of the op's entry.
std::optional<Fold> fold_of(std::string_view op);

/// An elementwise op as a group of its own; an exponent that an integer cannot have raises at the next synchronisation.
Outputs run_elementwise(ClDevice& device, const Validated& v, TensorImpl* target);

// Entries that stand in files of their own.
Outputs matmul(ClDevice& d, const Validated& v, TensorImpl* target);
Outputs others(ClDevice& d, const Validated& v, TensorImpl* target);
Outputs take(ClDevice& d, const Validated& v, TensorImpl* target);
Outputs scatter_add(ClDevice& d, const Validated& v, TensorImpl* target);
Outputs positions(ClDevice& d, const Validated& v, TensorImpl* target);
Outputs true_positions(ClDevice& d, const Validated& v, TensorImpl* target);
Outputs last_writers(ClDevice& d, const Validated& v, TensorImpl* target);

}  // namespace hyalite::opencl
