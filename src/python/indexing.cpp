/// tensor[key] and tensor[key] = value: integers, slices, None, Ellipsis as views; index arrays and masks as a gather.
#include <limits>
#include <optional>
#include <utility>

#include "apply.h"
#include "ops/creation.h"
#include "ops/indexing.h"
#include "ops/movement.h"
#include "python/arguments.h"
#include "python/foreign.h"
#include "python/interop.h"
#include "python/operands.h"
#include "python/promote.h"
#include "python/tensor_type.h"
#include "transfer.h"

namespace hyalite::python {
namespace {

/// An index array, or a mask over `span` axes.
struct Part {
  Tensor index;
  bool mask = false;
  int axis = 0;   // of x, the first it indexes
  int place = 0;  // that axis in the view of the rest
  int span = 1;
};

/// A key in the axes' own terms.
struct Plan {
  Shape starts, steps, sizes;  // of the slice op, one an axis of x
  Shape drop;                  // axes that an integer took away
  Shape fresh;                 // places of None in the result
  std::vector<Part> parts;
  int dest = 0;  // how many axes of the result stand before those of the index arrays
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

/// What Python holds, as a tensor where it is needed.
Tensor brought(TensorRef made, Device device) {
  const Tensor t = Tensor::adopt(made.leak());
  return device.kind == DeviceKind::meta ? t : moved_to(t, device);
}
Tensor tensor_of(PyObject* o, Device device, std::optional<Dtype> dtype = {}) {
  return brought(asarray(o, dtype, {}), device);
}

/// A list, array or tensor that indexes, of a tensor on the device; empty for what is no array. 0-d integers count as
/// integers.
std::optional<Tensor> array_key(PyObject* o, Device device) {
  if (o == Py_None || o == Py_Ellipsis || PySlice_Check(o) || PyLong_CheckExact(o)) return {};
  if (is_tensor(o)) return handle(o);
  if (PyBool_Check(o)) return tensor_of(o, device);
  if (PyList_Check(o) || PyTuple_Check(o) || PyRange_Check(o)) {
    Tensor t = tensor_of(o, device);
    return t.numel() == 0 && t.dtype() == Dtype::float32 ? tensor_of(o, device, Dtype::int64) : t;
  }
  // NumPy's arrays and scalars; its integers without dimensions then count as integers.
  if (PyObject_HasAttrString(o, "__array_interface__")) return tensor_of(o, device);
  return {};
}

std::int64_t index_value(PyObject* o, int axis, std::int64_t size) {
  const Owned i(PyNumber_Index(o));
  if (!i) {
    PyErr_Clear();
    throw IndexError("an index must be an integer, a slice, None, ... or an array of integers or booleans, not " +
                         shown(o) + (PyFloat_Check(o) ? "; write int(i)" : ""),
                     {});
  }
  int beyond = 0;
  const long long v = PyLong_AsLongLongAndOverflow(i.get(), &beyond);
  if (beyond != 0) throw index_error(int_text(i.get()), v, axis, size);
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
  const std::int64_t given = index_value(item, axis, size), at = given < 0 ? given + size : given;
  if (at < 0 || at >= size) throw index_error(std::to_string(given), given, axis, size);
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

void check_index(const TensorImpl& x, const Part& part) {
  if (!part.mask) {
    if (kind(part.index.dtype()) == Kind::integer) return;
    throw IndexError("an index array must hold integers or booleans, not " + std::string(name(part.index.dtype())) +
                         "; write i.astype(hl.int64)",
                     {});
  }
  const std::span<const std::int64_t> mask = part.index.shape();
  for (std::size_t i = 0; i < mask.size(); ++i) {
    const std::size_t axis = static_cast<std::size_t>(part.axis) + i;
    const std::int64_t size = x.shape()[axis];
    if (mask[i] == size || mask[i] == 0) continue;
    throw IndexError("a mask of shape " + to_string(mask) + " does not match axis " + std::to_string(axis) +
                         " of size " + std::to_string(size) + "; write a mask of x's own sizes",
                     {{"axis", static_cast<std::int64_t>(axis)}, {"size", size}});
  }
}

/// Where the axes of the index arrays go: to the place of the first, if the arrays, and the integers beside them, stand
/// next to each other, else to the front. That is NumPy's rule.
class Placement {
 public:
  void other() { run_ended_ = seen_; }
  void advanced(int kept) {
    if (!seen_) dest_ = kept;
    if (run_ended_) dest_ = 0, apart_ = true;
    seen_ = true;
  }
  int dest() const { return apart_ ? 0 : dest_; }

 private:
  bool seen_ = false, run_ended_ = false, apart_ = false;
  int dest_ = 0;
};

Plan make_plan(const TensorImpl& x, PyObject* key) {
  const std::vector<PyObject*> items = items_of(key);
  std::vector<std::optional<Tensor>> arrays;
  int used = 0, ellipses = 0;
  for (PyObject* o : items) {
    arrays.push_back(array_key(o, x.device()));
    const auto& a = arrays.back();
    ellipses += o == Py_Ellipsis;
    if (o == Py_None || o == Py_Ellipsis) continue;
    used += a && is_mask(*a) ? a->ndim() : 1;
  }
  if (ellipses > 1) throw IndexError("an index can have one ..., not more; write : for the other axes", {});
  if (used > x.ndim()) {
    throw IndexError("too many indices: " + std::to_string(used) + " for " + std::to_string(x.ndim()) + " axes",
                     {{"ndim", std::int64_t{x.ndim()}}});
  }
  Plan p;
  Placement placement;
  int axis = 0, place = 0, indexed = 0;  // `indexed` of the `place` axes so far belong to index arrays
  for (std::size_t i = 0; i < items.size(); ++i) {
    PyObject* o = items[i];
    if (o == Py_None) {
      p.fresh.push_back(place++);
      placement.other();
    } else if (o == Py_Ellipsis) {
      for (int k = x.ndim() - used; k > 0; --k, ++place) whole_axis(p, x, axis++);
      placement.other();
    } else if (arrays[i] && (arrays[i]->ndim() > 0 || is_mask(*arrays[i]))) {
      const bool mask = is_mask(*arrays[i]);
      p.parts.push_back({*arrays[i], mask, axis, place, mask ? arrays[i]->ndim() : 1});
      check_index(x, p.parts.back());
      placement.advanced(place - indexed);
      const int span = p.parts.back().span;
      for (int k = 0; k < span; ++k) whole_axis(p, x, axis++);
      place += span;
      indexed += span;
    } else {
      const std::size_t dropped = p.drop.size();
      take_axis(p, x, axis++, o);
      const bool kept = p.drop.size() == dropped;
      if (kept) {
        placement.other();
      } else {
        placement.advanced(place - indexed);
      }
      place += kept;
    }
  }
  while (axis < x.ndim()) whole_axis(p, x, axis++);
  p.dest = placement.dest();
  return p;
}

bool is_whole(const Plan& p, const TensorImpl& x) {
  for (int i = 0; i < x.ndim(); ++i) {
    if (p.starts[i] != 0 || p.steps[i] != 1 || p.sizes[i] != x.shape()[i]) return false;
  }
  return true;
}

/// The view of everything but index arrays.
Tensor basic_view(const Tensor& x, const Plan& p) { return slice(x, p.starts, p.steps, p.sizes, p.drop, p.fresh); }

/// The same; x itself where there is nothing to do.
Tensor basic(const Tensor& x, const Plan& p) {
  return is_whole(p, *x.impl()) && p.drop.empty() && p.fresh.empty() ? x : basic_view(x, p);
}

/// A key of integers, slices, None and one ... alone, read straight into the attributes of the slice.
class BasicKey {
 public:
  explicit BasicKey(SliceBackward::Attr& to) : to_(to) {}
  /// False for any other key, also one that is out of range: the longer way knows what to say.
  bool read(const TensorImpl& x, PyObject* key) {
    PyObject* const* items = &key;
    Py_ssize_t count = 1;
    if (PyTuple_CheckExact(key)) {
      items = reinterpret_cast<PyTupleObject*>(key)->ob_item;
      count = PyTuple_GET_SIZE(key);
    }
    if (std::max(static_cast<std::size_t>(x.ndim()), static_cast<std::size_t>(count)) > Ints::most_inline) return false;
    shape_ = x.shape();
    for (Py_ssize_t i = 0; i < count; ++i) {
      PyObject* o = items[i];
      if (PyLong_CheckExact(o)) {
        if (!integer(o)) return false;
      } else if (PySlice_Check(o)) {
        if (!slice(o)) return false;
      } else if (o == Py_None) {
        to_.fresh.add(place_++);
      } else if (o != Py_Ellipsis || !rest({items + i + 1, items + count})) {
        return false;
      }
    }
    while (axis_ < shape_.size()) whole();
    return true;
  }

 private:
  bool integer(PyObject* o) {
    if (axis_ == shape_.size()) return false;
    int beyond = 0;
    const long long given = PyLong_AsLongLongAndOverflow(o, &beyond);
    const std::int64_t size = shape_[axis_], at = given < 0 ? given + size : given;
    if (beyond != 0 || at < 0 || at >= size) return false;
    to_.drop.add(static_cast<std::int64_t>(axis_));
    add(at, 1, 1);
    return true;
  }
  bool slice(PyObject* o) {
    if (axis_ == shape_.size()) return false;
    Py_ssize_t start, stop, step;
    if (PySlice_Unpack(o, &start, &stop, &step) < 0) throw PythonError();
    const Py_ssize_t n = PySlice_AdjustIndices(shape_[axis_], &start, &stop, step);
    add(start, step, n);
    ++place_;
    return true;
  }
  /// The axes that the items behind an Ellipsis leave to it.
  bool rest(std::span<PyObject* const> behind) {
    std::size_t named = axis_;
    for (PyObject* o : behind) {
      if (o == Py_Ellipsis) return false;
      named += o != Py_None;
    }
    if (named > shape_.size()) return false;
    for (std::size_t n = shape_.size() - named; n > 0; --n) whole();
    return true;
  }
  void whole() {
    add(0, 1, shape_[axis_]);
    ++place_;
  }
  void add(std::int64_t start, std::int64_t step, std::int64_t size) {
    to_.starts.add(start);
    to_.steps.add(step);
    to_.sizes.add(size);
    ++axis_;
  }

  SliceBackward::Attr& to_;
  Dims shape_;
  std::size_t axis_ = 0;
  std::int64_t place_ = 0;
};

/// Before there is any memory for the attributes.
bool may_be_basic(PyObject* key) {
  return PyLong_CheckExact(key) || PySlice_Check(key) || PyTuple_CheckExact(key) || key == Py_None ||
         key == Py_Ellipsis;
}

/// The attributes of the slice that a basic key is; null for other keys.
AttrRef basic_key(const TensorImpl& x, PyObject* key) {
  if (!may_be_basic(key)) return {};
  bool basic = false;
  AttrRef attrs = Attributes::make_by([&] {
    SliceBackward::Attr a;
    basic = BasicKey(a).read(x, key);
    return a;
  });
  return basic ? std::move(attrs) : AttrRef();
}

const OpInfo& slice_op() {
  static const OpInfo& op = find_op("slice");
  return op;
}

/// x[key] for a basic key; null for others.
TensorRef sliced(TensorImpl& x, PyObject* key) {
  AttrRef attrs = basic_key(x, key);
  if (!attrs) return {};
  const Operand in = tensor_operand(&x);
  return apply(slice_op(), {&in, 1}, std::move(attrs));
}

/// The index arrays as one, over the row-major order of the axes they index.
struct Joined {
  Tensor linear;        // int64
  Shape before, after;  // the other sizes of the view
  Shape sizes;          // of the axes that are indexed
  std::int64_t count = 1;
  Shape order;  // of the view's axes, with the indexed ones together behind `before`

  Shape shape(std::span<const std::int64_t> middle) const {
    Shape r = before;
    r.insert(r.end(), middle.begin(), middle.end());
    r.insert(r.end(), after.begin(), after.end());
    return r;
  }
  Shape one_axis(std::int64_t n) const { return shape({&n, 1}); }
};

/// The places of a mask's true elements, in row-major order. Their number is asked of the device first.
Tensor places_of(const Tensor& mask) {
  need_values(*mask.impl(), "index");
  return true_positions(mask, whole_item(*sum(mask).impl()));
}

/// take(view, index, place), where place is axis `axis` of what the user indexed.
Tensor take_at(const Tensor& view, const Tensor& index, int place, int axis) {
  try {
    return take(view, index, place);
  } catch (const IndexError&) {
    positions(index, axis, view.shape()[static_cast<std::size_t>(place)]);  // which names the axis, and no function
    throw;
  }
}

/// An index or mask as int64, none negative.
Tensor places_of(const TensorImpl& x, const Part& part) {
  return part.mask ? places_of(part.index) : positions(part.index, part.axis, x.shape()[part.axis]);
}

/// Whether the key is a mask of x's first sizes.
bool is_plain_mask(const TensorImpl& x, PyObject* key) {
  if (!is_tensor(key)) return false;
  const TensorImpl& mask = *impl_of(key);
  return mask.dtype() == Dtype::boolean && mask.ndim() > 0 && mask.ndim() <= x.ndim() &&
         same_dims(mask.shape(), x.shape().first(static_cast<std::size_t>(mask.ndim())));
}

/// x[key] for a key that is one index array or one mask of x's first sizes; null for others.
TensorRef taken(const Tensor& x, PyObject* key) {
  if (!is_tensor(key) || x.ndim() == 0) return {};
  const Tensor index = handle(key);
  const int ndim = index.ndim();
  Tensor r;
  if (kind(index.dtype()) == Kind::integer && ndim > 0) {
    r = take_at(x, index, 0, 0);
  } else if (!is_plain_mask(*x.impl(), key)) {
    return {};
  } else if (ndim == 1) {
    r = take(x, places_of(index), 0);
  } else {
    Shape flat{index.numel()};
    flat.insert(flat.end(), x.shape().begin() + ndim, x.shape().end());
    r = take(reshape(x, flat), places_of(index), 0);
  }
  return TensorRef::adopt(r.leak());
}

Joined join(const TensorImpl& x, const Tensor& view, const Plan& p) {
  Joined j;
  std::vector<bool> indexed(static_cast<std::size_t>(view.ndim()), false);
  std::vector<std::int64_t> extents;
  Shape group;
  for (const Part& part : p.parts) {
    std::int64_t extent = 1;
    for (int k = 0; k < part.span; ++k) {
      const int a = part.place + k;
      indexed[a] = true;
      group.push_back(a);
      j.sizes.push_back(view.shape()[a]);
      extent = wrapping_multiply(extent, view.shape()[a]);
    }
    extents.push_back(extent);
  }
  // Beside an axis of size 0 the others may be too large to multiply.
  j.count = has_zero(j.sizes) ? 0 : checked_numel(j.sizes, 1);
  for (int a = 0; a < view.ndim(); ++a) {
    if (indexed[a]) continue;
    const bool front = static_cast<int>(j.before.size()) < p.dest;
    (front ? j.before : j.after).push_back(view.shape()[a]);
    if (!front && static_cast<int>(j.order.size()) == p.dest) j.order.insert(j.order.end(), group.begin(), group.end());
    j.order.push_back(a);
  }
  if (j.order.size() < static_cast<std::size_t>(view.ndim())) j.order.insert(j.order.end(), group.begin(), group.end());
  std::vector<Tensor> all;
  DimList shape;
  for (const Part& part : p.parts) {
    all.push_back(places_of(x, part));
    if (broadcast_into(shape, all.back().shape())) continue;
    throw IndexError("index arrays of shapes " + to_string(shape) + " and " + to_string(all.back().shape()) +
                         " do not broadcast; write arrays of one shape",
                     {});
  }
  const NoGrad off;
  j.linear = all[0];
  for (std::size_t i = 1; i < all.size(); ++i) j.linear = j.linear * Scalar(extents[i]) + all[i];
  return j;
}

bool in_order(const Shape& order) {
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order[i] != static_cast<std::int64_t>(i)) return false;
  }
  return true;
}

/// Index arrays and masks, applied to the view of the rest.
Tensor gathered(const Tensor& x, const Plan& p) {
  Tensor view = basic(x, p);
  if (p.parts.size() == 1 && !p.parts[0].mask && p.parts[0].place == p.dest) {
    const Part& part = p.parts[0];
    return take_at(view, part.index, part.place, part.axis);
  }
  const Joined j = join(*x.impl(), view, p);
  if (!in_order(j.order)) view = permute_dims(view, j.order);
  return take(reshape(view, j.one_axis(j.count)), j.linear, p.dest);
}

// ---------------------------------------------------------------------------------------------------- assignment

/// A list of numbers only, which are as weak as one number.
bool only_numbers(PyObject* o) {
  if (!PyList_Check(o) && !PyTuple_Check(o)) {
    Scalar s;
    int beyond;
    return scalar_from(o, s, beyond);
  }
  const Owned items(check(PySequence_Tuple(o)));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items.get()); ++i) {
    if (!only_numbers(PyTuple_GET_ITEM(items.get(), i))) return false;
  }
  return true;
}

