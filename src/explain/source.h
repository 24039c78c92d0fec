/// The text of an op's struct, out of the sources that the build embeds: for traces and for docstrings.
#pragma once

#include <string>

#include "ops/op_info.h"

namespace hyalite {

/// A source file inside the library.
struct EmbeddedFile {
  const char* path;  ///< relative to the source tree's root
  const char* text;
};

/// src/ops/*.h; the last entry is null. Written by cmake/embed.cmake.
extern const EmbeddedFile embedded_ops[];

/// A piece of source. Empty where the file is not embedded.
struct SourceText {
  std::string file;
  int line = 0;          ///< where `text` begins
  int formula_line = 0;  ///< or the schema's where there is no formula
  std::string text;
};

/// The op's struct, from the comment above it to its closing brace.
SourceText op_source(const OpInfo& op);

/// The comment above the op's struct as one paragraph.
std::string op_doc(const OpInfo& op);

}  // namespace hyalite
