/// Tensors as `pickle` and `copy` see them: a storage, which views share, and how the tensor lies in it.
#pragma once

#include "python/tensor_object.h"

namespace hyalite::python {

// Each gives a new reference, and throws as python/interop.h says.

/// `Tensor.__reduce__`.
PyObject* reduce_tensor(PyObject* self);
/// `Tensor.__copy__`: new memory, in the same order of axes; a leaf stays one, anything else is copied by a recorded
/// op.
PyObject* copy_tensor(PyObject* self);
/// `Tensor.__deepcopy__(memo)`: copies of views share the copy of their storage. Throws AutogradError for a tensor with
/// history.
PyObject* deepcopy_tensor(PyObject* self, PyObject* memo);

/// The storage in a buffer that unpickling found: its memory where the caller handed it over, a copy of a bytes object.
/// Memory that was writable is never taken over read-only.
PyObject* storage_from(PyObject* buffer, bool was_writable);
/// The tensor of `cls` over a storage; checks everything, since a pickle may say anything.
PyObject* tensor_from(PyObject* cls, PyObject* storage, PyObject* dtype, PyObject* shape, PyObject* strides,
                      PyObject* offset, bool requires_grad);

}  // namespace hyalite::python
