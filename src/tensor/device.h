/// Where a tensor lives.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "hyalite/device.h"

namespace hyalite {

inline constexpr int device_count = 5;

/// `cpu`, `meta`, `cuda`, `opencl`, `mlx` with an optional `:index`; `metal` and `mps` name mlx. Throws ValueError.
Device parse_device(std::string_view text);
std::string to_string(Device d);

}  // namespace hyalite
