/// `explain` for Python: runs a callable under the recorder, and records a with-block.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <filesystem>
#include <unordered_map>

#include "explain/format.h"
#include "explain/trace.h"
#include "hyalite/explain.h"
#include "python/tensor_object.h"
#include "record/autograd_meta.h"
#include "record/node.h"

namespace nb = nanobind;

namespace hyalite::python {
namespace {

constexpr std::size_t most_nodes = 500;

/// Calls `f` and gives C++ exceptions to Python as the module's own.
template <class F>
auto translated(F f) {
  try {
    return f();
  } catch (const nb::python_error&) {
    throw;
  } catch (...) {
    raise_current();
    throw nb::python_error();
  }
}

void add_roots(nb::handle value, std::vector<NodeRef>& roots) {
  if (is_tensor(value.ptr())) {
    if (NodeRef node = grad_fn(*impl_of(value.ptr()))) roots.push_back(std::move(node));
  } else if (nb::isinstance<nb::tuple>(value) || nb::isinstance<nb::list>(value)) {
    for (const nb::handle item : nb::borrow<nb::sequence>(value)) {
      if (is_tensor(item.ptr())) add_roots(item, roots);
    }
  }
}

/// A place as seen from the working directory, where it lies below it.
std::string seen_from_here(std::string where) {
  std::error_code failed;
  const std::string here = std::filesystem::current_path(failed).string() + "/";
  return !failed && where.starts_with(here) ? where.substr(here.size()) : where;
}

/// What backward() would walk from the result, as the page draws it: nodes, and edges from each to its operands' nodes.
std::string graph_json(nb::handle result) {
  std::vector<NodeRef> nodes;
  add_roots(result, nodes);
  std::unordered_map<Node*, std::size_t> ids;
  for (const NodeRef& node : nodes) ids.emplace(node.get(), ids.size());
  std::vector<std::string> edges;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const auto* op = dynamic_cast<const OpNode*>(nodes[i].get());
    std::size_t operand = 0;
    for (const Edge& e : nodes[i]->next()) {
      const std::size_t k = operand++;
      if (!e.node || (nodes.size() == most_nodes && !ids.contains(e.node.get()))) continue;
      const auto [at, fresh] = ids.emplace(e.node.get(), nodes.size());
      if (fresh) nodes.push_back(e.node);
      const std::string label = op != nullptr && k < op->op().params.size() ? op->op().params[k] : "";
      edges.push_back("[" + std::to_string(i) + ", " + std::to_string(at->second) + ", " + format::json(label) + "]");
    }
  }
  if (nodes.empty()) return "";
  std::size_t id = 0;
  const std::string list = format::json_list(nodes, [&](const NodeRef& node) {
    format::JsonObject object;
    object.number("id", static_cast<double>(id++)).text("name", node->name());
    if (const auto* leaf = dynamic_cast<const AccumulateGrad*>(node.get())) {
      if (const TensorRef t = leaf->leaf()) {
        object.text("where", std::string(name(t->dtype())) + " " + to_string(t->shape()));
      }
    } else if (const std::string where = describe(node->location()); !where.empty()) {
      object.text("where", seen_from_here(where));
    }
    if (const std::string saved = node->saved_text(); !saved.empty()) object.text("saved", saved);
    return object.str();
  });
  return format::JsonObject()
      .raw("nodes", list)
      .raw("edges", format::json_list(edges, [](const auto& e) { return e; }))
      .str();
}

/// Leaves the runs at once, unlike a std::exception, after which the times of the first run still serve.
struct Leave {};

Trace explain_run(nb::callable function, std::string expression, std::string where, bool repeat, std::string why_once,
                  int rounds) {
  ExplainOptions options;
  options.repeat = repeat;
  options.why_once = std::move(why_once);
  options.rounds = rounds;
  options.expression = std::move(expression);
  options.where = std::move(where);
  nb::object result;
  const auto call = [&] {
    result.reset();  // before the call, so that its memory is free again, as in a loop
    try {
      result = function();
    } catch (nb::python_error& error) {
      if (error.matches(PyExc_Exception)) throw;
      error.restore();  // KeyboardInterrupt, SystemExit
      throw Leave();
    }
  };
  return translated([&] {
    try {
      TraceRecord record = trace_calls(call, options);
      if (result.is_valid()) record.graph = graph_json(result);
      return Trace(std::make_shared<const TraceRecord>(std::move(record)));
    } catch (const Leave&) {
      throw nb::python_error();
    }
  });
}

}  // namespace

void bind_explain(nb::module_& m) {
  nb::class_<Trace>(m, "Trace")
      .def(
          "text", [](const Trace& t, int width, bool colour) { return t.text(width, colour); }, nb::arg("width"),
          nb::arg("colour"))
      .def(
          "format", [](const Trace& t, const std::string& name) { return translated([&] { return t.as(name); }); },
          nb::arg("name"));
  m.def("explain_run", &explain_run, nb::arg("function"), nb::arg("expression"), nb::arg("where"), nb::arg("repeat"),
        nb::arg("why_once"), nb::arg("rounds"));
  nb::class_<ExplainScope>(m, "RecordingScope")
      .def(
          "__init__",
          [](ExplainScope* self, std::string expression, std::string where) {
            ExplainOptions options;
            options.expression = std::move(expression);
            options.where = std::move(where);
            new (self) ExplainScope(std::move(options));
          },
          nb::arg("expression"), nb::arg("where"))
      .def("end", [](ExplainScope& s) { return translated([&] { return s.end(); }); });
}

}  // namespace hyalite::python
