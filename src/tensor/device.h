/// Where a tensor lives.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "hyalite/device.h"

namespace hyalite {

inline constexpr int device_count = 5;

inline constexpr std::uint8_t traced_bit = 0x80;
/// Of a value that a tracer foresees. It has no memory, and equals the device on which it will be.
constexpr bool is_traced(Device d) { return (d.index & traced_bit) != 0; }
constexpr Device traced(Device d) { return {d.kind, static_cast<std::uint8_t>(d.index | traced_bit)}; }
/// Of a call with operands on equal devices: traced if one of them is.
constexpr Device joined(Device a, Device b) { return {a.kind, static_cast<std::uint8_t>(a.index | b.index)}; }

/// `cpu`, `meta`, `cuda`, `opencl`, `mlx` with an optional `:index`; `metal` and `mps` name mlx. Throws ValueError.
Device parse_device(std::string_view text);
std::string to_string(Device d);

}  // namespace hyalite
