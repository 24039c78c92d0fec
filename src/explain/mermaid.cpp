/// The sequence diagram in Mermaid's language.
#include <algorithm>

#include "explain/format.h"
#include "explain/trace.h"

namespace hyalite {
namespace {

/// Text of a message: what ends it, or begins markup, becomes a character code.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : format::valid_utf8(text)) {
    switch (c) {
      case '#':
        out += "#35;";
        break;
      case ';':
        out += "#59;";
        break;
      case '<':
        out += "#lt;";
        break;
      case '>':
        out += "#gt;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

}  // namespace

std::string to_mermaid(const TraceRecord& t) {
  static const char* const arrows[] = {"->>", "->>", "->>", "-->>", "-)"};
  bool used[who_count] = {};
  for (const TraceStep& s : t.steps) used[static_cast<int>(s.step.from)] = used[static_cast<int>(s.step.to)] = true;
  const auto name = [](Who who) { return "p" + std::to_string(static_cast<int>(who)); };
  std::string out = "sequenceDiagram\n";
  for (int i = 0; i < who_count; ++i) {
    if (used[i])
      out += "  participant " + name(static_cast<Who>(i)) + " as " +
             escaped(t.participants[static_cast<std::size_t>(i)]) + "\n";
  }
  std::optional<Phase> phase;
  for (const TraceStep& s : t.steps) {
    if (phase != s.step.phase) {
      out += "  Note over " + name(std::min(s.step.from, s.step.to)) +
             (s.step.from == s.step.to ? "" : "," + name(std::max(s.step.from, s.step.to))) + ": " +
             std::string(phase_name(s.step.phase)) + "\n";
    }
    phase = s.step.phase;
    const std::string time = time_text(t, s);
    out += "  " + name(s.step.from) + arrows[static_cast<std::size_t>(s.step.kind)] + name(s.step.to) + ": " +
           escaped(s.step.label + (time.empty() ? "" : " (" + time + ")")) + "\n";
  }
  return out;
}

}  // namespace hyalite
