/// What the module installs in the engine: lines of Python, the GIL, signals, where OpenBLAS lies.
#pragma once

namespace hyalite::python {

void install_hooks();

}  // namespace hyalite::python
