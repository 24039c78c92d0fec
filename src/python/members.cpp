/// Properties and methods of tensors that are not ops of the list.
#include "apply.h"
#include "compute/backend.h"
#include "hyalite/scalar.h"
#include "python/arguments.h"
#include "python/foreign.h"
#include "python/gil.h"
#include "python/interop.h"
#include "python/node_object.h"
#include "python/pickle.h"
#include "python/tensor_type.h"
#include "tensor/context.h"
#include "transfer.h"

namespace hyalite::python {
namespace {

/// f's result, or the exception it threw.
template <class F>
PyObject* guarded(F f) noexcept {
  try {
    return f();
  } catch (...) {
    return raise_current();
  }
}

PyObject* tuple_of(Dims d) {
  PyObject* t = PyTuple_New(static_cast<Py_ssize_t>(d.size()));
  for (std::size_t i = 0; t != nullptr && i < d.size(); ++i) PyTuple_SET_ITEM(t, i, PyLong_FromLongLong(d[i]));
  return t;
}
PyObject* text(const std::string& s) {
  return PyUnicode_FromStringAndSize(s.data(), static_cast<Py_ssize_t>(s.size()));
}
PyObject* wrap(Tensor t) { return python::wrap(TensorRef::adopt(t.leak())); }
Tensor handle(PyObject* self) { return Tensor::share(impl_of(self)); }

PyObject* get_shape(PyObject* self, void*) { return tuple_of(impl_of(self)->shape()); }
PyObject* get_strides(PyObject* self, void*) { return tuple_of(impl_of(self)->strides()); }
PyObject* get_dtype(PyObject* self, void*) {
  PyObject* d = dtype_object(impl_of(self)->dtype());
  Py_INCREF(d);
  return d;
}
PyObject* get_device(PyObject* self, void*) {
  return guarded([&] { return text(to_string(impl_of(self)->device())); });
}
PyObject* get_ndim(PyObject* self, void*) { return PyLong_FromLong(impl_of(self)->ndim()); }
PyObject* get_size(PyObject* self, void*) { return PyLong_FromLongLong(impl_of(self)->numel()); }
PyObject* get_nbytes(PyObject* self, void*) { return PyLong_FromLongLong(impl_of(self)->nbytes()); }
PyObject* get_itemsize(PyObject* self, void*) { return PyLong_FromSize_t(itemsize(impl_of(self)->dtype())); }
PyObject* get_offset(PyObject* self, void*) { return PyLong_FromLongLong(impl_of(self)->offset()); }
PyObject* get_version(PyObject* self, void*) { return PyLong_FromUnsignedLong(impl_of(self)->storage()->version()); }

PyObject* get_requires_grad(PyObject* self, void*) {
  return guarded([&] { return PyBool_FromLong(wants_grad(*impl_of(self))); });
}
int set_requires(PyObject* self, PyObject* value, void*) {
  const Owned done(guarded([&] {
    set_requires_grad(*impl_of(self), flag_argument(value != nullptr ? value : Py_None, "requires_grad", "the value"));
    Py_RETURN_NONE;
  }));
  return done ? 0 : -1;
}
PyObject* get_grad(PyObject* self, void*) {
  note_for_tracer(*impl_of(self));
  const AutogradMeta* m = impl_of(self)->autograd;
  if (m == nullptr || !m->grad) Py_RETURN_NONE;
  return python::wrap(m->grad);
}
int set_grad(PyObject* self, PyObject* value, void*) {
  TensorImpl* t = impl_of(self);
  note_for_tracer(*t);
  if (value == nullptr || value == Py_None) {
    if (t->autograd != nullptr) t->autograd->grad = {};
    return 0;
  }
  if (!is_tensor(value) || !same_shape(*impl_of(value), *t) || impl_of(value)->dtype() != t->dtype()) {
    const std::string wanted = std::string(name(t->dtype())) + " " + to_string(t->shape());
    const std::string given =
        is_tensor(value) ? std::string(name(impl_of(value)->dtype())) + " " + to_string(impl_of(value)->shape())
                         : shown(value);
    PyErr_Format(PyExc_TypeError,
                 "grad must be None or a tensor of the same shape and dtype, %s, not %s; write x.grad = None",
                 wanted.c_str(), given.c_str());
    return -1;
  }
  // What no other handle holds is nobody's gradient, so that a long chain is not walked for each of its members.
  const bool held = t->users() > 1 || value == self;
  for (const TensorImpl* at = held ? impl_of(value) : nullptr; at != nullptr;
       at = at->autograd != nullptr ? at->autograd->grad.get() : nullptr) {
    if (at != t) continue;
    PyErr_SetString(PyExc_ValueError, "grad: a tensor cannot hold itself as its gradient; write x.grad = value.copy()");
    return -1;
  }
  meta_of(*t).grad = TensorRef::share(impl_of(value));
  return 0;
}
PyObject* get_grad_fn(PyObject* self, void*) {
  return guarded([&]() -> PyObject* {
    NodeRef node = grad_fn(*impl_of(self));
    if (!node) Py_RETURN_NONE;
    return node_object(std::move(node));
  });
}
PyObject* get_is_leaf(PyObject* self, void*) {
  return guarded([&] { return PyBool_FromLong(is_leaf(*impl_of(self))); });
}

PyObject* get_t(PyObject* self, void*) {
  return guarded([&] {
    const TensorImpl* t = impl_of(self);
    if (t->ndim() != 2) {
      throw ValueError(
          "T needs two axes, not " + std::to_string(t->ndim()) + "; write hl.permute_dims(x, axes) or x.mT",
          {{"ndim", std::int64_t{t->ndim()}}});
    }
    return python::wrap(swap_last(*impl_of(self)));
  });
}
PyObject* get_mt(PyObject* self, void*) {
  return guarded([&] {
    if (const int n = impl_of(self)->ndim(); n < 2) {
      throw ValueError("mT needs two axes or more, not " + std::to_string(n) + "; write hl.expand_dims(x, 0).mT",
                       {{"ndim", std::int64_t{n}}});
    }
    return python::wrap(swap_last(*impl_of(self)));
  });
}
PyObject* get_real(PyObject* self, void*) {
  return guarded([&] { return wrap(real(handle(self))); });
}
PyObject* get_imag(PyObject* self, void*) {
  return guarded([&] { return wrap(imag(handle(self))); });
}

PyObject* get_array_interface(PyObject* self, void*) {
  return guarded([&] { return array_interface(impl_of(self)); });
}

// -------------------------------------------------------------------------------------------------------- methods

PyObject* data_ptr(PyObject* self, PyObject*) { return PyLong_FromVoidPtr(host_address(*impl_of(self))); }
PyObject* detach(PyObject* self, PyObject*) {
  return guarded([&] { return python::wrap(detached(*impl_of(self))); });
}
PyObject* call_numpy(PyObject* self, PyObject*) {
  return guarded([&] { return to_numpy(impl_of(self)); });
}
PyObject* call_item(PyObject* self, PyObject*) {
  return guarded([&] { return item(impl_of(self)); });
}
PyObject* call_tolist(PyObject* self, PyObject*) {
  return guarded([&] { return tolist(impl_of(self)); });
}
PyObject* call_tobytes(PyObject* self, PyObject*) {
  return guarded([&] { return to_bytes(impl_of(self)); });
}
PyObject* call_arrow_schema(PyObject* self, PyObject*) {
  return guarded([&] { return arrow_schema(impl_of(self)); });
}
PyObject* call_arrow_array(PyObject* self, PyObject* args, PyObject* kwargs) {
  PyObject* requested = Py_None;
  static const char* names[] = {"requested_schema", nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:__arrow_c_array__", const_cast<char**>(names), &requested))
    return nullptr;
  return guarded([&] { return arrow_array(impl_of(self), requested); });
}
PyObject* call_complex(PyObject* self, PyObject*) {
  return guarded([&] { return to_complex(impl_of(self)); });
}
PyObject* copy(PyObject* self, PyObject*) {
  return guarded([&] { return wrap(astype(handle(self), impl_of(self)->dtype())); });
}
PyObject* contiguous(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    if (!impl_of(self)->contiguous()) {
      return wrap(hyalite::contiguous(handle(self)));
    }
    Py_INCREF(self);
    return self;
  });
}
PyObject* requires_grad_(PyObject* self, PyObject* args) {
  PyObject* on = Py_True;
  if (!PyArg_ParseTuple(args, "|O:requires_grad_", &on)) return nullptr;
  return guarded([&] {
    set_requires_grad(*impl_of(self), flag_argument(on, "requires_grad_", "requires_grad"));
    Py_INCREF(self);
    return self;
  });
}

PyObject* backward(PyObject* self, PyObject* args, PyObject* kwargs) {
  PyObject *gradient = Py_None, *inputs = Py_None;
  int retain = 0, create = 0;
  static const char* names[] = {"gradient", "retain_graph", "create_graph", "inputs", nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|Opp$O:backward", const_cast<char**>(names), &gradient, &retain,
                                   &create, &inputs)) {
    return nullptr;
  }
  return guarded([&]() -> PyObject* {
    if (inputs != Py_None) {
      const Owned module(check(PyImport_ImportModule("hyalite._autograd")));
      return PyObject_CallMethod(module.get(), "_backward_to", "OOOii", self, gradient, inputs, retain, create);
    }
    Tensor g;
    if (gradient != Py_None) g = Tensor::adopt(asarray(gradient, {}, {}).leak());
    handle(self).backward(g, retain != 0, create != 0);
    Py_RETURN_NONE;
  });
}

