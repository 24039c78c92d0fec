/// Objects that expose memory: the buffer protocol (PEP 3118) and NumPy's array interface, version 3.
#include <bit>
#include <string_view>

#include "python/foreign.h"
#include "python/interop.h"
#include "python/others.h"

namespace hyalite::python {
namespace {

/// str(o), or the name of its type where that fails.
std::string text_of(PyObject* o) {
  const Owned s(PyObject_Str(o));
  const char* text = s ? PyUnicode_AsUTF8(s.get()) : nullptr;
  if (text == nullptr) {
    PyErr_Clear();
    return Py_TYPE(o)->tp_name;
  }
  return text;
}

/// The attribute, or null without an exception where there is none.
Owned attribute(PyObject* o, const char* attribute_name) {
  PyObject* found = PyObject_GetAttrString(o, attribute_name);
  if (found == nullptr) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) throw PythonError();
    PyErr_Clear();
  }
  return Owned(found);
}

/// What a kind and a size in bytes make: 'b' bool, 'i', 'u', 'f', 'c'. False for sizes without a dtype.
bool dtype_of(char kind, std::int64_t size, Dtype& to) {
  const Kind wanted = kind == 'b'   ? Kind::boolean
                      : kind == 'c' ? Kind::complex
                      : kind == 'f' ? Kind::floating
                                    : Kind::integer;
  for (int i = 0; i < dtype_count; ++i) {
    const Dtype t = static_cast<Dtype>(i);
    const DtypeInfo& d = info(t);
    if (d.kind != wanted || d.size != size || (wanted == Kind::integer && d.is_signed != (kind == 'i'))) continue;
    if (t == Dtype::bfloat16 || t == Dtype::float8_e4m3fn || t == Dtype::float8_e5m2) continue;  // these go by name
    to = t;
    return true;
  }
  return false;
}

bool is_swapped(char order) {
  return order == (std::endian::native == std::endian::little ? '>' : '<') ||
         (order == '!' && std::endian::native == std::endian::little);
}

[[noreturn]] void throw_no_dtype(const std::string& what) {
  throw TypeError("asarray(): elements of " + what +
                      " are no numbers that a tensor holds; convert them first, for instance with .astype(np.float64)",
                  {{"format", what}});
}

/// The dtype of a format as in the module struct, with NumPy's Zf and Zd and Python's F and D for complex numbers.
void parse_format(const char* format, std::int64_t size, ForeignMemory& m) {
  std::string_view f = format == nullptr ? "B" : format;
  const std::string whole(f);
  if (!f.empty() && std::string_view("@=<>!^").find(f[0]) != f.npos) {
    m.swapped = is_swapped(f[0]);
    f.remove_prefix(1);
  }
  char kind = 0;
  if (f.size() == 1) {
    constexpr std::string_view codes = "?bBchHiIlLqQnNefdFD", kinds = "biuuiuiuiuiuiufffcc";
    const std::size_t at = codes.find(f[0]);
    if (at != codes.npos) kind = kinds[at];
  } else if (f == "Zf" || f == "Zd") {
    kind = 'c';
  }
  if (kind == 0 || !dtype_of(kind, size, m.dtype)) {
    throw_no_dtype(whole == "O" ? "type object" : "the buffer format '" + whole + "'");
  }
  if (size == 1) m.swapped = false;
}

/// Strides in bytes of row-major elements.
DimList byte_strides(Dims shape, Dtype dtype) {
  checked_numel(shape, itemsize(dtype));
  DimList strides = row_major(shape);
  for (int i = 0; i < strides.size(); ++i) strides[i] *= static_cast<std::int64_t>(itemsize(dtype));
  return strides;
}

TensorRef from_buffer(std::unique_ptr<BufferKeeper> keeper, std::optional<Dtype> dtype, std::optional<bool> copy) {
  const Py_buffer& view = keeper->view;
  ForeignMemory m;
  m.data = static_cast<std::byte*>(view.buf);
  m.read_only = view.readonly != 0;
  parse_format(view.format, view.itemsize, m);
  for (int i = 0; i < view.ndim; ++i) m.shape.push_back(view.shape[i]);
  if (view.strides != nullptr) {
    for (int i = 0; i < view.ndim; ++i) m.strides.push_back(view.strides[i]);
  } else {
    // ctypes gives none even when asked.
    m.strides = byte_strides(m.shape, m.dtype);
  }
  return import_memory(m, std::move(keeper), dtype, copy, Border::asarray);
}

// ---- the array interface ----

/// Items of a tuple of ints.
DimList dims_from(PyObject* tuple, const char* what) {
  if (!PyTuple_Check(tuple)) throw ValueError("asarray(): " + std::string(what) + " of an array interface is no tuple");
  DimList d;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    const Py_ssize_t n = PyLong_AsSsize_t(PyTuple_GET_ITEM(tuple, i));
    if (n == -1 && PyErr_Occurred() != nullptr) throw PythonError();
    d.push_back(n);
  }
  return d;
}

