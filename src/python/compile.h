/// `hl.compile` as a native callable: what it has traced is looked up without Python.
#pragma once

#include <nanobind/nanobind.h>

namespace hyalite::python {

void bind_compile(nanobind::module_& m);

}  // namespace hyalite::python
