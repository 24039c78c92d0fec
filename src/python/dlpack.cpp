/// DLPack in both directions: capsules with and without a version.
#include <array>
#include <cstdlib>

#include "compute/backend.h"
#include "python/dlpack_abi.h"
#include "python/foreign.h"
#include "python/interop.h"
#include "record/autograd_meta.h"

namespace hyalite::python {
namespace {

// ---- dtypes ----

struct TypeRow {
  Dtype dtype;
  std::uint8_t code;
};
constexpr std::array<TypeRow, 4> special_codes{{{Dtype::boolean, dlpack::type_bool},
                                                {Dtype::bfloat16, dlpack::type_bfloat},
                                                {Dtype::float8_e4m3fn, dlpack::type_float8_e4m3fn},
                                                {Dtype::float8_e5m2, dlpack::type_float8_e5m2}}};

std::uint8_t code_of(Dtype t) {
  for (const TypeRow& row : special_codes) {
    if (row.dtype == t) return row.code;
  }
  if (is_complex(t)) return dlpack::type_complex;
  if (is_floating(t)) return dlpack::type_float;
  return is_signed_integer(t) ? dlpack::type_int : dlpack::type_uint;
}

dlpack::DataType type_of(Dtype t) { return {code_of(t), static_cast<std::uint8_t>(8 * itemsize(t)), 1}; }

bool dtype_of(const dlpack::DataType& d, Dtype& to) {
  for (int i = 0; i < dtype_count; ++i) {
    const dlpack::DataType own = type_of(static_cast<Dtype>(i));
    if (own.code != d.code || own.bits != d.bits || d.lanes != 1) continue;
    to = static_cast<Dtype>(i);
    return true;
  }
  return false;
}

// ---- export ----

/// What a capsule holds: the tensor, and the structure that a consumer reads and finally hands to `deleter`.
template <class M>
struct Export {
  explicit Export(TensorRef tensor) : loan(std::move(tensor)) {}
  M managed{};
  Loan loan;
  std::array<std::int64_t, 2 * max_rank> dims{};
};

template <class M>
void delete_export(M* managed) {
  delete static_cast<Export<M>*>(managed->context);
}

/// Strides of axes without a second element are free; consumers want those that a dense tensor would have.
void canonical_strides(const TensorImpl& t, std::int64_t* to) {
  const int n = t.ndim();
  const DimList dense = row_major(t.shape());
  for (int i = n - 1; i >= 0; --i) {
    const std::int64_t outside = i == n - 1 ? 1 : to[i + 1] * t.shape()[i + 1];
    to[i] = t.numel() == 0 ? dense[i] : t.shape()[i] == 1 ? std::abs(outside) : t.strides()[i];
  }
}

template <class M>
const char* capsule_name() {
  return std::is_same_v<M, dlpack::Managed> ? dlpack::name : dlpack::versioned_name;
}
template <class M>
const char* used_capsule_name() {
  return std::is_same_v<M, dlpack::Managed> ? dlpack::used_name : dlpack::used_versioned_name;
}

/// Runs when Python frees the capsule; a consumer has renamed it and frees the tensor itself.
template <class M>
void destroy_capsule(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, capsule_name<M>()) == 0) return;
  M* managed = static_cast<M*>(PyCapsule_GetPointer(capsule, capsule_name<M>()));
  if (managed->deleter != nullptr) managed->deleter(managed);
}

template <class M>
PyObject* export_capsule(TensorRef tensor, bool copied, std::uint32_t minor) {
  auto e = std::make_unique<Export<M>>(std::move(tensor));
  const TensorImpl& t = e->loan.tensor();
  const int n = t.ndim();
  std::copy(t.shape().begin(), t.shape().end(), e->dims.begin());
  canonical_strides(t, e->dims.data() + n);
  e->managed.tensor = {host_address(t), {dlpack::cpu, 0}, n, type_of(t.dtype()), e->dims.data(), e->dims.data() + n, 0};
  e->managed.context = e.get();
  e->managed.deleter = delete_export<M>;
  if constexpr (std::is_same_v<M, dlpack::ManagedVersioned>) {
    e->managed.version = {dlpack::major_version, minor};
    e->managed.flags = (e->loan.writable() ? 0 : dlpack::flag_read_only) | (copied ? dlpack::flag_copied : 0);
  }
  PyObject* capsule = check(PyCapsule_New(&e->managed, capsule_name<M>(), destroy_capsule<M>));
  static_cast<void>(e.release());
  return capsule;
}

