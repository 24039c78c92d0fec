/// Python numbers and nested lists into tensors.
#include <cfloat>
#include <cmath>
#include <limits>
#include <vector>

#include "apply.h"
#include "compute/backend.h"
#include "python/arguments.h"
#include "python/foreign.h"
#include "python/interop.h"
#include "python/promote.h"
#include "record/autograd_meta.h"
#include "tensor/context.h"

namespace hyalite::python {
namespace {

/// Whether values of the kind go into the dtype unasked. Anything goes into bool, by comparing with 0.
bool goes_into(Kind k, Dtype t) { return k <= kind(t) || t == Dtype::boolean; }

const char* python_name(Kind k) {
  constexpr const char* names[] = {"bool", "int", "float", "complex"};
  return names[static_cast<int>(k)];
}

// ---- numbers ----

/// An int as text; Python refuses to print very long ones.
std::string text_of_int(PyObject* i, int beyond) {
  if (beyond != 0) return beyond > 0 ? "an int of more than 64 bits" : "a negative int of more than 64 bits";
  const Owned s(PyObject_Str(i));
  const char* text = s ? PyUnicode_AsUTF8(s.get()) : nullptr;
  if (text == nullptr) PyErr_Clear();
  return text != nullptr ? text : "an int";
}

[[noreturn]] void throw_does_not_fit(PyObject* o, int beyond, Dtype dtype, const char* op) {
  const std::string type_name(name(dtype));
  throw OverflowError(std::string(op) + "(): " + text_of_int(o, beyond) + " does not fit " + type_name +
                          "; write a wider dtype, or hl.float32",
                      {{"dtype", type_name}});
}

}  // namespace

bool scalar_from(PyObject* o, Scalar& to, int& beyond) noexcept {
  beyond = 0;
  if (PyFloat_Check(o)) {
    to = Scalar(PyFloat_AS_DOUBLE(o));
    return true;
  }
  if (PyBool_Check(o)) {
    to = Scalar(o == Py_True);
    return true;
  }
  if (PyLong_Check(o)) {
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(o, &overflow);
    to = Scalar(value);
    if (overflow < 0) {
      to = Scalar(std::numeric_limits<std::int64_t>::min());
      beyond = -1;
    } else if (overflow > 0) {
      unsigned long long unsigned_value = PyLong_AsUnsignedLongLong(o);
      if (PyErr_Occurred() != nullptr) {
        PyErr_Clear();
        unsigned_value = std::numeric_limits<std::uint64_t>::max();
        beyond = 1;
      }
      to = Scalar(unsigned_value);
    }
    return true;
  }
  if (PyComplex_Check(o)) {
    const Py_complex z = PyComplex_AsCComplex(o);
    to = Scalar(std::complex<double>(z.real, z.imag));
    return true;
  }
  return false;
}

double large_int(PyObject* i, Dtype to) {
  const double nearest = PyLong_AsDouble(i);
  if (nearest == -1.0 && PyErr_Occurred() != nullptr) throw PythonError();
  if (itemsize(real_part(to)) == 8) return nearest;
  // Rounded to odd, the double tells the second rounding on which side of a tie the int lies.
  const Owned back(check(PyLong_FromDouble(nearest)));
  const int exact = PyObject_RichCompareBool(back.get(), i, Py_EQ);
  const int above = PyObject_RichCompareBool(back.get(), i, Py_GT);
  if (exact < 0 || above < 0) throw PythonError();
  if (exact != 0) return nearest;
  const double toward_zero = (above != 0) == (nearest > 0) ? std::nextafter(nearest, 0.0) : nearest;
  std::uint64_t bits;
  std::memcpy(&bits, &toward_zero, sizeof bits);
  bits |= 1;
  double odd;
  std::memcpy(&odd, &bits, sizeof odd);
  return odd;
}

Dtype default_dtype(const Scalar& s, int beyond, const char* op) {
  if (beyond != 0) {
    throw OverflowError(std::string(op) +
                        "(): an int does not fit int64, nor uint64; write a float, or dtype=hl.float64");
  }
  return s.is_unsigned ? Dtype::uint64 : default_dtype(s.kind);
}

void encode_number(PyObject* o, Dtype dtype, std::byte* to, const char* op) {
  // The two commonest need no table.
  if (dtype == Dtype::float32 && PyFloat_CheckExact(o)) {
    const float x = static_cast<float>(PyFloat_AS_DOUBLE(o));
    std::memcpy(to, &x, sizeof x);
    return;
  }
  if (dtype == Dtype::float64 && PyFloat_CheckExact(o)) {
    const double x = PyFloat_AS_DOUBLE(o);
    std::memcpy(to, &x, sizeof x);
    return;
  }
  Scalar s;
  int beyond;
  if (!scalar_from(o, s, beyond)) {
    throw TypeError(std::string(op) + "(): an object of type '" + Py_TYPE(o)->tp_name + "' is no number");
  }
  if (!goes_into(s.kind, dtype)) {
    const std::string type_name(name(dtype)), scalar_name(python_name(s.kind));
    throw TypeError(std::string(op) + "(): a Python " + scalar_name + " does not go into " + type_name + "; write " +
                        (s.kind == Kind::complex ? "x.real" : "int(x)") + ", or cast with .astype(hl." + type_name +
                        ")",
                    {{"dtype", type_name}});
  }
  if (s.kind == Kind::integer && kind(dtype) == Kind::integer && (beyond != 0 || !fits(s, dtype))) {
    throw_does_not_fit(o, beyond, dtype, op);
  }
  if (beyond != 0 && kind(dtype) >= Kind::floating) {
    try {
      s = Scalar(large_int(o, dtype));
    } catch (const PythonError&) {
      if (PyErr_ExceptionMatches(PyExc_OverflowError) == 0) throw;
      PyErr_Clear();
      throw OverflowError(std::string(op) + "(): " + int_text(o) + " is beyond every float; write float(\"inf\")");
    }
  }
  encode_scalar(s, dtype, to);
}

namespace {

// ---- nested lists ----

bool is_sequence(PyObject* o) { return PyList_Check(o) || PyTuple_Check(o) || PyRange_Check(o); }

/// Reads nested lists twice: for the shape and the dtype, then for the values. An element that is an array can run code
/// of its own, which might change the lists; therefore the second reading checks every length again.
class NestedLists {
 public:
  explicit NestedLists(PyObject* root) : root_(root) { scan(root, 0); }

