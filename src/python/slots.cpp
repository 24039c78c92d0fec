/// The native operators: `a + b` enters the engine here, without the op registry and without Python code.
#include "apply.h"
#include "explain/recorder.h"
#include "python/interop.h"
#include "python/operands.h"
#include "python/others.h"
#include "python/tensor_type.h"
#include "tensor/context.h"

namespace hyalite::python {
namespace {

/// The op of a slot, found once.
template <Slot slot>
const OpInfo& op_of() {
  static const OpInfo& op = [&]() -> const OpInfo& {
    for (const OpInfo& o : op_table()) {
      if (o.schema.slot == slot) return o;
    }
    throw ValueError("no op stands in this slot", {});
  }();
  return op;
}

/// As Python names an op's slot, such as "__radd__" with the prefix "r".
std::string slot_name(const OpInfo& op, const char* prefix) {
  static constexpr std::string_view names[] = {
      "",       "add",    "sub",    "mul", "truediv", "floordiv", "mod", "divmod", "pow", "matmul", "neg", "pos", "abs",
      "invert", "lshift", "rshift", "and", "or",      "xor",      "lt",  "le",     "eq",  "ne",     "gt",  "ge"};
  return std::string("__") + prefix + std::string(names[static_cast<std::size_t>(op.schema.slot)]) + "__";
}

/// NotImplemented, so that the other operand's type is asked. But Python would join the bytes of a tensor to bytes.
PyObject* not_implemented(const OpInfo& op, PyObject* x, PyObject* y, bool in_place) {
  if (op.schema.slot == Slot::add && (PyBytes_Check(x) || PyByteArray_Check(x))) {
    throw TypeError(std::string(op.name()) + "(): " + Py_TYPE(x)->tp_name +
                        " and a tensor do not add; write hl.asarray(" + (PyBytes_Check(x) ? "bytearray(x)" : "x") +
                        ") + y for numbers, x + bytes(y) for bytes",
                    {{"op", std::string(op.name())}});
  }
  return by_other_rules(op, x, y, in_place);
}

// What the recorder is told on the way of an operator. The way itself is one function for both cases, so that a trace
// shows what runs without it; its texts are made here, out of line, when the clock has stopped.

/// An operand as the slot was given it.
std::string described_object(PyObject* o) {
  Unwrapped u;
  u.object = o;
  if (is_tensor(o)) u.tensor = impl_of(o);
  const bool number = PyLong_Check(o) || PyFloat_Check(o) || PyComplex_Check(o);
  return u.tensor != nullptr || number ? described(u) : std::string(Py_TYPE(o)->tp_name);
}

std::string door_of(const OpInfo& op, PyObject* x, TensorImpl* target) {
  return slot_name(op, target != nullptr ? "i" : is_tensor(x) ? "" : "r");
}

[[gnu::cold, gnu::noinline]] void tell_operands(Span& span, const std::string& door, PyObject* x, PyObject* y) {
  span.end(Event::slot_called,
           {{Fact::door, door}, {Fact::operand, described_object(x), "a"}, {Fact::operand, described_object(y), "b"}});
}

/// Ends the step in which operands were unwrapped and aligned, and adds that they cross the border, to the op `called`.
[[gnu::cold, gnu::noinline]] void tell_promotion(Recorder* r, Span& span, const OpInfo& op, const OpInfo& called,
                                                 const Promotion& p, std::initializer_list<Said> operands) {
  Sayings said(operands), crossed{{Fact::op, op.name()}};
  said.emplace_back(Fact::op, op.name());
  said.emplace_back(Fact::by_autocast, p.by_autocast);
  if (p.cast) said.emplace_back(Fact::promoted, p.dtype);
  if (&called != &op) {
    said.emplace_back(Fact::instead, called.name());
    crossed.emplace_back(Fact::instead, called.name());
  }
  span.end(Event::aligned, said);
  Span crossing(r, Phase::python, Who::slot, Who::binding, StepKind::request);
  if (crossing.over()) crossing.end(Event::handed_over, crossed);
}

PyObject* wrap_several(Recorder* rec, const Outputs& results) {
  Span span(rec, Phase::result, Who::binding, Who::user, StepKind::result);
  PyObject* tuple = wrap_all(results.all());
  if (span.over()) span.end(Event::wrapped);
  return tuple;
}

/// The engine's call and the objects around its results.
[[gnu::always_inline]] inline PyObject* wrap_result(Recorder* rec, const OpInfo& op, std::span<const Operand> in,
                                                    TensorImpl* target) {
  if (op.outputs > 1) return wrap_several(rec, apply_all(op, in));
  if (rec == nullptr) [[likely]]
    return wrap(apply(op, in, nullptr, target));
  TensorRef result = apply(op, in, nullptr, target);
  Span span(rec, Phase::result, Who::binding, Who::user, StepKind::result);
  PyObject* wrapped = wrap(std::move(result));
  if (span.over()) span.end(Event::wrapped);
  return wrapped;
}

/// Operands that must be unwrapped or aligned first, in the step begun last.
[[gnu::noinline]] PyObject* binary_aligned(Recorder* rec, Span span, const OpInfo& op, PyObject* x, PyObject* y,
                                           TensorImpl* target) {
  if (op.outputs == 1 && !context().autocast.enabled) {
    // A number in the dtype that it meets.
    const bool left = Py_TYPE(x) == tensor_type, right = Py_TYPE(y) == tensor_type;
    Operand in[2];
    if (left != right && plain_number(op, left ? y : x, impl_of(left ? x : y)->dtype(), in[left ? 1 : 0])) {
      in[left ? 0 : 1].tensor = impl_of(left ? x : y);
      const auto [called, operands] = simplified(op, in);
      if (span.over()) {
        tell_promotion(rec, span, op, called, {in[left ? 1 : 0].dtype, false, false}, {{Fact::weak, true}});
      }
      return wrap_result(rec, called, operands, target);
    }
  }
  Arguments args(2);
  const bool defers = target == nullptr;
  if (!unwrap_or_scalar(x, args[0], defers) || !unwrap_or_scalar(y, args[1], defers)) {
    if (PyErr_Occurred()) throw PythonError();
    if (span.over()) span.end(Event::unknown_operand);
    return not_implemented(op, x, y, target != nullptr);
  }
  const Aligned aligned(op, std::move(args));
  const auto [called, operands] = simplified(op, aligned.operands());
  if (span.over()) {
    const TensorImpl *a = aligned.arguments()[0].tensor, *b = aligned.arguments()[1].tensor;
    if (a == nullptr || b == nullptr) {
      tell_promotion(rec, span, op, called, aligned.promotion(), {{Fact::weak, true}});
    } else {
      tell_promotion(rec, span, op, called, aligned.promotion(),
                     {{Fact::dtype, a->dtype()}, {Fact::dtype, b->dtype()}});
    }
  }
  return wrap_result(rec, called, operands, target);
}

[[gnu::always_inline]] inline PyObject* binary_route(Recorder* rec, const OpInfo& op, PyObject* x, PyObject* y,
                                                     TensorImpl* target) {
  if (Span call(rec, Phase::python, Who::user, Who::slot, StepKind::request); call.over()) {
    tell_operands(call, door_of(op, x, target), x, y);
  }
  Span span(rec, Phase::python, Who::slot, Who::slot, StepKind::self);
  if (Py_TYPE(x) == tensor_type && Py_TYPE(y) == tensor_type) [[likely]] {
    TensorImpl *a = impl_of(x), *b = impl_of(y);
    if (a->dtype() == b->dtype() && contains(op.schema.types, a->dtype()) && op.outputs == 1) [[likely]] {
      if (span.over()) {
        tell_promotion(rec, span, op, op, {a->dtype(), false, false},
                       {{Fact::dtype, a->dtype()}, {Fact::dtype, b->dtype()}});
      }
      Operand in[2];
      in[0].tensor = a;
      in[1].tensor = b;
      return wrap_result(rec, op, in, target);
    }
  }
  return binary_aligned(rec, span, op, x, y, target);
}

[[gnu::cold, gnu::noinline]] PyObject* binary_traced(const OpInfo& op, PyObject* x, PyObject* y, TensorImpl* target,
                                                     Recorder& r) {
  return r.guarded(op.name(), [&] {
    PyObject* result = binary_route(&r, op, x, y, target);
    r.entered_by(op, door_of(op, x, target));
    return result;
  });
}

PyObject* binary(const OpInfo& op, PyObject* x, PyObject* y) noexcept {
  try {
    if (Recorder* r = active_recorder(context())) [[unlikely]] {
      return binary_traced(op, x, y, nullptr, *r);
    }
    return binary_route(nullptr, op, x, y, nullptr);
  } catch (...) {
    return raise_current();
  }
}

/// x op= y: writes x, which keeps its dtype and shape, and gives x back.
PyObject* in_place(const OpInfo& op, PyObject* x, PyObject* y) noexcept {
  try {
    TensorImpl* target = impl_of(x);
    Recorder* r = active_recorder(context());
    Owned result(r != nullptr ? binary_traced(op, x, y, target, *r) : binary_route(nullptr, op, x, y, target));
    if (result.get() == Py_NotImplemented) return result.leak();
    Py_INCREF(x);
    return x;
  } catch (...) {
    return raise_current();
  }
}

template <Slot slot>
PyObject* binary_slot(PyObject* x, PyObject* y) {
  return binary(op_of<slot>(), x, y);
}
template <Slot slot>
PyObject* in_place_slot(PyObject* x, PyObject* y) {
  return in_place(op_of<slot>(), x, y);
}
PyObject* power_slot(PyObject* x, PyObject* y, PyObject* modulus) {
  if (modulus != Py_None) {
    PyErr_SetString(PyExc_TypeError, "pow() of tensors takes no modulus; write (x ** y) % m");
    return nullptr;
  }
  return binary(op_of<Slot::power>(), x, y);
}
PyObject* in_place_power_slot(PyObject* x, PyObject* y, PyObject*) { return in_place(op_of<Slot::power>(), x, y); }

[[gnu::always_inline]] inline PyObject* unary_route(Recorder* rec, const OpInfo& op, PyObject* x) {
  if (Span call(rec, Phase::python, Who::user, Who::slot, StepKind::request); call.over()) {
    call.end(Event::slot_called, {{Fact::door, slot_name(op, "")}, {Fact::operand, described_object(x), "a"}});
  }
  const Operand in = tensor_operand(impl_of(x));
  return wrap_result(rec, op, {&in, 1}, nullptr);
}

[[gnu::cold, gnu::noinline]] PyObject* unary_traced(const OpInfo& op, PyObject* x, Recorder& r) {
  return r.guarded(op.name(), [&] {
    PyObject* result = unary_route(&r, op, x);
    r.entered_by(op, slot_name(op, ""));
    return result;
  });
}

PyObject* unary(const OpInfo& op, PyObject* x) noexcept {
  try {
    if (Recorder* r = active_recorder(context())) [[unlikely]] {
      return unary_traced(op, x, *r);
    }
    return unary_route(nullptr, op, x);
  } catch (...) {
    return raise_current();
  }
}
template <Slot slot>
PyObject* unary_slot(PyObject* x) {
  return unary(op_of<slot>(), x);
}

PyObject* compare(PyObject* x, PyObject* y, int how) {
  switch (how) {
    case Py_LT:
      return binary(op_of<Slot::less>(), x, y);
    case Py_LE:
      return binary(op_of<Slot::less_equal>(), x, y);
    case Py_EQ:
      return binary(op_of<Slot::equal>(), x, y);
    case Py_NE:
      return binary(op_of<Slot::not_equal>(), x, y);
    case Py_GT:
      return binary(op_of<Slot::greater>(), x, y);
    default:
      return binary(op_of<Slot::greater_equal>(), x, y);
  }
}

template <PyObject* (*convert)(TensorImpl*)>
PyObject* number(PyObject* x) {
  try {
    return convert(impl_of(x));
  } catch (...) {
    return raise_current();
  }
}
int truth(PyObject* x) {
  try {
    return to_bool(impl_of(x));
  } catch (...) {
    raise_current();
    return -1;
  }
}

template <class F>
void* slot(F* f) {
  return reinterpret_cast<void*>(f);
}

}  // namespace

PyType_Slot* number_slots() {
  static PyType_Slot slots[] = {{Py_nb_add, slot(binary_slot<Slot::add>)},
                                {Py_nb_subtract, slot(binary_slot<Slot::subtract>)},
                                {Py_nb_multiply, slot(binary_slot<Slot::multiply>)},
                                {Py_nb_true_divide, slot(binary_slot<Slot::true_divide>)},
                                {Py_nb_floor_divide, slot(binary_slot<Slot::floor_divide>)},
                                {Py_nb_remainder, slot(binary_slot<Slot::remainder>)},
                                {Py_nb_divmod, slot(binary_slot<Slot::divmod>)},
                                {Py_nb_power, slot(power_slot)},
                                {Py_nb_matrix_multiply, slot(binary_slot<Slot::matmul>)},
                                {Py_nb_lshift, slot(binary_slot<Slot::left_shift>)},
                                {Py_nb_rshift, slot(binary_slot<Slot::right_shift>)},
                                {Py_nb_and, slot(binary_slot<Slot::bitwise_and>)},
                                {Py_nb_or, slot(binary_slot<Slot::bitwise_or>)},
                                {Py_nb_xor, slot(binary_slot<Slot::bitwise_xor>)},
                                {Py_nb_inplace_add, slot(in_place_slot<Slot::add>)},
                                {Py_nb_inplace_subtract, slot(in_place_slot<Slot::subtract>)},
                                {Py_nb_inplace_multiply, slot(in_place_slot<Slot::multiply>)},
                                {Py_nb_inplace_true_divide, slot(in_place_slot<Slot::true_divide>)},
                                {Py_nb_inplace_floor_divide, slot(in_place_slot<Slot::floor_divide>)},
                                {Py_nb_inplace_remainder, slot(in_place_slot<Slot::remainder>)},
                                {Py_nb_inplace_power, slot(in_place_power_slot)},
                                {Py_nb_inplace_lshift, slot(in_place_slot<Slot::left_shift>)},
                                {Py_nb_inplace_rshift, slot(in_place_slot<Slot::right_shift>)},
                                {Py_nb_inplace_and, slot(in_place_slot<Slot::bitwise_and>)},
                                {Py_nb_inplace_or, slot(in_place_slot<Slot::bitwise_or>)},
                                {Py_nb_inplace_xor, slot(in_place_slot<Slot::bitwise_xor>)},
                                {Py_nb_negative, slot(unary_slot<Slot::negative>)},
                                {Py_nb_positive, slot(unary_slot<Slot::positive>)},
                                {Py_nb_absolute, slot(unary_slot<Slot::absolute>)},
                                {Py_nb_invert, slot(unary_slot<Slot::invert>)},
                                {Py_nb_bool, slot(truth)},
                                {Py_nb_int, slot(number<to_int>)},
                                {Py_nb_float, slot(number<to_float>)},
                                {Py_nb_index, slot(number<to_index>)},
                                {Py_tp_richcompare, slot(compare)},
                                {0, nullptr}};
  return slots;
}

}  // namespace hyalite::python
