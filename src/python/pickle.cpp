/// Pickling and copying of tensors, by way of an object for their storage.
#include "python/pickle.h"
#include "compute/backend.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <unordered_map>
#include <vector>

#include "apply.h"
#include "python/foreign.h"
#include "python/interop.h"
#include "python/tensor_type.h"

namespace hyalite::python {
namespace {

// ---- the object of a storage ----

/// One for each storage, as long as it lives: that is how pickle and copy find out that tensors share it.
struct StorageObject {
  PyObject_HEAD Storage* storage;
};

PyTypeObject* storage_type();

/// Guarded by the GIL.
std::unordered_map<const Storage*, PyObject*>& storage_objects() {
  static auto& objects = *new std::unordered_map<const Storage*, PyObject*>;
  return objects;
}

Storage& storage_of(PyObject* o) { return *reinterpret_cast<StorageObject*>(o)->storage; }

Owned object_of(Ref<Storage> storage) {
  PyObject*& known = storage_objects()[storage.get()];
  if (known != nullptr) return Owned::borrow(known);
  PyObject* made = storage_type()->tp_alloc(storage_type(), 0);
  if (made == nullptr) {
    storage_objects().erase(storage.get());
    throw PythonError();
  }
  known = made;
  reinterpret_cast<StorageObject*>(made)->storage = storage.leak();
  return Owned(made);
}

void storage_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  if (Storage* s = reinterpret_cast<StorageObject*>(self)->storage; s != nullptr) {
    storage_objects().erase(s);
    s->release();
  }
  type->tp_free(self);
  Py_DECREF(type);
}

int storage_buffer(PyObject* self, Py_buffer* view, int flags) {
  Storage& s = storage_of(self);
  const bool writable = !s.read_only();
  static std::byte none{};
  std::byte* data = s.bytes() == 0 ? &none : host_address(s);
  if (PyBuffer_FillInfo(view, self, data, static_cast<Py_ssize_t>(s.bytes()), writable ? 0 : 1, flags) != 0) return -1;
  try {
    s.lend(writable);
    return 0;
  } catch (...) {
    PyBuffer_Release(view);
    raise_current();
    return -1;
  }
}

void storage_release(PyObject* self, Py_buffer* view) {
  if (view->readonly == 0) storage_of(self).give_back();
}

Ref<Storage> copy_of_bytes(const void* data, std::size_t bytes) {
  Ref<Storage> to = host_empty(Dtype::uint8, DimList{static_cast<std::int64_t>(bytes)})->storage_ref();
  const WithoutGil released(static_cast<std::int64_t>(bytes));
  if (bytes != 0) std::memcpy(host_address(*to), data, bytes);
  return to;
}

/// Python's half of this, `hyalite._pickle`.
Owned helper(const char* name) {
  const Owned module(check(PyImport_ImportModule("hyalite._pickle")));
  return Owned(check(PyObject_GetAttrString(module.get(), name)));
}

PyObject* storage_reduce(PyObject* self, PyObject* protocol) {
  try {
    const long version = PyLong_AsLong(protocol);
    if (version == -1 && PyErr_Occurred() != nullptr) throw PythonError();
    // Protocol 5 lets the caller take the memory as it lies, and makes no copy before the one it writes.
    const Owned data(check(version >= 5 ? PyPickleBuffer_FromObject(self) : PyBytes_FromObject(self)));
    return check(Py_BuildValue("O(OO)", helper("_storage").get(), data.get(),
                               storage_of(self).read_only() ? Py_False : Py_True));
  } catch (...) {
    return raise_current();
  }
}

PyObject* storage_deepcopy(PyObject* self, PyObject*) {
  try {
    const Storage& s = storage_of(self);
    return object_of(copy_of_bytes(host_address(s), s.bytes())).leak();
  } catch (...) {
    return raise_current();
  }
}

PyTypeObject* storage_type() {
  static PyTypeObject* type = nullptr;
  if (type == nullptr) {
    static PyMethodDef methods[] = {{"__reduce_ex__", storage_reduce, METH_O, nullptr},
                                    {"__deepcopy__", storage_deepcopy, METH_O, nullptr},
                                    {nullptr, nullptr, 0, nullptr}};
    static PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(storage_dealloc)},
                                  {Py_bf_getbuffer, reinterpret_cast<void*>(storage_buffer)},
                                  {Py_bf_releasebuffer, reinterpret_cast<void*>(storage_release)},
                                  {Py_tp_methods, methods},
                                  {Py_tp_doc, const_cast<char*>("The memory that views share, for pickle and copy.")},
                                  {0, nullptr}};
    static PyType_Spec spec{"hyalite._C._Storage", sizeof(StorageObject), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
    type = reinterpret_cast<PyTypeObject*>(check(PyType_FromSpec(&spec)));
  }
  return type;
}

// ---- what of the storage goes along ----

