/// Tensors as Python numbers and nested lists.
#include "compute/backend.h"
#include "python/foreign.h"
#include "python/interop.h"
#include "tensor/float_formats.h"
#include "transfer.h"

namespace hyalite::python {
namespace {

template <class T>
T load(const std::byte* p) {
  T x;
  std::memcpy(&x, p, sizeof x);
  return x;
}

template <Dtype D>
double small_float(const std::byte* p) {
  return decode_float<D>(load<FloatBits<D>>(p));
}

/// A real floating element, exactly.
double floating_value(Dtype t, const std::byte* p) {
  switch (t) {
    case Dtype::float16:
      return small_float<Dtype::float16>(p);
    case Dtype::bfloat16:
      return small_float<Dtype::bfloat16>(p);
    case Dtype::float8_e4m3fn:
      return small_float<Dtype::float8_e4m3fn>(p);
    case Dtype::float8_e5m2:
      return small_float<Dtype::float8_e5m2>(p);
    case Dtype::float32:
      return load<float>(p);
    default:
      return load<double>(p);
  }
}

Py_complex complex_value(Dtype t, const std::byte* p) {
  const Dtype part = real_part(t);
  return {floating_value(part, p), floating_value(part, p + itemsize(part))};
}

/// The element as a Python number. New reference, or null with an exception set.
PyObject* element(Dtype t, const std::byte* p) {
  switch (t) {
    case Dtype::boolean:
      return PyBool_FromLong(load<std::uint8_t>(p));
    case Dtype::int8:
      return PyLong_FromLong(load<std::int8_t>(p));
    case Dtype::int16:
      return PyLong_FromLong(load<std::int16_t>(p));
    case Dtype::int32:
      return PyLong_FromLong(load<std::int32_t>(p));
    case Dtype::int64:
      return PyLong_FromLongLong(load<std::int64_t>(p));
    case Dtype::uint8:
      return PyLong_FromLong(load<std::uint8_t>(p));
    case Dtype::uint16:
      return PyLong_FromLong(load<std::uint16_t>(p));
    case Dtype::uint32:
      return PyLong_FromUnsignedLong(load<std::uint32_t>(p));
    case Dtype::uint64:
      return PyLong_FromUnsignedLongLong(load<std::uint64_t>(p));
    case Dtype::complex64:
    case Dtype::complex128:
      return PyComplex_FromCComplex(complex_value(t, p));
    default:
      return PyFloat_FromDouble(floating_value(t, p));
  }
}

/// A list of what make(address) gives of each element.
template <class F>
Owned list_by(const std::byte* p, std::int64_t n, std::int64_t step, F make) {
  Owned list(check(PyList_New(n)));
  for (std::int64_t i = 0; i < n; ++i) PyList_SET_ITEM(list.get(), i, check(make(p + i * step)));
  return list;
}

Owned list_of(const TensorImpl& t, int axis, const std::byte* p) {
  if (axis == t.ndim()) return Owned(check(element(t.dtype(), p)));
  const std::int64_t n = t.shape()[static_cast<std::size_t>(axis)];
  const std::int64_t step =
      t.strides()[static_cast<std::size_t>(axis)] * static_cast<std::int64_t>(itemsize(t.dtype()));
  if (axis + 1 == t.ndim()) {
    const Dtype dtype = t.dtype();
    // Without a question for each element.
    if (dtype == Dtype::float32) return list_by(p, n, step, [](auto* e) { return PyFloat_FromDouble(load<float>(e)); });
    if (dtype == Dtype::float64)
      return list_by(p, n, step, [](auto* e) { return PyFloat_FromDouble(load<double>(e)); });
    return list_by(p, n, step, [&](auto* e) { return element(dtype, e); });
  }
  Owned list(check(PyList_New(n)));
  for (std::int64_t i = 0; i < n; ++i) PyList_SET_ITEM(list.get(), i, list_of(t, axis + 1, p + i * step).leak());
  return list;
}

/// The only element of a tensor without dimensions, on the CPU.
TensorRef only_element(const TensorImpl& t, const char* python_type) {
  if (t.ndim() != 0) {
    throw TypeError(std::string(python_type) + "(): only a tensor without dimensions becomes a Python " + python_type +
                        ", and this one has shape " + to_string(t.shape()) + "; write " +
                        (t.numel() == 1 ? "x.item()" : "an index, x.tolist() or a reduction"),
                    {{"shape", to_vector(t.shape())}});
  }
  return on_host(t, python_type);
}

[[noreturn]] void throw_complex(const TensorImpl& t, const char* python_type) {
  throw TypeError(std::string(python_type) + "(): a " + std::string(name(t.dtype())) +
                  " tensor does not become a Python " + python_type + "; take hl.real(x) or hl.imag(x)");
}

}  // namespace

PyObject* tolist(TensorImpl* t) {
  const TensorRef here = on_host(*t, "tolist");
  return list_of(*here, 0, host_address(*here)).leak();
}

std::int64_t whole_item(const TensorImpl& t) {
  std::int64_t value;
  const TensorRef here = on_host(t, "item");
  std::memcpy(&value, host_address(*here), sizeof value);
  return value;
}

PyObject* item(TensorImpl* t) {
  if (t->numel() != 1) {
    throw ValueError("item(): only a tensor of one element becomes a Python number, and this one has shape " +
                         to_string(t->shape()) + "; write an index first, or x.tolist()",
                     {{"shape", to_vector(t->shape())}});
  }
  const TensorRef here = on_host(*t, "item");
  return check(element(t->dtype(), host_address(*here)));
}

bool to_bool(TensorImpl* t) {
  const TensorRef here = only_element(*t, "bool");
  const std::byte* p = host_address(*here);
  const Owned number(check(element(t->dtype(), p)));
  const int truth = PyObject_IsTrue(number.get());
  if (truth < 0) throw PythonError();
  return truth != 0;
}

PyObject* to_int(TensorImpl* t) {
  const TensorRef here = only_element(*t, "int");
  const std::byte* p = host_address(*here);
  if (is_complex(t->dtype())) throw_complex(*t, "int");
  const Owned number(check(element(t->dtype(), p)));
  return check(PyNumber_Long(number.get()));
}

PyObject* to_float(TensorImpl* t) {
  const TensorRef here = only_element(*t, "float");
  const std::byte* p = host_address(*here);
  if (is_complex(t->dtype())) throw_complex(*t, "float");
  Owned number(check(element(t->dtype(), p)));
  return PyFloat_CheckExact(number.get()) ? number.leak() : check(PyNumber_Float(number.get()));
}

PyObject* to_complex(TensorImpl* t) {
  const TensorRef here = only_element(*t, "complex");
  const std::byte* p = host_address(*here);
  if (is_complex(t->dtype())) return check(element(t->dtype(), p));
  const Owned number(check(element(t->dtype(), p)));
  const double real = PyFloat_AsDouble(number.get());
  if (real == -1.0 && PyErr_Occurred() != nullptr) throw PythonError();
  return check(PyComplex_FromDoubles(real, 0));
}

PyObject* to_index(TensorImpl* t) {
  const TensorRef here = only_element(*t, "int");
  const std::byte* p = host_address(*here);
  if (kind(t->dtype()) != Kind::integer) {
    throw TypeError("index(): a " + std::string(name(t->dtype())) +
                    " tensor is no index; write int(x), or an integer dtype");
  }
  return check(element(t->dtype(), p));
}

}  // namespace hyalite::python
