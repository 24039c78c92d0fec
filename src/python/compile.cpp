/// A compiled function: traces its Python once a signature, and runs the plan from then on.
#include "python/compile.h"

#include <nanobind/stl/string.h>
#include <structmember.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "compile/bits_apart.h"
#include "compile/compiled.h"
#include "compute/jit/disk_cache.h"
#include "compute/jit/llvm.h"
#include "explain/record_op.h"
#include "python/gil.h"
#include "python/interop.h"
#include "python/tensor_object.h"
#include "record/autograd_meta.h"

namespace nb = nanobind;

namespace hyalite::python {
namespace {

/// The shape of a nest of lists, tuples and dicts, with its tensors left out.
struct Tree {
  enum Kind : std::uint8_t { tensor, list, tuple, dict, value } kind = value;
  Owned object;  ///< of a container, a tensor: its type; a value: itself
  Owned keys;    ///< of a dict, a tuple
  std::vector<Tree> items;
};

bool is_list(PyObject* o) { return PyList_CheckExact(o) != 0; }
bool is_tuple(PyObject* o) { return PyTuple_Check(o) != 0; }

/// Whether `o` is the value that the function was traced with: of numbers and texts what they say, of others which.
/// Only what compares without running code of its own is compared.
bool same_value(PyObject* then, PyObject* o) {
  if (then == o) return true;
  if (Py_TYPE(then) != Py_TYPE(o)) return false;
  if (PyFloat_CheckExact(o)) {
    const double a = PyFloat_AS_DOUBLE(then), b = PyFloat_AS_DOUBLE(o);
    return std::memcmp(&a, &b, sizeof a) == 0;
  }
  if (PyComplex_CheckExact(o)) {
    const Py_complex a = PyComplex_AsCComplex(then), b = PyComplex_AsCComplex(o);
    return std::memcmp(&a, &b, sizeof a) == 0;
  }
  if (!PyLong_CheckExact(o) && !PyUnicode_CheckExact(o) && !PyBytes_CheckExact(o)) return false;
  const int equal = PyObject_RichCompareBool(then, o, Py_EQ);
  if (equal < 0) throw PythonError();
  return equal != 0;
}

/// Takes the object apart; tensors are appended to `leaves`.
Tree take_apart(PyObject* o, std::vector<PyObject*>& leaves) {
  Tree t;
  if (is_tensor(o)) {
    t.kind = Tree::tensor;
    t.object = Owned::borrow(reinterpret_cast<PyObject*>(Py_TYPE(o)));
    leaves.push_back(o);
  } else if (is_list(o) || is_tuple(o)) {
    t.kind = is_list(o) ? Tree::list : Tree::tuple;
    t.object = Owned::borrow(reinterpret_cast<PyObject*>(Py_TYPE(o)));
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
    for (Py_ssize_t i = 0; i < n; ++i) t.items.push_back(take_apart(PySequence_Fast_GET_ITEM(o, i), leaves));
  } else if (PyDict_CheckExact(o)) {
    t.kind = Tree::dict;
    t.object = Owned::borrow(reinterpret_cast<PyObject*>(Py_TYPE(o)));
    const Owned keys(check(PyDict_Keys(o)));
    t.keys = Owned(check(PyList_AsTuple(keys.get())));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(t.keys.get()); ++i) {
      t.items.push_back(take_apart(check(PyDict_GetItemWithError(o, PyTuple_GET_ITEM(t.keys.get(), i))), leaves));
    }
  } else {
    t.object = Owned::borrow(o);
  }
  return t;
}

bool is_number(PyObject* o) { return PyFloat_CheckExact(o) || PyLong_CheckExact(o) || PyComplex_CheckExact(o); }

/// Whether the object has this shape; its tensors are appended to `leaves`. With `any_numbers`, a number may be another
/// of its type.
bool fits(const Tree& t, PyObject* o, SmallVector<TensorImpl*, 16>& leaves, bool any_numbers = false) {
  const auto item_fits = [&](std::size_t i, PyObject* item) { return fits(t.items[i], item, leaves, any_numbers); };
  switch (t.kind) {
    case Tree::tensor:
      if (reinterpret_cast<PyObject*>(Py_TYPE(o)) != t.object.get()) return false;
      leaves.push_back(impl_of(o));
      return true;
    case Tree::list:
    case Tree::tuple: {
      if (reinterpret_cast<PyObject*>(Py_TYPE(o)) != t.object.get()) return false;
      const Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
      if (n != static_cast<Py_ssize_t>(t.items.size())) return false;
      for (Py_ssize_t i = 0; i < n; ++i) {
        if (!item_fits(static_cast<std::size_t>(i), PySequence_Fast_GET_ITEM(o, i))) return false;
      }
      return true;
    }
    case Tree::dict: {
      if (!PyDict_CheckExact(o) || PyDict_GET_SIZE(o) != static_cast<Py_ssize_t>(t.items.size())) return false;
      Py_ssize_t at = 0, i = 0;
      PyObject *key, *item;
      while (PyDict_Next(o, &at, &key, &item) != 0) {  // in their order, which f may see
        if (!same_value(PyTuple_GET_ITEM(t.keys.get(), i), key)) return false;
        if (!item_fits(static_cast<std::size_t>(i), item)) return false;
        ++i;
      }
      return true;
    }
    default:
      if (any_numbers && Py_TYPE(t.object.get()) == Py_TYPE(o) && is_number(o)) return true;
      return same_value(t.object.get(), o);
  }
}

/// The object again, with other tensors.
Owned put_together(const Tree& t, SmallVector<TensorRef, 4>& leaves, std::size_t& next) {
  switch (t.kind) {
    case Tree::tensor:
      return Owned(check(wrap(std::move(leaves[next++]))));
    case Tree::list: {
      Owned list(check(PyList_New(static_cast<Py_ssize_t>(t.items.size()))));
      for (std::size_t i = 0; i < t.items.size(); ++i)
        PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), put_together(t.items[i], leaves, next).leak());
      return list;
    }
    case Tree::tuple: {
      Owned tuple(check(PyTuple_New(static_cast<Py_ssize_t>(t.items.size()))));
      for (std::size_t i = 0; i < t.items.size(); ++i)
        PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), put_together(t.items[i], leaves, next).leak());
      if (t.object.get() == reinterpret_cast<PyObject*>(&PyTuple_Type)) return tuple;
      const Owned make(PyObject_GetAttrString(t.object.get(), "_make"));  // of a named tuple
      if (!make) {
        PyErr_Clear();
        return Owned(check(PyObject_CallOneArg(t.object.get(), tuple.get())));
      }
      return Owned(check(PyObject_CallOneArg(make.get(), tuple.get())));
    }
    case Tree::dict: {
      Owned dict(check(PyDict_New()));
      for (std::size_t i = 0; i < t.items.size(); ++i) {
        const Owned item = put_together(t.items[i], leaves, next);
        if (PyDict_SetItem(dict.get(), PyTuple_GET_ITEM(t.keys.get(), static_cast<Py_ssize_t>(i)), item.get()) < 0)
          throw PythonError();
      }
      return dict;
    }
    default:
      return Owned::borrow(t.object.get());
  }
}