/// An item of the interface; null where it is missing or None. Borrowed from the dict.
PyObject* entry(PyObject* interface, const char* key) {
  PyObject* o = PyDict_GetItemString(interface, key);
  return o == Py_None ? nullptr : o;
}

/// bfloat16 and float8 have no code of their own in the interface: the name of the array's dtype tells.
bool dtype_by_name(PyObject* array, Dtype& to) {
  const Owned dtype = attribute(array, "dtype");
  if (!dtype) return false;
  const Owned text = attribute(dtype.get(), "name");
  const char* s = text && PyUnicode_Check(text.get()) ? PyUnicode_AsUTF8(text.get()) : nullptr;
  if (s == nullptr) {
    PyErr_Clear();
    return false;
  }
  for (const Dtype t : {Dtype::bfloat16, Dtype::float8_e4m3fn, Dtype::float8_e5m2}) {
    if (name(t) == s) {
      to = t;
      return true;
    }
  }
  return false;
}

void parse_typestr(PyObject* interface, PyObject* array, ForeignMemory& m) {
  PyObject* typestr = entry(interface, "typestr");
  const char* s = typestr != nullptr && PyUnicode_Check(typestr) ? PyUnicode_AsUTF8(typestr) : nullptr;
  if (s == nullptr) {
    PyErr_Clear();
    throw TypeError("asarray(): an array interface without the text typestr");
  }
  const std::string_view text(s);
  std::int64_t size = 0;
  for (std::size_t i = 2; i < text.size() && size < 1000; ++i) {
    size = text[i] >= '0' && text[i] <= '9' ? 10 * size + (text[i] - '0') : 1000;
  }
  const char kind = text.size() > 2 ? text[1] : '?';
  if (kind == 'V' || (kind == 'f' && size == 1)) {
    if (dtype_by_name(array, m.dtype) && static_cast<std::int64_t>(itemsize(m.dtype)) == size) return;
  } else if (std::string_view("biufc").find(kind) != std::string_view::npos && dtype_of(kind, size, m.dtype)) {
    m.swapped = size > 1 && is_swapped(text[0]);
    return;
  }
  const Owned dtype = attribute(array, "dtype");
  throw_no_dtype("type " + (dtype ? text_of(dtype.get()) : std::string(text)));
}

/// Bytes of an object that stand in for a data pointer; `keeper` keeps them.
void data_of_buffer(PyObject* o, PyObject* interface, ForeignMemory& m, std::int64_t numel, KeeperPtr& keeper) {
  auto bytes = std::make_unique<BufferKeeper>();
  if (PyObject_GetBuffer(o, &bytes->view, PyBUF_SIMPLE) != 0) throw PythonError();
  std::int64_t offset = 0;
  if (PyObject* given = entry(interface, "offset"); given != nullptr) {
    offset = PyLong_AsSsize_t(given);
    if (offset == -1 && PyErr_Occurred() != nullptr) throw PythonError();
  }
  // Only row-major data are taken from here, so their end is known.
  const std::int64_t size = static_cast<std::int64_t>(itemsize(m.dtype));
  if (entry(interface, "strides") != nullptr || offset < 0 || offset > bytes->view.len ||
      numel > (bytes->view.len - offset) / size) {
    throw ValueError("asarray(): the array interface describes more than its " + std::to_string(bytes->view.len) +
                     " bytes, or gives strides for them");
  }
  m.data = static_cast<std::byte*>(bytes->view.buf) + offset;
  m.read_only = bytes->view.readonly != 0;
  keeper = std::move(bytes);
}

TensorRef from_interface(PyObject* obj, PyObject* interface, std::optional<Dtype> dtype, std::optional<bool> copy) {
  if (!PyDict_Check(interface)) throw TypeError("asarray(): __array_interface__ is no dict");
  ForeignMemory m;
  parse_typestr(interface, obj, m);
  PyObject* shape = entry(interface, "shape");
  if (shape == nullptr) throw ValueError("asarray(): an array interface without a shape");
  m.shape = dims_from(shape, "the shape");
  const std::int64_t numel = checked_numel(m.shape, itemsize(m.dtype));
  if (PyObject* strides = entry(interface, "strides"); strides != nullptr) {
    m.strides = dims_from(strides, "the strides");
    if (m.strides.size() != m.shape.size())
      throw ValueError("asarray(): an array interface with unequal shape and strides");
  } else {
    m.strides = byte_strides(m.shape, m.dtype);
  }
  KeeperPtr keeper = std::make_unique<ObjectKeeper>(obj);
  PyObject* data = entry(interface, "data");
  if (data != nullptr && PyTuple_Check(data) && PyTuple_GET_SIZE(data) == 2) {
    m.data = static_cast<std::byte*>(PyLong_AsVoidPtr(PyTuple_GET_ITEM(data, 0)));
    const int read_only = PyErr_Occurred() != nullptr ? -1 : PyObject_IsTrue(PyTuple_GET_ITEM(data, 1));
    if (read_only < 0) throw PythonError();
    m.read_only = read_only != 0;
  } else {
    data_of_buffer(data != nullptr ? data : obj, interface, m, numel, keeper);
  }
  if (m.data == nullptr && numel != 0) throw ValueError("asarray(): an array interface with a null pointer");
  return import_memory(m, std::move(keeper), dtype, copy, Border::asarray);
}

