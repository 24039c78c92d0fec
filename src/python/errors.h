/// The error classes of the Python module.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace hyalite::python {

/// Creates HyaliteError and its subclasses in the module. False with an exception set.
bool add_error_classes(PyObject* module);

}  // namespace hyalite::python