/// A copy without gaps, its axes in the order in which they lie in memory.
TensorRef dense_copy(const TensorImpl& t) {
  DimList strides = row_major(t.shape());
  std::vector<std::size_t> axes;  // slowest first; those of one element may stand anywhere
  bool repeats = false;
  for (std::size_t i = 0; i < t.shape().size(); ++i) {
    if (t.shape()[i] > 1) axes.push_back(i);
    repeats |= t.shape()[i] > 1 && t.strides()[i] == 0;
  }
  if (t.numel() != 0 && !repeats) {
    std::ranges::stable_sort(axes, std::greater{}, [&](std::size_t i) { return std::abs(t.strides()[i]); });
    std::int64_t step = 1;
    for (std::size_t i = axes.size(); i-- > 0;) {
      strides[static_cast<int>(axes[i])] = step;
      step *= t.shape()[axes[i]];
    }
  }
  TensorRef to = for_device(context(), t.device()).allocate(t.dtype(), t.shape(), strides);
  copy_into(t, *to);
  return to;
}

/// Whether no other tensor that a program can reach lies in this one's storage.
bool alone(const TensorImpl& t) {
  std::uint32_t users = t.storage()->users() - 1;
  // Those it is a view of, as long as only the view itself holds them.
  for (const TensorImpl* p = t.view.parent; p != nullptr; p = p->view.parent) {
    if (p->users() != 1 || p->wrapper != nullptr) break;
    users -= p->storage() == t.storage() ? 1 : 0;
  }
  return users == 0;
}

/// A tensor with the elements and, where others share it or nothing is gained, the storage of `t`.
TensorRef portable(TensorImpl& t, const char* op) {
  need_host(t, op);
  const bool gaps = static_cast<std::int64_t>(t.storage()->bytes()) > t.nbytes();
  return gaps && alone(t) ? dense_copy(t) : TensorRef::share(&t);
}

Owned tuple_of(Dims dims) {
  Owned tuple(check(PyTuple_New(static_cast<Py_ssize_t>(dims.size()))));
  for (std::size_t i = 0; i < dims.size(); ++i) {
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), check(PyLong_FromLongLong(dims[i])));
  }
  return tuple;
}

/// The attributes of an instance of a subclass, as object.__getstate__ gives them; None without any.
Owned state_of(PyObject* self) {
  if (Py_TYPE(self) == tensor_type) return Owned::borrow(Py_None);
  return Owned(check(PyObject_CallMethod(self, "__getstate__", nullptr)));
}

/// Gives `to` the attributes in `state`.
void set_state(PyObject* to, PyObject* state) {
  if (state == Py_None) return;
  const Owned done(check(PyObject_CallFunctionObjArgs(helper("_set_state").get(), to, state, nullptr)));
}

DimList dims_from(PyObject* tuple, const char* what) {
  if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) > max_rank) {
    throw TypeError(std::string("unpickling: ") + what + " must be a tuple of at most 64 ints", {});
  }
  DimList d;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    const long long n = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i));
    if (n == -1 && PyErr_Occurred() != nullptr) throw PythonError();
    d.push_back(n);
  }
  return d;
}

/// Throws ValueError unless every element lies within `bytes`.
void check_extent(Dims shape, Dims strides, std::int64_t offset, std::size_t bytes, std::size_t itemsize) {
  const std::int64_t numel = checked_numel(shape, itemsize);
  const std::int64_t room = static_cast<std::int64_t>(bytes / itemsize);
  std::int64_t low = offset, high = offset;
  bool overflow = false;
  for (std::size_t i = 0; numel != 0 && i < shape.size(); ++i) {
    std::int64_t reach = 0;
    overflow |= __builtin_mul_overflow(strides[i], shape[i] - 1, &reach);
    overflow |= reach < 0 ? __builtin_add_overflow(low, reach, &low) : __builtin_add_overflow(high, reach, &high);
  }
  if (overflow || low < 0 || high > room - (numel != 0 ? 1 : 0)) {
    throw ValueError("unpickling: shape " + to_string(shape) + " with strides " + to_string(strides) + " at offset " +
                     std::to_string(offset) + " reaches outside its storage of " + std::to_string(room) + " elements");
  }
}

}  // namespace

PyObject* reduce_tensor(PyObject* self) {
  TensorImpl& given = *impl_of(self);
  const bool requires_grad = wants_grad(given);
  const TensorRef t = portable(given, "pickle");
  const Owned storage = object_of(t->storage_ref());
  const Owned shape = tuple_of(t->shape()), strides = tuple_of(t->strides()), state = state_of(self);
  return check(Py_BuildValue(state.get() == Py_None ? "O(OOOOOLO)" : "O(OOOOOLO)O", helper("_tensor").get(),
                             reinterpret_cast<PyObject*>(Py_TYPE(self)), storage.get(), dtype_object(t->dtype()),
                             shape.get(), strides.get(), static_cast<long long>(t->offset()),
                             requires_grad ? Py_True : Py_False, state.get()));
}