/// A hook holds its callable; the GIL is held where hooks run, since backward does not give it up there.
struct PyHook {
  PyObject* call;
  explicit PyHook(PyObject* c) : call(c) { Py_INCREF(call); }
  PyHook(const PyHook&) = delete;
  ~PyHook() {
    const Gil gil;
    Py_DECREF(call);
  }
};

HookPlace hang(TensorImpl& t, PyObject* callable, bool last) {
  auto held = std::make_shared<PyHook>(callable);
  return add_hook(
      t,
      [held](const Tensor& g) -> Tensor {
        const Owned arg(check(python::wrap(TensorRef::share(g.impl()))));
        const Owned result(check(PyObject_CallOneArg(held->call, arg.get())));
        if (result.get() == Py_None) return {};
        if (!is_tensor(result.get())) throw TypeError("a hook must return a tensor or None", {});
        return Tensor::share(impl_of(result.get()));
      },
      callable, last);
}

PyObject* register_hook(PyObject* self, PyObject* callable) {
  if (!PyCallable_Check(callable)) {
    return guarded([&]() -> PyObject* {
      throw_argument("register_hook", "hook", "a function of the gradient", callable, "write lambda g: ...");
    });
  }
  return guarded([&] {
    TensorImpl* t = impl_of(self);
    if (!wants_grad(*t)) {
      throw AutogradError("register_hook(): the tensor does not require grad; call requires_grad_() first", {});
    }
    return hook_handle(hang(*t, callable, false));
  });
}

