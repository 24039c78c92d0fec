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
  std::uint8_t index = 0;
  bool operator==(const Device&) const = default;
};

}  // namespace hyalite
