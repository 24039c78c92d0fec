/// The part of the module that derivatives of functions stand on.
#pragma once

#include <nanobind/nanobind.h>

namespace hyalite::python {

void bind_derivatives(nanobind::module_& m);

}  // namespace hyalite::python
