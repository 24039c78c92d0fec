/// Where OpenBLAS lies: a front end may know better than the build did.
#pragma once

#include <string>

namespace hyalite {

/// `finder` is called at the first matrix product and returns the path of libscipy_openblas.so.
void install_blas_finder(std::string (*finder)()) noexcept;

}  // namespace hyalite
