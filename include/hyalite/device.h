/// The devices a tensor can live on.
#pragma once

#include <cstdint>

namespace hyalite {

/// Kind of device; tables of backends are indexed by it. `mlx` is Metal on Apple machines; tensors on `meta` have
/// shapes and no values.
enum class DeviceKind : std::uint8_t { cpu, cuda, opencl, mlx, meta };

/// One device of a kind.
struct Device {
  DeviceKind kind = DeviceKind::cpu;
  std::uint8_t index = 0;  ///< below 128; the bit above marks values that are traced, not there
  bool operator==(const Device& o) const { return kind == o.kind && ((index ^ o.index) & 0x7f) == 0; }
};

}  // namespace hyalite
