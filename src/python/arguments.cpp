/// Checks of arguments, and the messages that say what to write instead.
#include "python/arguments.h"

#include <algorithm>
#include <array>

#include "tensor/context.h"
#include "tensor/device.h"

namespace hyalite::python {
namespace {

std::string text_or(PyObject* text, const char* otherwise) {
  const Owned owned(text);
  const char* s = text != nullptr ? PyUnicode_AsUTF8(text) : nullptr;
  if (s == nullptr) PyErr_Clear();
  return s != nullptr ? s : otherwise;
}

std::string called(std::string_view op) { return std::string(op) + "(): "; }

/// The nearest thing that the caller may have meant.
std::string integer_advice(PyObject* o) {
  if (PyFloat_Check(o)) return "write int(n)";
  if (PyUnicode_Check(o)) return "write a number without quotes";
  if (is_tensor(o)) return "write x.tolist()";
  return {};
}

std::string dtype_advice(PyObject* o) {
  const std::string name =
      PyUnicode_Check(o) ? text_or(PyObject_Str(o), "") : text_or(PyObject_GetAttrString(o, "name"), "");
  // NumPy's scalar classes, such as np.float32, name themselves.
  const std::string second = PyType_Check(o) ? text_or(PyObject_GetAttrString(o, "__name__"), "") : "";
  for (const DtypeInfo& d : dtype_table) {
    if (d.name == name || d.name == second) return "write hl." + std::string(d.name);
  }
  if (is_tensor(o)) return "write x.dtype";
  return {};
}

}  // namespace

std::string int_text(PyObject* o) {
  const Owned bits(PyObject_CallMethod(o, "bit_length", nullptr));
  const long n = bits ? PyLong_AsLong(bits.get()) : -1;
  if (n < 0) PyErr_Clear();
  if (n >= 0 && n <= 128) return text_or(PyObject_Str(o), "an int");
  return "an int of " + (n < 0 ? std::string("many") : std::to_string(n)) + " bits";
}

std::string shown(PyObject* o) {
  if (o == Py_None) return "None";
  const std::string type = Py_TYPE(o)->tp_name;
  if (PyBool_Check(o)) return o == Py_True ? "True" : "False";
  if (PyLong_Check(o)) return type + " " + int_text(o);
  const auto few_ints = [](PyObject* sequence) {
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(sequence);
    PyObject** items = PySequence_Fast_ITEMS(sequence);
    return n <= 8 && std::all_of(items, items + n, [](PyObject* i) { return PyLong_CheckExact(i); });
  };
  if ((PyTuple_CheckExact(o) || PyList_CheckExact(o)) && few_ints(o)) {
    const std::string text = text_or(PyObject_Repr(o), "");
    if (text.size() <= 40) return type + " " + text;
  }
  if (PyFloat_Check(o) || PyComplex_Check(o) || PyUnicode_Check(o) || PyBytes_Check(o) || PyType_Check(o)) {
    const std::string text = text_or(PyObject_Repr(o), "");
    if (!text.empty() && text.size() <= 40) return PyType_Check(o) ? text : type + " " + text;
  }
  return type;
}

void throw_argument(std::string_view op, std::string_view name, std::string_view wanted, PyObject* o,
                    std::string_view advice) {
  throw TypeError(called(op) + std::string(name) + " must be " + std::string(wanted) + ", not " + shown(o) +
                      (advice.empty() ? "" : "; " + std::string(advice)),
                  {{"op", std::string(op)}});
}

void refuse_call(std::string_view op, std::string_view signature, const std::string& what) {
  const std::string function(op);
  throw TypeError(function + "(): " + what + "; the signature is " + function + std::string(signature),
                  {{"op", function}});
}

std::int64_t integer_argument(PyObject* o, std::string_view op, std::string_view name, std::string_view wanted) {
  const Owned index(PyIndex_Check(o) ? PyNumber_Index(o) : nullptr);
  if (!index) {
    if (PyErr_Occurred() != nullptr && !PyErr_ExceptionMatches(PyExc_TypeError)) throw PythonError();
    PyErr_Clear();
    throw_argument(op, name, wanted, o, integer_advice(o));
  }
  int overflow = 0;
  const long long v = PyLong_AsLongLongAndOverflow(index.get(), &overflow);
  if (overflow != 0) {
    throw OverflowError(called(op) + std::string(name) + " is " + int_text(index.get()) +
                            ", which 64 bits do not hold; write a smaller one",
                        {{"op", std::string(op)}});
  }
  return v;
}

Shape integers_argument(PyObject* o, std::string_view op, std::string_view name, std::string_view wanted) {
  if (PyLong_Check(o)) return {integer_argument(o, op, name, wanted)};
  Shape r;
  if (PyTuple_Check(o) || PyList_Check(o)) {
    const Owned items(check(PySequence_Tuple(o)));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items.get()); ++i)
      r.push_back(integer_argument(PyTuple_GET_ITEM(items.get(), i), op, name, wanted));
    return r;
  }
  if (PyIndex_Check(o)) {
    // An array has __index__ too, and means it only without dimensions.
    const Owned index(PyNumber_Index(o));
    if (index) return {integer_argument(index.get(), op, name, wanted)};
    PyErr_Clear();
  }
  const bool sequence = !PyUnicode_Check(o) && !PyBytes_Check(o) && (PySequence_Check(o) || is_tensor(o));
  const Owned items(sequence ? PySequence_Tuple(o) : nullptr);
  if (!items) {
    PyErr_Clear();
    throw_argument(op, name, wanted, o, integer_advice(o));
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items.get()); ++i)
    r.push_back(integer_argument(PyTuple_GET_ITEM(items.get(), i), op, name, wanted));
  return r;
}

