/// Finds an op's struct in the embedded headers by the line of its schema.
#include "explain/source.h"

#include <string_view>
#include <vector>

namespace hyalite {
namespace {

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    text = end == text.npos ? std::string_view() : text.substr(end + 1);
  }
  return lines;
}

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

/// Where the struct stands: indices of its lines, `end` one past the last; all equal where there is none.
struct Found {
  const char* path = nullptr;
  std::vector<std::string_view> lines;
  std::size_t comment = 0, head = 0, end = 0;
};

Found find(const OpInfo& op) {
  Found found;
  for (const EmbeddedFile* f = embedded_ops; f->path != nullptr; ++f) {
    if (file_name(f->path) != file_name(op.schema.file)) continue;
    found.path = f->path;
    found.lines = lines_of(f->text);
  }
  const std::size_t schema = static_cast<std::size_t>(op.schema.line) - 1;
  if (schema >= found.lines.size()) return found;
  std::size_t head = schema;
  while (head > 0 && !found.lines[head].starts_with("struct ")) --head;
  found.head = found.comment = head;
  while (found.comment > 0 && found.lines[found.comment - 1].starts_with("///")) --found.comment;
  found.end = head;
  while (found.end < found.lines.size() && !found.lines[found.end++].starts_with("};")) continue;
  return found;
}

}  // namespace

SourceText op_source(const OpInfo& op) {
  const Found found = find(op);
  SourceText source;
  if (found.end == found.comment) return source;
  source.file = found.path;
  source.line = static_cast<int>(found.comment) + 1;
  for (std::size_t i = found.comment; i < found.end; ++i) {
    source.text += std::string(found.lines[i]) + "\n";
    const auto holds = [&](std::string_view text) { return found.lines[i].find(text) != std::string_view::npos; };
    if (holds(" schema{") || holds(" formula(")) source.formula_line = static_cast<int>(i) + 1;
  }
  return source;
}

std::string op_doc(const OpInfo& op) {
  const Found found = find(op);
  std::string doc;
  for (std::size_t i = found.comment; i < found.head; ++i) {
    std::string_view line = found.lines[i].substr(3);
    while (line.starts_with(' ')) line.remove_prefix(1);
    if (!doc.empty() && !line.empty()) doc += ' ';
    doc += line;
  }
  return doc;
}

}  // namespace hyalite
