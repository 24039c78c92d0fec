/// x[key] and x[key] = value: integers, slices, None, Ellipsis as views; one index array or mask as a gather.
#include <optional>

#include "apply.h"
#include "python/interop.h"
#include "python/operands.h"
#include "python/promote.h"
#include "python/tensor_type.h"

namespace hyalite::python {
namespace {

/// A key in the axes' own terms.
struct Plan {
  Shape starts, steps, sizes;   // of the slice op, one an axis of x
  Shape drop;                   // axes that an integer took away
  Shape fresh;                  // places of None in the result
  std::optional<Tensor> index;  // an index array or mask
  int index_axis = 0;           // of x
  int index_place = 0;          // its axis after slicing and dropping
};

Tensor handle(PyObject* o) { return Tensor::share(impl_of(o)); }

bool is_mask(const Tensor& t) { return t.dtype() == Dtype::boolean; }

/// Items of the key, a tuple or one thing.
std::vector<PyObject*> items_of(PyObject* key) {
  if (!PyTuple_Check(key)) return {key};
  std::vector<PyObject*> r;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i) r.push_back(PyTuple_GET_ITEM(key, i));
  return r;
}

/// A list, array or tensor that indexes; empty for what is no array. 0-d integers count as integers.
std::optional<Tensor> array_key(PyObject* o) {
  if (o == Py_None || o == Py_Ellipsis || PySlice_Check(o) || PyLong_CheckExact(o)) return {};
  if (is_tensor(o)) return handle(o);
  if (PyBool_Check(o)) return Tensor::adopt(asarray(o, {}, {}).leak());
  if (PyList_Check(o)) {
    const bool none = PyList_GET_SIZE(o) == 0;
    return Tensor::adopt(asarray(o, none ? std::optional<Dtype>(Dtype::int64) : std::nullopt, {}).leak());
  }
  // NumPy's arrays and scalars; its integers without dimensions then count as integers.
  if (PyObject_HasAttrString(o, "__array_interface__")) return Tensor::adopt(asarray(o, {}, {}).leak());
  return {};
}

std::int64_t index_value(PyObject* o) {
  const Owned i(PyNumber_Index(o));
  if (!i) {
    PyErr_Clear();
    throw IndexError(
        std::string("an index must be an integer, a slice, None, ... or an array of integers or booleans, not ") +
            Py_TYPE(o)->tp_name,
        {});
  }
  const long long v = PyLong_AsLongLong(i.get());
  if (v == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    throw IndexError("an index beyond 64 bits is out of range", {});
  }
  return v;
}

void take_axis(Plan& p, const TensorImpl& x, int axis, PyObject* item) {
  const std::int64_t size = x.shape()[axis];
  if (PySlice_Check(item)) {
    Py_ssize_t start, stop, step;
    if (PySlice_Unpack(item, &start, &stop, &step) < 0) throw PythonError();
    const Py_ssize_t n = PySlice_AdjustIndices(size, &start, &stop, step);
    p.starts.push_back(start);
    p.steps.push_back(step);
    p.sizes.push_back(n);
    return;
  }
  const std::int64_t given = index_value(item), at = given < 0 ? given + size : given;
  if (at < 0 || at >= size) {
    throw IndexError("index " + std::to_string(given) + " is out of range for axis " + std::to_string(axis) +
                         " of size " + std::to_string(size),
                     {{"index", given}, {"axis", std::int64_t{axis}}, {"size", size}});
  }
  p.starts.push_back(at);
  p.steps.push_back(1);
  p.sizes.push_back(1);
  p.drop.push_back(axis);
}

void whole_axis(Plan& p, const TensorImpl& x, int axis) {
  p.starts.push_back(0);
  p.steps.push_back(1);
  p.sizes.push_back(x.shape()[axis]);
}

Plan make_plan(const TensorImpl& x, PyObject* key) {
  const std::vector<PyObject*> items = items_of(key);
  std::vector<std::optional<Tensor>> arrays;
  int used = 0, ellipses = 0;
  for (PyObject* o : items) {
    arrays.push_back(array_key(o));
    const auto& a = arrays.back();
    ellipses += o == Py_Ellipsis;
    if (o == Py_None || o == Py_Ellipsis) continue;
    used += a && is_mask(*a) ? a->ndim() : 1;
  }
  if (ellipses > 1) throw IndexError("an index can have one ..., not more", {});
  if (used > x.ndim()) {
    throw IndexError("too many indices: " + std::to_string(used) + " for " + std::to_string(x.ndim()) + " axes",
                     {{"ndim", std::int64_t{x.ndim()}}});
  }
  Plan p;
  int axis = 0, place = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    PyObject* o = items[i];
    if (o == Py_None) {
      p.fresh.push_back(place++);
    } else if (o == Py_Ellipsis) {
      for (int k = x.ndim() - used; k > 0; --k, ++place) whole_axis(p, x, axis++);
    } else if (arrays[i] && (arrays[i]->ndim() > 0 || is_mask(*arrays[i]))) {
      if (p.index)
        throw Unsupported("indexing with more than one array is not there yet; index one axis after the other", {});
      p.index = arrays[i];
      p.index_axis = axis;
      p.index_place = place;
      const int span = is_mask(*p.index) ? p.index->ndim() : 1;
      for (int k = 0; k < span; ++k) whole_axis(p, x, axis++);
      place += span;
    } else {
      const std::size_t dropped = p.drop.size();
      take_axis(p, x, axis++, o);
      place += p.drop.size() == dropped;
    }
  }
  while (axis < x.ndim()) whole_axis(p, x, axis++);
  return p;
}

