/// The Python module `hyalite._C`: what is no op of the list, and the making of the rest.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>

#include "apply.h"
#include "compute/backend.h"
#include "compute/codegen/registry.h"
#include "compute/cpu/gemm.h"
#include "compute/cpu/kernels.h"
#include "compute/cpu/threads.h"
#include "explain/ceiling.h"
#include "explain/source.h"
#include "python/arguments.h"
#include "python/compile.h"
#include "python/cycles.h"
#include "python/derivatives.h"
#include "python/devices.h"
#include "python/errors.h"
#include "python/format.h"
#include "python/functions.h"
#include "python/gil.h"
#include "python/hooks.h"
#include "python/interop.h"
#include "python/native_functions.h"
#include "python/node_object.h"
#include "python/operands.h"
#include "python/pickle.h"
#include "python/promote.h"
#include "python/tensor_type.h"
#include "record/anomaly.h"
#include "tensor/context.h"
#include "tensor/fail_after.h"
#include "tensor/pool.h"

namespace nb = nanobind;

namespace hyalite::python {

void bind_explain(nb::module_& m);

namespace {
std::array<PyObject*, dtype_count> dtypes{};
PyObject* dtype_type = nullptr;
}  // namespace

PyObject* dtype_object(Dtype t) { return dtypes[static_cast<std::size_t>(t)]; }

bool dtype_from(PyObject* o, Dtype& to) noexcept {
  for (int i = 0; i < dtype_count; ++i) {
    if (dtypes[static_cast<std::size_t>(i)] == o) {
      to = static_cast<Dtype>(i);
      return true;
    }
  }
  if (o == reinterpret_cast<PyObject*>(&PyBool_Type))
    to = Dtype::boolean;
  else if (o == reinterpret_cast<PyObject*>(&PyLong_Type))
    to = Dtype::int64;
  else if (o == reinterpret_cast<PyObject*>(&PyFloat_Type))
    to = Dtype::float32;
  else if (o == reinterpret_cast<PyObject*>(&PyComplex_Type))
    to = Dtype::complex64;
  else
    return false;
  return true;
}

namespace {

/// What Python passes for an attribute, as stubs write it.
const char* type_text(AttrType type) {
  switch (type) {
    case AttrType::number:
      return "float";
    case AttrType::scalar:
      return "number";
    case AttrType::integer:
      return "int";
    case AttrType::flag:
      return "bool";
    case AttrType::dtype:
      return "dtype";
    case AttrType::device:
      return "device";
    case AttrType::axis:
      return "axis";
    case AttrType::text:
    case AttrType::choice:
      return "str";
    case AttrType::ints:
      return "ints";
    case AttrType::axes:
      return "axes";
    case AttrType::chain:
      break;
  }
  return "internal";
}

Dtype required_dtype(nb::handle o) {
  Dtype t;
  if (!dtype_from(o.ptr(), t)) throw TypeError("dtype must be a dtype such as hl.float32", {});
  return t;
}
nb::object out(Tensor t) {
  PyObject* o = wrap(TensorRef::adopt(t.leak()));
  if (o == nullptr) throw nb::python_error();
  return nb::steal(o);
}
nb::object out(Dtype t) { return nb::borrow(dtype_object(t)); }
Tensor in(nb::handle o) {
  if (!is_tensor(o.ptr())) throw TypeError(std::string("a tensor is needed, not ") + Py_TYPE(o.ptr())->tp_name, {});
  return Tensor::share(impl_of(o.ptr()));
}
std::vector<Tensor> in_list(nb::handle o) {
  std::vector<Tensor> r;
  for (nb::handle h : o) r.push_back(h.is_none() ? Tensor() : in(h));
  return r;
}
/// A Python number as the fill of a new tensor. Throws TypeError for a higher kind, OverflowError for an int outside.
Tensor filled(const Shape& shape, nb::handle value, std::optional<Dtype> dtype, Device device, std::string_view op) {
  Unwrapped u;
  if (is_tensor(value.ptr()) || !unwrap_or_scalar(value.ptr(), u) || u.tensor != nullptr) {
    if (PyErr_Occurred() != nullptr) throw PythonError();
    throw_argument(op, "fill_value", "a number or a tensor without dimensions", value.ptr());
  }
  const Dtype to = dtype ? *dtype : number_dtype(op, u);
  if (u.scalar.kind > kind(to) && to != Dtype::boolean) {
    throw TypeError(std::string(op) + "(): " + shown(value.ptr()) + " does not go into " + std::string(name(to)) +
                        "; write " + (u.scalar.kind == Kind::complex ? "x.real" : "int(x)") + " or dtype=hl." +
                        std::string(name(python::default_dtype(u.scalar.kind))),
                    {{"op", std::string(op)}, {"dtype", std::string(name(to))}});
  }
  return full(shape, number_in(op, u, to), to, device);
}

void bind_dtypes(nb::module_& m) {
  m.def("_register_dtypes", [](nb::list all) {
    if (dtypes[0] != nullptr || all.size() != dtypes.size())
      throw ValueError("_register_dtypes(): takes every dtype, once; leave it to the package", {});
    for (std::size_t i = 0; i < dtypes.size(); ++i) dtypes[i] = nb::object(all[i]).release().ptr();
    dtype_type = reinterpret_cast<PyObject*>(Py_TYPE(dtypes[0]));
  });
  m.def("_dtype_table", [] {
    nb::list all;
    for (const DtypeInfo& d : dtype_table) {
      all.append(
          nb::make_tuple(nb::str(d.name.data(), d.name.size()), int{d.size}, static_cast<int>(d.kind), d.is_signed));
    }
    return all;
  });
  m.def("_promote", [](nb::list objects, nb::list scalars) {
    std::vector<Dtype> list;
    for (nb::handle h : objects) list.push_back(required_dtype(h));
    Kind weak = Kind::boolean;
    for (nb::handle h : scalars) {
      Scalar s;
      int beyond = 0;
      if (!scalar_from(h.ptr(), s, beyond)) throw TypeError("result_type(): takes dtypes, tensors and numbers", {});
      weak = std::max(weak, s.kind);
    }
    if (list.empty()) return out(python::default_dtype(weak));
    return out(promote_weak(promote(list), weak));
  });
}

/// Checks of arguments for the functions written in Python.
void bind_arguments(nb::module_& m) {
  m.def(
      "_shown", [](nb::handle o) { return shown(o.ptr()); }, nb::arg("value").none());
  m.def(
      "_integer", [](nb::handle o, const char* op, const char* name) { return integer_argument(o.ptr(), op, name); },
      nb::arg("value").none(), nb::arg("op"), nb::arg("name"));
  m.def(
      "_integers",
      [](nb::handle o, const char* op, const char* name) {
        return nb::tuple(nb::cast(integers_argument(o.ptr(), op, name, "an integer or a tuple of integers")));
      },
      nb::arg("value").none(), nb::arg("op"), nb::arg("name"));
  m.def(
      "_flag", [](nb::handle o, const char* op, const char* name) { return flag_argument(o.ptr(), op, name); },
      nb::arg("value").none(), nb::arg("op"), nb::arg("name"));
  m.def(
      "_dtype", [](nb::handle o, const char* op, const char* name) { return out(dtype_argument(o.ptr(), op, name)); },
      nb::arg("value").none(), nb::arg("op"), nb::arg("name") = "dtype");
}

void bind_creation(nb::module_& m) {
  m.def(
      "_asarray",
      [](nb::handle o, nb::handle dtype, nb::handle copy, const char* op) {
        const std::optional<Dtype> t = optional_dtype_argument(dtype.ptr(), op);
        return out(Tensor::adopt(asarray(o.ptr(), t, optional_flag_argument(copy.ptr(), op, "copy")).leak()));
      },
      nb::arg("obj").none(), nb::arg("dtype").none(), nb::arg("copy").none(), nb::arg("op") = "asarray");
  m.def(
      "_from_dlpack",
      [](nb::handle o, nb::handle copy) {
        const std::optional<bool> c = optional_flag_argument(copy.ptr(), "from_dlpack", "copy");
        return out(Tensor::adopt(from_dlpack(o.ptr(), c).leak()));
      },
      nb::arg("obj").none(), nb::arg("copy").none());
  m.def("_storage_from",
        [](nb::handle buffer, bool was_writable) { return nb::steal(storage_from(buffer.ptr(), was_writable)); });
  m.def("_tensor_from", [](nb::handle cls, nb::handle storage, nb::handle dtype, nb::handle shape, nb::handle strides,
                           nb::handle offset, bool requires_grad) {
    return nb::steal(
        tensor_from(cls.ptr(), storage.ptr(), dtype.ptr(), shape.ptr(), strides.ptr(), offset.ptr(), requires_grad));
  });
  m.def(
      "_empty",
      [](nb::handle shape, nb::handle dtype, nb::handle device, const char* op) {
        return out(empty(shape_argument(shape.ptr(), op),
                         optional_dtype_argument(dtype.ptr(), op).value_or(Dtype::float32),
                         device_argument(device.ptr(), op)));
      },
      nb::arg("shape").none(), nb::arg("dtype").none(), nb::arg("device").none(), nb::arg("op") = "empty");
  m.def(
      "_full",
      [](nb::handle shape, nb::handle value, nb::handle dtype, nb::handle device, const char* op) {
        const Shape sizes = shape_argument(shape.ptr(), op);
        const std::optional<Dtype> t = optional_dtype_argument(dtype.ptr(), op);
        return out(filled(sizes, value, t, device_argument(device.ptr(), op), op));
      },
      nb::arg("shape").none(), nb::arg("value").none(), nb::arg("dtype").none(), nb::arg("device").none(),
      nb::arg("op") = "full");
  m.def("_range_int", [](std::int64_t a, std::int64_t s, std::int64_t n, nb::handle d) {
    return out(arange(Scalar(a), Scalar(s), n, required_dtype(d)));
  });
  m.def("_range_float", [](double a, double s, std::int64_t n, nb::handle d) {
    return out(arange(Scalar(a), Scalar(s), n, required_dtype(d)));
  });
  m.def("_linspace", [](double a, double b, std::int64_t n, nb::handle d, bool end) {
    return out(linspace(a, b, n, required_dtype(d), end));
  });
  m.def("_eye", [](std::int64_t r, std::int64_t c, std::int64_t k, nb::handle d) {
    return out(eye(r, c, k, required_dtype(d)));
  });
}

void bind_modes(nb::module_& m) {
  m.def("_set_grad_mode", [](bool on) { return std::exchange(context().grad_mode, on); });
  m.def(
      "is_grad_enabled", [] { return context().grad_mode; }, "Whether operations are recorded on this thread.");
  m.def("_get_anomaly", [] { return context().anomaly; });
  m.def("_set_anomaly", [](bool on) { return std::exchange(context().anomaly, on); });
  m.def("_anomaly_place", [] { return take_anomaly_place(); });
  m.def("_hide_frames", [](nb::list globals) {
    for (nb::handle h : globals) hide_frames(h.ptr());
  });
  m.def("_get_autocast", [] { return nb::make_tuple(context().autocast.enabled, out(context().autocast.dtype)); });
  m.def("_set_autocast", [](bool on, nb::handle dtype) {
    Autocast& a = context().autocast;
    nb::object old = nb::make_tuple(a.enabled, out(a.dtype));
    a = {on, required_dtype(dtype)};
    return old;
  });
  m.def(
      "use_deterministic_algorithms", [](bool on) { use_deterministic(on); }, nb::arg("mode"),
      nb::sig("def use_deterministic_algorithms(mode: bool) -> None"),
      "Makes ops without a deterministic kernel raise NotDeterministic, in the whole process.");
  m.def("_set_num_threads", [](int n) { set_num_threads(n); });
  m.def(
      "get_num_threads", [] { return num_threads(); }, "Threads an op may use, the caller included.");
  m.def("_check_threads", [] { (void)default_threads(); });
  m.def("_set_printoptions", [](nb::dict d) {
    FormatOptions o = default_format();
    if (d.contains("precision")) o.precision = nb::cast<int>(d["precision"]);
    if (d.contains("threshold")) o.threshold = nb::cast<std::int64_t>(d["threshold"]);
    if (d.contains("edgeitems")) o.edgeitems = nb::cast<int>(d["edgeitems"]);
    if (d.contains("linewidth")) o.linewidth = nb::cast<int>(d["linewidth"]);
    if (d.contains("suppress")) o.suppress = nb::cast<bool>(d["suppress"]);
    set_default_format(o);
  });
}

void bind_memory(nb::module_& m) {
  m.def(
      "memory_stats",
      [] {
        const pool::Stats s = pool::stats();
        nb::dict d;
        d["allocated_bytes"] = s.allocated_bytes;
        d["cached_bytes"] = s.cached_bytes;
        d["peak_bytes"] = s.peak_bytes;
        d["limit_bytes"] = s.limit_bytes;
        d["hits"] = s.hits;
        d["misses"] = s.misses;
        d["system_allocations"] = s.system_allocations;
        d["system_bytes"] = s.system_bytes;
        d["huge_page_bytes"] = s.huge_page_bytes;
        return d;
      },
      "Bytes and calls of the CPU's pool: allocated + cached = system.");
  m.def(
      "reset_peak_memory", [] { pool::reset_peak(); }, "Starts a new peak at the bytes in use now.");
  m.def(
      "trim_memory", [] { return pool::trim(); }, "Gives cached memory back to the system; returns the bytes given.");
  m.def("_fail_after", [](std::int64_t n) { return pool::fail_after(n); });
  m.def(
      "set_memory_limit", [](std::size_t bytes) { pool::set_limit(bytes); }, nb::arg("bytes"),
      "Most bytes that may be in use; 0 means the default.");
}

void bind_autograd(nb::module_& m) {
  m.def("_backward", [](nb::handle roots, nb::handle gradients, bool retain, bool create) {
    run_backward(in_list(roots), in_list(gradients), {}, {retain, create});
  });
  m.def("_backward_to", [](nb::handle roots, nb::handle inputs, nb::handle gradients, bool retain, bool create) {
    run_backward(in_list(roots), in_list(gradients), in_list(inputs),
                 {.retain_graph = retain, .create_graph = create, .accumulate = true});
  });
  m.def("_grad", [](nb::handle roots, nb::handle inputs, nb::handle gradients, bool retain, bool create) {
    nb::list result;
    for (Tensor& t : run_backward(in_list(roots), in_list(gradients), in_list(inputs), {retain, create})) {
      if (t) {
        result.append(out(t));
      } else {
        result.append(nb::none());
      }
    }
    return result;
  });
}

void bind_cycles(nb::module_& m) {
  // For gc.callbacks: before each full collection.
  m.def("_collect_cycles", [](const std::string& phase, const nb::dict& info) {
    if (phase == "start" && nb::cast<int>(info["generation"]) == 2) collect_cycles();
  });
}

void bind_facts(nb::module_& m) {
  m.def("_op_names", [] {
    nb::list all;
    for (const OpInfo& o : op_table()) {
      if (!o.schema.internal && !o.schema.own_front_end)
        all.append(nb::str(o.schema.name.data(), o.schema.name.size()));
    }
    return all;
  });
  m.def("_op_facts", [](const std::string& op) {
    const OpInfo& o = find_op(op);
    nb::dict d;
    d["name"] = std::string(o.name());
    d["node"] = o.node_name;
    d["arity"] = o.arity;
    d["outputs"] = o.outputs;
    d["elementwise"] = o.elementwise >= 0;
    d["ulp"] = o.schema.ulp;
    d["gradient_ulp"] = nb::make_tuple(o.schema.gradient_ulp[0], o.schema.gradient_ulp[1]);
    d["numpy"] = std::string(o.schema.numpy);
    d["condition"] = o.schema.is_condition(0);
    d["result"] = static_cast<int>(o.schema.results[0]);
    d["integers_to_default"] = o.schema.integers != Integers::native;
    d["has_gradient"] = o.differentiable();
    // How forward mode passes it; "transpose" is what an op gets that says nothing.
    d["tangent"] = o.follows_parts()      ? "parts"
                   : o.elementwise >= 0   ? "gradient"
                   : o.schema.is_linear() ? "linear"
                   : o.tangent != nullptr ? "rule"
                                          : "transpose";
    d["file"] = std::string(o.schema.file);
    d["line"] = o.schema.line;
    nb::list types, params, fields, field_types, gradients;
    for (int i = 0; i < dtype_count; ++i) {
      if (contains(o.schema.types, static_cast<Dtype>(i))) types.append(out(static_cast<Dtype>(i)));
    }
    for (const std::string& p : o.params) params.append(p);
    for (const AttrField& f : o.fields()) {
      fields.append(std::string(f.name));
      field_types.append(type_text(f.type));
    }
    for (int i = 0; i < std::max(o.arity, 0); ++i) gradients.append(o.elementwise < 0 || o.reads[i].exists);
    d["dtypes"] = types;
    d["params"] = params;
    d["fields"] = fields;
    d["field_types"] = field_types;
    d["gradients"] = gradients;
    return d;
  });
  m.def("_source", [](const std::string& op) {
    const SourceText s = op_source(find_op(op));
    return nb::make_tuple(s.file, s.line, s.text);
  });
  m.def("_generated_source", [](const std::string& op, nb::handle dtype, const std::string& language, int gradient) {
    if (language != "cuda" && language != "opencl")
      throw ValueError("language must be \"cuda\" or \"opencl\", not " + language, {});
    return generated_source(op, required_dtype(dtype), language == "cuda" ? Language::cuda : Language::opencl,
                            gradient);
  });
  m.def(
      "about",
      [] {
        nb::dict d;
        d["version"] = HYALITE_VERSION;
        d["cpu"] = explain::cpu_name();
        d["instruction_set"] = cpu::instruction_set().name;
        nb::list built, present;
        for (const cpu::InstructionSet& s : cpu::instruction_sets()) {
          built.append(s.name);
          if (s.available()) present.append(s.name);
        }
        d["instruction_sets"] = present;
        d["built_instruction_sets"] = built;
        d["threads"] = num_threads();
        d["backends"] = backend_names();
        d["same_bits"] =
            cpu::instruction_set().name == "x86-64-v2"
                ? "exact operations give the bits of avx2 and avx512; functions are within their declared ULP"
                : "elementwise operations and reductions: the same bits for any layout, thread count and of avx2, "
                  "avx512";
        return d;
      },
      "Facts about this build and machine.");
  m.def("_blas", [] { return cpu::blas_description(); });
  m.def("_dram_ceiling", [](int threads) { return explain::dram_ceiling(threads).gb_per_s; });
}

}  // namespace

}  // namespace hyalite::python

