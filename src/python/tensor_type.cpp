/// The Python object of a tensor: pooled, weakly known to its handle, visible to the garbage collector when it must be.
#include "python/tensor_type.h"

#include <structmember.h>

#include <algorithm>
#include <vector>

#include "python/arguments.h"
#include "python/format.h"
#include "python/interop.h"
#include "record/autograd_meta.h"

namespace hyalite::python {

PyTypeObject* tensor_type = nullptr;

namespace {

// Objects of the exact type wait here for the next result. Guarded by the GIL.
constexpr int most_spare = 64;
TensorObject* spare[most_spare];
int spare_count = 0;

TensorObject* allocate() {
  if (spare_count > 0) {
    TensorObject* o = spare[--spare_count];
    Py_INCREF(tensor_type);
    _Py_NewReference(reinterpret_cast<PyObject*>(o));
    return o;
  }
  return PyObject_GC_New(TensorObject, tensor_type);
}

void dealloc(PyObject* self) {
  TensorObject* o = reinterpret_cast<TensorObject*>(self);
  PyTypeObject* type = Py_TYPE(self);
  if (PyObject_GC_IsTracked(self)) PyObject_GC_UnTrack(self);
  TensorImpl* impl = o->impl;
  o->impl = nullptr;
  // Before the callbacks of weak references, which may ask for the tensor again.
  if (impl != nullptr && impl->wrapper == self) impl->wrapper = nullptr;
  if (o->weakrefs != nullptr) PyObject_ClearWeakRefs(self);
  if (impl != nullptr) impl->release();
  if (type == tensor_type && spare_count < most_spare) {
    spare[spare_count++] = o;
  } else {
    type->tp_free(self);
  }
  Py_DECREF(type);
}

/// What the graph holds of Python's objects, cycles.cpp looks at.
int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return 0;
}

/// An object of `type`, a subclass or not, for a tensor that has none.
PyObject* allocate_as(TensorRef t, PyTypeObject* type) noexcept {
  PyObject* self = type->tp_alloc(type, 0);
  if (self == nullptr) return nullptr;
  TensorObject* o = reinterpret_cast<TensorObject*>(self);
  t->wrapper = self;
  o->impl = t.leak();
  o->weakrefs = nullptr;
  return self;
}

/// Tensor(obj, dtype=None): as asarray; what a subclass constructs itself with.
PyObject* construct(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  PyObject *obj, *dtype = Py_None;
  static const char* names[] = {"obj", "dtype", nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:Tensor", const_cast<char**>(names), &obj, &dtype)) return nullptr;
  try {
    const std::optional<Dtype> wanted = optional_dtype_argument(dtype, "Tensor");
    TensorRef impl = asarray(obj, wanted, {});
    // An object of its own, also where the source already has one.
    if (impl->wrapper != nullptr) impl = detached(*impl);
    return allocate_as(std::move(impl), type);
  } catch (...) {
    return raise_current();
  }
}

std::string suffix(TensorImpl& t) {
  if (const NodeRef node = grad_fn(t)) return ", grad_fn=<" + node->name() + ">";
  return t.requires_grad ? ", requires_grad=True" : "";
}

PyObject* repr(PyObject* self) {
  try {
    FormatOptions options = default_format();
    options.suffix = suffix(*impl_of(self));
    const std::string text = format_tensor(*impl_of(self), options);
    return PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
  } catch (...) {
    return raise_current();
  }
}

PyObject* str(PyObject* self) {
  try {
    const std::string text = format_tensor(*impl_of(self), default_format(), Form::str);
    return PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
  } catch (...) {
    return raise_current();
  }
}

Py_hash_t hash(PyObject* self) { return _Py_HashPointer(self); }

Py_ssize_t length(PyObject* self) {
  const TensorImpl* t = impl_of(self);
  if (t->ndim() == 0) {
    PyErr_SetString(PyExc_TypeError, "len() of a 0-d tensor; write x.size, or x.item() for its number");
    return -1;
  }
  return t->shape()[0];
}

/// Without it PySequence_Check says no, and pandas takes a tensor for a number.
PyObject* sequence_item(PyObject* self, Py_ssize_t i) noexcept {
  const Owned index(PyLong_FromSsize_t(i));
  return index ? get_item(self, index.get()) : nullptr;
}

PyMemberDef members[] = {{"__weaklistoffset__", T_PYSSIZET, offsetof(TensorObject, weakrefs), READONLY, nullptr},
                         {nullptr, 0, 0, 0, nullptr}};

constexpr char doc[] =
    "A multidimensional array on a device, with its place in the graph of gradients.\n\n"
    "Made by hl.asarray, hl.zeros and their like; Tensor(obj, dtype=None) is for subclasses.";

}  // namespace

PyObject* wrap(TensorRef t) noexcept {
  // A wrapper without references is being destroyed, and code that its attributes run cannot have it back.
  if (PyObject* o = static_cast<PyObject*>(t->wrapper); o != nullptr && Py_REFCNT(o) > 0) {
    Py_INCREF(o);
    return o;
  }
  TensorObject* o = allocate();
  if (o == nullptr) return nullptr;
  t->wrapper = o;
  o->weakrefs = nullptr;
  o->impl = t.leak();
  return reinterpret_cast<PyObject*>(o);
}

PyObject* wrap_all(std::span<TensorImpl* const> results) noexcept {
  Owned tuple(PyTuple_New(static_cast<Py_ssize_t>(results.size())));
  for (std::size_t k = 0; tuple && k < results.size(); ++k) {
    PyObject* one = wrap(TensorRef::share(results[k]));
    if (one == nullptr) return nullptr;
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(k), one);
  }
  return tuple.leak();
}

