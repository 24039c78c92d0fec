/// The Python object of a tensor, and the way between it and the engine's handle.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <span>

#include "tensor/tensor_impl.h"

namespace hyalite::python {

/// `hyalite.Tensor`: one pointer and a list of weak references. Subclasses add a __dict__.
struct TensorObject {
  PyObject_HEAD TensorImpl* impl;
  PyObject* weakrefs;
};

extern PyTypeObject* tensor_type;

/// The exact type first, a subclass after.
inline bool is_tensor(PyObject* o) { return Py_TYPE(o) == tensor_type || PyType_IsSubtype(Py_TYPE(o), tensor_type); }
inline TensorImpl* impl_of(PyObject* o) { return reinterpret_cast<TensorObject*>(o)->impl; }

/// The Python object of `t`: the one it already has, or a new one. New reference; null with an exception set.
PyObject* wrap(TensorRef t) noexcept;

/// The objects of several results, as a tuple.
PyObject* wrap_all(std::span<TensorImpl* const> results) noexcept;

/// Sets the Python exception for the C++ one being handled; call in a catch block. Returns null.
PyObject* raise_current() noexcept;

/// Thrown when a Python exception is already set.
struct PythonError {};

/// Owns a reference.
class Owned {
 public:
  explicit Owned(PyObject* p = nullptr) : p_(p) {}
  static Owned borrow(PyObject* p) {
    Py_XINCREF(p);
    return Owned(p);
  }
  Owned(Owned&& o) noexcept : p_(o.leak()) {}
  Owned& operator=(Owned&& o) noexcept {
    if (this != &o) {
      Py_XDECREF(p_);
      p_ = o.leak();
    }
    return *this;
  }
  ~Owned() { Py_XDECREF(p_); }
  PyObject* get() const { return p_; }
  PyObject* leak() {
    PyObject* p = p_;
    p_ = nullptr;
    return p;
  }
  explicit operator bool() const { return p_ != nullptr; }

 private:
  PyObject* p_;
};

/// The object, or PythonError if it is null.
inline PyObject* check(PyObject* p) {
  if (p == nullptr) throw PythonError();
  return p;
}

/// `hl.float32` and its like: singletons of the type hyalite.dtype.
PyObject* dtype_object(Dtype t);  // borrowed
/// Accepts hl dtypes, and Python's bool, int, float, complex for the defaults. False if it is no dtype (no exception
/// set).
bool dtype_from(PyObject* o, Dtype& to) noexcept;

}  // namespace hyalite::python
