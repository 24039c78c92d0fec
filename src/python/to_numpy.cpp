/// Tensors as NumPy arrays and as buffers, over the same memory.
#include <array>
#include <bit>

#include "compute/backend.h"
#include "python/foreign.h"
#include "python/interop.h"
#include "record/autograd_meta.h"

namespace hyalite::python {
namespace {

// An address for buffers without bytes, which consumers take badly as null.
std::byte no_bytes{};

/// First and last byte of the elements, counted from `data()`.
struct Span {
  std::int64_t low = 0, high = 0;
};

Span span_of(const TensorImpl& t) {
  if (t.numel() == 0) return {};
  Span s;
  const std::int64_t size = static_cast<std::int64_t>(itemsize(t.dtype()));
  for (std::size_t i = 0; i < t.shape().size(); ++i) {
    const std::int64_t reach = t.strides()[i] * (t.shape()[i] - 1) * size;
    (reach < 0 ? s.low : s.high) += reach;
  }
  s.high += size;
  return s;
}

// ---- the bytes of a tensor as an object ----

/// The base of an ndarray over a tensor: it keeps the tensor, and hands out its bytes as they lie.
struct MemoryObject {
  PyObject_HEAD Loan* loan;
};

void memory_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  delete reinterpret_cast<MemoryObject*>(self)->loan;
  type->tp_free(self);
  Py_DECREF(type);
}

int memory_get_buffer(PyObject* self, Py_buffer* view, int flags) {
  const Loan& loan = *reinterpret_cast<MemoryObject*>(self)->loan;
  const TensorImpl& t = loan.tensor();
  const Span span = span_of(t);
  std::byte* first = t.numel() == 0 ? &no_bytes : host_address(t) + span.low;
  return PyBuffer_FillInfo(view, self, first, span.high - span.low, loan.writable() ? 0 : 1, flags);
}

PyTypeObject* memory_type() {
  static PyTypeObject* type = nullptr;
  if (type == nullptr) {
    static PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(memory_dealloc)},
                                  {Py_bf_getbuffer, reinterpret_cast<void*>(memory_get_buffer)},
                                  {Py_tp_doc, const_cast<char*>("The memory of a tensor, kept by an array over it.")},
                                  {0, nullptr}};
    static PyType_Spec spec{"hyalite.Memory", sizeof(MemoryObject), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
    type = reinterpret_cast<PyTypeObject*>(check(PyType_FromSpec(&spec)));
  }
  return type;
}

Owned memory_of(TensorImpl* t) {
  PyTypeObject* type = memory_type();
  Owned memory(check(type->tp_alloc(type, 0)));
  reinterpret_cast<MemoryObject*>(memory.get())->loan = new Loan(TensorRef::share(t));
  return memory;
}

Owned tuple_of(Dims dims, std::int64_t factor) {
  Owned tuple(check(PyTuple_New(static_cast<Py_ssize_t>(dims.size()))));
  for (std::size_t i = 0; i < dims.size(); ++i) {
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), check(PyLong_FromLongLong(dims[i] * factor)));
  }
  return tuple;
}

/// Whether only ml_dtypes has the dtype.
bool is_ml_dtype(Dtype t) { return t == Dtype::bfloat16 || (is_floating(t) && itemsize(t) == 1); }

Owned numpy_dtype(Dtype t) {
  const std::string text(name(t));
  if (!is_ml_dtype(t)) return Owned(check(PyUnicode_FromString(text.c_str())));
  const Owned module(PyImport_ImportModule("ml_dtypes"));
  if (!module) {
    if (!PyErr_ExceptionMatches(PyExc_ImportError)) throw PythonError();
    PyErr_Clear();
    PyErr_Format(
        PyExc_ImportError,
        "numpy(): NumPy knows %s only through the package ml_dtypes; install it, or write x.astype(hl.float32)",
        text.c_str());
    throw PythonError();
  }
  return Owned(check(PyObject_GetAttrString(module.get(), text.c_str())));
}

// ---- the buffer protocol ----

/// What an export holds until it is released.
struct Exported {
  explicit Exported(TensorImpl* t) : loan(TensorRef::share(t)) {}
  Loan loan;
  std::array<Py_ssize_t, 2 * max_rank> dims;
};