bool given(PyObject* o) { return o != nullptr && o != Py_None; }

/// A tuple of two ints; of more than 64 bits, the nearest that has them.
std::pair<long, long> pair_from(PyObject* o, const char* what) {
  const bool two = PyTuple_Check(o) && PyTuple_GET_SIZE(o) == 2;
  if (!two || !PyIndex_Check(PyTuple_GET_ITEM(o, 0)) || !PyIndex_Check(PyTuple_GET_ITEM(o, 1))) {
    const Owned text(PyObject_Repr(o));
    const char* given = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
    if (given == nullptr) PyErr_Clear();
    throw TypeError(std::string("__dlpack__(): ") + what + " has to be a tuple of two ints such as (1, 0), not " +
                    (given != nullptr ? given : Py_TYPE(o)->tp_name));
  }
  long values[2];
  for (int i = 0; i < 2; ++i) {
    values[i] = static_cast<long>(PyNumber_AsSsize_t(PyTuple_GET_ITEM(o, i), nullptr));
    if (values[i] == -1 && PyErr_Occurred() != nullptr) throw PythonError();
  }
  return {values[0], values[1]};
}

// ---- import ----

/// Hands the structure back to the library it came from.
template <class M>
struct ManagedKeeper final : Keeper {
  explicit ManagedKeeper(M* m) : managed(m) {}
  ~ManagedKeeper() override {
    if (managed->deleter != nullptr) managed->deleter(managed);
  }
  M* managed;
};

ForeignMemory memory_of(const dlpack::DLTensor& t) {
  if (t.device.type != dlpack::cpu && t.device.type != dlpack::cuda_host && t.device.type != dlpack::rocm_host) {
    throw BufferError("from_dlpack(): the memory lies on DLPack device type " + std::to_string(t.device.type) +
                          ", which the CPU does not read; write x.cpu() or the like first",
                      {{"device_type", std::int64_t{t.device.type}}});
  }
  ForeignMemory m;
  if (!dtype_of(t.dtype, m.dtype)) {
    throw BufferError("from_dlpack(): type code " + std::to_string(t.dtype.code) + " with " +
                      std::to_string(t.dtype.bits) + " bits and " + std::to_string(t.dtype.lanes) +
                      " lanes has no dtype here; convert it in the library it comes from");
  }
  if (t.ndim < 0 || t.ndim > max_rank || (t.ndim > 0 && t.shape == nullptr)) {
    throw BufferError("from_dlpack(): " + std::to_string(t.ndim) + " dimensions; a tensor has 0 to 64");
  }
  const Dims shape(t.shape, static_cast<std::size_t>(t.ndim));
  const std::int64_t size = static_cast<std::int64_t>(itemsize(m.dtype));
  const std::int64_t numel = checked_numel(shape, itemsize(m.dtype));
  m.shape = DimList(shape);
  m.strides = row_major(shape);
  for (int i = 0; i < t.ndim; ++i) {
    const bool free_choice = numel == 0 || t.strides == nullptr || shape[i] == 1;
    const std::int64_t stride = free_choice ? m.strides[i] : t.strides[i];
    if (__builtin_mul_overflow(stride, size, &m.strides[i])) {
      throw BufferError("from_dlpack(): a stride of " + std::to_string(stride) + " elements spans more than 64 bits");
    }
  }
  if (t.data == nullptr && numel != 0) throw BufferError("from_dlpack(): a null pointer to " + to_string(shape));
  if (t.data != nullptr) m.data = static_cast<std::byte*>(t.data) + t.byte_offset;
  return m;
}

struct ImportRequest {
  std::optional<Dtype> dtype;
  std::optional<bool> copy;
  Border border;
};

