/// A callable an op: arguments by its parameters and attribute fields, signature and docstring from the same.
#include "python/functions.h"

#include <structmember.h>

#include <algorithm>
#include <cstring>

#include "apply.h"
#include "explain/recorder.h"
#include "explain/source.h"
#include "ops/reduce.h"
#include "python/arguments.h"
#include "python/interop.h"
#include "python/operands.h"
#include "python/promote.h"
#include "tensor/context.h"

namespace hyalite::python {
namespace {

/// `hl.add` and its like. A method when found on a tensor.
struct OpFunction {
  PyObject_HEAD const OpInfo* op;
  bool strict;
  bool plain;  // takes_tensors_alone
  vectorcallfunc call;
};
PyTypeObject* function_type = nullptr;

/// "(x1, x2, /)", or "(x, /, axis=None, keepdims=False)".
std::string signature_text(const OpInfo& op) {
  std::string s = "(";
  for (std::size_t i = 0; i < op.params.size(); ++i) {
    s += (i ? ", " : "") + op.params[i] + (op.schema.is_bound(i) ? "=None" : "");
    if (i == 0 && op.schema.has(Role::bound)) s += ", /";
  }
  if (!op.schema.has(Role::bound) && !op.params.empty()) s += ", /";
  for (std::size_t i = 0; i < op.fields().size(); ++i) {
    const AttrField& f = op.fields()[i];
    s += (s.size() > 1 ? ", " : "") + std::string(f.name) +
         (f.required ? "" : "=" + op.defaults->text(static_cast<int>(i)));
  }
  return s + ")";
}

/// No axis means the only one.
bool is_only_axis(const OpInfo& op, PyObject* x) {
  if (is_tensor(x) && impl_of(x)->ndim() > 1) {
    throw ValueError(std::string(op.name()) + "(): axis is None, and x has " + std::to_string(impl_of(x)->ndim()) +
                         " dimensions; write axis=0",
                     {{"op", std::string(op.name())}});
  }
  return true;
}

/// Writes one argument into its field.
void set_attribute(const OpInfo& op, Attributes& to, int i, PyObject* o) {
  const AttrField& f = op.fields()[static_cast<std::size_t>(i)];
  const auto optional = [&](auto& field, auto make) {
    if (o == Py_None) {
      field.reset();
    } else {
      field = make();
    }
  };
  switch (f.type) {
    case AttrType::number:
      to.field<double>(i) = number_argument(o, op.name(), f.name);
      return;
    case AttrType::scalar: {
      int beyond = 0;
      if (!scalar_from(o, to.field<Scalar>(i), beyond) || beyond != 0) throw_argument(op.name(), f.name, "a number", o);
      return;
    }
    case AttrType::integer:
      to.field<std::int64_t>(i) = integer_argument(o, op.name(), f.name);
      return;
    case AttrType::flag:
      to.field<bool>(i) = flag_argument(o, op.name(), f.name);
      return;
    case AttrType::dtype: {
      const auto dtype = [&] { return dtype_argument(o, op.name(), f.name); };
      if (f.optional) return optional(to.field<std::optional<Dtype>>(i), dtype);
      to.field<Dtype>(i) = dtype();
      return;
    }
    case AttrType::device:
      return optional(to.field<std::optional<Device>>(i), [&] { return device_argument(o, op.name()); });
    case AttrType::axis:
      return optional(to.field<std::optional<std::int64_t>>(i),
                      [&] { return integer_argument(o, op.name(), f.name, "None or one integer"); });
    case AttrType::ints:
      to.field<Ints>(i) = ints_argument(o, op.name(), f.name, "an integer or a tuple of integers");
      return;
    case AttrType::axes:
      return optional(to.field<std::optional<Ints>>(i),
                      [&] { return ints_argument(o, op.name(), f.name, "None, an integer or a tuple of integers"); });
    case AttrType::text:
    case AttrType::choice:
    case AttrType::chain:
      break;
  }
  throw_argument(op.name(), f.name, "internal", o);
}

[[noreturn, gnu::cold]] void refuse(const OpInfo& op, const std::string& what) {
  refuse_call(op.name(), signature_text(op), what);
}

/// The attributes that the arguments say, null where one was not given. Those that all have their defaults are shared.
AttrRef attributes_from(const OpInfo& op, PyObject* const* given) {
  Ref<Attributes> own;
  const int n = static_cast<int>(op.fields().size());
  for (int i = 0; i < n; ++i) {
    if (given[i] != nullptr) {
      if (!own) own = Attributes::copy_of(*op.defaults);
      set_attribute(op, *own, i, given[i]);
    } else if (op.fields()[static_cast<std::size_t>(i)].required) {
      refuse(op, std::string(op.fields()[static_cast<std::size_t>(i)].name) + " is missing");
    }
  }
  return own ? AttrRef::adopt(own.leak()) : op.defaults;
}

using Slots = SmallVector<PyObject*, 6>;

/// Arguments sorted by name: the operands, then the attributes; null where one was not given.
Slots sorted(const OpInfo& op, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  const std::size_t operands = op.params.size(), all = operands + op.fields().size();
  Slots slots(all);
  std::ranges::fill(slots, nullptr);
  const auto find = [&](std::string_view name) {
    for (std::size_t i = op.schema.has(Role::bound) ? 1 : operands; i < operands; ++i) {
      if (op.params[i] == name) return static_cast<std::ptrdiff_t>(i);
    }
    for (std::size_t i = 0; i < op.fields().size(); ++i) {
      if (op.fields()[i].name == name) return static_cast<std::ptrdiff_t>(operands + i);
    }
    return std::ptrdiff_t{-1};
  };
  // NumPy's functions pass it to methods of the same name.
  const auto passes = [&](std::string_view name, PyObject* value) {
    if (name != "out") return false;
    if (value == Py_None) return true;
    throw TypeError(
        std::string(op.name()) + "(): out= is not there; write y[...] = hl." + std::string(op.name()) + "(x)",
        {{"op", std::string(op.name())}});
  };
  const auto refused = [&](const std::string& what) { refuse(op, what); };
  sort_arguments({slots.data(), all}, all, args, n, names, find, passes, refused);
  for (std::size_t i = 0; i < operands; ++i) {
    if (slots[i] == nullptr && !op.schema.is_bound(i)) refuse(op, op.params[i] + " is missing");
  }
  return slots;
}

Arguments unwrapped(const OpInfo& op, std::span<PyObject* const> given) {
  Arguments args(given.size());
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (given[i] == nullptr || (given[i] == Py_None && op.schema.is_bound(i))) {
      args[i].none = true;
      continue;
    }
    if (!unwrap_or_scalar(given[i], args[i])) {
      if (PyErr_Occurred()) throw PythonError();
      const std::string param = op.schema.variadic ? op.params[0] + "[" + std::to_string(i) + "]" : op.params[i];
      throw TypeError(std::string(op.name()) + "(): " + param + " must be a tensor, an array or a number, not " +
                          Py_TYPE(given[i])->tp_name + "; write hl.asarray(x)",
                      {{"op", std::string(op.name())}});
    }
  }
  return args;
}

/// Numbers as tensors without dimensions, each of its own dtype, or of `dtype` where its kind goes in.
void make_tensors(const OpInfo& op, Arguments& args, std::optional<Dtype> dtype = {}) {
  for (Unwrapped& u : args) {
    if (u.tensor != nullptr || u.none) continue;
    const bool goes = dtype && u.scalar.kind <= kind(*dtype);
    u.owned = number_tensor(op.name(), u, goes ? *dtype : number_dtype(op.name(), u));
    u.tensor = u.owned.get();
  }
}

/// Whether an axis that may be None is.
bool flattens(const OpInfo& op, const Attributes* attrs) {
  for (int i = 0; i < static_cast<int>(op.fields().size()); ++i) {
    if (op.fields()[static_cast<std::size_t>(i)].type == AttrType::axis) {
      return !attrs->field<std::optional<std::int64_t>>(i);
    }
  }
  return false;
}

/// No promotion, but numbers still take the tensors' dtype.
Operands strict_operands(const OpInfo& op, const Arguments& args) {
  Dtype dtype = Dtype::float32;
  for (std::size_t i = args.size(); i-- > (op.schema.is_condition(0) ? 1 : 0);) {
    if (args[i].tensor != nullptr) dtype = args[i].tensor->dtype();
  }
  Operands r;
  for (const Unwrapped& u : args) {
    if (u.none) {
      throw TypeError(std::string(op.name()) + "(): the engine fills nothing in; write hl." + std::string(op.name()) +
                          "() or every operand",
                      {{"op", std::string(op.name())}});
    }
    if (u.tensor != nullptr) {
      r.push_back(tensor_operand(u.tensor));
      continue;
    }
    // A condition is no value among the others.
    const Dtype to = op.schema.is_condition(r.size()) ? default_dtype(u.scalar.kind) : dtype;
    if (u.scalar.kind > kind(to)) {
      throw DtypeMismatch(std::string(op.name()) + "(): a number of a higher kind than " + std::string(name(to)) +
                              "; write x.astype(hl." + std::string(name(default_dtype(u.scalar.kind))) + ") first",
                          {{"op", std::string(op.name())}});
    }
    r.push_back(scalar_operand(number_in(op.name(), u, to), to));
  }
  return r;
}

std::span<const Operand> as_span(const Operands& o) { return {o.data(), o.size()}; }

PyObject* wrapped(const OpInfo& op, std::span<const Operand> in, const Attributes* attrs) {
  if (op.outputs > 1) return wrap_all(apply_all(op, in, attrs).all());
  return wrap(apply(op, in, attrs));
}

PyObject* result_of(const OpInfo& op, std::span<const Operand> in, const Attributes* attrs) {
  const auto [called, operands] = simplified(op, in);
  PyObject* result = wrapped(called, operands, attrs);
  Span span(active_recorder(context()), Phase::result, Who::binding, Who::user, StepKind::result);
  if (span.over()) span.end(Event::wrapped);
  return result;
}

/// Functions of numbers only compute exactly, or raise.
PyObject* result_of_numbers(const OpInfo& op, const Aligned& aligned, const Attributes* attrs) {
  const Owned result(check(result_of(op, aligned.operands(), attrs)));
  std::vector<TensorRef> outputs;
  for (int i = 0; i < op.outputs; ++i) {
    PyObject* o = op.outputs == 1 ? result.get() : PyTuple_GET_ITEM(result.get(), i);
    outputs.push_back(TensorRef::share(impl_of(o)));
  }
  check_exact(op, aligned.arguments(), outputs);
  return Owned::borrow(result.get()).leak();
}

std::string door_of(const OpFunction& f) { return (f.strict ? "_C_engine." : "hl.") + std::string(f.op->name()); }

PyObject* call_op(const OpFunction& f, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  const OpInfo& op = *f.op;
  Recorder* r = active_recorder(context());
  Span call(r, Phase::python, Who::user, Who::slot, StepKind::request);
  Slots slots = sorted(op, args, n, names);
  if (call.over()) call.end(Event::function_called, {{Fact::door, door_of(f)}, {Fact::op, op.name()}});
  PyObject** values = slots.data() + op.params.size();
  if (op.schema.has(Role::index) && values[0] == Py_None && is_only_axis(op, slots[0])) values[0] = nullptr;
  const AttrRef attrs = attributes_from(op, values);
  const Attributes* given = attrs.get();
  Span span(r, Phase::python, Who::slot, Who::slot, StepKind::self);
  Arguments operands;
  std::vector<Owned> items;
  if (op.schema.variadic) {
    const Owned sequence(PySequence_Check(slots[0]) != 0 || is_tensor(slots[0]) || PyIter_Check(slots[0])
                             ? PySequence_Tuple(slots[0])
                             : nullptr);
    if (!sequence) {
      if (PyErr_Occurred() != nullptr) throw PythonError();
      throw_argument(op.name(), op.params[0], "a sequence of tensors", slots[0], "write [x, y]");
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(sequence.get()); ++i)
      items.push_back(Owned::borrow(PyTuple_GET_ITEM(sequence.get(), i)));
    std::vector<PyObject*> raw;
    for (const Owned& o : items) raw.push_back(o.get());
    operands = unwrapped(op, raw);
    // Numbers have no axes to be joined along: only what makes new ones, or flattens, takes them.
    if (op.schema.kind == OpKind::composite || flattens(op, given)) make_tensors(op, operands);
    if (operands.empty())
      throw ValueError(std::string(op.name()) + "(): needs at least one tensor", {{"op", std::string(op.name())}});
  } else {
    operands = unwrapped(op, {slots.data(), op.params.size()});
  }
  if (f.strict) {
    if (span.over()) span.end(Event::not_promoted);
    return result_of(op, as_span(strict_operands(op, operands)), given);
  }
  if (op.schema.has(Role::index)) {
    // Indices are not promoted with the data.
    if (span.over()) span.end(Event::indices_unwrapped);
    make_tensors(op, operands);
    return result_of(op, as_span(strict_operands(op, operands)), given);
  }
  if (const auto* sum = given != nullptr ? given->get_if<SumAttr>() : nullptr; sum != nullptr && sum->dtype) {
    // dtype= says what the elements become; nothing is aligned before.
    if (span.over()) span.end(Event::dtype_given);
    make_tensors(op, operands, sum->dtype);
    return result_of(op, as_span(strict_operands(op, operands)), given);
  }
  if (op.schema.mixed) {
    if (const std::optional<bool> known = compare_numbers(op, operands)) {
      if (span.over()) span.end(Event::numbers_compared);
      return wrap(TensorRef::adopt(full({}, Scalar(*known), Dtype::boolean).leak()));
    }
  }
  if (op.arity == 0) {
    if (span.over()) span.end(Event::no_operands);
    return result_of(op, {}, given);
  }
  const Aligned aligned(op, std::move(operands));
  if (span.over()) {
    Sayings said;
    for (std::size_t i = 0; i < aligned.arguments().size(); ++i) {
      const std::string param = op.schema.variadic ? std::to_string(i) : op.params[i];
      said.emplace_back(Fact::operand, described(aligned.arguments()[i]), param);
    }
    if (aligned.promotion().cast) said.emplace_back(Fact::promoted, aligned.promotion().dtype);
    span.end(Event::aligned, said);
  }
  const std::span<const Operand> in = aligned.operands();
  if (op.schema.identity_on_reals && !is_complex(in[0].tensor->dtype())) return wrap(TensorRef::share(in[0].tensor));
  if (aligned.only_numbers()) return result_of_numbers(op, aligned, given);
  return result_of(op, in, given);
}

/// Whether the operands are tensors that the op takes as they are: nothing is left to align.
bool takes_plainly(const OpInfo& op, PyObject* const* args, Operand* in) {
  const TensorImpl* first = nullptr;
  bool numbers = false;
  for (int i = 0; i < op.arity; ++i) {
    if (Py_TYPE(args[i]) != tensor_type) {
      if (op.elementwise < 0 || op.schema.roles[static_cast<std::size_t>(i)] != Role::data) return false;
      numbers = true;
      continue;
    }
    TensorImpl* t = impl_of(args[i]);
    in[i].tensor = t;
    const Role role = op.schema.roles[static_cast<std::size_t>(i)];
    if (role == Role::condition) {
      if (t->dtype() != Dtype::boolean) return false;
    } else if (role == Role::index) {
      if (kind(t->dtype()) != Kind::integer) return false;
    } else if (first == nullptr) {
      first = t;
    } else if (t->dtype() != first->dtype()) {
      return false;
    }
  }
  if (first == nullptr || !contains(op.schema.types, first->dtype())) return false;
  for (int i = 0; numbers && i < op.arity; ++i) {
    if (Py_TYPE(args[i]) != tensor_type && !plain_number(op, args[i], first->dtype(), in[i])) return false;
  }
  return true;
}

PyObject* call_plainly(const OpFunction& f, std::span<const Operand> in, const Attributes* attrs) {
  const OpInfo& op = *f.op;
  Recorder* r = active_recorder(context());
  if (r == nullptr) [[likely]]
    return result_of(op, in, attrs);
  return r->guarded(op.name(), [&] {
    Span call(r, Phase::python, Who::user, Who::slot, StepKind::request);
    if (call.over()) call.end(Event::function_direct, {{Fact::door, door_of(f)}, {Fact::op, op.name()}});
    PyObject* result = result_of(op, in, attrs);
    r->entered_by(op, door_of(f));
    return result;
  });
}

PyObject* vectorcall(PyObject* self, PyObject* const* args, std::size_t nargsf, PyObject* names) noexcept {
  try {
    const OpFunction& f = *reinterpret_cast<OpFunction*>(self);
    if (const Py_ssize_t n = PyVectorcall_NARGS(nargsf); f.plain && n >= f.op->arity && !context().autocast.enabled) {
      Operand in[most_operands];
      const std::span<const Operand> operands(in, static_cast<std::size_t>(f.op->arity));
      if (takes_plainly(*f.op, args, in)) {
        if (n == f.op->arity && names == nullptr) return call_plainly(f, operands, f.op->defaults.get());
        if (!f.op->schema.has(Role::index)) {
          Slots slots = sorted(*f.op, args, n, names);
          return call_plainly(f, operands, attributes_from(*f.op, slots.data() + f.op->params.size()).get());
        }
      }
    }
    PyObject* result = call_op(f, args, PyVectorcall_NARGS(nargsf), names);
    if (Recorder* r = active_recorder(context())) [[unlikely]] {
      r->entered_by(*f.op, door_of(f));
    }
    return result;
  } catch (...) {
    return raise_current();
  }
}

PyObject* bind(PyObject* self, PyObject* object, PyObject*) {
  if (object == nullptr || object == Py_None) {
    Py_INCREF(self);
    return self;
  }
  return PyMethod_New(self, object);
}

const OpInfo& op_of(PyObject* self) { return *reinterpret_cast<OpFunction*>(self)->op; }
PyObject* to_text(const std::string& s) {
  return PyUnicode_FromStringAndSize(s.data(), static_cast<Py_ssize_t>(s.size()));
}

std::string dtype_names(DtypeSet types) {
  std::string s;
  for (int i = 0; i < dtype_count; ++i) {
    if (contains(types, static_cast<Dtype>(i))) s += (s.empty() ? "" : ", ") + std::string(name(static_cast<Dtype>(i)));
  }
  return s;
}

std::string doc_text(const OpInfo& op) {
  std::string s = op_doc(op) + "\n\nDtypes: " + dtype_names(op.schema.types);
  if (op.schema.integers != Integers::native) s += "; integers and booleans become float32";
  s += ".\n";
  if (op.schema.kind == OpKind::elementwise) {
    s += "Shapes: operands broadcast; the result has the broadcast shape";
    s += op.schema.results[0] == Result::boolean ? ", dtype bool.\n" : ".\n";
    s += op.schema.ulp == 0
             ? "Accuracy: exact or correctly rounded.\n"
             : "Accuracy: " + detail::field_text(op.schema.ulp) + " ULP for float32 and float64 (SLEEF 3.5.1).\n";
  }
  const auto& [first, second] = op.schema.gradient_ulp;
  s += !op.differentiable()        ? "Gradient: none.\n"
       : first == 0 && second == 0 ? "Gradient: yes, of any order.\n"
                                   : "Gradient: yes, of any order; within " + detail::field_text(first) +
                                         " ULP, the second within " + detail::field_text(second) + ".\n";
  s += "Raises: DtypeMismatch, DeviceMismatch, ShapeMismatch.\n";
  const SourceText source = op_source(op);
  return s + "Source: " + source.file + ":" + std::to_string(source.line) + ".";
}

PyObject* get_name(PyObject* self, void*) { return to_text(std::string(op_of(self).name())); }
PyObject* get_module(PyObject* self, void*) {
  return to_text(reinterpret_cast<OpFunction*>(self)->strict ? "hyalite._C_engine" : "hyalite");
}
PyObject* get_doc(PyObject* self, void*) {
  try {
    return to_text(doc_text(op_of(self)));
  } catch (...) {
    return raise_current();
  }
}
PyObject* get_text_signature(PyObject* self, void*) { return to_text(signature_text(op_of(self))); }
PyObject* get_signature(PyObject* self, void*) {
  const Owned module(PyImport_ImportModule("hyalite._functions"));
  if (!module) return nullptr;
  return PyObject_CallMethod(module.get(), "_signature", "s", signature_text(op_of(self)).c_str());
}
PyObject* repr(PyObject* self) { return to_text("<hyalite op " + std::string(op_of(self).name()) + ">"); }
PyObject* reduce(PyObject* self, PyObject*) { return to_text(std::string(op_of(self).name())); }

PyGetSetDef properties[] = {{"__name__", get_name, nullptr, nullptr, nullptr},
                            {"__qualname__", get_name, nullptr, nullptr, nullptr},
                            {"__module__", get_module, nullptr, nullptr, nullptr},
                            {"__doc__", get_doc, nullptr, nullptr, nullptr},
                            {"__text_signature__", get_text_signature, nullptr, nullptr, nullptr},
                            {"__signature__", get_signature, nullptr, nullptr, nullptr},
                            {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMethodDef methods[] = {{"__reduce__", reduce, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
PyMemberDef members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(OpFunction, call), READONLY, nullptr},
                         {nullptr, 0, 0, 0, nullptr}};

bool make_type() {
  static PyType_Slot slots[] = {{Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                                {Py_tp_descr_get, reinterpret_cast<void*>(bind)},
                                {Py_tp_repr, reinterpret_cast<void*>(repr)},
                                {Py_tp_getset, properties},
                                {Py_tp_members, members},
                                {Py_tp_methods, methods},
                                {0, nullptr}};
  static PyType_Spec spec{"hyalite.OpFunction", sizeof(OpFunction), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR |
                              Py_TPFLAGS_DISALLOW_INSTANTIATION,
                          slots};
  function_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return function_type != nullptr;
}

PyObject* make_function(const OpInfo& op, bool strict) {
  OpFunction* f = PyObject_New(OpFunction, function_type);
  if (f == nullptr) return nullptr;
  f->op = &op;
  f->strict = strict;
  f->plain = op.takes_tensors_alone();
  f->call = vectorcall;
  return reinterpret_cast<PyObject*>(f);
}

}  // namespace

bool add_functions(PyObject* module, PyObject* engine) {
  if (!make_type()) return false;
  for (const OpInfo& op : op_table()) {
    if (op.schema.internal || op.schema.own_front_end) continue;  // their attributes are not checked
    const std::string name(op.name());
    const Owned strict(make_function(op, true));
    if (!strict || PyObject_SetAttrString(engine, name.c_str(), strict.get()) < 0) return false;
    const Owned f(make_function(op, false));
    if (!f || PyObject_SetAttrString(module, name.c_str(), f.get()) < 0) return false;
    PyObject* type = reinterpret_cast<PyObject*>(tensor_type);
    const bool method = op.arity != 0 && !op.schema.variadic && !op.schema.is_condition(0) &&
                        !PyObject_HasAttrString(type, name.c_str());
    if (method && PyObject_SetAttrString(type, name.c_str(), f.get()) < 0) return false;
  }
  return true;
}

}  // namespace hyalite::python
