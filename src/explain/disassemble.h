/// The machine code of a kernel as text.
#pragma once

#include <string>

namespace hyalite {

/// The function at `code`, one instruction a line, by `objdump`. Empty where that is not installed, where the
/// function's end is not known, or for more than 16 KiB.
std::string disassemble(const void* code);

}  // namespace hyalite
