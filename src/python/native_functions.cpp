/// Functions that take more than one op does. The common call is read here and goes straight to the engine; what needs
/// Python's own numbers of any size, or other arrays, takes the longer way in `_creation.py`.
#include "python/native_functions.h"

#include <array>

#include "apply.h"
#include "compute/backend.h"
#include "ops/creation.h"
#include "ops/movement.h"
#include "python/arguments.h"
#include "python/interop.h"
#include "python/operands.h"
#include "python/promote.h"
#include "transfer.h"

namespace hyalite::python {
namespace {

constexpr std::size_t most = 5;  ///< arguments of such a function
using Values = std::array<PyObject*, most>;

/// What a function takes. The text is what Python shows; names of the arguments stand in their order.
struct Takes {
  const char* op;
  std::array<const char*, most> names;
  int count;            ///< of all
  int positional_only;  ///< of the first
  int positional;       ///< may be given by place
  int required;         ///< of the first
  const char* text;     ///< the signature
};

[[noreturn, gnu::cold]] void refuse(const Takes& t, const std::string& what) { refuse_call(t.op, t.text, what); }

/// Arguments by place and name; null where one was not given.
Values sorted(const Takes& t, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  Values v{};
  const auto find = [&](std::string_view name) {
    for (int i = t.positional_only; i < t.count; ++i) {
      if (name == t.names[static_cast<std::size_t>(i)]) return std::ptrdiff_t{i};
    }
    return std::ptrdiff_t{-1};
  };
  const auto refused = [&](const std::string& what) { refuse(t, what); };
  sort_arguments(
      {v.data(), static_cast<std::size_t>(t.count)}, static_cast<std::size_t>(t.positional), args, n, names, find,
      [](std::string_view, PyObject*) { return false; }, refused);
  for (int i = 0; i < t.required; ++i) {
    if (v[static_cast<std::size_t>(i)] == nullptr) {
      refuse(t, std::string(t.names[static_cast<std::size_t>(i)]) + " is missing");
    }
  }
  return v;
}

bool given(PyObject* o) { return o != nullptr && o != Py_None; }

Ints shape_of(PyObject* o, const char* op) {
  return ints_argument(o, op, "shape", "an integer or a tuple of integers");
}

Dtype dtype_or(PyObject* o, const char* op, Dtype otherwise) { return given(o) ? dtype_argument(o, op) : otherwise; }
std::optional<Device> device_or_none(PyObject* o, const char* op) {
  if (given(o)) return device_argument(o, op);
  return context().device == Device{} ? std::nullopt : std::optional<Device>(context().device);
}

/// An operand as a tensor: a tensor, an array, or a number.
TensorRef operand(PyObject* x, const char* op, const char* name = "x") {
  if (is_tensor(x)) return TensorRef::share(impl_of(x));
  const bool array = !PyType_Check(x) && PyObject_HasAttrString(x, "__array_interface__") != 0;
  if (array) return asarray(x, {}, {});
  if (Unwrapped u; PyLong_Check(x) || PyFloat_Check(x) || PyComplex_Check(x)) {
    unwrap_or_scalar(x, u);
    return number_tensor(op, u, number_dtype(op, u));
  }
  throw TypeError(std::string(op) + "(): " + name + " must be a tensor, an array or a number, not " +
                      Py_TYPE(x)->tp_name + "; write hl.asarray(" + name + ")",
                  {{"op", std::string(op)}});
}

#define HYALITE_OP(name)                      \
  const OpInfo& name##_op() {                 \
    static const OpInfo& op = find_op(#name); \
    return op;                                \
  }
HYALITE_OP(full)
HYALITE_OP(empty)
HYALITE_OP(arange)
HYALITE_OP(astype)
HYALITE_OP(reshape)
#undef HYALITE_OP

// ---- creation -----------------------------------------------------------------------------------------------------

PyObject* made_empty(Ints&& shape, Dtype dtype, std::optional<Device> device) {
  const AttrRef attrs = Attributes::make_by([&] { return EmptyBackward::Attr{std::move(shape), dtype, device}; });
  return wrap(apply(empty_op(), {}, attrs.get()));
}
PyObject* made_full(Ints&& shape, const Scalar& value, Dtype dtype, std::optional<Device> device) {
  const AttrRef attrs = Attributes::make_by([&] { return FullBackward::Attr{std::move(shape), value, dtype, device}; });
  return wrap(apply(full_op(), {}, attrs.get()));
}

constexpr char shape_text[] = "(shape, *, dtype=None, device=None)";
constexpr char like_text[] = "(x, /, *, dtype=None, device=None)";
template <int value>  // -1: none
PyObject* constant(const Takes& t, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  const auto [shape, dtype, device, a, b] = sorted(t, args, n, names);
  Ints sizes = shape_of(shape, t.op);
  const Dtype to = dtype_or(dtype, t.op, Dtype::float32);
  const std::optional<Device> where = device_or_none(device, t.op);
  return value < 0 ? made_empty(std::move(sizes), to, where) : made_full(std::move(sizes), Scalar(value), to, where);
}
template <int value>
PyObject* constant_like(const Takes& t, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  const auto [x, dtype, device, a, b] = sorted(t, args, n, names);
  const TensorRef like = operand(x, t.op);
  Ints sizes(like->shape());
  const Dtype to = dtype_or(dtype, t.op, like->dtype());
  const std::optional<Device> where = given(device) ? device_or_none(device, t.op) : like->device();
  return value < 0 ? made_empty(std::move(sizes), to, where) : made_full(std::move(sizes), Scalar(value), to, where);
}

/// The Python function of the same name with an underscore, which knows every case.
PyObject* longer_way(const Takes& t, const char* module, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  const Owned package(check(PyImport_ImportModule(module)));
  const Owned function(check(PyObject_GetAttrString(package.get(), ("_" + std::string(t.op)).c_str())));
  return PyObject_Vectorcall(function.get(), args, static_cast<std::size_t>(n), names);
}

/// A number that has no dtype of its own.
bool is_number(PyObject* o) { return PyFloat_CheckExact(o) || PyLong_CheckExact(o) || PyBool_Check(o); }

PyObject* full(const Takes& t, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  const auto [shape, value, dtype, device, a] = sorted(t, args, n, names);
  Unwrapped u;
  if (!is_number(value) || !unwrap_or_scalar(value, u) || u.beyond != 0) {
    return longer_way(t, "hyalite._creation", args, n, names);
  }
  const Dtype to = given(dtype) ? dtype_argument(dtype, t.op) : number_dtype(t.op, u);
  if (u.scalar.kind > kind(to) && to != Dtype::boolean) return longer_way(t, "hyalite._creation", args, n, names);
  return made_full(shape_of(shape, t.op), number_in(t.op, u, to), to, device_or_none(device, t.op));
}

PyObject* arange(const Takes& t, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  const auto [start, stop, step, dtype, device] = sorted(t, args, n, names);
  // The commonest call, in which nothing can overflow.
  constexpr long long small = 1LL << 61;
  const auto whole = [&](PyObject* o, long long otherwise, long long& to) {
    to = otherwise;
    if (o == nullptr) return true;
    int beyond = 0;
    if (!PyLong_CheckExact(o)) return false;
    to = PyLong_AsLongLongAndOverflow(o, &beyond);
    return beyond == 0 && -small < to && to < small;
  };
  long long from, to, by;
  const bool one = !given(stop);
  const bool plain = whole(one ? nullptr : start, 0, from) && whole(one ? start : stop, 0, to) && whole(step, 1, by);
  if (!plain || by == 0 || given(dtype) || given(device)) return longer_way(t, "hyalite._creation", args, n, names);
  const long long span = to - from, count = (span / by) + ((span % by != 0) && ((span < 0) == (by < 0)));
  const AttrRef attrs = Attributes::make_by([&] {
    return ArangeBackward::Attr{Scalar(from), Scalar(by), std::max(count, 0LL), Dtype::int64, {}};
  });
  return wrap(apply(arange_op(), {}, attrs.get()));
}

PyObject* moved(TensorRef x, Device device) {
  return wrap(TensorRef::share(moved_to(Tensor::adopt(x.leak()), device).impl()));
}

PyObject* from_object(const Takes& t, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  const auto [object, dtype, device, copy, a] = sorted(t, args, n, names);
  // What is not there is said before anything is made.
  const std::optional<Device> place = device_or_none(device, t.op);
  if (place) for_device(context(), *place);
  const std::optional<Dtype> to = given(dtype) ? std::optional(dtype_argument(dtype, t.op)) : std::nullopt;
  TensorRef x = asarray(object, to, given(copy) ? optional_flag_argument(copy, t.op, "copy") : std::nullopt);
  // A tensor stays where it is unless its place is named.
  return place && (given(device) || !is_tensor(object)) ? moved(std::move(x), *place) : wrap(std::move(x));
}

// ---- movement -----------------------------------------------------------------------------------------------------

TensorRef converted(TensorImpl& x, Dtype dtype, bool check) {
  const Operand in = tensor_operand(&x);
  return apply(astype_op(), {&in, 1}, Attributes::make(AstypeBackward::Attr{dtype, check}).get());
}

PyObject* astype(const Takes& t, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  const auto [object, type, copy, checked, device] = sorted(t, args, n, names);
  TensorRef x = operand(object, t.op);
  const Dtype dtype = dtype_argument(type, t.op);
  if (given(device)) {
    const Owned there(moved(std::move(x), device_argument(device, t.op)));
    x = TensorRef::share(impl_of(there.get()));
  }
  const bool always = copy == nullptr || flag_argument(copy, t.op, "copy");
  const bool strict = checked != nullptr && flag_argument(checked, t.op, "check");
  if (!always && x->dtype() == dtype) return wrap(std::move(x));
  return wrap(converted(*x, dtype, strict));
}

/// `copy` as in NumPy: None where it must be, False never, True always.
PyObject* reshaped(TensorImpl& x, Ints shape, PyObject* copy) {
  const Operand in = tensor_operand(&x);
  TensorRef out = apply(reshape_op(), {&in, 1}, Attributes::make(ShapeAttr{std::move(shape)}));
  if (!given(copy)) return wrap(std::move(out));
  const bool wanted = flag_argument(copy, "reshape", "copy");
  const bool shared = out->numel() == 0 || out->storage() == x.storage();
  if (!wanted && !shared) {
    throw ValueError("reshape(): " + to_string(x.shape()) + " with strides " + to_string(x.strides()) +
                         " has no view as " + to_string(out->shape()) + "; write copy=None",
                     {{"op", std::string("reshape")}});
  }
  return wanted && shared ? wrap(converted(*out, out->dtype(), false)) : wrap(std::move(out));
}

PyObject* reshape(const Takes& t, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  const auto [object, shape, copy, a, b] = sorted(t, args, n, names);
  const TensorRef x = operand(object, t.op);
  return reshaped(*x, shape_of(shape, t.op), copy);
}

/// As a method: also the sizes themselves.
PyObject* reshape_method(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* names) noexcept {
  try {
    PyObject *shape = n == 1 ? args[0] : nullptr, *copy = nullptr;
    const Py_ssize_t named = names != nullptr ? PyTuple_GET_SIZE(names) : 0;
    for (Py_ssize_t k = 0; k < named; ++k) {
      PyObject* name = PyTuple_GET_ITEM(names, k);
      const bool is_shape = PyUnicode_CompareWithASCIIString(name, "shape") == 0;
      if (is_shape && (n == 0 || args[n + k] == Py_None)) {
        if (n == 0 && args[n + k] != Py_None) shape = args[n + k];
      } else if (PyUnicode_CompareWithASCIIString(name, "copy") == 0) {
        copy = args[n + k];
      } else {
        throw TypeError("reshape(): " + std::string(is_shape ? "takes one shape" : "unknown argument ") +
                            (is_shape ? "" : PyUnicode_AsUTF8(name)) +
                            "; write x.reshape((2, 3)), x.reshape(2, 3) or x.reshape(shape=(2, 3))",
                        {{"op", std::string("reshape")}});
      }
    }
    if (shape == nullptr && n > 1) {
      SmallVector<std::int64_t, Ints::most_inline> sizes;
      for (Py_ssize_t i = 0; i < n; ++i) {
        sizes.push_back(integer_argument(args[i], "reshape", "shape", "an integer or a tuple of integers"));
      }
      return reshaped(*impl_of(self), Ints(Dims(sizes.data(), sizes.size())), copy);
    }
    if (shape == nullptr) {
      throw TypeError("reshape(): takes one shape; write x.reshape((2, 3)), x.reshape(2, 3) or x.reshape(shape=(2, 3))",
                      {{"op", std::string("reshape")}});
    }
    return reshaped(*impl_of(self), shape_of(shape, "reshape"), copy);
  } catch (...) {
    return raise_current();
  }
}

// ---- the table ----------------------------------------------------------------------------------------------------

using Work = PyObject* (*)(const Takes&, PyObject* const*, Py_ssize_t, PyObject*);

constexpr Takes zeros_takes{"zeros", {"shape", "dtype", "device"}, 3, 0, 1, 1, shape_text};
constexpr Takes ones_takes{"ones", {"shape", "dtype", "device"}, 3, 0, 1, 1, shape_text};
constexpr Takes empty_takes{"empty", {"shape", "dtype", "device"}, 3, 0, 1, 1, shape_text};
constexpr Takes zeros_like_takes{"zeros_like", {"x", "dtype", "device"}, 3, 1, 1, 1, like_text};
constexpr Takes ones_like_takes{"ones_like", {"x", "dtype", "device"}, 3, 1, 1, 1, like_text};
constexpr Takes empty_like_takes{"empty_like", {"x", "dtype", "device"}, 3, 1, 1, 1, like_text};
constexpr Takes full_takes{"full", {"shape", "fill_value", "dtype", "device"},       4, 0, 2,
                           2,      "(shape, fill_value, *, dtype=None, device=None)"};
constexpr Takes arange_takes{"arange",
                             {"start", "stop", "step", "dtype", "device"},
                             5,
                             1,
                             3,
                             1,
                             "(start, /, stop=None, step=1, *, dtype=None, device=None)"};
constexpr Takes asarray_takes{
    "asarray", {"obj", "dtype", "device", "copy"}, 4, 1, 1, 1, "(obj, /, *, dtype=None, device=None, copy=None)"};
constexpr Takes astype_takes{"astype",
                             {"x", "dtype", "copy", "check", "device"},
                             5,
                             2,
                             2,
                             2,
                             "(x, dtype, /, *, copy=True, check=False, device=None)"};
constexpr Takes reshape_takes{"reshape", {"x", "shape", "copy"}, 3, 1, 2, 2, "(x, /, shape, *, copy=None)"};

template <const Takes& takes, Work work>
PyObject* function(PyObject*, PyObject* const* args, Py_ssize_t n, PyObject* names) noexcept {
  try {
    return work(takes, args, n, names);
  } catch (...) {
    return raise_current();
  }
}
/// The same as a method: x is the object.
template <const Takes& takes, Work work>
PyObject* method(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* names) noexcept {
  std::array<PyObject*, most + 1> all{self};
  const Py_ssize_t named = names != nullptr ? PyTuple_GET_SIZE(names) : 0;
  try {
    if (n + named > static_cast<Py_ssize_t>(most)) refuse(takes, "takes fewer arguments");
    std::copy_n(args, n + named, all.begin() + 1);
    return work(takes, all.data(), n + 1, names);
  } catch (...) {
    return raise_current();
  }
}

#define HYALITE_NATIVE(name, work, signature, doc)                                                    \
  {                                                                                                   \
#name, reinterpret_cast < PyCFunction>(reinterpret_cast <void*>(&function <name##_takes, work>)), \
        METH_FASTCALL | METH_KEYWORDS, #name signature "\n--\n\n" doc                                 \
  }

PyMethodDef functions[] = {
    HYALITE_NATIVE(zeros, constant<0>, "(shape, *, dtype=None, device=None)", "A tensor of zeros, float32 by default."),
    HYALITE_NATIVE(ones, constant<1>, "(shape, *, dtype=None, device=None)", "A tensor of ones, float32 by default."),
    HYALITE_NATIVE(empty, constant<-1>, "(shape, *, dtype=None, device=None)",
                   "Memory that is not initialised. Raises OutOfMemory, or ValueError for a shape beyond 64 bits."),
    HYALITE_NATIVE(zeros_like, constant_like<0>, "(x, /, *, dtype=None, device=None)",
                   "Zeros in the shape and dtype of `x`."),
    HYALITE_NATIVE(ones_like, constant_like<1>, "(x, /, *, dtype=None, device=None)",
                   "Ones in the shape and dtype of `x`."),
    HYALITE_NATIVE(empty_like, constant_like<-1>, "(x, /, *, dtype=None, device=None)",
                   "Memory of the shape and dtype of `x`, not initialised."),
    HYALITE_NATIVE(
        full, full, "(shape, fill_value, *, dtype=None, device=None)",
        "A tensor filled with a number, a NumPy scalar or a tensor without dimensions, whose gradient is the "
        "sum.\n\nThe default dtype is that of the number's kind, or the scalar's own. Raises OverflowError "
        "for an int that the dtype\ndoes not hold, TypeError for a number of a higher kind."),
    HYALITE_NATIVE(arange, arange, "(start, /, stop=None, step=1, *, dtype=None, device=None)",
                   "ceil((stop - start) / step) elements start + i * step, each rounded once.\n\nIntegers give int64, "
                   "or uint64 where only that holds them; with a NumPy scalar or a tensor among the numbers their\n"
                   "common dtype. Raises OverflowError for an element that the dtype does not hold."),
    HYALITE_NATIVE(
        asarray, from_object, "(obj, /, *, dtype=None, device=None, copy=None)",
        "A tensor of numbers, nested lists, an array or anything with a buffer or DLPack.\n\nMemory is shared where it "
        "can be, unless `copy` is true; `copy=False` raises ValueError where it cannot. Tensors\nover memory that "
        "overlaps count their writes together (`x.version`). What is written from outside is not counted,\nso what a "
        "gradient needs of shared memory is copied when an operation is recorded. A NumPy array with masked\nelements "
        "raises ValueError."),
    HYALITE_NATIVE(astype, astype, "(x, dtype, /, *, copy=True, check=False, device=None)",
                   "`x` in another dtype, rounded once; `check=True` raises ValueError naming the first element not to "
                   "survive.\n\nNew memory, unless `copy=False` and the dtype is the same: then `x` itself."),
    HYALITE_NATIVE(reshape, reshape, "(x, /, shape, *, copy=None)",
                   "The same elements in row-major order under another shape; one size may be -1.\n\nA view where the "
                   "strides allow it. `copy=False` raises ValueError where they do not, `copy=True` always copies."),
    {nullptr, nullptr, 0, nullptr}};
#undef HYALITE_NATIVE

PyMethodDef methods[] = {
    {"astype", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&method<astype_takes, astype>)),
     METH_FASTCALL | METH_KEYWORDS,
     "astype($self, dtype, /, *, copy=True, check=False, device=None)\n--\n\n"
     "`x` in another dtype, rounded once; as hl.astype."},
    {"reshape", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&reshape_method)), METH_FASTCALL | METH_KEYWORDS,
     "reshape($self, /, *sizes, shape=None, copy=None)\n--\n\n"
     "The same elements in row-major order under another shape, a tuple or the sizes themselves; as hl.reshape."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool add_native_functions(PyObject* module) {
  const Owned name(PyUnicode_InternFromString("hyalite"));
  for (PyMethodDef* d = functions; d->ml_name != nullptr; ++d) {
    const Owned f(PyCFunction_NewEx(d, nullptr, name.get()));
    if (!f || PyObject_SetAttrString(module, d->ml_name, f.get()) < 0) return false;
  }
  for (PyMethodDef* d = methods; d->ml_name != nullptr; ++d) {
    const Owned m(PyDescr_NewMethod(tensor_type, d));
    if (!m || PyObject_SetAttrString(reinterpret_cast<PyObject*>(tensor_type), d->ml_name, m.get()) < 0) return false;
  }
  return true;
}

}  // namespace hyalite::python
