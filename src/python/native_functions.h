/// Functions of the namespace that take more than one op does: reshape, astype, concat, creation.
#pragma once

#include "python/tensor_object.h"

namespace hyalite::python {

/// Adds them to `module`, and those that are methods to Tensor. False with an exception set.
bool add_native_functions(PyObject* module);

}  // namespace hyalite::python
