/// The list of the CPU's primitives.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "compute/backend.h"
#include "compute/cpu/reduce.h"

namespace hyalite::cpu {

struct Entry {
  std::string_view op;
  RunFn run;
  std::optional<ReduceOp> reduces = {};
  bool multiplies = false;
};
std::span<const Entry> primitives();
/// What the op reduces by, if it is a reduction.
std::optional<ReduceOp> reduction_of(const OpInfo& op);
/// Backend::folds.
Folds folds(const OpInfo& op, Dtype in, Dtype out);
/// Backend::multiplies.
bool multiplies(const OpInfo& op, Dtype dtype);

}  // namespace hyalite::cpu