template <class M>
TensorRef consume(PyObject* capsule, ImportRequest r) {
  M* managed = static_cast<M*>(PyCapsule_GetPointer(capsule, capsule_name<M>()));
  bool read_only = false;
  if constexpr (std::is_same_v<M, dlpack::ManagedVersioned>) {
    // Until it is renamed the capsule frees itself, also of a version that cannot be read.
    if (managed->version.major > dlpack::major_version) {
      throw BufferError("from_dlpack(): DLPack " + std::to_string(managed->version.major) + "." +
                        std::to_string(managed->version.minor) + " is newer than version 1, which is read here");
    }
    read_only = (managed->flags & dlpack::flag_read_only) != 0;
    const bool copied = (managed->flags & dlpack::flag_copied) != 0;
    if (copied && r.copy == false) throw_copy_needed(r.border, "the library it comes from made a copy");
    if (copied && !read_only && r.copy == true) r.copy = std::nullopt;
  }
  ForeignMemory m = memory_of(managed->tensor);
  m.read_only = read_only;
  if (PyCapsule_SetName(capsule, used_capsule_name<M>()) != 0) throw PythonError();
  KeeperPtr keeper;
  try {
    keeper = std::make_unique<ManagedKeeper<M>>(managed);
  } catch (...) {
    PyCapsule_SetName(capsule, capsule_name<M>());
    throw;
  }
  return import_memory(m, std::move(keeper), r.dtype, r.copy, r.border);
}

TensorRef consume_any(PyObject* capsule, const ImportRequest& r) {
  if (PyCapsule_IsValid(capsule, dlpack::versioned_name) != 0) return consume<dlpack::ManagedVersioned>(capsule, r);
  if (PyCapsule_IsValid(capsule, dlpack::name) != 0) return consume<dlpack::Managed>(capsule, r);
  throw BufferError("from_dlpack(): this is no unused DLPack capsule; each can be consumed once");
}

/// Turns the BufferError or ValueError being set, with which the other library refused copy=False, into ours.
[[noreturn]] void refuse_copy(Border border) {
  if (!PyErr_ExceptionMatches(PyExc_BufferError) && !PyErr_ExceptionMatches(PyExc_ValueError)) throw PythonError();
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  const Owned held_type(type), held_value(value), held_trace(trace);
  const Owned text(PyObject_Str(value));
  const char* reason = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  PyErr_Clear();
  throw_copy_needed(border, "the library it comes from refuses: " + std::string(reason != nullptr ? reason : "?"));
}

/// Calls `__dlpack__` as a producer of DLPack 1.0 wants it, and where that is one keyword too many, as an older one.
Owned ask_for_capsule(PyObject* obj, const ImportRequest& r) {
  const Owned method(check(PyObject_GetAttrString(obj, "__dlpack__")));
  const Owned arguments(check(PyTuple_New(0)));
  const Owned keywords(check(Py_BuildValue("{s:(II)}", "max_version", dlpack::major_version, dlpack::minor_version)));
  // A dtype that differs makes a copy here, so none is asked for there.
  const bool passes_copy = r.copy && !r.dtype;
  if (passes_copy && PyDict_SetItemString(keywords.get(), "copy", *r.copy ? Py_True : Py_False) != 0)
    throw PythonError();
  PyObject* capsule = PyObject_Call(method.get(), arguments.get(), keywords.get());
  if (capsule == nullptr && PyErr_ExceptionMatches(PyExc_TypeError)) {
    PyErr_Clear();
    capsule = PyObject_CallNoArgs(method.get());
  }
  if (capsule == nullptr && r.copy == false) refuse_copy(r.border);
  return Owned(check(capsule));
}

void check_device(PyObject* obj) {
  const Owned method(PyObject_GetAttrString(obj, "__dlpack_device__"));
  if (!method) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) throw PythonError();
    PyErr_Clear();  // the capsule names the device too
    return;
  }
  const Owned device(check(PyObject_CallNoArgs(method.get())));
  const auto [type, id] = pair_from(device.get(), "the result of __dlpack_device__");
  if (type == dlpack::cpu || type == dlpack::cuda_host || type == dlpack::rocm_host) return;
  throw BufferError("from_dlpack(): the memory lies on DLPack device type " + std::to_string(type) +
                        ", which the CPU does not read; write x.cpu() or the like first",
                    {{"device_type", std::int64_t{type}}});
}

}  // namespace