[[noreturn]] void throw_no_cast(Dtype from, Dtype to, bool number) {
  const std::string a(name(from)), b(name(to));
  const std::string cast = is_complex(from) && !is_complex(to) ? "hl.real(value)"
                           : number                            ? "hl.asarray(value).astype(hl." + b + ")"
                                                               : "value.astype(hl." + b + ")";
  throw DtypeMismatch("setitem(): a value of " + a + " does not go into " + b + "; write " + cast,
                      {{"op", std::string("setitem")}, {"left_dtype", b}, {"right_dtype", a}});
}

/// The value to store, in the target's dtype: casts only by promotion.
Tensor storable(PyObject* value, const TensorImpl& target) {
  const Dtype to = target.dtype();
  Unwrapped u;
  if (!unwrap_or_scalar(value, u)) {
    if (PyErr_Occurred()) throw PythonError();
    u.owned = asarray(
        value,
        (PyList_Check(value) || PyTuple_Check(value)) && only_numbers(value) ? std::optional<Dtype>(to) : std::nullopt,
        {});
    u.tensor = u.owned.get();
  }
  if (u.tensor != nullptr) {
    if (promote(to, u.tensor->dtype(), "setitem") != to) throw_no_cast(u.tensor->dtype(), to, u.owned.get() != nullptr);
    const bool ours = u.owned.get() != nullptr;
    return astype(ours ? brought(TensorRef::share(u.tensor), target.device()) : Tensor::share(u.tensor), to);
  }
  if (promote_weak(to, u.scalar.kind) != to) throw_no_cast(default_dtype(u.scalar.kind), to, true);
  return full({}, number_in("setitem", u, to), to, target.device());
}