/// Keeps the gradient of an inner tensor: a hook that runs last and knows the tensor's object weakly.
PyObject* retain_grad(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    TensorImpl* t = impl_of(self);
    if (!wants_grad(*t)) {
      throw AutogradError("retain_grad(): the tensor does not require grad; call requires_grad_() on an input first",
                          {});
    }
    const HookList* hung = t->autograd->hooks.get();
    if (is_leaf(*t) || (hung != nullptr && !hung->hooks.empty() && hung->hooks.back().last)) Py_RETURN_NONE;
    const Owned module(check(PyImport_ImportModule("hyalite._autograd")));
    const Owned hook(check(PyObject_CallMethod(module.get(), "_keeper", "O", self)));
    hang(*t, hook.get(), true);
    Py_RETURN_NONE;
  });
}

PyObject* call_array(PyObject* self, PyObject* args, PyObject* kwargs) {
  PyObject *dtype = Py_None, *copy_flag = Py_None;
  static const char* names[] = {"dtype", "copy", nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OO:__array__", const_cast<char**>(names), &dtype, &copy_flag))
    return nullptr;
  return guarded([&] { return array_protocol(impl_of(self), dtype, copy_flag); });
}
PyObject* call_dlpack(PyObject* self, PyObject* args, PyObject* kwargs) {
  PyObject *stream = Py_None, *version = Py_None, *device = Py_None, *copy_flag = Py_None;
  static const char* names[] = {"stream", "max_version", "dl_device", "copy", nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO:__dlpack__", const_cast<char**>(names), &stream, &version,
                                   &device, &copy_flag)) {
    return nullptr;
  }
  return guarded([&] { return to_dlpack(impl_of(self), stream, version, device, copy_flag); });
}
PyObject* call_dlpack_device(PyObject* self, PyObject*) {
  return guarded([&] { return dlpack_device(impl_of(self)); });
}
PyObject* to_device(PyObject* self, PyObject* args, PyObject* kwargs) {
  PyObject *device, *stream = Py_None;
  static const char* names[] = {"device", "stream", nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$O:to_device", const_cast<char**>(names), &device, &stream))
    return nullptr;
  return guarded([&] {
    if (device == Py_None) throw_argument("to_device", "device", "the name of a device such as 'cpu'", device);
    const Device d = device_argument(device, "to_device");
    TensorImpl* const t = impl_of(self);
    if (d == t->device()) return Owned::borrow(self).leak();
    const Tensor moved = moved_to(Tensor::adopt(TensorRef::share(t).leak()), d);
    return python::wrap(TensorRef::share(moved.impl()));
  });
}
PyObject* reduce(PyObject* self, PyObject*) {
  return guarded([&] { return reduce_tensor(self); });
}
PyObject* call_copy(PyObject* self, PyObject*) {
  return guarded([&] { return copy_tensor(self); });
}
PyObject* call_deepcopy(PyObject* self, PyObject* memo) {
  return guarded([&] { return deepcopy_tensor(self, memo); });
}

template <class F>
PyCFunction function(F* f) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(f));
}

}  // namespace

