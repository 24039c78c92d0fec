/// Operators between tensors and objects of other libraries.
#include "python/others.h"

#include <string_view>

#include "python/interop.h"
#include "record/autograd_meta.h"

namespace hyalite::python {
namespace {

struct Operator {
  Slot slot;
  const char* reflected;
  PyObject* (*apply)(PyObject*, PyObject*);
};

template <int how>
PyObject* compare(PyObject* x, PyObject* y) {
  return PyObject_RichCompare(x, y, how);
}

constexpr Operator operators[] = {
    {Slot::add, "__radd__", PyNumber_Add},
    {Slot::subtract, "__rsub__", PyNumber_Subtract},
    {Slot::multiply, "__rmul__", PyNumber_Multiply},
    {Slot::true_divide, "__rtruediv__", PyNumber_TrueDivide},
    {Slot::floor_divide, "__rfloordiv__", PyNumber_FloorDivide},
    {Slot::remainder, "__rmod__", PyNumber_Remainder},
    {Slot::divmod, "__rdivmod__", PyNumber_Divmod},
    {Slot::power, "__rpow__", [](PyObject* x, PyObject* y) { return PyNumber_Power(x, y, Py_None); }},
    {Slot::matmul, "__rmatmul__", PyNumber_MatrixMultiply},
    {Slot::left_shift, "__rlshift__", PyNumber_Lshift},
    {Slot::right_shift, "__rrshift__", PyNumber_Rshift},
    {Slot::bitwise_and, "__rand__", PyNumber_And},
    {Slot::bitwise_or, "__ror__", PyNumber_Or},
    {Slot::bitwise_xor, "__rxor__", PyNumber_Xor},
    {Slot::less, "__gt__", compare<Py_LT>},
    {Slot::less_equal, "__ge__", compare<Py_LE>},
    {Slot::equal, "__eq__", compare<Py_EQ>},
    {Slot::not_equal, "__ne__", compare<Py_NE>},
    {Slot::greater, "__lt__", compare<Py_GT>},
    {Slot::greater_equal, "__le__", compare<Py_GE>},
};

/// The attribute of an object, or null without an exception.
Owned attribute(PyObject* o, const char* name) noexcept {
  Owned found(PyObject_GetAttrString(o, name));
  if (!found) PyErr_Clear();
  return found;
}

}  // namespace

Owned loaded(const char* module, const char* name) noexcept {
  const Owned module_name(PyUnicode_FromString(module));
  const Owned found(module_name ? PyImport_GetModule(module_name.get()) : nullptr);
  if (!found) PyErr_Clear();
  return found ? attribute(found.get(), name) : Owned();
}

namespace {

bool is_number(PyObject* o) {
  const Owned number(loaded("numbers", "Number"));
  const int is = number ? PyObject_IsInstance(o, number.get()) : 0;
  if (is < 0) throw PythonError();
  return is != 0;
}

/// By the operator of NumPy's array over the tensor's memory. A comparison has no gradient to lose.
PyObject* as_array(const Operator& how, PyObject* x, PyObject* y) {
  const auto given = [&](PyObject* o) {
    if (!is_tensor(o)) return Owned::borrow(o);
    TensorImpl& t = *impl_of(o);
    return Owned(check(to_numpy(how.slot < Slot::less ? &t : detached(t).get())));
  };
  const Owned left = given(x), right = given(y);
  return check(how.apply(left.get(), right.get()));
}

}  // namespace

bool has_own_rules(PyObject* o) noexcept {
  if (PyType_Check(o)) return false;
  const Owned ufunc = attribute(o, "__array_ufunc__");
  if (!ufunc || ufunc.get() == Py_None) return false;
  const Owned priority = attribute(o, "__array_priority__");
  const double p = priority ? PyFloat_AsDouble(priority.get()) : 0;
  PyErr_Clear();
  return p > 0;
}

PyObject* by_other_rules(const OpInfo& op, PyObject* x, PyObject* y, bool in_place) {
  PyObject* other = is_tensor(x) ? y : x;
  if (!in_place && has_own_rules(other)) {
    for (const Operator& how : operators) {
      if (how.slot != op.schema.slot) continue;
      // A class on the left was asked before us; an ndarray's methods raise where others decline.
      const Owned method =
          other == x || attribute(other, "__array_interface__") ? Owned() : attribute(other, how.reflected);
      if (!method) return as_array(how, x, y);
      Owned result(check(PyObject_CallOneArg(method.get(), x)));
      return result.get() != Py_NotImplemented ? result.leak() : as_array(how, x, y);
    }
  }
  if (is_number(other)) {
    const std::string_view path = Py_TYPE(other)->tp_name;
    throw TypeError(std::string(op.name()) + "(): a " + std::string(path.substr(path.rfind('.') + 1)) +
                        " has no dtype that a tensor could take it in; write float(x)",
                    {{"op", std::string(op.name())}});
  }
  Py_RETURN_NOTIMPLEMENTED;
}

void refuse_masked(PyObject* o, const char* op) {
  const Owned masked_array = loaded("numpy.ma", "MaskedArray");
  const int is = masked_array ? PyObject_IsInstance(o, masked_array.get()) : 0;
  if (is < 0) throw PythonError();
  if (is == 0) return;
  const Owned count_masked = loaded("numpy.ma", "count_masked");
  const Owned masked(check(PyObject_CallOneArg(check(count_masked.get()), o)));
  const long count = PyLong_AsLong(masked.get());
  if (count == -1 && PyErr_Occurred() != nullptr) throw PythonError();
  if (count == 0) return;
  throw ValueError(std::string(op) + "(): " + std::to_string(count) + " of the array's elements " +
                       (count == 1 ? "is" : "are") +
                       " masked, and a tensor has no mask; write x.filled(value), or x.data for what lies below it",
                   {{"masked", std::int64_t{count}}});
}

}  // namespace hyalite::python
