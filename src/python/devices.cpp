/// Devices there are and are not, and computing what waits on one.
#include "python/devices.h"

#include <nanobind/stl/string.h>

#include <algorithm>

#include "compute/backend.h"
#include "compute/opencl/backend.h"
#include "compute/opencl/clblast.h"
#include "python/arguments.h"
#include "python/tensor_object.h"
#include "tensor/context.h"

namespace nb = nanobind;

namespace hyalite::python {
namespace {

nb::dict described(Device d, const std::string& why, bool lazy) {
  nb::dict r;
  r["name"] = to_string(d);
  r["available"] = why.empty();
  r["why"] = why;
  r["lazy"] = lazy;
  if (!why.empty()) return r;
  const Backend& b = at_once(d);
  nb::list missing;
  for (const OpInfo& op : op_table()) {
    const bool needed = op.schema.kind == OpKind::elementwise || op.schema.kind == OpKind::primitive;
    if (needed && b.run[static_cast<std::size_t>(op.index)] == nullptr) missing.append(std::string(op.name()));
  }
  r["missing_ops"] = missing;
  return r;
}

nb::list names_of(DtypeSet set) {
  nb::list all;
  for (int t = 0; t < dtype_count; ++t) {
    if (contains(set, static_cast<Dtype>(t))) all.append(std::string(name(static_cast<Dtype>(t))));
  }
  return all;
}

nb::list devices() {
  nb::list all;
  constexpr DtypeSet every = (DtypeSet{1} << dtype_count) - 1;
  constexpr DtypeSet float8 = bit(Dtype::float8_e4m3fn) | bit(Dtype::float8_e5m2);
  for (const DeviceKind kind : {DeviceKind::cpu, DeviceKind::meta}) {
    nb::dict d = described({kind, 0}, "", false);
    d["dtypes"] = names_of(every);
    all.append(d);
  }
  const std::vector<opencl::ClDevice*>& found = opencl::ClDevice::all();
  for (std::size_t i = 0; i < found.size(); ++i) {
    const Device at{DeviceKind::opencl, static_cast<std::uint8_t>(i)};
    nb::dict d = described(at, opencl::backend(static_cast<int>(i)) != nullptr ? "" : "this build counts to 8", true);
    const opencl::Facts& f = found[i]->facts();
    DtypeSet dtypes = every & ~float8;
    if (!f.has_float64) dtypes &= ~(bit(Dtype::float64) | bit(Dtype::complex128));
    d["dtypes"] = names_of(dtypes);
    d["hardware"] = f.name;
    d["driver"] = f.platform + ", " + f.version + ", " + f.driver;
    d["memory"] = f.memory;
    d["exact_division"] = f.exact_division;
    const std::string& no_library = opencl::clblast_problem();
    d["products"] = no_library.empty() ? "CLBlast, where they are large" : "our kernels: " + no_library;
    const lazy::Pending p = opencl::lazy_device(static_cast<int>(i)).pending();
    d["waiting_nodes"] = p.nodes;
    d["waiting_bytes"] = p.bytes;
    d["waiting_line"] = p.line;
    d["runs"] = p.runs;
    d["plans_made"] = p.planned;
    d["kernels_run"] = p.kernels;
    d["runs_by_budget"] = p.flushes;
    const opencl::ClDevice::Counts c = found[i]->counts();
    d["compiled"] = c.compiled;
    d["from_disk"] = c.from_disk;
    d["compile_seconds"] = c.compile_seconds;
    d["launches"] = c.launches;
    d["bytes_in_use"] = c.held;
    d["bytes_pooled"] = c.pooled;
    all.append(d);
  }
  if (found.empty()) {
    const std::string& why = opencl::ClDevice::problem();
    all.append(described({DeviceKind::opencl, 0}, why.empty() ? "no OpenCL platform has a device with a compiler" : why,
                         true));
  }
  all.append(described({DeviceKind::cuda, 0}, "this build has no CUDA backend yet", true));
  all.append(described({DeviceKind::mlx, 0}, "this build has no MLX backend yet", true));
  return all;
}

void synchronize(Device d) {
  const bool has_memory = d.kind != DeviceKind::meta;
  if (has_memory) at_once(d).synchronise();
}

}  // namespace

void bind_devices(nb::module_& m) {
  m.def("_devices", devices);
  m.def(
      "_named_device",
      [](nb::handle o, const std::string& op) {
        if (o.is_none()) throw_argument(op, "device", "the name of a device such as 'cpu'", o.ptr());
        const Device d = device_argument(o.ptr(), op);
        at_once(d);  // raises where it is not there
        return to_string(d);
      },
      nb::arg("device").none(), nb::arg("op"));
  m.def("_default_device", [](const std::string& name) {
    const std::string before = to_string(context().device);
    context().device = parse_device(name);
    return before;
  });
  m.def("_chosen_device", []() -> nb::object {
    const Device d = context().device;
    return d == Device{} ? nb::none() : nb::object(nb::cast(to_string(d)));
  });
  m.def("_evaluate", [](nb::list tensors) {
    std::vector<Device> of;
    for (nb::handle t : tensors) {
      const Device d = impl_of(t.ptr())->device();
      if (std::ranges::find(of, d) == of.end()) of.push_back(d);
    }
    for (const Device d : of) synchronize(d);
  });
  m.def(
      "_synchronize",
      [](nb::handle device) {
        if (!device.is_none()) return synchronize(device_argument(device.ptr(), "synchronize"));
        for (std::size_t i = 0; i < opencl::ClDevice::all().size() && opencl::backend(static_cast<int>(i)) != nullptr;
             ++i)
          synchronize({DeviceKind::opencl, static_cast<std::uint8_t>(i)});
      },
      nb::arg("device").none());
}

}  // namespace hyalite::python
