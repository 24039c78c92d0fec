/// C++ exceptions become Python's, with their values as attributes.
#include "python/errors.h"

#include <cxxabi.h>

#include <array>
#include <map>
#include <new>

#include "hyalite/error.h"
#include "python/gil.h"
#include "python/tensor_object.h"

namespace hyalite::python {
namespace {

std::map<ErrorKind, PyObject*> classes;

struct ErrorClass {
  ErrorKind kind;
  const char* name;
  PyObject** base;  // Python's own
  const char* doc;
};

PyObject* value_of(const ErrorValue& v) {
  if (const auto* i = std::get_if<std::int64_t>(&v)) return PyLong_FromLongLong(*i);
  if (const auto* d = std::get_if<double>(&v)) return PyFloat_FromDouble(*d);
  if (const auto* s = std::get_if<std::string>(&v))
    return PyUnicode_FromStringAndSize(s->data(), static_cast<Py_ssize_t>(s->size()));
  const auto& shape = std::get<Shape64>(v);
  PyObject* t = PyTuple_New(static_cast<Py_ssize_t>(shape.size()));
  for (std::size_t i = 0; t != nullptr && i < shape.size(); ++i) PyTuple_SET_ITEM(t, i, PyLong_FromLongLong(shape[i]));
  return t;
}

void set_error(const Error& e) {
  // A signal's exception is already there.
  if (e.kind() == ErrorKind::interrupted && PyErr_Occurred()) return;
  PyObject* type = classes.at(e.kind());
  const Owned instance(PyObject_CallFunction(type, "s", e.what()));
  if (!instance) return;
  for (const auto& [key, value] : e.attributes()) {
    const Owned v(value_of(value));
    if (!v || PyObject_SetAttrString(instance.get(), key.c_str(), v.get()) < 0) return;
  }
  PyErr_SetObject(type, instance.get());
}

}  // namespace

// The thread's end is no C++ object: g++ binds the reference below to null.
#if defined(__GNUC__) && !defined(__clang__)
[[gnu::no_sanitize("null")]]
#endif
PyObject*
raise_current() noexcept {
  try {
    throw;
  } catch (const PythonError&) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_SystemError, "an error without a Python exception");
  } catch (const Error& e) {
    set_error(e);
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
#if defined(__GLIBCXX__)
  } catch (const abi::__forced_unwind&) {
    stay_until_exit();  // Python code that we called was told to end its thread
#endif
  } catch (...) {
    PyErr_SetString(PyExc_SystemError, "an unknown C++ exception");
  }
  return nullptr;
}

bool add_error_classes(PyObject* module) {
  const ErrorClass table[] = {
      {ErrorKind::dtype_mismatch, "DtypeMismatch", &PyExc_TypeError, "Dtypes that do not go together."},
      {ErrorKind::device_mismatch, "DeviceMismatch", &PyExc_ValueError, "Tensors on different devices."},
      {ErrorKind::shape_mismatch, "ShapeMismatch", &PyExc_ValueError, "Shapes that do not go together."},
      {ErrorKind::version_mismatch, "VersionMismatch", &PyExc_RuntimeError,
       "A saved tensor was written in place since."},
      {ErrorKind::out_of_memory, "OutOfMemory", &PyExc_MemoryError,
       "More memory than the limit allows or the system has."},
      {ErrorKind::not_deterministic, "NotDeterministic", &PyExc_RuntimeError,
       "The op is not deterministic, and that was asked."},
      {ErrorKind::unsupported, "Unsupported", &PyExc_NotImplementedError, "This build or device lacks it."},
      {ErrorKind::autograd, "AutogradError", &PyExc_RuntimeError,
       "A request that the graph of gradients cannot follow."},
  };
  const Owned base(
      PyErr_NewExceptionWithDoc("hyalite.HyaliteError", "Base of Hyalite's own errors.", nullptr, nullptr));
  if (!base || PyModule_AddObjectRef(module, "HyaliteError", base.get()) < 0) return false;
  for (const ErrorClass& c : table) {
    const Owned bases(PyTuple_Pack(2, base.get(), *c.base));
    PyObject* type = PyErr_NewExceptionWithDoc((std::string("hyalite.") + c.name).c_str(), c.doc, bases.get(), nullptr);
    if (type == nullptr || PyModule_AddObjectRef(module, c.name, type) < 0) return false;
    classes[c.kind] = type;
  }
  classes[ErrorKind::value] = PyExc_ValueError;
  classes[ErrorKind::type] = PyExc_TypeError;
  classes[ErrorKind::index] = PyExc_IndexError;
  classes[ErrorKind::overflow] = PyExc_OverflowError;
  classes[ErrorKind::buffer] = PyExc_BufferError;
  classes[ErrorKind::interrupted] = PyExc_KeyboardInterrupt;
  return true;
}

}  // namespace hyalite::python
