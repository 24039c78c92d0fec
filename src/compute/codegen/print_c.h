/// Prints one operation as a complete kernel, in CUDA C or in OpenCL C.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compute/codegen/expr.h"

namespace hyalite {

enum class Language : std::uint8_t { cuda, opencl };

/// A parameter of a kernel: a pointer to contiguous elements, or one scalar for an attribute.
struct Argument {
  std::string name;
  Dtype dtype;  ///< of the elements; booleans are bytes 0 and 1, float16 and bfloat16 are their bits
  bool is_output = false;
  bool is_attribute = false;
  int leaf = -1;  ///< of an input: which leaf it is (mark.h; of a forward kernel which operand), else which output
  std::string place = "i";  ///< of the element
  bool is_local = false;    ///< of an attribute: a variable of the kernel's body, no parameter
};

/// How a kernel is called: after the 64-bit number of elements come the arguments, in this order.
struct KernelSignature {
  std::string name;
  std::vector<Argument> arguments;
};

/// A kernel before it is text. `results` belong to the outputs, in their order; leaves are indices of arguments.
struct ExprKernel {
  KernelSignature signature;
  std::vector<Expr> results;
};

/// The kernel as a self-contained text: the helper functions it uses, then the kernel. Equal kernels give equal texts.
/// Any number of threads in one dimension computes all elements; an output may be one of the inputs.
std::string kernel_source(Language language, const ExprKernel& kernel);
/// Several kernels in one text that share their helper functions.
std::string program_source(Language language, std::span<const ExprKernel> kernels);

/// Bodies of kernels, with the helper functions that they call in front, and the pragmas that they need.
std::string complete_source(Language language, const std::string& bodies);
/// How the language writes a dtype as a value, and as an element in memory.
std::string_view c_value_type(Language language, Dtype dtype);
std::string_view c_stored_type(Language language, Dtype dtype);

/// A value, and what stands before it and its `=`: an element of an output, or the declaration of a variable.
struct Assignment {
  std::string to;
  Expr value;
};
/// Lines that compute the values, over arguments by their index, before the first is assigned. Temporaries are numbered
/// on from `temporaries`.
std::string assignment_lines(Language language, std::span<const Argument> arguments, std::span<const Assignment> all,
                             std::string_view indent, int& temporaries);
/// The arguments that are parameters, each after a comma.
std::string parameters(Language language, std::span<const Argument> arguments);

/// Options under which the text keeps its promise of exact arithmetic, one each, for NVRTC or for clBuildProgram. A
/// device whose CL_DEVICE_SINGLE_FP_CONFIG lacks CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT refuses OpenCL's.
std::span<const std::string_view> compile_options(Language language);

}  // namespace hyalite