PyGetSetDef tensor_properties[] = {
    {"shape", get_shape, nullptr, "Sizes of the axes, a tuple.", nullptr},
    {"strides", get_strides, nullptr, "Steps between neighbours along each axis, in elements.", nullptr},
    {"dtype", get_dtype, nullptr, "Element type.", nullptr},
    {"device", get_device, nullptr, "Where the data live, such as 'cpu'.", nullptr},
    {"ndim", get_ndim, nullptr, "Number of axes.", nullptr},
    {"size", get_size, nullptr, "Number of elements.", nullptr},
    {"nbytes", get_nbytes, nullptr, "Bytes of all elements.", nullptr},
    {"itemsize", get_itemsize, nullptr, "Bytes of an element.", nullptr},
    {"storage_offset", get_offset, nullptr, "Elements between the start of the storage and the first element.",
     nullptr},
    {"version", get_version, nullptr, "How often the storage was written in place; views share it.", nullptr},
    {"requires_grad", get_requires_grad, set_requires, "Whether gradients flow to it.", nullptr},
    {"grad", get_grad, set_grad, "The gradient that backward() accumulated, or None.", nullptr},
    {"grad_fn", get_grad_fn, nullptr, "The node that made it, None for a leaf.", nullptr},
    {"is_leaf", get_is_leaf, nullptr, "Whether no recorded op made it.", nullptr},
    {"T", get_t, nullptr, "The transpose of a matrix, a view.", nullptr},
    {"mT", get_mt, nullptr, "The last two axes exchanged, a view.", nullptr},
    {"real", get_real, nullptr, "The real part, a view.", nullptr},
    {"imag", get_imag, nullptr, "The imaginary part, a view; complex only.", nullptr},
    {"__array_interface__", get_array_interface, nullptr, "The memory as NumPy's array interface, version 3.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyMethodDef tensor_methods[] = {
    {"data_ptr", data_ptr, METH_NOARGS, "data_ptr($self, /)\n--\n\nAddress of the first element."},
    {"detach", detach, METH_NOARGS, "detach($self, /)\n--\n\nThe same memory without history."},
    {"numpy", call_numpy, METH_NOARGS,
     "numpy($self, /)\n--\n\n"
     "An ndarray over the same memory, read-only where a stride of 0 repeats elements.\n\n"
     "NumPy writes it without a version: while the array lives, what a gradient needs of the memory is copied when an "
     "operation is recorded; what was recorded before sees the writes."},
    {"item", call_item, METH_NOARGS,
     "item($self, /)\n--\n\nThe only element as a Python number; ValueError unless there is one."},
    {"tolist", call_tolist, METH_NOARGS, "tolist($self, /)\n--\n\nNested lists of Python numbers."},
    {"tobytes", call_tobytes, METH_NOARGS, "tobytes($self, /)\n--\n\nThe bytes of the elements in row-major order."},
    {"copy", copy, METH_NOARGS, "copy($self, /)\n--\n\nThe same values in new, writable memory."},
    {"contiguous", contiguous, METH_NOARGS,
     "contiguous($self, /)\n--\n\nIn row-major order: itself where it already is."},
    {"requires_grad_", requires_grad_, METH_VARARGS,
     "requires_grad_($self, requires_grad=True, /)\n--\n\nMarks a leaf that gradients flow to, and returns it."},
    {"backward", function(backward), METH_VARARGS | METH_KEYWORDS,
     "backward($self, /, gradient=None, retain_graph=False, create_graph=False, *, inputs=None)\n--\n\n"
     "Adds d self / d leaf to the grad of every leaf it depends on, or of the inputs only, leaves or not."},
    {"register_hook", register_hook, METH_O,
     "register_hook($self, hook, /)\n--\n\nCalls hook(gradient) in backward; what it returns, unless None, replaces "
     "the gradient."},
    {"retain_grad", retain_grad, METH_NOARGS,
     "retain_grad($self, /)\n--\n\nMakes backward keep the gradient of an inner tensor in its grad, as a leaf's is: "
     "that of the value it has now, after all its hooks."},
    {"__array__", function(call_array), METH_VARARGS | METH_KEYWORDS, nullptr},
    {"__dlpack__", function(call_dlpack), METH_VARARGS | METH_KEYWORDS, nullptr},
    {"__dlpack_device__", call_dlpack_device, METH_NOARGS, nullptr},
    {"__arrow_c_schema__", call_arrow_schema, METH_NOARGS, nullptr},
    {"__arrow_c_array__", function(call_arrow_array), METH_VARARGS | METH_KEYWORDS, nullptr},
    {"__complex__", call_complex, METH_NOARGS, nullptr},
    {"__reduce__", reduce, METH_NOARGS, nullptr},
    {"__copy__", call_copy, METH_NOARGS, nullptr},
    {"__deepcopy__", call_deepcopy, METH_O, nullptr},
    {"to_device", function(to_device), METH_VARARGS | METH_KEYWORDS,
     "to_device($self, device, /, *, stream=None)\n--\n\nThe tensor on a device: itself where it is there. On \"meta\" "
     "it has its shape, and neither values nor history."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace hyalite::python
