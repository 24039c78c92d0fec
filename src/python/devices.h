/// What Python asks of devices.
#pragma once

#include <nanobind/nanobind.h>

namespace hyalite::python {

void bind_devices(nanobind::module_& m);

}  // namespace hyalite::python