/// The code of the module struct for a dtype; NumPy's for complex, null where there is none.
const char* format_of(Dtype t) {
  static_assert(sizeof(long) == 8 || sizeof(long long) == 8);
  constexpr bool long_is_64 = sizeof(long) == 8;
  constexpr std::array<const char*, dtype_count> formats{"?",
                                                         "b",
                                                         "h",
                                                         "i",
                                                         long_is_64 ? "l" : "q",
                                                         "B",
                                                         "H",
                                                         "I",
                                                         long_is_64 ? "L" : "Q",
                                                         "e",
                                                         nullptr,
                                                         "f",
                                                         "d",
                                                         "Zf",
                                                         "Zd",
                                                         nullptr,
                                                         nullptr};
  return formats[static_cast<std::size_t>(t)];
}

/// Fills `view`; throws BufferError where the flags ask for what the tensor is not.
void fill_view(PyObject* self, Py_buffer* view, int flags) {
  const auto wants = [flags](int flag) { return (flags & flag) == flag; };
  TensorImpl* t = impl_of(self);
  const char* format = format_of(t->dtype());
  if (wants_grad(*t)) throw BufferError("buffer: the tensor requires a gradient; write x.detach()");
  if (t->device().kind != DeviceKind::cpu) throw BufferError("buffer: the tensor lies on " + to_string(t->device()));
  if (format == nullptr) {
    throw BufferError("buffer: the buffer protocol has no code for " + std::string(name(t->dtype())) +
                      "; write x.numpy()");
  }
  auto e = std::make_unique<Exported>(t);
  const bool read_only = !e->loan.writable();
  if (wants(PyBUF_WRITABLE) && read_only) {
    throw BufferError(t->storage()->read_only() ? "buffer: the tensor is read-only"
                                                : "buffer: a stride of 0 repeats elements, so the memory is read-only; "
                                                  "write x.copy()");
  }
  const int n = t->ndim();
  const std::int64_t size = static_cast<std::int64_t>(itemsize(t->dtype()));
  view->buf = t->numel() == 0 ? &no_bytes : host_address(*t);
  view->len = t->nbytes();
  view->itemsize = size;
  view->readonly = read_only ? 1 : 0;
  view->ndim = n;
  view->format = wants(PyBUF_FORMAT) ? const_cast<char*>(format) : nullptr;
  view->shape = e->dims.data();
  view->strides = e->dims.data() + n;
  view->suboffsets = nullptr;
  for (int i = 0; i < n; ++i) {
    view->shape[i] = t->shape()[static_cast<std::size_t>(i)];
    view->strides[i] = t->strides()[static_cast<std::size_t>(i)] * size;
  }
  const bool c = PyBuffer_IsContiguous(view, 'C') != 0, fortran = PyBuffer_IsContiguous(view, 'F') != 0;
  if ((wants(PyBUF_C_CONTIGUOUS) && !c) || (wants(PyBUF_F_CONTIGUOUS) && !fortran) ||
      (wants(PyBUF_ANY_CONTIGUOUS) && !c && !fortran) || (!wants(PyBUF_STRIDES) && !c)) {
    throw BufferError(
        "buffer: the tensor does not lie densely in the order that was asked for; write hl.asarray(x, copy=True)");
  }
  if (!wants(PyBUF_STRIDES)) view->strides = nullptr;
  if (!wants(PyBUF_ND)) {
    view->shape = nullptr;
    if (n > 1) view->ndim = 1;
  }
  view->internal = e.release();
  Py_INCREF(self);
  view->obj = self;
}

}  // namespace

int get_buffer(PyObject* self, Py_buffer* view, int flags) noexcept {
  view->obj = nullptr;
  try {
    fill_view(self, view, flags);
    return 0;
  } catch (...) {
    raise_current();
    return -1;
  }
}

void release_buffer(PyObject*, Py_buffer* view) noexcept {
  delete static_cast<Exported*>(view->internal);
  view->internal = nullptr;
}

namespace {

/// What NumPy has by that name, kept from the first time it is asked for.
PyObject* from_numpy(const char* name, PyObject*& kept) {
  if (kept == nullptr) {
    // No static with an initialiser: the import lets other threads run, who would wait for it with the GIL held.
    const Owned numpy(check(PyImport_ImportModule("numpy")));
    kept = check(PyObject_GetAttrString(numpy.get(), name));
  }
  return kept;
}

/// NumPy's object for the dtype, kept likewise.
PyObject* dtype_object_of(Dtype t) {
  static PyObject* type = nullptr;
  static std::array<PyObject*, dtype_count> kept{};
  PyObject*& object = kept[static_cast<std::size_t>(t)];
  if (object == nullptr) object = check(PyObject_CallOneArg(from_numpy("dtype", type), numpy_dtype(t).get()));
  return object;
}

}  // namespace