[[noreturn]] void throw_no_broadcast(const Tensor& value, std::span<const std::int64_t> shape) {
  throw ShapeMismatch(
      "setitem(): a value of shape " + to_string(value.shape()) + " does not broadcast to " + to_string(shape) +
          "; write one of that shape, or of sizes 1",
      {{"op", std::string("setitem")}, {"left_shape", to_vector(shape)}, {"right_shape", to_vector(value.shape())}});
}

/// The value under the shape. Leading axes of size 1 fall away, as NumPy lets them.
Tensor spread(const Tensor& value, const Shape& shape) {
  Tensor v = value;
  while (v.ndim() > static_cast<int>(shape.size()) && v.shape()[0] == 1) v = squeeze(v, 0);
  DimList joined{Dims(shape)};
  if (!broadcast_into(joined, v.shape()) || !same_dims(joined, shape)) throw_no_broadcast(value, shape);
  return broadcast_to(v, shape);
}

void write(const Tensor& view, const Tensor& value) {
  static const OpInfo& op = find_op("astype");
  const Tensor all = spread(value, to_vector(view.shape()));
  const Operand in = tensor_operand(all.impl());
  apply(op, {&in, 1}, Attributes::make(AstypeBackward::Attr{view.dtype()}).get(), view.impl());
}

