/// Runs of kernel calls as one generated kernel each.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "compute/cpu/code.h"
#include "compute/jit/llvm.h"

namespace hyalite::cpu {

/// Makes generated kernels of lists of instructions, and keeps them.
class Generator {
 public:
  /// Puts one generated kernel in the place of each run of instructions that can be printed. `needed(r, i)` says
  /// whether register r is read after instruction i. Throws Unsupported where LLVM refuses.
  void merge(std::vector<Instruction>& list, Code& code, const std::function<bool(int, int)>& needed);

  const std::vector<std::string>& texts() const { return texts_; }
  const std::vector<std::shared_ptr<const jit::Function>>& functions() const { return functions_; }

 private:
  Instruction generate(const std::vector<Instruction>& list, std::size_t begin, std::size_t end, const Code& code,
                       const std::function<bool(int, int)>& needed);
  std::vector<std::string> texts_;
  std::vector<std::shared_ptr<const jit::Function>> functions_;
};

/// The machine code of a generated kernel's text, as assembly.
std::string machine_code(const std::string& text);

}  // namespace hyalite::cpu