PyObject* wrap_as(TensorRef t, PyTypeObject* type) noexcept {
  return type == tensor_type ? wrap(std::move(t)) : allocate_as(std::move(t), type);
}

PyObject* make_tensor_type() {
  std::vector<PyType_Slot> slots{
      {Py_tp_doc, const_cast<char*>(doc)},
      {Py_tp_new, reinterpret_cast<void*>(construct)},
      {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
      {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
      {Py_tp_repr, reinterpret_cast<void*>(repr)},
      {Py_tp_str, reinterpret_cast<void*>(str)},
      {Py_tp_hash, reinterpret_cast<void*>(hash)},
      {Py_tp_members, members},
      {Py_tp_getset, tensor_properties},
      {Py_tp_methods, tensor_methods},
      {Py_mp_length, reinterpret_cast<void*>(length)},
      {Py_mp_subscript, reinterpret_cast<void*>(get_item)},
      {Py_mp_ass_subscript, reinterpret_cast<void*>(set_item)},
      {Py_sq_length, reinterpret_cast<void*>(length)},
      {Py_sq_item, reinterpret_cast<void*>(sequence_item)},
      {Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
      {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
  };
  for (PyType_Slot* s = number_slots(); s->slot != 0; ++s) slots.push_back(*s);
  slots.push_back({0, nullptr});
  static PyType_Spec spec{"hyalite.Tensor", sizeof(TensorObject), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, nullptr};
  spec.slots = slots.data();
  PyObject* type = PyType_FromSpec(&spec);
  // So that ndarray + tensor reaches the tensor.
  if (type == nullptr || PyObject_SetAttrString(type, "__array_ufunc__", Py_None) < 0) return nullptr;
  // So that `Series + tensor` does too, above all classes of pandas: it would take our results for arrays of its own.
  const Owned priority(PyLong_FromLong(1 << 20));
  if (!priority || PyObject_SetAttrString(type, "__pandas_priority__", priority.get()) < 0) return nullptr;
  tensor_type = reinterpret_cast<PyTypeObject*>(type);
  return type;
}

}  // namespace hyalite::python
