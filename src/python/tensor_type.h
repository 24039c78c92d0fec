/// `hyalite.Tensor` as a type: allocation, number slots, properties.
#pragma once

#include "python/tensor_object.h"

namespace hyalite::python {

/// Creates the type. Returns a new reference, null with an exception set.
PyObject* make_tensor_type();
/// As `wrap`, but an object of `type`, for a tensor that no Python object stands for yet.
PyObject* wrap_as(TensorRef t, PyTypeObject* type) noexcept;

/// The operators of expressions, for the type's slots (slots.cpp).
extern PyType_Slot* number_slots();
/// Properties and methods with their own code (members.cpp).
extern PyGetSetDef tensor_properties[];
extern PyMethodDef tensor_methods[];

// Indexing (indexing.cpp).
PyObject* get_item(PyObject* self, PyObject* key) noexcept;
int set_item(PyObject* self, PyObject* key, PyObject* value) noexcept;

}  // namespace hyalite::python