/// Names of the tensors in a tree, as a user would write them.
void name_leaves(const Tree& t, const std::string& path, std::vector<std::string>& names) {
  if (t.kind == Tree::tensor) names.push_back(path);
  for (std::size_t i = 0; i < t.items.size(); ++i) {
    std::string at = std::to_string(i);
    if (t.kind == Tree::dict) {
      const Owned text(check(PyObject_Repr(PyTuple_GET_ITEM(t.keys.get(), static_cast<Py_ssize_t>(i)))));
      at = check(text.get()) != nullptr ? PyUnicode_AsUTF8(text.get()) : at;
    }
    name_leaves(t.items[i], path + "[" + at + "]", names);
  }
}

/// Arguments of a call, as the interpreter hands them over.
struct Arguments {
  PyObject* const* all;
  Py_ssize_t positional;
  PyObject* names;  // a tuple, or null
  Py_ssize_t count() const { return positional + (names != nullptr ? PyTuple_GET_SIZE(names) : 0); }
};

/// What was traced once.
struct Entry {
  std::vector<Tree> arguments;
  Owned names;
  Py_ssize_t positional = 0;
  std::shared_ptr<const Compiled> compiled;
  Tree result;
  std::int64_t calls = 0;
  double ready_seconds = 0;
};

struct State {
  std::list<std::shared_ptr<Entry>> entries;  // the one used last first
  std::int64_t signatures = 0, traces = 0, hits = 0;
  std::int64_t most_signatures = 64;
  bool dynamic = true;  // sizes and numbers are no part of a signature
  lazy::Tier tier = lazy::Tier::automatic;
};
constexpr std::size_t most_entries = 256;  // of all sizes together; the one not used for longest goes

