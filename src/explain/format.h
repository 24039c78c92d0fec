/// Small pieces of text that the writers share: durations, and the escapes of JSON and XML.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace hyalite::format {

/// "18 ns", "2.93 ms": three digits from microseconds on.
std::string duration(double ns);
/// Three digits: "45.8".
std::string significant(double value);
/// "(4096, 4096)"; "(3,)" for one dimension.
std::string shape(std::span<const std::int64_t> dims);

/// Columns that UTF-8 text takes on a terminal, one a character.
int columns(std::string_view text);
/// Well-formed UTF-8: every byte that is not part of a character becomes U+FFFD.
std::string valid_utf8(std::string_view text);
/// The same for a terminal: what would move its cursor or change its colours, line ends too, becomes U+FFFD.
std::string printable(std::string_view text);

/// For text and attributes of HTML and SVG; control characters, which XML cannot hold, become U+FFFD.
std::string xml(std::string_view text);
/// A JSON string with its quotes.
std::string json(std::string_view text);
/// A JSON number with at most one decimal; null for what JSON has no number for.
std::string json(double value);

/// Writes one JSON object, keys in the order of the calls.
class JsonObject {
 public:
  /// `value` is JSON already.
  JsonObject& raw(std::string_view key, std::string_view value) {
    out_ += (out_.empty() ? "" : ", ") + json(key) + ": ";
    out_ += value;
    return *this;
  }
  JsonObject& text(std::string_view key, std::string_view value) { return raw(key, json(value)); }
  JsonObject& number(std::string_view key, double value) { return raw(key, json(value)); }
  std::string str() const { return "{" + out_ + "}"; }

 private:
  std::string out_;
};

/// `f(item)` for each, between brackets.
template <class Items, class F>
std::string json_list(const Items& items, F f, std::string_view separator = ", ") {
  std::string out;
  for (const auto& item : items) {
    if (!out.empty()) out += separator;
    out += f(item);
  }
  return "[" + out + "]";
}

}  // namespace hyalite::format