  /// `wanted`, after a check that every array may go there, or what the elements become together.
  Dtype dtype(std::optional<Dtype> wanted) const {
    if (wanted) {
      for (const TensorRef& a : arrays_) {
        if (goes_into(kind(a->dtype()), *wanted)) continue;
        const std::string from(name(a->dtype())), to(name(*wanted));
        throw TypeError(
            "asarray(): a " + from + " array in a list does not go into " + to + "; write x.astype(hl." + to + ")",
            {{"from_dtype", from}, {"to_dtype", to}});
      }
      return *wanted;
    }
    if (!arrays_.empty()) {
      std::vector<Dtype> dtypes;
      for (const TensorRef& a : arrays_) dtypes.push_back(a->dtype());
      const Dtype together = promote(dtypes, "asarray");
      return numbers_ ? promote_weak(together, highest_) : together;
    }
    if (!numbers_) return Dtype::float32;
    if (highest_ != Kind::integer || !(large_ || beyond_)) return default_dtype(highest_);
    if (beyond_ || negative_) {
      throw OverflowError(
          "asarray(): the ints of the list fit neither int64 nor uint64 together; write dtype=hl.float64");
    }
    return Dtype::uint64;
  }

  TensorRef read(Dtype dtype) {
    result_ = host_empty(dtype, shape_);
    dtype_ = dtype;
    next_array_ = 0;
    fill(root_, 0, host_address(*result_));
    if (next_array_ != arrays_.size()) throw_changed();
    return result_;
  }

  bool needs_gradient() const { return needs_gradient_; }

 private:
  [[noreturn]] static void throw_changed() { throw ValueError("asarray(): a list changed while it was read"); }