TensorRef import_dlpack(PyObject* obj, std::optional<Dtype> dtype, std::optional<bool> copy, Border border) {
  const ImportRequest r{dtype, copy, border};
  check_device(obj);
  const Owned capsule = ask_for_capsule(obj, r);
  return consume_any(capsule.get(), r);
}

TensorRef from_dlpack(PyObject* obj, std::optional<bool> copy) {
  if (is_tensor(obj)) {
    // The same storage, so that writes on either side are counted as one.
    TensorImpl& t = *impl_of(obj);
    if (wants_grad(t))
      throw BufferError("from_dlpack(): the tensor requires a gradient; write hl.from_dlpack(x.detach())");
    need_host(t, "from_dlpack");
    if (copy == true) return copy_of(t, t.dtype());
    return TensorImpl::make(t.dtype(), t.device(), t.shape(), t.strides(), t.storage_ref(), t.offset());
  }
  if (PyCapsule_CheckExact(obj)) return consume_any(obj, {std::nullopt, copy, Border::from_dlpack});
  if (PyType_Check(obj) || PyObject_HasAttrString(obj, "__dlpack__") == 0) {
    throw TypeError("from_dlpack(): an object of type '" + std::string(Py_TYPE(obj)->tp_name) +
                    "' has no __dlpack__; write hl.asarray(x)");
  }
  return import_dlpack(obj, std::nullopt, copy, Border::from_dlpack);
}

PyObject* to_dlpack(TensorImpl* t, PyObject* stream, PyObject* max_version, PyObject* dl_device, PyObject* copy) {
  if (wants_grad(*t)) throw BufferError("__dlpack__(): the tensor requires a gradient; export x.detach()");
  if (t->device().kind != DeviceKind::cpu) {
    throw BufferError("__dlpack__(): the tensor lies on " + to_string(t->device()) + "; export x.to_device(\"cpu\")");
  }
  if (given(stream)) throw BufferError("__dlpack__(): the CPU has no streams; write stream=None");
  if (given(dl_device) && pair_from(dl_device, "dl_device") != std::pair<long, long>(dlpack::cpu, 0)) {
    throw BufferError("__dlpack__(): the tensor lies on the CPU, DLPack device (1, 0), and goes to no other");
  }
  const auto [major, minor] = given(max_version) ? pair_from(max_version, "max_version") : std::pair<long, long>(0, 0);
  const int wants_copy = given(copy) ? PyObject_IsTrue(copy) : 0;
  if (wants_copy < 0) throw PythonError();
  TensorRef tensor = TensorRef::share(t);
  if (wants_copy != 0) tensor = copy_of(*t, t->dtype());
  if (major >= 1) {
    const std::uint32_t least = major == 1 && minor >= 0 && minor < static_cast<long>(dlpack::minor_version)
                                    ? static_cast<std::uint32_t>(minor)
                                    : dlpack::minor_version;
    return export_capsule<dlpack::ManagedVersioned>(std::move(tensor), wants_copy != 0, least);
  }
  if (read_only_outside(*tensor)) {
    throw BufferError(std::string("__dlpack__(): the tensor is read-only") +
                      (tensor->storage()->read_only() ? "" : ", since a stride of 0 repeats elements") +
                      ", which only versioned capsules can say; ask with max_version=(1, 0), or for copy=True");
  }
  return export_capsule<dlpack::Managed>(std::move(tensor), wants_copy != 0, 0);
}

PyObject* dlpack_device(TensorImpl* t) {
  constexpr std::array<int, 4> types{dlpack::cpu, dlpack::cuda, dlpack::opencl, dlpack::metal};
  return check(
      Py_BuildValue("(ii)", types[static_cast<std::size_t>(t->device().kind)], static_cast<int>(t->device().index)));
}

}  // namespace hyalite::python
