/// Durations, UTF-8, and the escapes of JSON and XML.
#include "explain/format.h"

#include <charconv>
#include <cmath>
#include <cstdio>

namespace hyalite::format {
namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";

/// Bytes of the character that `text` begins with, 0 if that is none (RFC 3629: no surrogates, no overlong forms).
std::size_t character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto follows = [&](std::size_t i, unsigned low = 0x80, unsigned high = 0xBF) {
    return byte(i) >= low && byte(i) <= high;
  };
  const unsigned a = byte(0);
  if (a < 0x80) return 1;
  if (a >= 0xC2 && a <= 0xDF) return follows(1) ? 2 : 0;
  if (a >= 0xE0 && a <= 0xEF) return follows(1, a == 0xE0 ? 0xA0 : 0x80, a == 0xED ? 0x9F : 0xBF) && follows(2) ? 3 : 0;
  if (a >= 0xF0 && a <= 0xF4) {
    return follows(1, a == 0xF0 ? 0x90 : 0x80, a == 0xF4 ? 0x8F : 0xBF) && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

/// `each(character)` for every character, the replacement in place of a stray byte.
template <class F>
std::string translate(std::string_view text, F each) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t n = character(text);
    out += n > 0 ? each(text.substr(0, n)) : std::string(replacement);
    text.remove_prefix(n > 0 ? n : 1);
  }
  return out;
}

}  // namespace

std::string significant(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2, value);
  return text;
}

std::string duration(double ns) {
  constexpr struct {
    double size;
    const char* unit;
  } units[] = {{1e9, " s"}, {1e6, " ms"}, {1e3, " µs"}};
  for (const auto& [size, unit] : units) {
    if (ns >= size * 0.9995) return significant(ns / size) + unit;
  }
  return std::to_string(std::lround(ns)) + " ns";
}

std::string shape(std::span<const std::int64_t> dims) {
  std::string out;
  for (const std::int64_t d : dims) out += (out.empty() ? "" : ", ") + std::to_string(d);
  return "(" + out + (dims.size() == 1 ? ",)" : ")");
}

int columns(std::string_view text) {
  int n = 0;
  for (const char c : text) n += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return n;
}

std::string valid_utf8(std::string_view text) {
  return translate(text, [](std::string_view c) { return std::string(c); });
}

std::string printable(std::string_view text) {
  return translate(text, [](std::string_view c) {
    const auto first = static_cast<unsigned char>(c[0]);
    const bool control = first < 0x20 || first == 0x7F || (first == 0xC2 && static_cast<unsigned char>(c[1]) < 0xA0);
    return std::string(control ? replacement : c);
  });
}

std::string xml(std::string_view text) {
  return translate(text, [](std::string_view c) -> std::string {
    switch (c[0]) {
      case '&':
        return "&amp;";
      case '<':
        return "&lt;";
      case '>':
        return "&gt;";
      case '"':
        return "&quot;";
      case '\'':
        return "&#39;";
      case '\t':
      case '\n':
      case '\r':
        return " ";
      default:
        return std::string(static_cast<unsigned char>(c[0]) < 0x20 ? replacement : c);
    }
  });
}

std::string json(std::string_view text) {
  return '"' +
         translate(text,
                   [](std::string_view c) -> std::string {
                     switch (c[0]) {
                       case '"':
                         return "\\\"";
                       case '\\':
                         return "\\\\";
                       case '\n':
                         return "\\n";
                       case '\t':
                         return "\\t";
                       case '\r':
                         return "\\r";
                       default:
                         break;
                     }
                     if (static_cast<unsigned char>(c[0]) >= 0x20) return std::string(c);
                     char escape[8];
                     std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c[0]));
                     return escape;
                   }) +
         '"';
}

std::string json(double value) {
  if (!std::isfinite(value)) return "null";
  char text[40];
  const double rounded = std::abs(value) < 1e15 ? std::round(value * 10) / 10 : value;
  return std::string(text, std::to_chars(text, text + sizeof text, rounded + 0.0).ptr);
}

}  // namespace hyalite::format