bool is_whole(const Plan& p, const TensorImpl& x) {
  for (int i = 0; i < x.ndim(); ++i) {
    if (p.starts[i] != 0 || p.steps[i] != 1 || p.sizes[i] != x.shape()[i]) return false;
  }
  return true;
}

/// The view of everything but an index array.
Tensor basic(const Tensor& x, const Plan& p) {
  Tensor r = x;
  if (!is_whole(p, *x.impl())) r = slice(r, p.starts, p.steps, p.sizes);
  if (!p.drop.empty()) r = squeeze(r, Axes(p.drop));
  if (!p.fresh.empty()) r = expand_dims(r, p.fresh);
  return r.impl() == x.impl() ? reshape(x, to_vector(x.shape())) : r;
}

/// Positions of the true elements, in row-major order.
Tensor true_positions(const Tensor& mask) {
  const TensorRef dense = clone(*mask.impl());
  const auto* p = reinterpret_cast<const std::uint8_t*>(dense->data());
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < dense->numel(); ++i) count += p[i];
  TensorRef r = TensorImpl::empty(Dtype::int64, DimList{count});
  auto* to = reinterpret_cast<std::int64_t*>(r->data());
  for (std::int64_t i = 0; i < dense->numel(); ++i) {
    if (p[i] != 0) *to++ = i;
  }
  return Tensor::adopt(r.leak());
}

void check_mask(const Tensor& x, const Plan& p) {
  const std::span<const std::int64_t> mask = p.index->shape();
  for (std::size_t i = 0; i < mask.size(); ++i) {
    const std::int64_t size = x.shape()[static_cast<std::size_t>(p.index_axis) + i];
    if (mask[i] == size || mask[i] == 0) continue;
    throw IndexError("a mask of shape " + to_string(mask) + " does not match axis " +
                         std::to_string(p.index_axis + static_cast<int>(i)) + " of size " + std::to_string(size),
                     {{"axis", std::int64_t{p.index_axis} + static_cast<std::int64_t>(i)}, {"size", size}});
  }
}

/// One index array or mask, applied to the view of the rest.
Tensor gathered(const Tensor& x, const Plan& p) {
  Tensor view = basic(x, p);
  if (!is_mask(*p.index)) {
    if (kind(p.index->dtype()) != Kind::integer) {
      throw IndexError("an index array must hold integers or booleans, not " + std::string(name(p.index->dtype())), {});
    }
    return take(view, *p.index, p.index_place);
  }
  check_mask(x, p);
  Shape joined = to_vector(view.shape());
  std::int64_t count = 1;
  for (int i = 0; i < p.index->ndim(); ++i) count *= joined[static_cast<std::size_t>(p.index_place + i)];
  joined.erase(joined.begin() + p.index_place, joined.begin() + p.index_place + p.index->ndim());
  joined.insert(joined.begin() + p.index_place, count);
  return take(reshape(view, joined), true_positions(*p.index), p.index_place);
}

