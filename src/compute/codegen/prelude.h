/// The helper functions that generated kernels call where C has no operator or function with our meaning.
#pragma once

#include <string>
#include <string_view>

#include "compute/codegen/print_c.h"

namespace hyalite {

/// The name of the helper for an operation on a dtype, or empty where there is none and C's own is meant.
std::string helper_name(std::string_view operation, Dtype dtype);

/// The definitions of all helpers that `text` calls, directly or through others, each after those it calls.
std::string helpers_for(Language language, std::string_view text);

}  // namespace hyalite
