/// Python's view of the graph: nodes, and handles of hooks.
#pragma once

#include <nanobind/nanobind.h>

#include "python/tensor_object.h"
#include "record/autograd_meta.h"

namespace hyalite::python {

PyObject* node_object(NodeRef node);
NodeRef node_of(nanobind::handle object);
PyObject* hook_handle(const HookPlace& place);
void bind_nodes(nanobind::module_& m);

}  // namespace hyalite::python
