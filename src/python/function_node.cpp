/// Calls into Python from a walk of the graph.
#include "python/function_node.h"

#include "apply.h"
#include "python/gil.h"
#include "python/node_object.h"
#include "tensor/location.h"

namespace hyalite::python {
namespace {

std::unordered_set<FunctionNode*>& nodes() {
  static std::unordered_set<FunctionNode*> all;
  return all;
}

PyObject* object_or_none(const Tensor& t) {
  if (!t) return Py_NewRef(Py_None);
  return check(wrap(TensorRef::share(t.impl())));
}

}  // namespace

Ref<FunctionNode> FunctionNode::make(std::string name, std::vector<Edge> edges, std::vector<TensorRef> forms,
                                     bool saves, PyObject* callback, PyObject* release) {
  FunctionNode* n = new FunctionNode();
  Ref<FunctionNode> node = Ref<FunctionNode>::adopt(n);
  n->name_ = std::move(name);
  n->forms_ = std::move(forms);
  n->saves_ = saves;
  n->callback_ = Py_NewRef(callback);
  n->release_ = Py_NewRef(release);
  n->location_ = capture_location();
  nodes().insert(n);
  n->set_edge_count(static_cast<int>(edges.size()));
  for (std::size_t i = 0; i < edges.size(); ++i) n->next()[i] = std::move(edges[i]);
  return node;
}

void FunctionNode::deallocate() noexcept {
  if (Py_IsInitialized()) {
    const Gil gil;
    nodes().erase(this);
    drop();
  }
  delete this;
}

const std::unordered_set<FunctionNode*>& FunctionNode::all() { return nodes(); }

void FunctionNode::drop() {
  Py_CLEAR(callback_);
  Py_CLEAR(release_);
}

void FunctionNode::release_saved() noexcept {
  if (!Py_IsInitialized()) return;
  const Gil gil;
  const Owned done(PyObject_CallNoArgs(release_));
  if (!done) PyErr_Clear();  // it only drops references
}

void FunctionNode::backward(std::span<const Tensor> grads, std::uint64_t wanted, bool create_graph,
                            std::span<Tensor> result) {
  const Gil gil;
  const Owned in(check(PyTuple_New(static_cast<Py_ssize_t>(grads.size()))));
  for (std::size_t k = 0; k < grads.size(); ++k) {
    PyTuple_SET_ITEM(in.get(), static_cast<Py_ssize_t>(k),
                     object_or_none(grads[k] ? without_nothings(grads[k]) : grads[k]));
  }
  const Owned flags(check(PyTuple_New(static_cast<Py_ssize_t>(result.size()))));
  for (std::size_t i = 0; i < result.size(); ++i) {
    const bool want = next()[i].node && (wanted >> (i & 63) & 1) != 0;
    PyTuple_SET_ITEM(flags.get(), static_cast<Py_ssize_t>(i), Py_NewRef(want ? Py_True : Py_False));
  }
  const Owned node(check(node_object(NodeRef::share(this))));
  const Owned out(check(PyObject_CallFunctionObjArgs(callback_, node.get(), in.get(), flags.get(),
                                                     create_graph ? Py_True : Py_False, nullptr)));
  const Owned list(check(PySequence_Fast(out.get(), "a list of gradients")));
  for (std::size_t i = 0; i < result.size(); ++i) {
    PyObject* g = PySequence_Fast_GET_ITEM(list.get(), static_cast<Py_ssize_t>(i));
    if (g != Py_None && (wanted >> (i & 63) & 1) != 0) result[i] = Tensor::share(impl_of(g));
  }
}

}  // namespace hyalite::python