PyObject* to_numpy(TensorImpl* t) {
  static PyObject* ndarray = nullptr;
  need_no_gradient(*t, "numpy");
  need_host(*t, "numpy");
  const Owned memory = memory_of(t);
  const Owned shape = tuple_of(t->shape(), 1);
  const Owned offset(check(PyLong_FromLongLong(-span_of(*t).low)));
  // NumPy checks strides against the bytes also where there are no elements to reach.
  const std::int64_t size = static_cast<std::int64_t>(itemsize(t->dtype()));
  const Owned strides = tuple_of(t->numel() == 0 ? Dims(row_major(t->shape())) : t->strides(), size);
  PyObject* const args[] = {shape.get(), dtype_object_of(t->dtype()), memory.get(), offset.get(), strides.get()};
  return check(PyObject_Vectorcall(from_numpy("ndarray", ndarray), args, std::size(args), nullptr));
}

PyObject* array_interface(TensorImpl* t) {
  const auto refuse = [](const std::string& why) {
    PyErr_SetString(PyExc_AttributeError, ("__array_interface__: " + why).c_str());
    throw PythonError();
  };
  if (wants_grad(*t)) refuse("the tensor requires a gradient; write x.detach()");
  if (t->device().kind != DeviceKind::cpu) refuse("the tensor lies on " + to_string(t->device()));
  if (is_ml_dtype(t->dtype())) refuse("no code for " + std::string(name(t->dtype())) + "; write x.numpy()");
  const Dtype d = t->dtype();
  const std::int64_t size = static_cast<std::int64_t>(itemsize(d));
  const char kind = d == Dtype::boolean ? 'b'
                    : is_complex(d)     ? 'c'
                    : is_floating(d)    ? 'f'
                    : info(d).is_signed ? 'i'
                                        : 'u';
  const char order = size == 1 ? '|' : std::endian::native == std::endian::little ? '<' : '>';
  const std::string type = std::string{order, kind} + std::to_string(size);
  const Owned shape = tuple_of(t->shape(), 1);
  const Owned strides = t->contiguous() ? Owned::borrow(Py_None) : tuple_of(t->strides(), size);
  const void* data = t->numel() == 0 ? &no_bytes : host_address(*t);
  // Nobody says when the address is out of use, so what comes back counts writes with it, and that is all.
  t->storage()->lend(false);
  return check(Py_BuildValue("{s:s,s:O,s:(NO),s:O,s:i}", "typestr", type.c_str(), "shape", shape.get(), "data",
                             PyLong_FromVoidPtr(const_cast<void*>(data)), read_only_outside(*t) ? Py_True : Py_False,
                             "strides", strides.get(), "version", 3));
}

PyObject* to_bytes(TensorImpl* t) {
  need_host(*t, "tobytes");
  const TensorRef dense = t->contiguous() ? TensorRef::share(t) : copy_of(*t, t->dtype());
  return check(PyBytes_FromStringAndSize(reinterpret_cast<const char*>(host_address(*dense)), dense->nbytes()));
}

PyObject* array_protocol(TensorImpl* t, PyObject* dtype, PyObject* copy) {
  Owned array(to_numpy(t));
  const int copies = copy == nullptr || copy == Py_None ? -1 : PyObject_IsTrue(copy);
  if (copies < 0 && PyErr_Occurred() != nullptr) throw PythonError();
  if (dtype != nullptr && dtype != Py_None) {
    const Owned numpy(check(PyImport_ImportModule("numpy")));
    const Owned wanted(check(PyObject_CallMethod(numpy.get(), "dtype", "O", dtype)));
    const Owned own(check(PyObject_GetAttrString(array.get(), "dtype")));
    const int same = PyObject_RichCompareBool(own.get(), wanted.get(), Py_EQ);
    if (same < 0) throw PythonError();
    if (same == 0) {
      if (copies == 0) {
        throw ValueError("__array__(): copy=False, but " + std::string(name(t->dtype())) +
                         " has to become another dtype; write copy=None");
      }
      return check(PyObject_CallMethod(array.get(), "astype", "O", wanted.get()));
    }
  }
  return copies == 1 ? check(PyObject_CallMethod(array.get(), "copy", nullptr)) : array.leak();
}

}  // namespace hyalite::python
