/// LLVM as a library that is opened when it is first needed: text in its assembly becomes a function.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace hyalite::jit {

/// A function that texts may call.
struct Symbol {
  std::string name;
  const void* address;
};

/// Compiled code; it goes with its last user.
class Function {
 public:
  ~Function();
  const void* address = nullptr;
  double seconds = 0;      ///< that making it took
  bool from_disk = false;  ///< an earlier process had compiled it

 private:
  friend class Library;
  void* tracker_ = nullptr;
};

/// How much has been made in this process.
struct Counts {
  std::int64_t compiled = 0, from_disk = 0, in_memory = 0;  ///< functions; `in_memory`: asked for again
  double seconds = 0;
};

/// The name that a text gives its function.
inline constexpr std::string_view function_name = "hyalite_kernel";

/// Why LLVM is not there; empty where it is. Opens it.
const std::string& unavailable();
/// The function of the text, or the one that is there of an equal text. `processor` and `features` are LLVM's names.
/// One thread at a time compiles. Throws Unsupported where LLVM is not there, or does not take the text.
std::shared_ptr<const Function> compile(const std::string& text, std::string_view processor, std::string_view features,
                                        const std::vector<Symbol>& symbols);
/// The text's machine code, as assembly.
std::string assembly(const std::string& text, std::string_view processor, std::string_view features);
Counts counts();

/// Keeps the compiler still, from before a fork to after it, in parent and child, and when the process ends.
void hold_still();
void go_on();

}  // namespace hyalite::jit
