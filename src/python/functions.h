/// The ops as Python callables, made from the op list.
#pragma once

#include "python/tensor_object.h"

namespace hyalite::python {

/// Adds every public op to `module` (aligning dtypes), to `engine` (strict: nothing is promoted), and as methods to
/// Tensor. False with an exception set.
bool add_functions(PyObject* module, PyObject* engine);

}  // namespace hyalite::python
