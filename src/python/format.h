/// The text of a tensor, as NumPy would write it.
#pragma once

#include <cstdint>
#include <string>

#include "tensor/tensor_impl.h"

namespace hyalite::python {

/// How tensors are written; the names and defaults are those of numpy.set_printoptions.
struct FormatOptions {
  int precision = 8;              ///< most digits after the point
  std::int64_t threshold = 1000;  ///< a tensor with more elements shows only its edges
  int edgeitems = 3;              ///< elements shown at each edge
  int linewidth = 75;             ///< characters
  bool suppress = false;          ///< small numbers do not bring on exponents
  std::string suffix;             ///< stands at the end inside repr's bracket, for instance "requires_grad=True"
};

enum class Form : std::uint8_t { repr, str };

/// The text of `t`, whose elements must be computed and lie in host memory. Reads and converts only those it shows.
///
/// bfloat16 and float8, which NumPy lacks, are written by its rules for float16: the fewest digits that round to the
/// value in its own type, with exponents from 10^d on, where d is the decimal digits the type holds, but at least 1.
std::string format_tensor(const TensorImpl& t, const FormatOptions& options, Form form = Form::repr);

/// The options of the process, without a suffix. May be called from any thread.
FormatOptions default_format();
/// Changes the options of the process. Throws ValueError for a negative precision, threshold or linewidth, or
/// edgeitems below 1. May be called from any thread.
void set_default_format(FormatOptions options);

}  // namespace hyalite::python
