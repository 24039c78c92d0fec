/// What `hyalite._autograd` asks of the engine: graphs, custom functions, forward mode.
#include "python/derivatives.h"

#include "python/interop.h"
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

}  // namespace

void bind_derivatives(nb::module_& m) {
  m.def("_reaches_others", [](nb::handle of, nb::handle own) { return reaches_others(tensors(of), tensors(own)); });
}

}  // namespace hyalite::python
