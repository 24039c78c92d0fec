/// What the module installs in the engine: lines of Python, the GIL, signals, where OpenBLAS lies.
#pragma once

#include "python/tensor_object.h"

namespace hyalite::python {

void install_hooks();
/// Lines of code with these globals are not the user's: their caller's is named instead. Kept for good.
void hide_frames(PyObject* globals);

}  // namespace hyalite::python