// ---- which way ----

/// A class of NumPy's, kept in `known`; null while nobody has imported NumPy, since then no object can be of it.
PyObject* numpy_class(const char* of, PyObject*& known) {
  if (known == nullptr) known = loaded("numpy", of).leak();
  return known;
}

/// An array of NumPy's own, not of a class derived from it.
bool is_plain_array(PyObject* o) {
  static PyObject* array = nullptr;
  return reinterpret_cast<PyObject*>(Py_TYPE(o)) == numpy_class("ndarray", array);
}

bool is_numpy_scalar(PyObject* o) {
  static PyObject* of_numpy = nullptr;
  PyObject* generic = numpy_class("generic", of_numpy);
  if (generic == nullptr) return false;
  const int is = PyObject_IsInstance(o, generic);
  if (is < 0) throw PythonError();
  return is != 0;
}

/// What `__array__` gives; null without it. With copy=False it must say itself that it did not copy, as NumPy 2 asks.
Owned array_of(PyObject* obj, std::optional<bool> copy = std::nullopt) {
  const Owned method = attribute(obj, "__array__");
  if (!method) return Owned();
  if (copy != false) return Owned(check(PyObject_CallNoArgs(method.get())));
  const Owned none(check(PyTuple_New(0))), keywords(check(Py_BuildValue("{s:O}", "copy", Py_False)));
  Owned array(PyObject_Call(method.get(), none.get(), keywords.get()));
  if (!array && PyErr_ExceptionMatches(PyExc_TypeError) != 0) {
    PyErr_Clear();
    throw_copy_needed(Border::asarray, "the __array__ of a '" + std::string(Py_TYPE(obj)->tp_name) +
                                           "' does not say whether it makes one");
  }
  check(array.get());
  return array;
}

/// The tensor over a DLPack object; empty where the object declines, and gives an array instead.
TensorRef by_dlpack(PyObject* obj, std::optional<Dtype> dtype, std::optional<bool> copy) {
  const bool other_way = PyObject_HasAttrString(obj, "__array__") != 0;
  try {
    return import_dlpack(obj, dtype, copy, Border::asarray);
  } catch (const PythonError&) {
    // PyArrow says so with TypeError and ValueError, for bits and for nulls.
    for (PyObject* refusal : {PyExc_BufferError, PyExc_TypeError, PyExc_ValueError}) {
      if (!other_way || PyErr_ExceptionMatches(refusal) == 0) continue;
      PyErr_Clear();
      return {};
    }
    throw;
  }
}

}  // namespace

TensorRef from_object(PyObject* obj, std::optional<Dtype> dtype, std::optional<bool> copy) {
  if (PyType_Check(obj)) return {};
  const bool plain = is_plain_array(obj);
  if (!plain && is_numpy_scalar(obj)) {
    if (copy == false) throw_copy_needed(Border::asarray, "a NumPy scalar has no memory to share");
    const Owned array = array_of(obj);
    // The array is new and nobody else's, so it need not be copied again.
    if (array && !is_numpy_scalar(array.get())) return from_object(array.get(), dtype, std::nullopt);
    return {};
  }
  if (!plain) refuse_masked(obj, "asarray");
  if (PyObject_CheckBuffer(obj)) {
    auto keeper = std::make_unique<BufferKeeper>();
    if (PyObject_GetBuffer(obj, &keeper->view, PyBUF_RECORDS_RO) == 0) {
      return from_buffer(std::move(keeper), dtype, copy);
    }
    // NumPy has no format for datetime64, bfloat16 and float8; its array interface tells which it is.
    if (!PyErr_ExceptionMatches(PyExc_ValueError) && !PyErr_ExceptionMatches(PyExc_BufferError)) throw PythonError();
  }
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  const Owned held_type(type), held_value(value), held_trace(trace);
  if (const Owned interface = attribute(obj, "__array_interface__"); interface) {
    return from_interface(obj, interface.get(), dtype, copy);
  }
  if (const Owned dlpack = attribute(obj, "__dlpack__"); dlpack) {
    if (TensorRef t = by_dlpack(obj, dtype, copy)) return t;
  }
  if (const Owned array = array_of(obj, copy); array && array.get() != obj) {
    if (is_tensor(array.get())) return asarray(array.get(), dtype, copy);
    if (PyObject_CheckBuffer(array.get())) return from_object(array.get(), dtype, copy);
  }
  if (type == nullptr) return {};
  PyErr_Restore(Owned::borrow(type).leak(), Owned::borrow(value).leak(), Owned::borrow(trace).leak());
  throw PythonError();
}

}  // namespace hyalite::python
