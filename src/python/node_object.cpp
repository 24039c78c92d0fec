/// Node and RemovableHandle as nanobind classes.
#include "python/node_object.h"

#include <nanobind/stl/string.h>

namespace nb = nanobind;

namespace hyalite::python {
namespace {

struct PyNode {
  NodeRef node;
};
/// Keeps nothing alive: a hook often holds its own handle.
struct PyHandle {
  HookPlace place;
};

nb::tuple next_functions(const PyNode& n) {
  nb::list all;
  for (const Edge& e : n.node->next()) {
    const nb::object to = e.node ? nb::steal(node_object(e.node)) : nb::none();
    all.append(nb::make_tuple(to, e.output));
  }
  return nb::tuple(all);
}

}  // namespace

PyObject* node_object(NodeRef node) { return nb::cast(PyNode{std::move(node)}).release().ptr(); }
NodeRef node_of(nb::handle object) { return nb::cast<PyNode&>(object).node; }
PyObject* hook_handle(const HookPlace& place) { return nb::cast(PyHandle{place}).release().ptr(); }

void bind_nodes(nb::module_& m) {
  nb::class_<PyNode>(m, "Node", "A node of the graph that backward walks.")
      .def_prop_ro(
          "name", [](const PyNode& n) { return n.node->name(); }, "Such as AddBackward.")
      .def_prop_ro("next_functions", next_functions, "Pairs (node or None, its output number), one an operand.")
      .def_prop_ro(
          "where", [](const PyNode& n) { return describe(n.node->location()); }, "file:line of the forward op.")
      .def_prop_ro(
          "saved", [](const PyNode& n) { return n.node->saved_text(); }, "What the gradient reads.")
      .def(
          "__eq__", [](const PyNode& a, const PyNode& b) { return a.node == b.node; }, nb::is_operator())
      .def("__hash__", [](const PyNode& a) { return reinterpret_cast<std::size_t>(a.node.get()); })
      .def("__repr__", [](const PyNode& n) { return "<" + n.node->name() + ">"; });
  nb::class_<PyHandle>(m, "RemovableHandle", "Removes the hook it came from.")
      .def(
          "remove", [](const PyHandle& h) { remove_hook(h.place); }, "Removes the hook; twice is no error.");
}

}  // namespace hyalite::python
