/// Weak scalars, NumPy arrays and dtype alignment.
#include "python/operands.h"

#include <cmath>
#include <limits>

#include "python/interop.h"
#include "python/promote.h"
#include "tensor/context.h"
#include "validate/guard.h"

namespace hyalite::python {
namespace {

TensorRef cast(TensorImpl* t, Dtype dtype) {
  static const OpInfo& op = find_op("astype");
  const Operand in = tensor_operand(t);
  const Attrs attrs{dtype, false};
  return apply(op, {&in, 1}, &attrs);
}

[[noreturn]] void throw_overflow(const OpInfo& op, const Unwrapped& u, Dtype dtype) {
  const std::string value = u.beyond != 0          ? "an integer beyond 64 bits"
                            : u.scalar.is_unsigned ? std::to_string(static_cast<std::uint64_t>(u.scalar.integer))
                                                   : std::to_string(u.scalar.integer);
  throw OverflowError(std::string(op.name()) + "(): " + value + " does not fit " + std::string(name(dtype)) +
                          "; write x.astype() with a wider dtype first",
                      {{"op", std::string(op.name())}, {"dtype", std::string(name(dtype))}});
}

/// The number as a value of the dtype, if it is one exactly.
bool exact_in(const Scalar& s, Dtype dtype) {
  if (s.kind > Kind::integer) return false;
  if (kind(dtype) == Kind::integer) return fits(s, dtype);
  if (!is_floating(dtype)) return false;
  const int digits = dtype == Dtype::float64 ? 53 : dtype == Dtype::float32 ? 24 : dtype == Dtype::float16 ? 11 : 8;
  return !s.is_unsigned && std::llabs(s.integer) <= (std::int64_t{1} << digits);
}

/// Saturates an integer bound to the dtype; a float bound stays.
Scalar saturated(const Unwrapped& u, Dtype dtype) {
  if (u.beyond == 0 && fits(u.scalar, dtype)) return u.scalar;
  const bool negative = u.beyond != 0 ? u.beyond < 0 : !u.scalar.is_unsigned && u.scalar.integer < 0;
  const int bits = static_cast<int>(itemsize(dtype)) * 8;
  if (!info(dtype).is_signed) {
    if (negative) return Scalar(0);
    return bits == 64 ? Scalar(~std::uint64_t{0}) : Scalar((std::int64_t{1} << bits) - 1);
  }
  const std::int64_t high = bits == 64 ? std::numeric_limits<std::int64_t>::max() : (std::int64_t{1} << (bits - 1)) - 1;
  return Scalar(negative ? -high - 1 : high);
}

/// NumPy's arrays and scalars, and what behaves like them.
bool is_array(PyObject* o) {
  if (PyUnicode_Check(o) || PyBytes_Check(o) || PyList_Check(o) || PyTuple_Check(o) || o == Py_None) return false;
  return PyObject_HasAttrString(o, "__array_interface__") != 0;
}

double value_in(const Operand& o) {
  TensorRef t = TensorImpl::empty(o.dtype, {});
  std::memcpy(t->data(), o.bytes.data(), itemsize(o.dtype));
  return Tensor::adopt(t.leak()).item();
}

}  // namespace

bool unwrap_or_scalar(PyObject* o, Unwrapped& to) {
  to.object = o;
  if (is_tensor(o)) {
    to.tensor = impl_of(o);
    return true;
  }
  if (scalar_from(o, to.scalar, to.beyond)) return true;
  if (is_array(o)) {
    to.owned = asarray(o, {}, {});
    to.tensor = to.owned.get();
    return true;
  }
  return false;
}

std::string described(const Unwrapped& u) {
  if (u.none) return "None: no bound";
  if (u.tensor == nullptr) {
    const Owned text(PyObject_Repr(u.object));
    const char* written = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
    if (written == nullptr) PyErr_Clear();
    return std::string(Py_TYPE(u.object)->tp_name) + " " + (written != nullptr ? written : "") + ", a weak scalar";
  }
  return std::string(name(u.tensor->dtype())) + " " + to_string(u.tensor->shape()) + " " +
         to_string(u.tensor->device()) + (u.tensor->requires_grad ? ", requires grad" : "");
}

void Aligned::add(TensorImpl* t, Dtype dtype) {
  if (t->dtype() != dtype) {
    keep_.push_back(cast(t, dtype));
    promotion_.cast = true;
    t = keep_.back().get();
  }
  operands_.push_back(tensor_operand(t));
}

void Aligned::add(const OpInfo& op, const Unwrapped& u, Dtype dtype) {
  if (u.tensor != nullptr) return add(u.tensor, dtype);
  if (kind(dtype) == Kind::integer && (u.beyond != 0 || !fits(u.scalar, dtype))) throw_overflow(op, u, dtype);
  const bool wide = u.beyond != 0 && is_floating(dtype);
  operands_.push_back(scalar_operand(wide ? Scalar(large_int(u.object, dtype)) : u.scalar, dtype));
}

/// Of operands that are all real, with a complex join, the first must become complex after all.
void Aligned::all_real(const OpInfo& op, Dtype dtype) {
  if (!op.schema.real_with_complex || !is_complex(dtype)) return;
  for (const Operand& o : operands_) {
    if (is_complex(o.tensor != nullptr ? o.tensor->dtype() : o.dtype)) return;
  }
  keep_.push_back(cast(operands_[0].tensor, dtype));
  operands_[0] = tensor_operand(keep_.back().get());
}

/// A comparison takes its tensors as they are; a number stays exact.
void Aligned::compare_mixed(std::vector<Unwrapped>& args) {
  for (std::size_t i = 0; i < args.size(); ++i) {
    const Unwrapped& u = args[i];
    if (u.tensor != nullptr) {
      operands_.push_back(tensor_operand(u.tensor));
      continue;
    }
    const Dtype other = args[1 - i].tensor->dtype();
    const bool weak = u.scalar.kind == Kind::floating ? is_floating(other) : exact_in(u.scalar, other);
    if (u.beyond != 0) {
      // Outside every integer dtype, so an infinity compares alike; a float may hold the value itself.
      const Scalar s = is_floating(other) ? Scalar(large_int(u.object, Dtype::float64)) : Scalar(u.beyond * HUGE_VAL);
      operands_.push_back(scalar_operand(s, Dtype::float64));
    } else if (weak || u.scalar.kind == kind(Dtype::boolean)) {
      operands_.push_back(scalar_operand(u.scalar, other));
    } else if (u.scalar.kind == Kind::floating) {
      operands_.push_back(scalar_operand(u.scalar, Dtype::float64));
    } else {
      operands_.push_back(scalar_operand(u.scalar, u.scalar.is_unsigned ? Dtype::uint64 : Dtype::int64));
    }
  }
  promotion_.dtype = args[0].tensor != nullptr ? args[0].tensor->dtype() : args[1].tensor->dtype();
}

/// The result has the first operand's dtype; bounds that are missing are open, and integers saturate.
void Aligned::keep_first(const OpInfo& op, std::vector<Unwrapped>& args) {
  const Dtype dtype = args[0].tensor->dtype();
  promotion_.dtype = dtype;
  operands_.push_back(tensor_operand(args[0].tensor));
  for (std::size_t i = 1; i < args.size(); ++i) {
    const Unwrapped& u = args[i];
    if (u.none) {
      // An infinity saturates to the end of an integer's range.
      operands_.push_back(scalar_operand(Scalar(i == 1 ? -HUGE_VAL : HUGE_VAL), dtype));
      continue;
    }
    const Dtype joined = u.tensor != nullptr ? promote(dtype, u.tensor->dtype(), op.schema.name.data())
                                             : promote_weak(dtype, u.scalar.kind);
    if (joined != dtype) {
      throw DtypeMismatch(std::string(op.name()) + "(): " + op.params[i] + " is of a higher dtype than x, " +
                              std::string(name(dtype)) + "; write x.astype(hl." + std::string(name(joined)) + ")",
                          {{"op", std::string(op.name())},
                           {"left_dtype", std::string(name(dtype))},
                           {"right_dtype", std::string(name(joined))}});
    }
    if (u.tensor != nullptr) {
      add(u.tensor, dtype);
    } else {
      operands_.push_back(scalar_operand(saturated(u, dtype), dtype));
    }
  }
  if (args.size() == 3 && args[1].tensor == nullptr && args[2].tensor == nullptr) {
    const double low = value_in(operands_[1]), high = value_in(operands_[2]);
    if (low > high) {
      throw ValueError(std::string(op.name()) + "(): min " + std::to_string(low) + " is above max " +
                           std::to_string(high) + "; exchange them",
                       {{"op", std::string(op.name())}, {"min", low}, {"max", high}});
    }
  }
}

Aligned::Aligned(const OpInfo& op, std::vector<Unwrapped>&& given) : args_(std::move(given)) {
  const std::size_t first = op.schema.condition ? 1 : 0;
  bool any = false;
  for (std::size_t i = first; i < args_.size(); ++i) any |= args_[i].tensor != nullptr;
  if (!any) {
    // Numbers only: the first becomes a tensor of the default dtype of the highest kind.
    Kind highest = Kind::boolean;
    for (std::size_t i = first; i < args_.size(); ++i)
      highest = std::max(highest, args_[i].none ? Kind::boolean : args_[i].scalar.kind);
    Unwrapped& u = args_[first];
    u.owned = TensorRef::adopt(full({}, u.scalar, default_dtype(highest)).leak());
    u.tensor = u.owned.get();
  }
  operands_.reserve(args_.size());
  if (op.schema.bounds) {
    keep_first(op, args_);
    return;
  }
  if (op.schema.mixed) {
    bool complex = false;
    for (const Unwrapped& u : args_) {
      complex |= u.tensor != nullptr ? is_complex(u.tensor->dtype()) : u.scalar.kind == Kind::complex;
    }
    if (!complex) {
      compare_mixed(args_);
      return;
    }
  }
  std::vector<Dtype> dtypes;
  Kind weak = Kind::boolean;
  for (std::size_t i = first; i < args_.size(); ++i) {
    if (args_[i].tensor != nullptr) {
      dtypes.push_back(args_[i].tensor->dtype());
    } else {
      weak = std::max(weak, args_[i].scalar.kind);
    }
  }
  const Autocast& autocast = context().autocast;
  promotion_.by_autocast = autocast.enabled && op.schema.amp != Amp::keep;
  Dtype dtype;
  if (promotion_.by_autocast) {
    for (Dtype& t : dtypes) t = autocast_dtype(autocast, op.schema, t);
  }
  dtype = promote_weak(promote(dtypes, op.schema.name.data()), weak);
  if (op.schema.integers == Integers::to_default && kind(dtype) <= Kind::integer) dtype = Dtype::float32;
  promotion_.dtype = dtype;
  if (first == 1) {
    if (args_[0].tensor != nullptr) {
      operands_.push_back(tensor_operand(args_[0].tensor));
    } else {
      operands_.push_back(scalar_operand(args_[0].scalar, args_[0].scalar.kind == Kind::boolean
                                                              ? Dtype::boolean
                                                              : default_dtype(args_[0].scalar.kind)));
    }
  }
  for (std::size_t i = first; i < args_.size(); ++i) {
    const Unwrapped& u = args_[i];
    const bool real = u.tensor != nullptr ? !is_complex(u.tensor->dtype()) : u.scalar.kind < Kind::complex;
    // Beside a complex operand a real one stays real, and works by component.
    const bool by_component = op.schema.real_with_complex && is_complex(dtype) && real;
    add(op, u, by_component ? real_part(dtype) : dtype);
  }
  all_real(op, dtype);
}

}  // namespace hyalite::python
