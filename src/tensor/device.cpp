/// Names of devices.
#include "tensor/device.h"

#include <array>
#include <charconv>

#include "hyalite/error.h"

namespace hyalite {
namespace {

struct DeviceName {
  std::string_view name;
  DeviceKind kind;
};
constexpr std::array<DeviceName, 7> device_names{{{"cpu", DeviceKind::cpu},
                                                  {"meta", DeviceKind::meta},
                                                  {"cuda", DeviceKind::cuda},
                                                  {"opencl", DeviceKind::opencl},
                                                  {"mlx", DeviceKind::mlx},
                                                  {"metal", DeviceKind::mlx},
                                                  {"mps", DeviceKind::mlx}}};

}  // namespace

Device parse_device(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view stem = text.substr(0, colon);
  unsigned index = 0;
  bool good = true;
  if (colon != std::string_view::npos) {
    const std::string_view digits = text.substr(colon + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    good = error == std::errc() && end == digits.data() + digits.size() && index < traced_bit;
  }
  for (const DeviceName& d : device_names) {
    if (good && d.name == stem) return {d.kind, static_cast<std::uint8_t>(index)};
  }
  throw ValueError(
      "unknown device '" + std::string(text) +
          "'; write one of cpu, meta, cuda, opencl, mlx (metal, mps), with :index for another than the first",
      {{"device", std::string(text)}});
}

std::string to_string(Device d) {
  std::string s;
  for (const DeviceName& n : device_names) {
    if (n.kind == d.kind) {
      s = n.name;
      break;
    }
  }
  const bool only_one = d.kind == DeviceKind::cpu || d.kind == DeviceKind::meta;
  return only_one ? s : s + ":" + std::to_string(d.index & ~traced_bit);
}

}  // namespace hyalite