struct CompiledObject {
  PyObject_HEAD vectorcallfunc call;
  PyObject* function;
  PyObject* dict;
  PyObject* weakrefs;
  State* state;
};
PyTypeObject* compiled_type = nullptr;

CompiledObject& of(PyObject* o) { return *reinterpret_cast<CompiledObject*>(o); }

std::string name_of(PyObject* function) {
  const Owned name(PyObject_GetAttrString(function, "__qualname__"));
  const char* text = name && PyUnicode_Check(name.get()) ? PyUnicode_AsUTF8(name.get()) : nullptr;
  PyErr_Clear();
  return text != nullptr ? text : Py_TYPE(function)->tp_name;
}

bool same_names(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (a == nullptr || b == nullptr) return false;
  const int equal = PyObject_RichCompareBool(a, b, Py_EQ);
  if (equal < 0) throw PythonError();
  return equal != 0;
}

bool fits(const Entry& e, const Arguments& a, SmallVector<TensorImpl*, 16>& leaves) {
  if (e.positional != a.positional || !same_names(e.names.get(), a.names)) return false;
  for (Py_ssize_t i = 0; i < a.count(); ++i) {
    if (!fits(e.arguments[static_cast<std::size_t>(i)], a.all[i], leaves)) return false;
  }
  return true;
}

/// The names of the function's parameters as far as they are known, for messages.
std::vector<std::string> argument_names(PyObject* function, Py_ssize_t positional, PyObject* named) {
  std::vector<std::string> names;
  const Py_ssize_t count = positional + (named != nullptr ? PyTuple_GET_SIZE(named) : 0);
  const Owned code(PyObject_GetAttrString(function, "__code__"));
  const Owned variables(code ? PyObject_GetAttrString(code.get(), "co_varnames") : nullptr);
  PyErr_Clear();
  for (Py_ssize_t i = 0; i < count; ++i) {
    const char* text = nullptr;
    if (i >= positional) {
      text = PyUnicode_AsUTF8(PyTuple_GET_ITEM(named, i - positional));
    } else if (variables && i < PyTuple_GET_SIZE(variables.get())) {
      text = PyUnicode_AsUTF8(PyTuple_GET_ITEM(variables.get(), i));
    }
    names.push_back(text != nullptr ? text : "argument " + std::to_string(i));
  }
  PyErr_Clear();
  return names;
}

