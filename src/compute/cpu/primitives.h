/// The list of the CPU's primitives.
#pragma once

#include <span>
#include <string_view>

#include "compute/backend.h"

namespace hyalite::cpu {

struct Entry {
  std::string_view op;
  RunFn run;
};
std::span<const Entry> primitives();

}  // namespace hyalite::cpu