NB_MODULE(_C, m) {
  using namespace hyalite::python;
  nb::set_leak_warnings(false);  // the library never prints
  nb::register_exception_translator([](const std::exception_ptr& e, void*) {
    if (!e) stay_until_exit();  // no C++ exception: Python code that we called was told to end its thread
    try {
      std::rethrow_exception(e);
    } catch (const PythonError&) {
      raise_current();
    } catch (const hyalite::Error&) {
      raise_current();
    }
  });
  if (!add_error_classes(m.ptr())) throw nb::python_error();
  PyObject* tensor = make_tensor_type();
  if (tensor == nullptr || PyModule_AddObjectRef(m.ptr(), "Tensor", tensor) < 0) throw nb::python_error();
  bind_dtypes(m);
  nb::module_ engine = m.def_submodule("_C_engine", "The engine without promotion: operands must have one dtype.");
  if (!add_functions(m.ptr(), engine.ptr()) || !add_native_functions(m.ptr())) throw nb::python_error();
  bind_arguments(m);
  bind_creation(m);
  bind_modes(m);
  bind_memory(m);
  bind_autograd(m);
  bind_derivatives(m);
  bind_cycles(m);
  bind_facts(m);
  bind_nodes(m);
  bind_explain(m);
  bind_compile(m);
  bind_devices(m);
  install_hooks();
}