Compiled::Difference difference(PyObject* function, const Entry& e, const Arguments& a) {
  if (e.positional != a.positional || !same_names(e.names.get(), a.names))
    return {"it is called with other arguments", false};
  const std::vector<std::string> names = argument_names(function, a.positional, a.names);
  SmallVector<TensorImpl*, 16> leaves;
  std::vector<std::string> paths;
  Compiled::Difference numbers;
  for (Py_ssize_t i = 0; i < a.count(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const Tree& tree = e.arguments[at];
    const bool is_signature = !fits(tree, a.all[i], leaves, true);
    SmallVector<TensorImpl*, 16> again;
    if (is_signature || !fits(tree, a.all[i], again)) {
      std::vector<PyObject*> found;
      const Tree now = take_apart(a.all[i], found);
      const auto shown = [](const Tree& t) -> std::string {
        if (t.kind != Tree::value) return std::string("a ") + reinterpret_cast<PyTypeObject*>(t.object.get())->tp_name;
        const Owned text(PyObject_Repr(t.object.get()));
        const char* s = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
        PyErr_Clear();
        return s != nullptr ? s : "?";
      };
      const std::string is = shown(now), was = shown(tree);
      const std::string what =
          names[at] + (is == was ? " has another structure or other values in it" : " is " + is + ", and was " + was);
      if (is_signature) return {what, false};
      numbers = {what, true};
    }
    name_leaves(tree, names[at], paths);
  }
  const Compiled::Difference d = e.compiled->difference(ModeKey::now(), {leaves.data(), leaves.size()}, paths);
  return numbers.what.empty() || !(d.what.empty() || d.only_sizes) ? d : numbers;
}

[[noreturn]] void throw_too_many(const State& s, PyObject* function, const std::string& what) {
  throw Unsupported("compile(): " + name_of(function) + " has been traced for " + std::to_string(s.signatures) +
                        " signatures, and here is another: " + what +
                        "; pass what changes as a tensor, hl.asarray(value), or write compile(f, " +
                        (s.dynamic ? "" : "dynamic=True) or compile(f, ") + "max_recompiles=n)",
                    {{"signatures", s.signatures}, {"changed", what}});
}

/// Says in a plan what its inputs are called, and what it took to make it.
void complete(PlanGraph& g, PyObject* function, const Entry& e) {
  const std::vector<std::string> names = argument_names(function, e.positional, e.names.get());
  std::vector<std::string> leaves;
  for (std::size_t i = 0; i < e.arguments.size(); ++i) name_leaves(e.arguments[i], names[i], leaves);
  for (PlanNode& n : g.nodes) {
    const int argument = n.slot < 0 ? -1 : e.compiled->argument_of(n.slot);
    if (argument >= 0) n.name = leaves[static_cast<std::size_t>(argument)];
  }
  g.ready_seconds = e.ready_seconds;
  g.calls = e.calls;
}

/// The function on other tensors, for what is recorded; that keeps neither the function nor the entry alive, which may
/// lead to it.
class CallAgain {
 public:
  CallAgain(PyObject* function, const std::shared_ptr<Entry>& e)
      : function_(check(PyWeakref_NewRef(function, nullptr)),
                  [](PyObject* reference) {
                    if (Py_IsInitialized() == 0) return;
                    const Gil gil;
                    Py_DECREF(reference);
                  }),
        entry_(e) {}

  std::vector<Tensor> operator()(std::span<const TensorRef> arguments) const {
    const Gil gil;
    const std::shared_ptr<Entry> e = entry_.lock();
    const Owned self = Owned::borrow(PyWeakref_GetObject(function_.get()));
    if (!e || self.get() == Py_None) {
      throw AutogradError(
          "backward(): the compiled function is gone, or has a newer plan in its place, and its second derivative is "
          "made by calling it again; keep it while gradients are taken",
          {});
    }
    SmallVector<TensorRef, 4> tensors;
    for (const TensorRef& t : arguments) tensors.push_back(t);
    std::vector<Owned> objects;
    std::vector<PyObject*> all;
    std::size_t next = 0;
    for (const Tree& t : e->arguments) all.push_back(objects.emplace_back(put_together(t, tensors, next)).get());
    const Owned returned(check(PyObject_Vectorcall(of(self.get()).function, all.data(),
                                                   static_cast<std::size_t>(e->positional), e->names.get())));
    SmallVector<TensorImpl*, 16> found;
    if (!fits(e->result, returned.get(), found, true)) {
      throw AutogradError("backward(): a compiled function returned something else when it was called again", {});
    }
    std::vector<Tensor> results;
    for (TensorImpl* t : found) results.push_back(Tensor::share(t));
    return results;
  }

 private:
  std::shared_ptr<PyObject> function_;  // a weak reference
  std::weak_ptr<Entry> entry_;
};

/// Runs the function under a tracer.
std::shared_ptr<Entry> trace(CompiledObject& self, const Arguments& a) {
  auto e = std::make_shared<Entry>();
  const auto begin = std::chrono::steady_clock::now();
  std::vector<PyObject*> leaves;
  for (Py_ssize_t i = 0; i < a.count(); ++i) e->arguments.push_back(take_apart(a.all[i], leaves));
  e->names = Owned::borrow(a.names);
  e->positional = a.positional;
  std::vector<TensorImpl*> tensors;
  for (PyObject* o : leaves) tensors.push_back(impl_of(o));
  Trace t(tensors, self.state->tier);
  Owned returned;
  {
    const Trace::Running running(t);
    returned = Owned(check(PyObject_Vectorcall(self.function, a.all, static_cast<std::size_t>(a.positional), a.names)));
  }
  std::vector<PyObject*> results;
  e->result = take_apart(returned.get(), results);
  std::vector<TensorImpl*> values;
  for (PyObject* o : results) values.push_back(impl_of(o));
  if (context().grad_mode) {
    const Trace::Running running(t);
    t.differentiate(values);
  }
  e->compiled = t.finish(values, CallAgain(reinterpret_cast<PyObject*>(&self), e));
  returned = Owned();
  if (!t.escaped().empty()) {
    PyGC_Collect();
    if (const std::string left = t.escaped(); !left.empty()) {
      throw Unsupported("compile(): what " + left + " makes is still held after " + name_of(self.function) +
                            " has returned, where no later call would put it; return it instead",
                        {{"value", left}});
    }
  }
  e->ready_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return e;
}

/// Whether a tensor among the arguments is on a device that computes later.
bool any_waits(const Arguments& a) {
  std::vector<PyObject*> leaves;
  for (Py_ssize_t i = 0; i < a.count(); ++i) take_apart(a.all[i], leaves);
  return std::ranges::any_of(leaves, [](PyObject* o) {
    const DeviceKind kind = impl_of(o)->device().kind;
    return kind != DeviceKind::cpu && kind != DeviceKind::meta;
  });
}

/// The entry for these arguments, made now if there is none. Null where a device is to do what a plan would.
std::shared_ptr<Entry> look_up(CompiledObject& self, const Arguments& a, SmallVector<TensorImpl*, 16>& leaves) {
  State& s = *self.state;
  const ModeKey mode = ModeKey::now();
  for (auto at = s.entries.begin(); at != s.entries.end(); ++at) {
    SmallVector<TensorImpl*, 16> found;
    if (!fits(**at, a, found) || !(*at)->compiled->serves(mode, {found.data(), found.size()})) continue;
    if (at != s.entries.begin()) s.entries.splice(s.entries.begin(), s.entries, at);
    ++s.hits;
    leaves = std::move(found);
    return s.entries.front();
  }
  if (any_waits(a)) return nullptr;
  std::string changed = "it is the first";
  bool new_signature = true;
  for (auto at = s.entries.begin(); at != s.entries.end() && new_signature; ++at) {
    const Compiled::Difference d = difference(self.function, **at, a);
    if (at == s.entries.begin()) changed = d.what;
    new_signature = !s.dynamic || !d.only_sizes;
  }
  if (new_signature && s.signatures >= s.most_signatures) throw_too_many(s, self.function, changed);
  std::shared_ptr<Entry> e = trace(self, a);
  ++s.traces;
  s.signatures += new_signature ? 1 : 0;
  s.entries.push_front(e);
  if (s.entries.size() > most_entries) s.entries.pop_back();
  if (!fits(*e, a, leaves)) throw PythonError();
  return e;
}

PyObject* call(PyObject* object, PyObject* const* args, std::size_t nargsf, PyObject* names) noexcept {
  try {
    CompiledObject& self = of(object);
    if (context().tracer != nullptr || context().forward != nullptr) {
      // Inside of another that is being traced it is part of that; forward mode follows its ops.
      return PyObject_Vectorcall(self.function, args, nargsf, names);
    }
    const Arguments a{args, PyVectorcall_NARGS(nargsf), names};
    SmallVector<TensorImpl*, 16> leaves;
    const std::shared_ptr<Entry> e = look_up(self, a, leaves);
    if (!e) return PyObject_Vectorcall(self.function, args, nargsf, names);
    ++e->calls;
    Recorder* const rec = active_recorder(context());
    SmallVector<TensorRef, 4> results;
    const auto name = [&] { return "compiled " + name_of(self.function); };
    record_op(rec, name, [&] {
      e->compiled->run({leaves.data(), leaves.size()}, rec, results);
      if (rec != nullptr && rec->keeps_plans()) complete(rec->plans.back(), self.function, *e);
    });
    std::size_t next = 0;
    return put_together(e->result, results, next).leak();
  } catch (...) {
    return raise_current();
  }
}

// ---- the type -------------------------------------------------------------------------------------------------------

int visit_tree(const Tree& t, visitproc visit, void* arg) {
  Py_VISIT(t.object.get());
  Py_VISIT(t.keys.get());
  for (const Tree& item : t.items) {
    if (const int r = visit_tree(item, visit, arg); r != 0) return r;
  }
  return 0;
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  CompiledObject& c = of(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(c.function);
  Py_VISIT(c.dict);
  if (c.state == nullptr) return 0;
  for (const std::shared_ptr<Entry>& e : c.state->entries) {
    for (const Tree& t : e->arguments) {
      if (const int r = visit_tree(t, visit, arg); r != 0) return r;
    }
    if (const int r = visit_tree(e->result, visit, arg); r != 0) return r;
  }
  return 0;
}

int clear(PyObject* self) {
  CompiledObject& c = of(self);
  if (c.state != nullptr) c.state->entries.clear();
  Py_CLEAR(c.function);
  Py_CLEAR(c.dict);
  return 0;
}

void dealloc(PyObject* self) {
  CompiledObject& c = of(self);
  PyTypeObject* const type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  if (c.weakrefs != nullptr) PyObject_ClearWeakRefs(self);
  clear(self);
  delete c.state;
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* make(PyObject* function, std::int64_t most_signatures, bool dynamic, lazy::Tier tier) {
  PyObject* const o = compiled_type->tp_alloc(compiled_type, 0);
  if (o == nullptr) return nullptr;
  CompiledObject& c = of(o);
  c.call = call;
  c.function = Py_NewRef(function);
  c.state = new State;
  c.state->most_signatures = most_signatures;
  c.state->dynamic = dynamic;
  c.state->tier = tier;
  return o;
}

PyObject* bind_to(PyObject* self, PyObject* instance, PyObject*) {
  return instance == nullptr || instance == Py_None ? Py_NewRef(self) : PyMethod_New(self, instance);
}

PyObject* represent(PyObject* self) {
  return PyUnicode_FromFormat("<compiled %s>", name_of(of(self).function).c_str());
}

PyMemberDef members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(CompiledObject, call), READONLY, nullptr},
                         {"__dictoffset__", T_PYSSIZET, offsetof(CompiledObject, dict), READONLY, nullptr},
                         {"__weaklistoffset__", T_PYSSIZET, offsetof(CompiledObject, weakrefs), READONLY, nullptr},
                         {"__wrapped__", T_OBJECT, offsetof(CompiledObject, function), READONLY, nullptr},
                         {nullptr, 0, 0, 0, nullptr}};
PyGetSetDef getset[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
                        {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot slots[] = {
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_descr_get, reinterpret_cast<void*>(bind_to)},
    {Py_tp_repr, reinterpret_cast<void*>(represent)},
    {Py_tp_members, members},
    {Py_tp_getset, getset},
    {Py_tp_doc, const_cast<char*>("A function that hl.compile traced.")},
    {0, nullptr},
};
PyType_Spec spec = {
    "hyalite.CompiledFunction", sizeof(CompiledObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, slots};

nb::dict step_record(const PlanKernel& s) {
  nb::dict d;
  d["fused"] = s.fused;
  d["name"] = s.name;
  d["reason"] = s.reason;
  d["source"] = s.source;
  d["shape"] = nb::tuple(nb::cast(nb::steal<nb::object>([&] {
    PyObject* t = PyTuple_New(static_cast<Py_ssize_t>(s.shape.size()));
    for (std::size_t i = 0; i < s.shape.size(); ++i)
      PyTuple_SET_ITEM(t, static_cast<Py_ssize_t>(i), PyLong_FromLongLong(s.shape[i]));
    return t;
  }())));
  d["bytes_read"] = s.read;
  d["bytes_written"] = s.written;
  d["nodes"] = s.nodes;
  d["tier"] = s.tier.tier;
  d["why_tier"] = s.tier.why;
  d["generated"] = s.tier.source;
  d["compile_seconds"] = s.tier.seconds;
  d["functions"] = s.tier.functions;
  d["from_disk"] = s.tier.from_disk;
  return d;
}

nb::dict plan_record(const PlanGraph& g) {
  nb::dict d;
  nb::list steps;
  int nodes = 0;
  for (const PlanKernel& s : g.kernels) {
    steps.append(step_record(s));
    nodes += s.nodes;
  }
  d["steps"] = steps;
  d["nodes"] = nodes;
  d["temporary_bytes"] = g.temporary_bytes;
  d["bytes_moved"] = g.bytes_moved();
  d["bytes_least"] = g.bytes_least;
  return d;
}

nb::list entries_of(nb::handle object) {
  nb::list all;
  for (const std::shared_ptr<Entry>& e : of(object.ptr()).state->entries) {
    PlanGraph g = e->compiled->plan().graph();
    complete(g, of(object.ptr()).function, *e);
    nb::dict d = plan_record(g);
    const lazy::Plan* back = e->compiled->backward_plan();
    d["backward"] = back != nullptr ? nb::object(plan_record(back->graph())) : nb::none();
    d["calls"] = e->calls;
    d["ready_seconds"] = e->ready_seconds;
    all.append(d);
  }
  return all;
}

/// The entry for a call with these arguments, which traces if nothing fits; `f` takes the entry and the tensors.
template <class F>
auto with_entry(const char* name, nb::handle object, nb::handle args, nb::handle kwargs, F f) {
  CompiledObject& self = of(object.ptr());
  std::vector<PyObject*> all;
  for (nb::handle h : args) all.push_back(h.ptr());
  const Py_ssize_t positional = static_cast<Py_ssize_t>(all.size());
  nb::list names;
  for (auto [key, value] : nb::borrow<nb::dict>(kwargs)) {
    names.append(key);
    all.push_back(value.ptr());
  }
  const nb::tuple named(names);
  const Arguments a{all.data(), positional, names.size() == 0 ? nullptr : named.ptr()};
  SmallVector<TensorImpl*, 16> leaves;
  const std::shared_ptr<Entry> e = look_up(self, a, leaves);
  if (!e) {
    throw Unsupported(
        std::string(name) +
        "(): a tensor is on a device that computes later, which keeps plans of its own; write x.to(\"cpu\")");
  }
  return f(*e, std::span<TensorImpl* const>(leaves.data(), leaves.size()));
}

/// Pairs (tier, step, op, line, by the plan, op by op) of a call, on a device.
nb::list compare(nb::handle object, nb::handle args, nb::handle kwargs, const std::string& device) {
  return with_entry("verify", object, args, kwargs, [&](const Entry& e, std::span<TensorImpl* const> tensors) {
    nb::list pairs;
    for (Compiled::Pair& p : e.compiled->compare(tensors, parse_device(device))) {
      pairs.append(nb::make_tuple(p.tier, p.step, p.name, p.line, nb::steal(check(wrap(std::move(p.plan)))),
                                  nb::steal(check(wrap(std::move(p.ops))))));
    }
    return pairs;
  });
}

/// (a call's seconds, its ops' one by one, rounds) for these arguments.
nb::tuple measure(nb::handle object, nb::handle args, nb::handle kwargs, double seconds) {
  return with_entry("explain", object, args, kwargs, [&](const Entry& e, std::span<TensorImpl* const> tensors) {
    const Compiled::Times t = e.compiled->measure(tensors, seconds);
    return nb::make_tuple(t.plan, t.ops, t.rounds);
  });
}

/// (how many elements differ, the first, ULP there and at most) of two row-major tensors.
nb::tuple apart(nb::handle a, nb::handle b, bool nans_alike) {
  const BitsApart d = bits_apart(*impl_of(a.ptr()), *impl_of(b.ptr()), nans_alike);
  return nb::make_tuple(d.count, d.first, d.ulp, d.largest_ulp);
}

nb::dict counts_of(nb::handle object) {
  const State& s = *of(object.ptr()).state;
  nb::dict d;
  d["signatures"] = s.signatures;
  d["traces"] = s.traces;
  d["hits"] = s.hits;
  d["entries"] = s.entries.size();
  return d;
}

}  // namespace

void bind_compile(nb::module_& m) {
  compiled_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (compiled_type == nullptr ||
      PyModule_AddObjectRef(m.ptr(), "CompiledFunction", reinterpret_cast<PyObject*>(compiled_type)) < 0)
    throw nb::python_error();
  m.def("_compiled", [](nb::handle function, std::int64_t most_signatures, bool dynamic, int tier) {
    const lazy::Tier wanted = tier < 0 ? lazy::Tier::automatic : tier == 0 ? lazy::Tier::first : lazy::Tier::generated;
    PyObject* o = make(function.ptr(), most_signatures, dynamic, wanted);
    if (o == nullptr) throw nb::python_error();
    return nb::steal(o);
  });
  m.def("_plans", entries_of);
  m.def("_machine_code", [](nb::handle object, int step) {
    const auto& entries = of(object.ptr()).state->entries;
    return entries.empty() ? std::string() : entries.front()->compiled->plan().machine_code(step);
  });
  m.def("_generated_counts", [] {
    const jit::Counts c = jit::counts();
    nb::dict d;
    d["compiled"] = c.compiled;
    d["from_disk"] = c.from_disk;
    d["in_memory"] = c.in_memory;
    d["compile_seconds"] = c.seconds;
    d["folder"] = jit::DiskCache::get().folder();
    d["folder_problem"] = jit::DiskCache::get().problem();
    return d;
  });
  m.def("_check_schedules", [](bool on) { lazy::Schedule::checked = on; });
  m.def("_compile_counts", counts_of);
  m.def("_compare", compare);
  m.def("_bits_apart", apart);
  m.def("_measure", measure);
}

}  // namespace hyalite::python