PyObject* copy_tensor(PyObject* self) {
  TensorImpl& t = *impl_of(self);
  TensorRef copied;
  if (is_leaf(t)) {
    need_host(t, "copy");
    copied = dense_copy(t);
    set_requires_grad(*copied, t.requires_grad);
  } else {
    copied = TensorRef::adopt(astype(Tensor::share(&t), t.dtype()).leak());
  }
  Owned made(check(wrap_as(std::move(copied), Py_TYPE(self))));
  set_state(made.get(), state_of(self).get());
  return made.leak();
}

PyObject* deepcopy_tensor(PyObject* self, PyObject* memo) {
  TensorImpl& given = *impl_of(self);
  if (!is_leaf(given)) {
    throw AutogradError(
        "deepcopy(): the tensor was made by " + grad_fn(given)->name() +
        ", and its history cannot be copied along; write copy.deepcopy(x.detach()), or copy.copy(x) within the graph");
  }
  const Owned module(check(PyImport_ImportModule("copy")));
  const Owned deepcopy(check(PyObject_GetAttrString(module.get(), "deepcopy")));
  const auto copied = [&](PyObject* o) {
    return Owned(check(PyObject_CallFunctionObjArgs(deepcopy.get(), o, memo, nullptr)));
  };
  const TensorRef t = portable(given, "deepcopy");
  TensorRef to;
  if (t.get() != &given) {
    to = t;  // a copy already
  } else {
    const Owned from = object_of(t->storage_ref()), storage = copied(from.get());
    if (Py_TYPE(storage.get()) != storage_type()) throw TypeError("deepcopy(): the memo holds something else", {});
    check_extent(t->shape(), t->strides(), t->offset(), storage_of(storage.get()).bytes(), itemsize(t->dtype()));
    to = TensorImpl::make(t->dtype(), t->device(), t->shape(), t->strides(),
                          Ref<Storage>::share(&storage_of(storage.get())), t->offset());
  }
  set_requires_grad(*to, given.requires_grad);
  Owned made(check(wrap_as(to, Py_TYPE(self))));
  // Before the attributes, which may lead back here.
  const Owned key(check(PyLong_FromVoidPtr(self)));
  if (memo != Py_None && PyObject_SetItem(memo, key.get(), made.get()) != 0) throw PythonError();
  if (given.autograd != nullptr && given.autograd->grad) {
    const Owned grad(check(wrap(given.autograd->grad)));
    const Owned grad_copy = copied(grad.get());
    if (PyObject_SetAttrString(made.get(), "grad", grad_copy.get()) != 0) throw PythonError();
  }
  const Owned state = state_of(self);
  if (state.get() != Py_None) set_state(made.get(), copied(state.get()).get());
  return made.leak();
}

PyObject* storage_from(PyObject* buffer, bool was_writable) {
  auto keeper = std::make_unique<BufferKeeper>();
  if (PyObject_GetBuffer(buffer, &keeper->view, PyBUF_SIMPLE) != 0) throw PythonError();
  const Py_buffer& view = keeper->view;
  const auto bytes = static_cast<std::size_t>(view.len);
  constexpr std::uintptr_t alignment = alignof(std::max_align_t);
  // Objects of these types are what pickle itself makes of the bytes in its stream.
  const bool in_band = PyBytes_CheckExact(buffer) || PyByteArray_CheckExact(buffer);
  const bool aligned = reinterpret_cast<std::uintptr_t>(view.buf) % alignment == 0;
  if (in_band || !aligned || (view.readonly != 0 && was_writable)) {
    return object_of(copy_of_bytes(view.buf, bytes)).leak();
  }
  void* data = view.buf;
  const bool read_only = view.readonly != 0;
  return object_of(borrow(std::move(keeper), data, bytes, read_only)).leak();
}

PyObject* tensor_from(PyObject* cls, PyObject* storage, PyObject* dtype, PyObject* shape, PyObject* strides,
                      PyObject* offset, bool requires_grad) {
  if (!PyType_Check(cls) || !PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(cls), tensor_type)) {
    throw TypeError("unpickling: the class is no hl.Tensor", {});
  }
  Dtype t;
  if (Py_TYPE(storage) != storage_type() || !dtype_from(dtype, t)) {
    throw TypeError("unpickling: a tensor is made of a storage and a dtype", {});
  }
  const DimList sizes = dims_from(shape, "the shape"), steps = dims_from(strides, "the strides");
  const long long start = PyLong_AsLongLong(offset);
  if (start == -1 && PyErr_Occurred() != nullptr) throw PythonError();
  if (sizes.size() != steps.size()) throw ValueError("unpickling: a stride is needed for each axis", {});
  check_extent(sizes, steps, start, storage_of(storage).bytes(), itemsize(t));
  TensorRef made = TensorImpl::make(t, {}, sizes, steps, Ref<Storage>::share(&storage_of(storage)), start);
  set_requires_grad(*made, requires_grad);
  return check(wrap_as(std::move(made), reinterpret_cast<PyTypeObject*>(cls)));
}

}  // namespace hyalite::python
