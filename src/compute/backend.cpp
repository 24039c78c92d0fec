/// The array of backends, indexed by the kind of device.
#include "compute/backend.h"

#include <array>

#include "compute/cpu/backend.h"
#include "compute/meta/backend.h"
#include "compute/opencl/backend.h"

namespace hyalite {
namespace {

const std::array<Backend*, device_count>& backends() {
  static const std::array<Backend*, device_count> all{&cpu::backend(), nullptr, nullptr, nullptr, &meta::backend()};
  return all;
}

TracingHooks tracing;

[[noreturn]] void throw_no_opencl(Device device) {
  const std::size_t count = opencl::ClDevice::all().size();
  std::string why = opencl::ClDevice::problem();
  if (count != 0) {
    why = "there " +
          std::string(count == 1 ? "is one OpenCL device" : "are " + std::to_string(count) + " OpenCL devices") +
          ", opencl:0" + (count > 1 ? " to opencl:" + std::to_string(count - 1) : "");
  } else if (why.empty()) {
    why = "no OpenCL platform has a device with a compiler";
  }
  throw Unsupported("device " + to_string(device) + " is not there: " + why + "; write device=\"cpu\"",
                    {{"device", to_string(device)}});
}

}  // namespace

namespace detail {
constinit std::array<std::atomic<Backend*>, device_count> ready_backends{};
}

void install_tracing_hooks(const TracingHooks& hooks) noexcept { tracing = hooks; }
void check_readable(const Storage& s) { tracing.check_readable(s); }
void tell_tracer(TensorImpl& t) { tracing.met(t); }

TensorRef host_empty(Dtype dtype, Dims shape) {
  TensorRef t = at_once({}).empty(dtype, shape);
  if (context().tracer != nullptr) [[unlikely]]
    tracing.made_outside(*t->storage());
  return t;
}

Backend& find_backend(Device device) {
  const bool tracing_on = context().tracer != nullptr;
  if (tracing_on && device.kind == DeviceKind::cpu) return *tracing.backend();
  if (tracing_on && device.kind != DeviceKind::meta) {
    throw Unsupported("compile(): the function reaches a tensor on " + to_string(device) +
                          " by another way than its arguments, where ops wait and fuse by themselves; pass it as an "
                          "argument, or call the function itself",
                      {{"device", to_string(device)}});
  }
  return find_present(device);
}

Backend& find_present(Device device) {
  if (is_traced(device)) {
    throw Unsupported(
        "a value that compile() only foresaw has left its function, and is computed nowhere; return it from the "
        "function instead",
        {{"device", to_string(device)}});
  }
  if (device.kind == DeviceKind::opencl) {
    Backend* const found = opencl::backend(device.index);
    if (found == nullptr) throw_no_opencl(device);
    if (device.index == 0)
      detail::ready_backends[static_cast<std::size_t>(device.kind)].store(found, std::memory_order_release);
    return *found;
  }
  Backend* b = backends()[static_cast<std::size_t>(device.kind)];
  if (b != nullptr && device.index != 0) {
    const std::string name(b->name), asked = name + ":" + std::to_string(device.index);
    throw ValueError("device " + asked + " is not there: " + name + " has one device; write device=\"" + name + "\"",
                     {{"device", asked}});
  }
  if (b == nullptr) {
    throw Unsupported("device " + to_string(device) + " is not there: this build and machine have " + backend_names() +
                          (opencl::ClDevice::all().empty() ? "" : ", opencl") + "; write device=\"cpu\"",
                      {{"device", to_string(device)}});
  }
  detail::ready_backends[static_cast<std::size_t>(device.kind)].store(b, std::memory_order_release);
  return *b;
}

std::string backend_names() {
  std::string names;
  for (const Backend* b : backends()) {
    if (b != nullptr && b != &meta::backend()) names += (names.empty() ? "" : ", ") + std::string(b->name);
  }
  return names;
}

}  // namespace hyalite