Ints ints_argument(PyObject* o, std::string_view op, std::string_view name, std::string_view wanted) {
  std::array<std::int64_t, Ints::most_inline> few;
  const auto plain = [&](PyObject* item, std::size_t i) {
    int beyond = 0;
    if (!PyLong_CheckExact(item)) return false;
    few[i] = PyLong_AsLongLongAndOverflow(item, &beyond);
    return beyond == 0;
  };
  if (plain(o, 0)) return Ints(Dims(few.data(), 1));
  if (PyTuple_CheckExact(o) && PyTuple_GET_SIZE(o) <= static_cast<Py_ssize_t>(few.size())) {
    const auto n = static_cast<std::size_t>(PyTuple_GET_SIZE(o));
    std::size_t i = 0;
    while (i < n && plain(PyTuple_GET_ITEM(o, static_cast<Py_ssize_t>(i)), i)) ++i;
    if (i == n) return Ints(Dims(few.data(), n));
  }
  return Ints(integers_argument(o, op, name, wanted));
}

Shape shape_argument(PyObject* o, std::string_view op) {
  return integers_argument(o, op, "shape", "an integer or a tuple of integers");
}

bool flag_argument(PyObject* o, std::string_view op, std::string_view name) {
  if (PyBool_Check(o)) return o == Py_True;
  const bool number = PyLong_Check(o) || is_tensor(o) || PyObject_HasAttrString(o, "__array_interface__") != 0;
  if (!number) throw_argument(op, name, "True or False", o);
  const int v = PyObject_IsTrue(o);
  if (v < 0) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_ValueError)) throw PythonError();
    PyErr_Clear();
    throw_argument(op, name, "True or False", o);
  }
  return v != 0;
}

std::optional<bool> optional_flag_argument(PyObject* o, std::string_view op, std::string_view name) {
  if (o == Py_None) return {};
  if (!PyBool_Check(o) && !PyLong_Check(o)) throw_argument(op, name, "True, False or None", o);
  return flag_argument(o, op, name);
}

double number_argument(PyObject* o, std::string_view op, std::string_view name) {
  if (PyFloat_Check(o)) return PyFloat_AS_DOUBLE(o);
  const double v = PyUnicode_Check(o) || PyBytes_Check(o) ? -1 : PyFloat_AsDouble(o);
  if (v != -1) return v;
  if (PyErr_Occurred() != nullptr && PyErr_ExceptionMatches(PyExc_OverflowError)) {
    PyErr_Clear();
    throw OverflowError(
        called(op) + std::string(name) + " is " + shown(o) + ", which is beyond a float; write a smaller one",
        {{"op", std::string(op)}});
  }
  if (PyErr_Occurred() == nullptr && PyNumber_Check(o) != 0) return v;
  PyErr_Clear();
  throw_argument(op, name, "a number", o);
}

Dtype dtype_argument(PyObject* o, std::string_view op, std::string_view name) {
  Dtype t;
  if (!dtype_from(o, t)) throw_argument(op, name, "a dtype such as hl.float32", o, dtype_advice(o));
  return t;
}

std::optional<Dtype> optional_dtype_argument(PyObject* o, std::string_view op) {
  if (o == Py_None) return {};
  return dtype_argument(o, op);
}

Device device_argument(PyObject* o, std::string_view op) {
  if (o == Py_None) return context().device;
  const char* text = PyUnicode_Check(o) ? PyUnicode_AsUTF8(o) : nullptr;
  if (text == nullptr) {
    PyErr_Clear();
    throw_argument(op, "device", "the name of a device such as 'cpu'", o);
  }
  return parse_device(text);
}

}  // namespace hyalite::python
