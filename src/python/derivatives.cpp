/// What `hyalite._autograd` asks of the engine: graphs, custom functions, forward mode.
#include "python/derivatives.h"

#include <nanobind/stl/string.h>

#include "apply.h"
#include "python/function_node.h"
#include "python/interop.h"
#include "python/node_object.h"
#include "record/forward.h"
#include "record/graph.h"
#include "tensor/context.h"

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

/// Edges of a graph, as Python holds them.
struct Edges {
  std::vector<Edge> all;
};

/// Enters a node as what made the outputs; None is one without a gradient.
void record_function(const std::string& name, std::vector<Edge> edges, nb::handle outputs, bool saves,
                     nb::handle callback, nb::handle release) {
  std::vector<TensorRef> forms;
  for (nb::handle h : outputs) {
    TensorImpl* t = h.is_none() ? nullptr : impl_of(h.ptr());
    forms.push_back(t == nullptr ? TensorRef()
                                 : TensorImpl::make(t->dtype(), t->device(), t->shape(), row_major(t->shape()), {}));
  }
  const Ref<FunctionNode> node =
      FunctionNode::make(name, std::move(edges), std::move(forms), saves, callback.ptr(), release.ptr());
  std::uint32_t k = 0;
  for (nb::handle h : outputs) {
    if (!h.is_none()) set_history(*impl_of(h.ptr()), NodeRef::share(node.get()), k);
    ++k;
  }
  if (context().forward != nullptr) Forward::push(*node);
}

/// Makes the node of a custom function: edges to the inputs, and each output, unless None, made by it.
void function_node(const std::string& name, nb::handle inputs, nb::handle outputs, bool saves, nb::handle callback,
                   nb::handle release) {
  std::vector<Edge> edges;
  for (nb::handle h : inputs) {
    TensorImpl* t = h.is_none() ? nullptr : impl_of(h.ptr());
    edges.push_back(t != nullptr && wants_grad(*t) ? gradient_edge(*t) : Edge());
  }
  record_function(name, std::move(edges), outputs, saves, callback, release);
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
  m.def("_argument", [](nb::handle x) {
    TensorRef t = detached(*impl_of(x.ptr()));
    set_requires_grad(*t, true);
    AccumulateGrad::make(*t)->argument = true;
    return out(std::move(t));
  });
  m.def("_reaches_others", [](nb::handle of, nb::handle own) { return reaches_others(tensors(of), tensors(own)); });
  nb::class_<Forward>(m, "_Forward")
      .def(nb::init<bool>())
      .def("seed",
           [](Forward& f, nb::handle input, nb::handle tangent, bool foreign) {
             f.seed(Tensor::share(impl_of(input.ptr())), Tensor::share(impl_of(tangent.ptr())), foreign);
           })
      .def("enter", &Forward::enter)
      .def("leave", &Forward::leave)
      .def("tangent", [](Forward& f, nb::handle of) -> nb::object {
        Tensor t = f.tangent(Tensor::share(impl_of(of.ptr())));
        if (!t) return nb::none();
        // A tensor of its own: a view of another's tangent, or the caller's, must not be written through it.
        const bool shared = t.impl()->storage()->users() > 1 || t.impl()->users() > 1;
        if (shared) t = wants_grad(*t.impl()) ? contiguous(positive(t)) : copy_of(t);
        return out(TensorRef::adopt(t.leak()));
      });
  nb::class_<Edges>(m, "_Edges");
  m.def("_edges_of", [](nb::handle list) {
    Edges e;
    for (const Tensor& t : tensors(list)) e.all.push_back(wants_grad(*t.impl()) ? gradient_edge(*t.impl()) : Edge());
    return e;
  });
  m.def("_with_edge", [](const Edges& edges, std::size_t k, nb::handle t) {
    TensorRef r = detached(*impl_of(t.ptr()));
    const Edge& e = edges.all.at(k);
    if (e.node) set_history(*r, e.node, e.output);
    return out(std::move(r));
  });
  m.def("_next_sequence", [] { return FunctionNode::make("", {}, {}, false, Py_None, Py_None)->sequence(); });
  m.def("_frontier", [](nb::handle outputs, std::uint64_t since) { return Edges{frontier(tensors(outputs), since)}; });
  m.def("_edge_count", [](const Edges& e) { return e.all.size(); });
  m.def("_leaf_versions", [](const Edges& edges) {
    nb::list versions;
    for (const Edge& e : edges.all) {
      const auto* node = dynamic_cast<const AccumulateGrad*>(e.node.get());
      const TensorRef leaf = node != nullptr ? node->leaf() : TensorRef();
      versions.append(leaf ? static_cast<std::int64_t>(leaf->storage()->version()) : -1);
    }
    return versions;
  });
  m.def("_record_checkpoint", [](const Edges& edges, nb::handle outputs, nb::handle callback, nb::handle release) {
    record_function("Checkpoint", edges.all, outputs, true, callback, release);
  });
  m.def("_gradients_at", [](const Edges& edges, nb::handle outputs, nb::handle gradients, bool create) {
    std::vector<Tensor> weights;
    for (nb::handle h : gradients) weights.push_back(h.is_none() ? Tensor() : Tensor::share(impl_of(h.ptr())));
    nb::list result;
    for (Tensor& t : gradients_at(edges.all, tensors(outputs), weights, create)) {
      result.append(t ? out(TensorRef::adopt(t.leak())) : nb::none());
    }
    return result;
  });
  m.def("_function_node", function_node);
  m.def("_with_history", with_history);
  m.def("_same_storage",
        [](nb::handle a, nb::handle b) { return impl_of(a.ptr())->storage() == impl_of(b.ptr())->storage(); });
}

}  // namespace hyalite::python
