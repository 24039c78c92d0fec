/// What `hyalite._autograd` asks of the engine: graphs, custom functions, forward mode.
#include "python/derivatives.h"

#include <nanobind/stl/string.h>

#include "python/function_node.h"
#include "python/interop.h"
#include "python/node_object.h"
#include "record/graph.h"

namespace nb = nanobind;

namespace hyalite::python {
namespace {

std::vector<Tensor> tensors(nb::handle list) {
  std::vector<Tensor> r;
  for (nb::handle h : list) {
    if (!is_tensor(h.ptr())) throw TypeError(std::string("a tensor is needed, not ") + Py_TYPE(h.ptr())->tp_name, {});
    r.push_back(Tensor::share(impl_of(h.ptr())));
  }
  return r;
}

nb::object out(TensorRef t) {
  PyObject* o = wrap(std::move(t));
  if (o == nullptr) throw nb::python_error();
  return nb::steal(o);
}

/// Makes the node of a custom function: edges to the inputs, and each output, unless None, made by it.
void function_node(const std::string& name, nb::handle inputs, nb::handle outputs, bool saves, nb::handle callback,
                   nb::handle release) {
  std::vector<Edge> edges;
  for (nb::handle h : inputs) {
    TensorImpl* t = h.is_none() ? nullptr : impl_of(h.ptr());
    edges.push_back(t != nullptr && wants_grad(*t) ? gradient_edge(*t) : Edge());
  }
  const Ref<FunctionNode> node = FunctionNode::make(name, std::move(edges), static_cast<int>(nb::len(outputs)), saves,
                                                    callback.ptr(), release.ptr());
  std::uint32_t k = 0;
  for (nb::handle h : outputs) {
    if (!h.is_none()) set_history(*impl_of(h.ptr()), NodeRef::share(node.get()), k);
    ++k;
  }
}

/// The memory of `t` with the history of an operand of the node, or of one of its outputs.
nb::object with_history(nb::handle node_object, nb::handle t, int operand, int output) {
  NodeRef node = node_of(node_object);
  TensorRef r = detached(*impl_of(t.ptr()));
  Edge e{node, static_cast<std::uint32_t>(output)};
  if (operand >= 0) e = node->next()[static_cast<std::size_t>(operand)];
  if (e.node) set_history(*r, e.node, e.output);
  return out(std::move(r));
}

}  // namespace

void bind_derivatives(nb::module_& m) {
  m.def("_reaches_others", [](nb::handle of, nb::handle own) { return reaches_others(tensors(of), tensors(own)); });
  m.def("_function_node", function_node);
  m.def("_with_history", with_history);
  m.def("_same_storage",
        [](nb::handle a, nb::handle b) { return impl_of(a.ptr())->storage() == impl_of(b.ptr())->storage(); });
}

}  // namespace hyalite::python
