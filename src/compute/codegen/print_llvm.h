/// Prints a loop over elements as LLVM's assembly, on explicit vectors, with the ABI of the eager kernels:
/// void(const void* const* in, void* const* out, size_t n, const double* attributes, bool stream).
#pragma once

#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compute/codegen/print_c.h"

namespace hyalite {

/// Whether every operation of the kernel can be printed for LLVM: the rest stays a call of the eager kernel.
bool llvm_can(const ExprKernel& kernel);
/// Whether a conversion can.
bool llvm_can_cast(Dtype from, Dtype to);

/// The name in LLVM's text of a function of real values, "hyalite_exp_float32": the linker finds it in a table.
std::string llvm_function(std::string_view name, Dtype dtype);

/// Builds one loop: operands are loaded at the top of an iteration and stored at its end, so that a result may lie in
/// the memory of an operand. Equal computations become one value.
class LlvmLoop {
 public:
  /// `bytes` of the vectors of the processor. `narrowest` and `widest` are the sizes of the elements that are computed.
  LlvmLoop(int bytes, std::size_t narrowest, std::size_t widest);

  /// Operand k of `in`; `single` is one element for all. A value's number.
  int input(int k, Dtype dtype, bool single);
  /// The results of a kernel whose arguments are these values, an attribute being the place of its number.
  std::vector<int> apply(const ExprKernel& kernel, std::span<const int> arguments);
  int cast(int value, Dtype to);
  /// Operand k of `out`.
  void output(int k, int value);

  /// The function's text, with the declarations it needs. Equal loops give equal texts.
  std::string text(std::string_view name, std::string_view processor, std::string_view tuning,
                   std::string_view features) const;

 private:
  struct Value {
    std::string name;
    Dtype dtype;
  };
  struct Operand {
    int k;
    Dtype dtype;
    bool single;
    int value;
  };
  using Memo = std::unordered_map<const ExprNode*, int>;

  std::string vector(std::string_view element) const;
  std::string type(Dtype t) const;  ///< of a value
  std::string typed(int v) const;
  /// The value of an instruction, which is printed once. In the entry block, where it does not change.
  int emit(Dtype dtype, const std::string& instruction, bool once = false);
  /// A step within an instruction.
  std::string step(const std::string& instruction, bool once = false);
  std::string splat(const std::string& element_type, const std::string& scalar);
  int constant(double value, Dtype dtype);
  int attribute(int place, Dtype dtype);
  int value_of(const ExprNode& node, std::span<const int> arguments, Memo& memo);
  int operation(const ExprNode& node, std::span<const int> in);
  int binary(ExprOp op, Dtype dtype, int a, int b);
  int compare(ExprOp op, int a, int b);
  int select(int condition, int a, int b);
  int intrinsic(const std::string& name, std::span<const int> in, const std::string& last = "");
  int function(const ExprNode& node, std::span<const int> in);
  int extreme(bool largest, int a, int b);
  int shift(bool left, int a, int b);
  int change_sign(const char* how, int v, bool sign_alone);
  int copysign(int a, int b);
  std::string bits(int v);
  int from_bits(Dtype dtype, const std::string& bits);
  int encode(int value, Dtype to);
  int decode(int value);

  int bytes_, lanes_;
  std::vector<Value> values_;
  std::map<std::string, int> known_;
  std::map<std::string, std::string> steps_;
  std::map<std::string, std::string> declared_;
  std::string entry_, body_;
  std::vector<Operand> inputs_, outputs_;
  int next_ = 0;
};

}  // namespace hyalite