  [[noreturn]] void throw_ragged(int axis, std::int64_t size) const {
    std::string what = "a number stands beside a list";
    if (axis < shape_.size() && size >= 0) {
      what = "axis " + std::to_string(axis) + " has size " + std::to_string(shape_[axis]) + " in one place and " +
             std::to_string(size) + " in another";
    }
    throw ValueError("asarray(): ragged nested lists: " + what + "; lists of one level need the same length",
                     {{"axis", std::int64_t{axis}}});
  }

  void scan(PyObject* o, int depth) {
    if (is_sequence(o)) return scan_sequence(o, depth);
    Scalar s;
    int beyond;
    if (scalar_from(o, s, beyond)) {
      leaf(depth, {});
      numbers_ = true;
      highest_ = std::max(highest_, s.kind);
      if (s.kind == Kind::integer) {
        beyond_ |= beyond != 0;
        large_ |= s.is_unsigned;
        negative_ |= s.integer < 0 && !s.is_unsigned;
      }
      return;
    }
    TensorRef t = is_tensor(o) ? TensorRef::share(impl_of(o)) : from_object(o, std::nullopt, std::nullopt);
    if (!t) {
      throw TypeError("asarray(): an object of type '" + std::string(Py_TYPE(o)->tp_name) +
                      "' in a list is no number; write numbers, lists of equal length or arrays");
    }
    leaf(depth, t->shape());
    needs_gradient_ |= wants_grad(*t);
    arrays_.push_back(std::move(t));
  }

  void scan_sequence(PyObject* o, int depth) {
    if (depth == max_rank) throw ValueError("asarray(): lists nested more than 64 deep");
    const Owned sequence(check(PySequence_Fast(o, "")));
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(sequence.get());
    if (depth < shape_.size()) {
      if (shape_[depth] != n) throw_ragged(depth, n);
    } else if (leaf_seen_) {
      throw_ragged(depth, -1);
    } else {
      shape_.push_back(n);
    }
    for (Py_ssize_t i = 0; i < n; ++i) {
      if (PySequence_Fast_GET_SIZE(sequence.get()) != n) throw_changed();
      const Owned element = Owned::borrow(PySequence_Fast_GET_ITEM(sequence.get(), i));
      scan(element.get(), depth + 1);
    }
  }

  /// An element of the given shape at this depth: the first one fixes how deep the lists go.
  void leaf(int depth, Dims shape) {
    const int end = depth + static_cast<int>(shape.size());
    for (int i = depth; i < end; ++i) {
      const std::int64_t size = shape[static_cast<std::size_t>(i - depth)];
      if (i < shape_.size()) {
        if (shape_[i] != size) throw_ragged(i, size);
      } else if (leaf_seen_) {
        throw_ragged(i, -1);
      } else {
        shape_.push_back(size);
      }
    }
    if (end != shape_.size()) throw_ragged(end, -1);
    leaf_seen_ = true;
  }

  void fill(PyObject* o, int depth, std::byte* to) {
    if (is_sequence(o)) {
      if (depth >= shape_.size()) throw_changed();
      const Owned sequence(check(PySequence_Fast(o, "")));
      const Py_ssize_t n = shape_[depth];
      const std::int64_t step =
          result_->strides()[static_cast<std::size_t>(depth)] * static_cast<std::int64_t>(itemsize(dtype_));
      if (PySequence_Fast_GET_SIZE(sequence.get()) != n) throw_changed();
      for (Py_ssize_t i = 0; i < n; ++i) {
        // Making a list of a range can run the garbage collector, and that the code of others.
        if (PySequence_Fast_GET_SIZE(sequence.get()) != n) throw_changed();
        const Owned element = Owned::borrow(PySequence_Fast_GET_ITEM(sequence.get(), i));
        fill(element.get(), depth + 1, to + i * step);
      }
    } else if (PyFloat_Check(o) || PyLong_Check(o) || PyComplex_Check(o)) {
      if (depth != shape_.size()) throw_changed();
      encode_number(o, dtype_, to, "asarray");
    } else {
      fill_array(depth, to);
    }
  }

