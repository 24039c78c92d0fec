/// Arrow's PyCapsule interface: tensors as columns, over the same memory where they lie densely.
/// https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apply.h"
#include "compute/backend.h"
#include "python/foreign.h"
#include "python/interop.h"

namespace hyalite::python {
namespace {

// The structures of the C data interface, a public binary interface.

struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  std::int64_t flags;
  std::int64_t n_children;
  ArrowSchema** children;
  ArrowSchema* dictionary;
  void (*release)(ArrowSchema*);
  void* private_data;
};

struct ArrowArray {
  std::int64_t length;
  std::int64_t null_count;
  std::int64_t offset;
  std::int64_t n_buffers;
  std::int64_t n_children;
  const void** buffers;
  ArrowArray** children;
  ArrowArray* dictionary;
  void (*release)(ArrowArray*);
  void* private_data;
};

/// The code of an element type; null where Arrow has none.
const char* format_of(Dtype t) {
  switch (t) {
    case Dtype::boolean:
      return "b";
    case Dtype::int8:
      return "c";
    case Dtype::uint8:
      return "C";
    case Dtype::int16:
      return "s";
    case Dtype::uint16:
      return "S";
    case Dtype::int32:
      return "i";
    case Dtype::uint32:
      return "I";
    case Dtype::int64:
      return "l";
    case Dtype::uint64:
      return "L";
    case Dtype::float16:
      return "e";
    case Dtype::float32:
      return "f";
    case Dtype::float64:
      return "g";
    default:
      return nullptr;
  }
}

// Each structure may outlive its parent, so each owns its children and what it points to.

struct SchemaOwner {
  std::string format;
  ArrowSchema child{};
  ArrowSchema* children[1] = {nullptr};
};

void release_schema(ArrowSchema* s) {
  auto* owner = static_cast<SchemaOwner*>(s->private_data);
  if (owner->child.release != nullptr) owner->child.release(&owner->child);
  delete owner;
  s->release = nullptr;
}

/// Lists of fixed size, one in the other, for the axes after the first.
void fill_schema(const TensorImpl& t, std::size_t axis, ArrowSchema& s) {
  auto owner = std::make_unique<SchemaOwner>();
  const bool innermost = axis + 1 == t.shape().size();
  owner->format = innermost ? format_of(t.dtype()) : "+w:" + std::to_string(t.shape()[axis + 1]);
  if (!innermost) {
    fill_schema(t, axis + 1, owner->child);
    owner->children[0] = &owner->child;
  }
  constexpr std::int64_t nullable = 2;
  s.format = owner->format.c_str();
  s.name = axis == 0 ? "" : "item";
  s.flags = nullable;
  s.n_children = innermost ? 0 : 1;
  s.children = owner->children;
  s.release = release_schema;
  s.private_data = owner.get();
  static_cast<void>(owner.release());
}

struct ArrayOwner {
  Loan loan;                       // of the innermost: the elements
  std::vector<std::uint8_t> bits;  // booleans, eight a byte
  const void* buffers[2] = {nullptr, nullptr};
  ArrowArray child{};
  ArrowArray* children[1] = {nullptr};
};

/// A consumer may call it from any thread, with or without the GIL.
void release_array(ArrowArray* a) {
  auto* owner = static_cast<ArrayOwner*>(a->private_data);
  if (owner->child.release != nullptr) owner->child.release(&owner->child);
  delete owner;
  a->release = nullptr;
}

std::vector<std::uint8_t> packed(const TensorImpl& t) {
  std::vector<std::uint8_t> bits(static_cast<std::size_t>(t.numel() + 7) / 8, 0);
  const std::byte* from = host_address(t);
  for (std::int64_t i = 0; i < t.numel(); ++i) {
    const bool on = from[i] != std::byte{0};
    bits[static_cast<std::size_t>(i / 8)] |= static_cast<std::uint8_t>(on << (i % 8));
  }
  return bits;
}

void fill_array(const TensorRef& t, std::size_t axis, std::int64_t length, ArrowArray& a) {
  static const std::uint64_t nothing = 0;  // an address for buffers without bytes
  const bool innermost = axis + 1 == t->shape().size();
  std::unique_ptr<ArrayOwner> owner(innermost && t->dtype() != Dtype::boolean ? new ArrayOwner{Loan(t, false), {}}
                                                                              : new ArrayOwner);
  if (innermost) {
    if (t->dtype() == Dtype::boolean) owner->bits = packed(*t);
    owner->buffers[1] = t->numel() == 0                ? static_cast<const void*>(&nothing)
                        : t->dtype() == Dtype::boolean ? static_cast<const void*>(owner->bits.data())
                                                       : host_address(*t);
  } else {
    fill_array(t, axis + 1, length * t->shape()[axis + 1], owner->child);
    owner->children[0] = &owner->child;
  }
  a.length = length;
  a.n_buffers = innermost ? 2 : 1;
  a.n_children = innermost ? 0 : 1;
  a.buffers = owner->buffers;
  a.children = owner->children;
  a.release = release_array;
  a.private_data = owner.get();
  static_cast<void>(owner.release());
}

/// A capsule frees what no consumer has taken.
template <class T, const char* const& name>
Owned capsule(std::unique_ptr<T> held) {
  Owned made(check(PyCapsule_New(held.get(), name, [](PyObject* o) {
    auto* s = static_cast<T*>(PyCapsule_GetPointer(o, name));
    if (s->release != nullptr) s->release(s);
    delete s;
  })));
  static_cast<void>(held.release());
  return made;
}

const char* const schema_name = "arrow_schema";
const char* const array_name = "arrow_array";

void check_arrow(const TensorImpl& t, const char* what) {
  need_host(t, what);
  if (t.ndim() == 0) {
    throw TypeError(std::string(what) + "(): Arrow has columns, and a 0-d tensor is none; write hl.reshape(x, (1,))");
  }
  if (format_of(t.dtype()) == nullptr) {
    const std::string own(name(t.dtype()));
    throw TypeError(std::string(what) + "(): Arrow has no " + own + "; write x.astype(hl.float32)" +
                        (is_complex(t.dtype()) ? ", or x.real and x.imag" : ""),
                    {{"dtype", own}});
  }
}

/// The element type that a consumer asks for, through lists; the tensor's own where it asks for something else.
Dtype requested_dtype(PyObject* schema, Dtype own) {
  if (schema == nullptr || schema == Py_None) return own;
  const auto* s = static_cast<const ArrowSchema*>(PyCapsule_GetPointer(schema, schema_name));
  if (s == nullptr) throw PythonError();
  while (s->n_children == 1 && s->format[0] == '+') s = s->children[0];
  for (int i = 0; i < dtype_count; ++i) {
    const char* format = format_of(static_cast<Dtype>(i));
    if (format != nullptr && std::string_view(format) == s->format) return static_cast<Dtype>(i);
  }
  return own;
}

Owned schema_capsule(const TensorImpl& t) {
  auto schema = std::make_unique<ArrowSchema>();
  fill_schema(t, 0, *schema);
  return capsule<ArrowSchema, schema_name>(std::move(schema));
}

}  // namespace

PyObject* arrow_schema(TensorImpl* t) {
  check_arrow(*t, "__arrow_c_schema__");
  return schema_capsule(*t).leak();
}

PyObject* arrow_array(TensorImpl* t, PyObject* requested) {
  need_no_gradient(*t, "numpy");
  check_arrow(*t, "__arrow_c_array__");
  TensorRef dense = TensorRef::share(t);
  if (const Dtype wanted = requested_dtype(requested, t->dtype()); wanted != t->dtype()) {
    // Every element survives, or ValueError.
    dense = TensorRef::adopt(astype(Tensor::share(t), wanted, true).leak());
  } else if (!t->contiguous()) {
    dense = copy_of(*t, t->dtype());
  }
  const Owned schema = schema_capsule(*dense);
  auto array = std::make_unique<ArrowArray>();
  fill_array(dense, 0, t->shape()[0], *array);
  const Owned data = capsule<ArrowArray, array_name>(std::move(array));
  return check(PyTuple_Pack(2, schema.get(), data.get()));
}

}  // namespace hyalite::python