/// The value to store, in the target's dtype: casts only by promotion.
Tensor storable(PyObject* value, const TensorImpl& target) {
  Unwrapped u;
  if (!unwrap_or_scalar(value, u)) {
    if (PyErr_Occurred()) throw PythonError();
    u.owned = asarray(value, {}, {});
    u.tensor = u.owned.get();
  }
  const Dtype to = target.dtype();
  const Dtype joined =
      u.tensor != nullptr ? promote(to, u.tensor->dtype(), "setitem") : promote_weak(to, u.scalar.kind);
  if (joined != to) {
    throw DtypeMismatch("setitem: " + std::string(name(joined)) + " does not go into " + std::string(name(to)) +
                            "; write x = x.astype(hl." + std::string(name(joined)) + ") first",
                        {{"op", std::string("setitem")},
                         {"left_dtype", std::string(name(to))},
                         {"right_dtype", std::string(name(joined))}});
  }
  if (u.tensor != nullptr) return astype(Tensor::share(u.tensor), to);
  if (u.beyond != 0 || !fits(u.scalar, to)) {
    throw OverflowError(
        "setitem: the integer does not fit " + std::string(name(to)) + "; write x = x.astype() with a wider dtype",
        {{"op", std::string("setitem")}, {"dtype", std::string(name(to))}});
  }
  return full({}, u.scalar, to);
}

void write(const Tensor& view, const Tensor& value) {
  static const OpInfo& op = find_op("astype");
  // Leading axes of size 1 of the value fall away, as NumPy lets them.
  Tensor v = value;
  while (v.ndim() > view.ndim() && v.shape()[0] == 1) v = squeeze(v, 0);
  if (v.ndim() > view.ndim()) {
    throw ShapeMismatch("setitem: " + to_string(value.shape()) + " does not broadcast to " + to_string(view.shape()),
                        {{"op", std::string("setitem")},
                         {"left_shape", to_vector(view.shape())},
                         {"right_shape", to_vector(value.shape())}});
  }
  const Tensor spread = broadcast_to(v, to_vector(view.shape()));
  const Operand in = tensor_operand(spread.impl());
  const Attrs attrs{view.dtype(), false};
  apply(op, {&in, 1}, &attrs, view.impl());
}

}  // namespace

PyObject* get_item(PyObject* self, PyObject* key) noexcept {
  try {
    const Tensor x = handle(self);
    const Plan p = make_plan(*x.impl(), key);
    return wrap(TensorRef::adopt((p.index ? gathered(x, p) : basic(x, p)).leak()));
  } catch (...) {
    return raise_current();
  }
}

int set_item(PyObject* self, PyObject* key, PyObject* value) noexcept {
  try {
    if (value == nullptr) throw TypeError("elements of a tensor cannot be deleted", {});
    const Tensor x = handle(self);
    const Plan p = make_plan(*x.impl(), key);
    const Tensor stored = storable(value, *x.impl());
    if (!p.index) {
      write(basic(x, p), stored);
      return 0;
    }
    const bool everywhere = is_mask(*p.index) && p.index->ndim() == x.ndim() && p.fresh.empty();
    if (!everywhere || stored.ndim() != 0) {
      throw Unsupported("assignment through an index array is not there yet; write x = hl.where(mask, value, x)", {});
    }
    check_mask(x, p);
    static const OpInfo& op = find_op("where");
    const Operand in[] = {tensor_operand(p.index->impl()), tensor_operand(stored.impl()), tensor_operand(x.impl())};
    apply(op, in, nullptr, x.impl());
    return 0;
  } catch (...) {
    raise_current();
    return -1;
  }
}

}  // namespace hyalite::python