  void fill_array(int depth, std::byte* to) {
    if (next_array_ == arrays_.size()) throw_changed();
    const TensorImpl& from = *arrays_[next_array_++];
    const Dims rest = Dims(result_->shape()).subspan(static_cast<std::size_t>(std::min(depth, shape_.size())));
    if (!same_dims(from.shape(), rest)) throw_changed();
    if (from.numel() == 0) return;
    const std::int64_t offset = (to - host_address(*result_)) / static_cast<std::int64_t>(itemsize(dtype_));
    const TensorRef part =
        TensorImpl::make(dtype_, from.device(), rest, row_major(rest), result_->storage_ref(), offset);
    copy_into(from, *part);
  }

  PyObject* root_;
  DimList shape_;
  std::vector<TensorRef> arrays_;
  std::size_t next_array_ = 0;
  Kind highest_ = Kind::boolean;
  bool leaf_seen_ = false, numbers_ = false, needs_gradient_ = false;
  bool beyond_ = false, large_ = false, negative_ = false;
  TensorRef result_;
  Dtype dtype_ = Dtype::float32;
};

// ---- through ops, where a gradient has to follow ----

TensorRef ref_of(Tensor t) { return TensorRef::adopt(t.leak()); }

/// astype as an op: recorded, and always new memory.
TensorRef cast(TensorImpl* t, Dtype dtype) { return ref_of(astype(Tensor::share(t), dtype)); }

/// Nested lists with tensors that require a gradient, joined level by level.
Tensor joined(PyObject* o, Dtype dtype) {
  if (!is_sequence(o)) return Tensor::adopt(asarray(o, dtype, std::nullopt).leak());
  const Owned sequence(check(PySequence_Fast(o, "")));
  std::vector<Tensor> rows;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence.get()); ++i) {
    const Owned element = Owned::borrow(PySequence_Fast_GET_ITEM(sequence.get(), i));
    const Tensor row = joined(element.get(), dtype);
    Shape shape = to_vector(row.shape());
    shape.insert(shape.begin(), 1);
    rows.push_back(reshape(row, shape));
  }
  if (rows.empty()) return Tensor::adopt(host_empty(dtype, DimList{0}).leak());
  return concat(rows, 0);
}

TensorRef from_tensor(TensorImpl* t, std::optional<Dtype> dtype, std::optional<bool> copy) {
  const bool casts = dtype && *dtype != t->dtype();
  if (casts && copy == false) {
    throw_copy_needed(Border::asarray, std::string(name(t->dtype())) + " has to become " + std::string(name(*dtype)));
  }
  return casts || copy == true ? cast(t, dtype.value_or(t->dtype())) : TensorRef::share(t);
}

}  // namespace

TensorRef asarray(PyObject* obj, std::optional<Dtype> dtype, std::optional<bool> copy) {
  if (is_tensor(obj)) return from_tensor(impl_of(obj), dtype, copy);
  Scalar s;
  int beyond;
  const bool number = scalar_from(obj, s, beyond);
  if (copy == false && (number || is_sequence(obj))) {
    throw_copy_needed(Border::asarray, "numbers and lists have no memory to share");
  }
  if (number) {
    const Dtype to = dtype ? *dtype : default_dtype(s, beyond, "asarray");
    TensorRef t = host_empty(to, {});
    encode_number(obj, to, host_address(*t), "asarray");
    return t;
  }
  if (is_sequence(obj)) {
    NestedLists lists(obj);
    const Dtype to = lists.dtype(dtype);
    if (lists.needs_gradient() && context().grad_mode) return ref_of(joined(obj, to));
    return lists.read(to);
  }
  TensorRef t;
  if (!PyUnicode_Check(obj)) t = from_object(obj, dtype, copy);
  if (t) return t;
  throw TypeError("asarray(): an object of type '" + std::string(Py_TYPE(obj)->tp_name) +
                  "' is no tensor; write a number, nested lists of numbers, or an object with a buffer, "
                  "__array_interface__ or __dlpack__");
}

}  // namespace hyalite::python