/// view[...] = value through index arrays: where(written, its value, what is there), in place.
void scatter(const Tensor& x, const Plan& p, const Tensor& value) {
  static const OpInfo& op = find_op("where");
  Tensor view = basic(x, p);
  const Joined j = join(*x.impl(), view, p);
  if (!in_order(j.order)) view = permute_dims(view, j.order);
  const Shape indexed = j.shape(j.linear.shape());
  Tensor v = spread(value, indexed);
  if (v.numel() == 0) return;
  // Of each indexed element: whether it is written, and by which value, the last that names it.
  const auto [written, source] = last_writers(j.linear, j.count);
  if (value.numel() == 1) {
    v = reshape(value, {});
  } else {
    v = take(reshape(v, j.one_axis(j.linear.numel())), reshape(source, j.sizes), p.dest);
  }
  Shape ones(j.before.size(), 1);
  ones.insert(ones.end(), j.sizes.begin(), j.sizes.end());
  ones.insert(ones.end(), j.after.size(), 1);
  const Tensor hit = reshape(written, ones);
  const Operand in[] = {tensor_operand(hit.impl()), tensor_operand(v.impl()), tensor_operand(view.impl())};
  apply(op, in, nullptr, view.impl());
}

/// x[key] = a number: for a basic key the view is filled, for a mask x is where(mask, number, x). False for others.
bool store_number(TensorImpl& x, PyObject* key, PyObject* value) {
  static const OpInfo &full = find_op("full"), &where = find_op("where");
  const bool number = PyFloat_CheckExact(value) || PyLong_CheckExact(value) || PyBool_Check(value);
  if (!number) return false;
  const Dtype to = x.dtype();
  const bool masked = contains(where.schema.types, to) && is_plain_mask(x, key);
  AttrRef basic = masked ? AttrRef() : basic_key(x, key);
  if (!masked && !basic) return false;
  Unwrapped u;
  unwrap_or_scalar(value, u);
  if (promote_weak(to, u.scalar.kind) != to) throw_no_cast(default_dtype(u.scalar.kind), to, true);
  const Scalar stored = number_in("setitem", u, to);
  if (masked) {
    Tensor mask = handle(key);
    Shape shape = to_vector(mask.shape());
    shape.resize(static_cast<std::size_t>(x.ndim()), 1);
    if (x.ndim() != mask.ndim()) mask = reshape(mask, shape);
    const Operand in[] = {tensor_operand(mask.impl()), scalar_operand(stored, to), tensor_operand(&x)};
    apply(where, in, nullptr, &x);
    return true;
  }
  const Operand in = tensor_operand(&x);
  const TensorRef view = apply(slice_op(), {&in, 1}, std::move(basic));
  const AttrRef attrs = Attributes::make_by([&] {
    return FullBackward::Attr{Ints(view->shape()), stored, to, x.device()};
  });
  apply(full, {}, attrs.get(), view.get());
  return true;
}

}  // namespace

PyObject* get_item(PyObject* self, PyObject* key) noexcept {
  try {
    if (TensorRef view = sliced(*impl_of(self), key)) return wrap(std::move(view));
    const Tensor x = handle(self);
    if (TensorRef r = taken(x, key)) return wrap(std::move(r));
    const Plan p = make_plan(*x.impl(), key);
    Tensor r = p.parts.empty() ? basic_view(x, p) : gathered(x, p);
    return wrap(TensorRef::adopt(r.leak()));
  } catch (...) {
    return raise_current();
  }
}

int set_item(PyObject* self, PyObject* key, PyObject* value) noexcept {
  try {
    if (value == nullptr) throw TypeError("elements of a tensor cannot be deleted; write x[...] for what is left", {});
    const Tensor x = handle(self);
    check_in_place(*x.impl());  // however little the key selects
    if (store_number(*x.impl(), key, value)) return 0;
    const Plan p = make_plan(*x.impl(), key);
    const Tensor stored = storable(value, *x.impl());
    if (p.parts.empty()) {
      write(basic_view(x, p), stored);
    } else {
      scatter(x, p, stored);
    }
    return 0;
  } catch (...) {
    raise_current();
    return -1;
  }
}

}  // namespace hyalite::python
