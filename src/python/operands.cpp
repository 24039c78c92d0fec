/// Weak scalars, NumPy arrays and dtype alignment.
#include "python/operands.h"
#include "compute/backend.h"

#include <cfloat>
#include <cmath>
#include <limits>

#include "ops/movement.h"
#include "python/arguments.h"
#include "python/interop.h"
#include "python/others.h"
#include "python/promote.h"
#include "tensor/context.h"
#include "validate/guard.h"

namespace hyalite::python {
namespace {

TensorRef cast(TensorImpl* t, Dtype dtype) {
  static const OpInfo& op = find_op("astype");
  const Operand in = tensor_operand(t);
  return apply(op, {&in, 1}, Attributes::make(AstypeBackward::Attr{dtype}).get());
}

/// The narrowest dtype that holds the int, as something to write.
std::string holder_of(const Unwrapped& u) {
  if (u.beyond != 0) return "hl.float32";
  for (const Dtype t : {Dtype::int8, Dtype::int16, Dtype::int32, Dtype::int64, Dtype::uint64}) {
    if (fits(u.scalar, t)) return "hl." + std::string(name(t));
  }
  return "hl.float32";
}

[[noreturn]] void throw_overflow(std::string_view op, const Unwrapped& u, Dtype dtype, bool alone = false) {
  const std::string to(name(dtype));
  const std::string advice = alone ? "write it as a float" : "write x.astype(" + holder_of(u) + ") first";
  throw OverflowError(std::string(op) + "(): " + int_text(u.object) + " does not fit " + to + "; " + advice,
                      {{"op", std::string(op)}, {"dtype", to}});
}

bool rounds_integers(const OpSchema& schema) { return schema.integers == Integers::to_default; }

/// The double that rounds to the floating dtype as the int does; an infinity beyond all doubles.
double rounded_int(const Unwrapped& u, Dtype dtype) {
  try {
    return large_int(u.object, dtype);
  } catch (const PythonError&) {
    if (PyErr_ExceptionMatches(PyExc_OverflowError) == 0) throw;
    PyErr_Clear();
    return u.beyond * HUGE_VAL;
  }
}

/// The number as a value of the dtype, if it is one exactly.
bool exact_in(const Scalar& s, Dtype dtype) {
  if (s.kind > Kind::integer) return false;
  if (kind(dtype) == Kind::integer) return fits(s, dtype);
  if (!is_floating(dtype)) return false;
  const int digits = dtype == Dtype::float64 ? 53 : dtype == Dtype::float32 ? 24 : dtype == Dtype::float16 ? 11 : 8;
  const std::int64_t most = std::int64_t{1} << digits;
  return !s.is_unsigned && s.integer >= -most && s.integer <= most;
}

/// The doubles next to an int: the largest not above it, and the smallest not below.
struct Between {
  double below, above;
};
Between doubles_around(PyObject* i) {
  const double nearest = PyLong_AsDouble(i);
  if (nearest == -1 && PyErr_Occurred() != nullptr) {
    if (PyErr_ExceptionMatches(PyExc_OverflowError) == 0) throw PythonError();
    PyErr_Clear();
    const Owned zero(check(PyLong_FromLong(0)));
    const int negative = PyObject_RichCompareBool(i, zero.get(), Py_LT);
    if (negative < 0) throw PythonError();
    return negative != 0 ? Between{-HUGE_VAL, -DBL_MAX} : Between{DBL_MAX, HUGE_VAL};
  }
  const Owned back(check(PyLong_FromDouble(nearest)));
  const int equal = PyObject_RichCompareBool(back.get(), i, Py_EQ),
            below = PyObject_RichCompareBool(back.get(), i, Py_LT);
  if (equal < 0 || below < 0) throw PythonError();
  if (equal != 0) return {nearest, nearest};
  return below != 0 ? Between{nearest, std::nextafter(nearest, HUGE_VAL)}
                    : Between{std::nextafter(nearest, -HUGE_VAL), nearest};
}

/// What floats compare with as they would with the int itself.
double stand_in(const OpInfo& op, PyObject* i, bool on_the_right) {
  const Between d = doubles_around(i);
  switch (op.schema.slot) {
    case Slot::less:
    case Slot::greater_equal:
      return on_the_right ? d.above : d.below;
    case Slot::less_equal:
    case Slot::greater:
      return on_the_right ? d.below : d.above;
    default:
      return d.below == d.above ? d.below : std::numeric_limits<double>::quiet_NaN();
  }
}

/// Saturates an integer bound to an integer dtype; others take it as any number.
Scalar saturated(std::string_view op, const Unwrapped& u, Dtype dtype) {
  if (kind(dtype) != Kind::integer || (u.beyond == 0 && fits(u.scalar, dtype))) return number_in(op, u, dtype);
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
  if (PyType_Check(o)) return false;  // whose instances are arrays
  for (const char* protocol : {"__array__", "__array_interface__", "__dlpack__"}) {
    if (PyObject_HasAttrString(o, protocol) != 0) return true;
  }
  return false;
}

/// Whether low is above high, both of a dtype.
bool is_above(const Operand& low, const Operand& high) {
  if (is_complex(low.dtype)) return false;  // the guard refuses it
  const auto as = [&](auto type) {
    decltype(type) a, b;
    std::memcpy(&a, low.bytes.data(), sizeof a);
    std::memcpy(&b, high.bytes.data(), sizeof b);
    return a > b;
  };
  if (low.dtype == Dtype::int64) return as(std::int64_t{});
  if (low.dtype == Dtype::uint64) return as(std::uint64_t{});
  const auto value = [](const Operand& o) {
    const TensorRef t = host_empty(o.dtype, {});
    at_once({}).fill(*t, o.bytes.data());
    return Tensor::share(t.get()).item();
  };
  return value(low) > value(high);
}

bool is_integer(const Unwrapped& u) { return u.tensor == nullptr && !u.none && u.scalar.kind == Kind::integer; }

/// The dtype that numbers have together: of ints int64, or uint64 where only that holds them all.
Dtype dtype_of_numbers(const OpInfo& op, std::span<const Unwrapped> args) {
  Kind highest = Kind::boolean;
  const Unwrapped* large = nullptr;
  bool negative = false;
  for (const Unwrapped& u : args) {
    if (u.none || u.tensor != nullptr) continue;
    highest = std::max(highest, u.scalar.kind);
    if (!is_integer(u)) continue;
    if (u.beyond != 0 || u.scalar.is_unsigned) large = large != nullptr && large->beyond != 0 ? large : &u;
    negative |= !u.scalar.is_unsigned && u.scalar.integer < 0;
  }
  if (highest != Kind::integer || large == nullptr || rounds_integers(op.schema)) return default_dtype(highest);
  // A reduction that rounds its result gives a number beyond the integers as a float.
  if (large->beyond != 0 && op.schema.integers == Integers::in_result) return Dtype::float32;
  if (large->beyond != 0 || negative) throw_overflow(op.name(), *large, Dtype::int64, true);
  return Dtype::uint64;
}

}  // namespace

bool unwrap_or_scalar(PyObject* o, Unwrapped& to, bool defers) {
  to.object = o;
  if (is_tensor(o)) {
    to.tensor = impl_of(o);
    return true;
  }
  if (scalar_from(o, to.scalar, to.beyond)) return true;
  if (is_array(o) && !(defers && has_own_rules(o))) {
    to.owned = asarray(o, {}, {});
    to.tensor = to.owned.get();
    return true;
  }
  return false;
}

Scalar number_in(std::string_view op, const Unwrapped& u, Dtype dtype) {
  if (kind(dtype) == Kind::integer && (u.beyond != 0 || !fits(u.scalar, dtype))) throw_overflow(op, u, dtype);
  if (u.beyond == 0 || kind(dtype) < Kind::floating) return u.scalar;
  return Scalar(rounded_int(u, real_part(dtype)));
}

TensorRef number_tensor(std::string_view op, const Unwrapped& u, Dtype dtype, Device device) {
  return TensorRef::adopt(full({}, number_in(op, u, dtype), dtype, device).leak());
}

Dtype number_dtype(std::string_view op, const Unwrapped& u) {
  if (u.beyond != 0) throw_overflow(op, u, u.beyond > 0 ? Dtype::uint64 : Dtype::int64, true);
  return u.scalar.is_unsigned ? Dtype::uint64 : default_dtype(u.scalar.kind);
}

bool plain_number(const OpInfo& op, PyObject* o, Dtype dtype, Operand& to) {
  constexpr long long exact = 1 << 24;  // in float32, and so in its wider neighbours
  if (!contains(op.schema.types, dtype) || op.schema.has(Role::bound)) return false;
  to.tensor = nullptr;
  to.dtype = dtype;
  if (PyFloat_CheckExact(o)) {
    if (dtype != Dtype::float32 && dtype != Dtype::float64) return false;
    to.scalar = Scalar(PyFloat_AS_DOUBLE(o));
  } else if (PyLong_CheckExact(o)) {
    int beyond = 0;
    const long long value = PyLong_AsLongLongAndOverflow(o, &beyond);
    const bool held = dtype == Dtype::float32 || dtype == Dtype::float64 || dtype == Dtype::int64 ||
                      (dtype == Dtype::int32 && value < (1LL << 31) && value >= -(1LL << 31));
    if (beyond != 0 || !held || (is_floating(dtype) && (value > exact || value < -exact))) return false;
    to.scalar = Scalar(static_cast<std::int64_t>(value));
  } else {
    return false;
  }
  encode_scalar(to.scalar, dtype, to.bytes.data());
  return true;
}

Simplified with_two(const OpInfo& op, std::span<const Operand> in) {
  static const std::vector<const OpInfo*> simpler = [] {
    std::vector<const OpInfo*> by_op;
    for (const OpInfo& o : op_table()) {
      by_op.push_back(o.schema.with_two.empty() ? nullptr : &find_op(o.schema.with_two));
    }
    return by_op;
  }();
  const TensorImpl* x = in[0].tensor;
  const Operand& power = in[1];
  // Under autocast the two ops have policies of their own.
  if (x == nullptr || power.tensor != nullptr || is_complex(x->dtype()) || context().autocast.enabled) return {op, in};
  const bool two = power.scalar.kind <= Kind::integer ? power.scalar.integer == 2 : power.scalar.re == 2;
  return two ? Simplified{*simpler[static_cast<std::size_t>(op.index)], in.first(1)} : Simplified{op, in};
}

std::optional<bool> compare_numbers(const OpInfo& op, std::span<const Unwrapped> args) {
  constexpr struct {
    Slot slot;
    int python;
  } relations[] = {{Slot::less, Py_LT},      {Slot::less_equal, Py_LE}, {Slot::equal, Py_EQ},
                   {Slot::not_equal, Py_NE}, {Slot::greater, Py_GT},    {Slot::greater_equal, Py_GE}};
  if (args.size() != 2 || args[0].tensor != nullptr || args[1].tensor != nullptr) return {};
  const bool complex = args[0].scalar.kind == Kind::complex || args[1].scalar.kind == Kind::complex;
  for (const auto& [slot, python] : relations) {
    if (op.schema.slot != slot || (complex && python != Py_EQ && python != Py_NE)) continue;
    const Owned r(check(PyObject_RichCompare(args[0].object, args[1].object, python)));
    const int truth = PyObject_IsTrue(r.get());
    if (truth < 0) throw PythonError();
    return truth != 0;
  }
  return {};
}

namespace {

/// The op of Python's own ints, which are exact; null without an exception where there is none, or where the op has
/// rules of its own: for a zero divisor, a negative exponent, a negative shift.
Owned exact_result(const OpInfo& op, std::span<const Unwrapped> args) {
  PyObject* a = args[0].object;
  PyObject* b = args.size() > 1 ? args[1].object : nullptr;
  const auto second = [&](std::int64_t least) { return args[1].scalar.is_unsigned || args[1].scalar.integer >= least; };
  const auto too_far = [&] {
    return args[0].scalar.integer != 0 && (args[1].scalar.is_unsigned || args[1].scalar.integer > 64);
  };
  // A result of so many bits is only known to be too large.
  const auto many_bits = [] {
    const Owned one(check(PyLong_FromLong(1))), shift(check(PyLong_FromLong(65)));
    return Owned(check(PyNumber_Lshift(one.get(), shift.get())));
  };
  switch (op.schema.slot) {
    case Slot::add:
      return Owned(check(PyNumber_Add(a, b)));
    case Slot::subtract:
      return Owned(check(PyNumber_Subtract(a, b)));
    case Slot::multiply:
      return Owned(check(PyNumber_Multiply(a, b)));
    case Slot::floor_divide:
      return args[1].scalar.integer != 0 ? Owned(check(PyNumber_FloorDivide(a, b))) : Owned();
    case Slot::divmod:
      return args[1].scalar.integer != 0 ? Owned(check(PyNumber_FloorDivide(a, b))) : Owned();
    case Slot::power: {
      if (!second(0)) return Owned();
      const bool small = !args[0].scalar.is_unsigned && args[0].scalar.integer >= -1 && args[0].scalar.integer <= 1;
      if (!small && too_far()) return many_bits();
      if (small && too_far()) return Owned();
      return Owned(check(PyNumber_Power(a, b, Py_None)));
    }
    case Slot::negative:
      return Owned(check(PyNumber_Negative(a)));
    case Slot::absolute:
      return Owned(check(PyNumber_Absolute(a)));
    case Slot::invert:
      return Owned(check(PyNumber_Invert(a)));
    case Slot::left_shift:
      if (!second(0)) return Owned();
      return too_far() ? many_bits() : Owned(check(PyNumber_Lshift(a, b)));
    default:
      return Owned();
  }
}

/// The same op in float64, which is far from a result that wrapped.
bool wrapped(const OpInfo& op, std::span<const Unwrapped> args, const Tensor& result) {
  std::vector<TensorRef> keep;
  std::vector<Operand> in;
  for (const Unwrapped& u : args) {
    keep.push_back(number_tensor(op.name(), u, Dtype::float64));
    in.push_back(tensor_operand(keep.back().get()));
  }
  const double exact = Tensor::adopt(hyalite::apply(op, std::span<const Operand>(in)).leak()).item();
  return std::fabs(exact - result.item()) > 0x1p40;
}

}  // namespace

void check_exact(const OpInfo& op, std::span<const Unwrapped> args, std::span<const TensorRef> results) {
  const Dtype dtype = results[0]->dtype();
  if (kind(dtype) != Kind::integer || op.elementwise < 0 || op.schema.is_condition(0)) return;
  for (const Unwrapped& u : args) {
    if (u.object == nullptr || u.none || u.scalar.kind > Kind::integer) return;
  }
  if (op.schema.slot == Slot::none) {
    const bool plain = op.fields().empty() && !op.schema.has(Role::bound) && contains(op.schema.types, Dtype::float64);
    if (!plain || !wrapped(op, args, Tensor::share(results[0].get()))) return;
    throw OverflowError(std::string(op.name()) + "(): the result does not fit " + std::string(name(dtype)) +
                            "; write a float, or hl.asarray(x) for integers that wrap",
                        {{"op", std::string(op.name())}});
  }
  const Owned exact = exact_result(op, args);
  if (!exact) return;
  Unwrapped u;
  u.object = exact.get();
  if (!scalar_from(exact.get(), u.scalar, u.beyond) || (u.beyond == 0 && fits(u.scalar, dtype))) return;
  throw OverflowError(std::string(op.name()) + "(): " + int_text(exact.get()) + " does not fit " +
                          std::string(name(dtype)) + "; write a float, or hl.asarray(x) for integers that wrap",
                      {{"op", std::string(op.name())}});
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
  if (op.schema.mixed && is_complex(dtype) && u.scalar.kind == Kind::integer) {
    // Compared with complex values, an int that is none of them equals nothing.
    const Between d = doubles_around(u.object);
    const bool exact = d.below == d.above && (dtype == Dtype::complex128 || static_cast<float>(d.below) == d.below);
    return operands_.push_back(scalar_operand(Scalar(exact ? d.below : std::nan("")), dtype));
  }
  operands_.push_back(scalar_operand(number_in(op.name(), u, dtype), dtype));
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
void Aligned::compare_mixed(const OpInfo& op, Arguments& args) {
  for (std::size_t i = 0; i < args.size(); ++i) {
    const Unwrapped& u = args[i];
    if (u.tensor != nullptr) {
      operands_.push_back(tensor_operand(u.tensor));
      continue;
    }
    const Dtype other = args[1 - i].tensor->dtype();
    const bool weak = u.scalar.kind == Kind::floating ? is_floating(other) : exact_in(u.scalar, other);
    if (u.beyond != 0) {
      // Outside every integer dtype, so an infinity compares alike; floats have neighbours of the value.
      const Scalar s(is_floating(other) ? stand_in(op, u.object, i == 1) : u.beyond * HUGE_VAL);
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
void Aligned::keep_first(const OpInfo& op, Arguments& args) {
  if (args[0].tensor == nullptr) {
    // A number takes the dtype of the tensors it meets here too.
    SmallVector<Dtype, 3> bounds;
    for (const Unwrapped& u : args) {
      if (u.tensor != nullptr) bounds.push_back(u.tensor->dtype());
    }
    args[0].owned = number_tensor(
        op.name(), args[0],
        promote_weak(promote({bounds.data(), bounds.size()}, op.schema.name.data()), args[0].scalar.kind));
    args[0].tensor = args[0].owned.get();
  }
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
      operands_.push_back(scalar_operand(saturated(op.name(), u, dtype), dtype));
    }
  }
  if (args.size() == 3 && args[1].tensor == nullptr && args[2].tensor == nullptr) {
    if (is_above(operands_[1], operands_[2])) {
      throw ValueError(
          std::string(op.name()) + "(): " + op.params[1] + " " + shown(args[1].object) + " is above " + op.params[2] +
              " " + shown(args[2].object) + "; exchange them",
          {{"op", std::string(op.name())}, {"min", args[1].scalar.real()}, {"max", args[2].scalar.real()}});
    }
  }
}

/// Of numbers only, the first becomes a tensor of the dtype that they have together.
void Aligned::make_first(const OpInfo& op, std::size_t first) {
  only_numbers_ = true;
  Unwrapped& u = args_[first];
  const std::span<const Unwrapped> numbers = std::span<const Unwrapped>(args_).subspan(first);
  Dtype dtype = dtype_of_numbers(op, op.schema.has(Role::bound) ? numbers.first(1) : numbers);
  // Large ints too are rounded once.
  if (rounds_integers(op.schema) && kind(dtype) <= Kind::integer) dtype = Dtype::float32;
  const TensorImpl* condition = first == 1 ? args_[0].tensor : nullptr;
  u.owned = number_tensor(op.name(), u, dtype, condition != nullptr ? condition->device() : Device());
  u.tensor = u.owned.get();
}

Aligned::Aligned(const OpInfo& op, Arguments&& given) : args_(std::move(given)) {
  const std::size_t first = op.schema.is_condition(0) ? 1 : 0;
  bool any = false;
  for (std::size_t i = first; i < args_.size(); ++i) any |= args_[i].tensor != nullptr;
  if (!any) make_first(op, first);
  operands_.reserve(args_.size());
  if (op.schema.has(Role::bound)) {
    keep_first(op, args_);
    return;
  }
  if (op.schema.mixed) {
    bool complex = false;
    for (const Unwrapped& u : args_) {
      complex |= u.tensor != nullptr ? is_complex(u.tensor->dtype()) : u.scalar.kind == Kind::complex;
    }
    if (!complex) {
      compare_mixed(op, args_);
      return;
    }
  }
  SmallVector<Dtype, 3> dtypes;
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
  dtype = promote_weak(promote({dtypes.data(), dtypes.size()}, op.schema.name.data()), weak);
  if (rounds_integers(op.schema) && kind(dtype) <= Kind::integer) dtype = Dtype::float32;
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
