/// The steps of a program as expressions over the arguments of a kernel.
#pragma once

#include <vector>

#include "compute/codegen/print_c.h"
#include "compute/lazy/program.h"
#include "compute/opencl/device.h"

namespace hyalite::opencl {

/// Registers in their order: the inputs, the numbers, what the steps make. Numbers and attributes are arguments, so
/// that others need no other kernel.
class Expressions {
 public:
  const std::vector<Argument>& arguments() const { return arguments_; }
  /// Of the arguments that are no memory; `leaf` is the place here.
  const std::vector<KernelArgument>& scalars() const { return scalars_; }

  int add(Argument a);
  /// The next register: an element of an argument, a number, a value computed in `made`, or the results of a step.
  void load(const Argument& a);
  void number(const Operand& o);
  void push(const Expr& value, Dtype made, Dtype stored);
  void step(const lazy::Program::Step& s);
  /// From here on register r is read from a variable of the kernel's body; what it was is given back.
  Expr keep(int r, const std::string& variable);

  Dtype dtype(int r) const { return dtypes_[static_cast<std::size_t>(r)]; }
  /// The register in another dtype: of 16 bits decoded, or as they lie in memory.
  Expr in(int r, Dtype t) const;
  Expr stored(int r, Dtype t) const;

 private:
  Expr scalar_argument(Dtype t, const KernelArgument& value);
  Expr value_of(const Operand& o);
  std::vector<Expr> attributes(const lazy::Node& n, Dtype dtype);

  std::vector<Argument> arguments_;
  std::vector<Expr> registers_;  // of 16 bits decoded
  std::vector<Dtype> dtypes_;
  std::vector<KernelArgument> scalars_;
};

}  // namespace hyalite::opencl
