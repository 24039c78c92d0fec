/// The checks, and the messages that say what to write instead.
#include "validate/guard.h"

#include <algorithm>

namespace hyalite {
namespace {

std::string op_text(const OpInfo& op) { return std::string(op.name()) + "()"; }
std::string text(Dtype t) { return std::string(name(t)); }

Dtype dtype_of(const Operand& o) { return o.tensor != nullptr ? o.tensor->dtype() : o.dtype; }

std::string param(const OpInfo& op, std::size_t i) { return i < op.params.size() ? op.params[i] : op.params.back(); }

[[noreturn]] void throw_dtypes(const OpInfo& op, std::size_t i, Dtype left, Dtype right) {
  const bool left_narrower =
      kind(left) < kind(right) || (kind(left) == kind(right) && itemsize(left) < itemsize(right));
  const Dtype to = left_narrower ? right : left;
  const std::string which = param(op, left_narrower ? (op.schema.is_condition(0) ? 1 : 0) : i);
  throw DtypeMismatch(op_text(op) + ": " + text(left) + " and " + text(right) + " do not match; write " + which +
                          ".astype(hl." + text(to) + ")",
                      {{"op", std::string(op.name())}, {"left_dtype", text(left)}, {"right_dtype", text(right)}});
}

/// What to write for a dtype that the op has no meaning for: another operator, or the first cast that helps.
std::string other_way(const OpInfo& op, Dtype t) {
  if (t == Dtype::boolean && op.schema.slot == Slot::negative) return "write ~x";
  if (t == Dtype::boolean && op.schema.slot == Slot::subtract) return "write x1 ^ x2";
  if (is_complex(t) && contains(op.schema.types, real_part(t))) return "write hl.abs(x), hl.real(x) or hl.imag(x)";
  constexpr Dtype float8[] = {Dtype::float32}, real[] = {Dtype::float32, Dtype::int64, Dtype::complex64},
                  others[] = {Dtype::int64, Dtype::float32, Dtype::complex64};
  const bool is_float8 = contains(float8_types, t);
  const std::span<const Dtype> casts = is_float8        ? std::span<const Dtype>(float8)
                                       : is_floating(t) ? std::span<const Dtype>(real)
                                       : is_complex(t)  ? std::span<const Dtype>()
                                                        : std::span<const Dtype>(others);
  for (const Dtype to : casts) {
    if (contains(op.schema.types, to)) return "write x.astype(hl." + text(to) + ")";
  }
  return "help(hl." + std::string(op.name()) + ") lists its dtypes";
}

[[noreturn]] void throw_unsupported_dtype(const OpInfo& op, Dtype t) {
  throw DtypeMismatch(op_text(op) + ": " + text(t) + " has no meaning here; " + other_way(op, t),
                      {{"op", std::string(op.name())}, {"left_dtype", text(t)}, {"right_dtype", text(t)}});
}

[[noreturn]] void throw_condition(const OpInfo& op, Dtype given) {
  throw DtypeMismatch(
      op_text(op) + ": " + param(op, 0) + " must be bool, not " + text(given) + "; write " + param(op, 0) + " != 0",
      {{"op", std::string(op.name())}, {"left_dtype", text(given)}, {"right_dtype", std::string("bool")}});
}

[[noreturn]] void throw_devices(const OpInfo& op, Device left, Device right) {
  throw DeviceMismatch(
      op_text(op) + ": " + to_string(left) + " and " + to_string(right) + " do not match; write x.to_device(\"" +
          to_string(left) + "\")",
      {{"op", std::string(op.name())}, {"left_device", to_string(left)}, {"right_device", to_string(right)}});
}

[[noreturn]] void throw_shapes(const OpInfo& op, Dims left, Dims right) {
  throw ShapeMismatch(
      op_text(op) + ": " + to_string(left) + " and " + to_string(right) +
          " do not broadcast; sizes must be equal from the right, or 1",
      {{"op", std::string(op.name())}, {"left_shape", to_vector(left)}, {"right_shape", to_vector(right)}});
}

[[noreturn]] void throw_number(const OpInfo& op, std::size_t i) {
  throw TypeError(op_text(op) + ": " + param(op, i) + " must be a tensor, not a number; write hl.asarray(x)",
                  {{"op", std::string(op.name())}});
}

/// Strides of a fresh output: row-major, unless every operand that fills the shape lies alike in another dense order;
/// then that order.
DimList layout_of(const Call& c, Dims shape) {
  const TensorImpl* model = nullptr;
  for (const Operand& o : c.in) {
    if (o.tensor == nullptr || !same_dims(o.tensor->shape(), shape)) continue;
    if (model != nullptr && !same_dims(model->strides(), o.tensor->strides())) return row_major(shape);
    model = o.tensor;
  }
  if (model == nullptr || model->contiguous() || model->numel() == 0) return row_major(shape);
  std::array<int, max_rank> order;
  const int n = model->ndim();
  for (int i = 0; i < n; ++i) order[i] = i;
  const Dims strides = model->strides();
  sort_axes(order.data(), order.data() + n, [&](int a, int b) { return strides[a] > strides[b]; });
  DimList fresh(n, 0);
  std::int64_t step = 1;
  for (int i = n - 1; i >= 0; --i) {
    if (shape[order[i]] != 1 && strides[order[i]] != step) return row_major(shape);
    fresh[order[i]] = step;
    step *= shape[order[i]];
  }
  return fresh;
}

/// Whether `from` broadcasts to `to`.
bool fits(Dims from, Dims to) {
  if (from.size() > to.size()) return false;
  to = to.last(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (from[i] != to[i] && from[i] != 1) return false;
  }
  return true;
}

/// The row-major operand whose shape is the result's; null where there is none.
const TensorImpl* filled(const Call& c) {
  for (const Operand& o : c.in) {
    if (o.tensor == nullptr || !o.tensor->contiguous()) continue;
    const auto in_it = [&](const Operand& other) {
      return other.tensor == nullptr || fits(other.tensor->shape(), o.tensor->shape());
    };
    if (std::ranges::all_of(c.in, in_it)) return o.tensor;
  }
  return nullptr;
}

/// The hub a comparison of unequal dtypes widens to.
bool comparable(Dtype t) { return !is_complex(t); }

}  // namespace

void SchemaGuard::check_elementwise(Validated& v, bool in_place) {
  const Call& c = v.call_;
  const OpSchema& schema = c.op.schema;
  const std::size_t n = c.in.size(), first = schema.is_condition(0) ? 1 : 0;
  Dtype dtype = dtype_of(c.in[first]);
  const TensorImpl* lead = nullptr;
  bool same = true;
  for (std::size_t i = 0; i < n; ++i) {
    const TensorImpl* t = c.in[i].tensor;
    const Dtype mine = dtype_of(c.in[i]);
    if (i < first) {
      if (mine != Dtype::boolean) throw_condition(c.op, mine);
    } else if (mine != dtype && schema.real_with_complex && is_complex(dtype) && mine == real_part(dtype)) {
      v.real_operand_ = static_cast<int>(i);
    } else if (mine != dtype && schema.real_with_complex && is_complex(mine) && dtype == real_part(mine)) {
      v.real_operand_ = 0;
      dtype = mine;
    } else if (mine != dtype) {
      if (!schema.mixed || !comparable(mine) || !comparable(dtype)) throw_dtypes(c.op, i, dtype, mine);
      v.mixed_ = true;
    }
    if (t == nullptr) continue;
    if (lead == nullptr) {
      lead = t;
      v.device_ = t->device();
      same = t->contiguous();
    } else {
      if (t->device() != lead->device()) throw_devices(c.op, lead->device(), t->device());
      v.device_ = joined(v.device_, t->device());
      same = same && t->contiguous() && same_shape(*t, *lead);
    }
  }
  if (lead == nullptr) throw_number(c.op, 0);
  if (!contains(schema.types, dtype)) throw_unsupported_dtype(c.op, dtype);
  v.dtype_ = dtype;
  v.out_dtype_ = schema.result_dtype(dtype);
  if (same) {
    v.like_ = lead;
    v.uniform_ = true;
    return;
  }
  v.like_ = filled(c);
  if (v.like_ != nullptr) return;
  OutputSpec& spec = v.make_spec(0);
  DimList& shape = spec.shape;
  shape = DimList(lead->shape());
  for (const Operand& o : c.in) {
    if (o.tensor != nullptr && o.tensor != lead && !broadcast_into(shape, o.tensor->shape())) {
      throw_shapes(c.op, lead->shape(), o.tensor->shape());
    }
  }
  for (int k = 0; k < c.op.outputs; ++k) checked_numel(shape, itemsize(v.out_dtype(k)));
  if (!in_place) spec.strides = layout_of(c, shape);
}

void SchemaGuard::check_other(Validated& v) {
  const Call& c = v.call_;
  const OpSchema& schema = c.op.schema;
  if (c.op.arity == 0) return check_creation(v);
  if (c.in.empty()) throw ValueError(op_text(c.op) + ": needs at least one tensor", {{"op", std::string(c.op.name())}});
  for (std::size_t i = 0; i < c.in.size(); ++i) {
    if (c.in[i].tensor == nullptr) throw_number(c.op, i);
  }
  const TensorImpl& lead = c.x(0);
  v.device_ = lead.device();
  for (std::size_t i = 1; i < c.in.size(); ++i) {
    const TensorImpl& t = c.x(static_cast<int>(i));
    if (schema.is_index(i)) {
      if (kind(t.dtype()) != Kind::integer) {
        throw DtypeMismatch(
            op_text(c.op) + ": indices of " + text(t.dtype()) + " are no integers; write indices.astype(hl.int64)",
            {{"op", std::string(c.op.name())}, {"left_dtype", std::string("int64")}, {"right_dtype", text(t.dtype())}});
      }
    } else if (t.dtype() != lead.dtype() &&
               !(schema.kind == OpKind::composite && !c.op.follows_parts() && t.dtype() == real_part(lead.dtype()))) {
      // Above: the real or imaginary part of complex memory takes real values.
      throw_dtypes(c.op, i, lead.dtype(), t.dtype());
    }
    if (t.device() != lead.device()) throw_devices(c.op, lead.device(), t.device());
    v.device_ = joined(v.device_, t.device());
  }
  if (!contains(schema.types, lead.dtype())) throw_unsupported_dtype(c.op, lead.dtype());
  v.dtype_ = lead.dtype();
  foresee(v);
}

void SchemaGuard::check_view(Validated& v) {
  const Call& c = v.call_;
  const OpSchema& schema = c.op.schema;
  if (c.in[0].tensor == nullptr) throw_number(c.op, 0);
  const TensorImpl& x = c.x(0);
  if (!contains(schema.types, x.dtype())) throw_unsupported_dtype(c.op, x.dtype());
  v.device_ = x.device();
  v.dtype_ = x.dtype();
  v.out_dtype_ = schema.result_dtype(x.dtype());
  v.viewable_ = c.op.view(c, v.make_spec(0));
}

void SchemaGuard::check_creation(Validated& v) {
  const Call& c = v.call_;
  if (c.op.device_field >= 0)
    v.device_ = c.attrs->field<std::optional<Device>>(c.op.device_field).value_or(context().device);
  foresee(v);
  v.dtype_ = v.out_dtype_;
  if (!contains(c.op.schema.types, v.dtype_)) throw_unsupported_dtype(c.op, v.dtype_);
}

void SchemaGuard::foresee(Validated& v) {
  const Call& c = v.call_;
  const OpSchema& schema = c.op.schema;
  if (c.op.infer == nullptr) {
    v.make_spec(0);
    return;  // its parts will say
  }
  std::array<OutputSpec*, most_outputs> specs;
  for (int k = 0; k < c.op.outputs; ++k) specs[static_cast<std::size_t>(k)] = &v.make_spec(k);
  c.op.infer(c, specs.data());
  v.out_dtype_ = specs[0]->dtype;
  for (int k = 0; k < c.op.outputs; ++k) {
    OutputSpec& o = *specs[static_cast<std::size_t>(k)];
    checked_numel(o.shape, itemsize(o.dtype));
    if (schema.kind != OpKind::primitive) continue;
    if (!schema.keeps_layout) {
      set_row_major(o.strides, o.shape);
    } else if (const TensorImpl& x = c.x(0); x.contiguous() && c.op.outputs == 1 && same_dims(x.shape(), o.shape)) {
      v.like_ = &x;
    } else {
      o.strides = layout_of(c, o.shape);
    }
  }
}

void SchemaGuard::check_determinism(const Validated& v) {
  const OpInfo& op = v.call_.op;
  if (op.schema.deterministic) return;
  throw NotDeterministic(op_text(op) + ": gives other bits from run to run; call use_deterministic_algorithms(False)",
                         {{"op", std::string(op.name())}});
}

void SchemaGuard::check_target(Validated& v, const TensorImpl& target) {
  const OpInfo& op = v.call_.op;
  if (target.device() != v.device_) throw_devices(op, target.device(), v.device_);
  v.device_ = joined(v.device_, target.device());
  if (target.dtype() != v.out_dtype_) {
    throw DtypeMismatch(
        op_text(op) + ": in place, " + text(target.dtype()) + " keeps its dtype and cannot take " + text(v.out_dtype_) +
            "; write x = x.astype(hl." + text(v.out_dtype_) + ") first",
        {{"op", std::string(op.name())}, {"left_dtype", text(target.dtype())}, {"right_dtype", text(v.out_dtype_)}});
  }
  if (!same_dims(target.shape(), v.shape())) {
    throw ShapeMismatch(op_text(op) + ": in place, " + to_string(target.shape()) + " keeps its shape and cannot take " +
                            to_string(v.shape()),
                        {{"op", std::string(op.name())},
                         {"left_shape", to_vector(target.shape())},
                         {"right_shape", to_vector(v.shape())}});
  }
  if (target.storage()->read_only()) {
    throw ValueError(op_text(op) + ": the tensor is read-only, as its source was; write x = x.copy() first",
                     {{"op", std::string(op.name())}});
  }
  for (int i = 0; i < target.ndim(); ++i) {
    if (target.shape()[i] > 1 && target.strides()[i] == 0) {
      throw ValueError(op_text(op) + ": in place, axis " + std::to_string(i) + " of " + to_string(target.shape()) +
                           " has stride 0, so one element would be written " + std::to_string(target.shape()[i]) +
                           " times; write x = x.copy() first",
                       {{"op", std::string(op.name())}, {"axis", std::int64_t{i}}});
    }
  }
}

void SchemaGuard::report(Recorder& r, const Validated& v, const TensorImpl* target) {
  const Call& c = v.call_;
  Sayings said{{Fact::mixed, v.mixed_}, {Fact::in_place, target != nullptr}};
  for (const Operand& o : c.in) {
    said.emplace_back(Fact::dtype, dtype_of(o));
    if (o.tensor == nullptr) continue;
    said.emplace_back(Fact::device, o.tensor->device());
    said.emplace_back(Fact::shape, o.tensor->shape());
  }
  if (!c.op.follows_parts()) said.emplace_back(Fact::gives, v.shape());
  for (std::size_t i = 0; i < c.in.size(); ++i) {
    const TensorImpl* t = c.in[i].tensor;
    if (t == nullptr || c.op.elementwise < 0) continue;
    const int extra = static_cast<int>(v.shape().size()) - t->ndim();
    for (int d = 0; d < static_cast<int>(v.shape().size()); ++d) {
      const bool repeats = v.shape()[d] > 1 && (d < extra || t->shape()[d - extra] == 1);
      if (repeats) said.emplace_back(Fact::repeats, d, param(c.op, i));
    }
  }
  for (std::size_t i = 0; i < c.op.fields().size(); ++i) {
    said.emplace_back(Fact::attribute, c.attrs->text(static_cast<int>(i)), c.op.fields()[i].name);
  }
  r.end(Event::checked, said);

  Span settled(&r, Phase::validate, Who::guard, Who::op, StepKind::result);
  settled.over();
  const OpSchema& schema = c.op.schema;
  said = {{Fact::op, c.op.name()},
          {Fact::dtype, v.dtype_},
          {Fact::amp, schema.amp == Amp::low    ? "low precision"
                      : schema.amp == Amp::full ? "float32"
                                                : "keep"},
          {Fact::determinism_asked, deterministic()},
          {Fact::deterministic, schema.deterministic}};
  const Autocast& autocast = context().autocast;
  if (autocast.enabled || autocast.applied) said.emplace_back(Fact::autocast, autocast.dtype);
  settled.end(Event::dtype_settled, said);
}

Dtype autocast_dtype(const Autocast& autocast, const OpSchema& schema, Dtype dtype) {
  if (!is_floating(dtype) || !is_differentiable(dtype) || dtype == Dtype::float64) return dtype;
  if (schema.amp == Amp::low) return autocast.dtype;
  if (schema.amp == Amp::full) return Dtype::float32;
  return dtype;
}

}  // namespace hyalite
