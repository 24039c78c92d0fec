/// Instantiates the helper texts for dtypes and languages, and collects those that a kernel needs.
#include "compute/codegen/prelude.h"

#include <cctype>
#include <map>
#include <set>
#include <vector>

#include "compute/codegen/prelude_text.h"

namespace hyalite {
namespace {

constexpr std::string_view prefix = "hl_";

struct TypeNames {
  std::string_view opencl, cuda;
};
/// By dtype; those of float16, bfloat16 and float8 are of their bits.
constexpr TypeNames value_types[dtype_count] = {
    {"bool", "bool"},
    {"char", "signed char"},
    {"short", "short"},
    {"int", "int"},
    {"long", "long long"},
    {"uchar", "unsigned char"},
    {"ushort", "unsigned short"},
    {"uint", "unsigned int"},
    {"ulong", "unsigned long long"},
    {"ushort", "unsigned short"},
    {"ushort", "unsigned short"},
    {"float", "float"},
    {"double", "double"},
    {"float2", "float2"},
    {"double2", "double2"},
    {"uchar", "unsigned char"},
    {"uchar", "unsigned char"},
};

/// The text of a helper before substitution, or empty.
std::string_view find_text(std::string_view operation, Dtype dtype) {
  auto in = [&](std::span<const Helper> helpers) {
    for (const Helper& h : helpers) {
      if (h.name == operation && contains(h.dtypes, dtype)) return h.text;
    }
    return std::string_view();
  };
  for (auto helpers : {std::span<const Helper>(integer_helpers), std::span<const Helper>(float_helpers),
                       std::span<const Helper>(complex_helpers)}) {
    if (const auto text = in(helpers); !text.empty()) return text;
  }
  if (dtype == Dtype::complex64 && !find_text(operation, Dtype::complex128).empty()) {
    return operation == "power" ? narrowed_binary : narrowed_unary;
  }
  return {};
}

/// What stands for each @word in the texts for one dtype.
std::map<std::string, std::string, std::less<>> words(Language language, std::string_view operation, Dtype dtype) {
  const bool cuda = language == Language::cuda;
  auto type = [&](Dtype t) { return std::string(c_value_type(language, t)); };
  const bool small = dtype == Dtype::float16 || dtype == Dtype::bfloat16;
  const Dtype real = small ? Dtype::float32 : real_part(dtype);
  const bool wide = itemsize(real) == 8;
  constexpr Dtype unsigned_of_size[] = {Dtype::uint8, Dtype::uint16, Dtype::uint32, Dtype::uint64};
  const std::size_t size = small ? 2 : itemsize(real);
  const Dtype bits = unsigned_of_size[size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : 3];
  std::map<std::string, std::string, std::less<>> w{
      {"F", cuda ? "static __device__ inline" : "static inline"},
      {"N", std::string(operation)},
      {"D", std::string(name(dtype))},
      {"T", type(dtype)},
      {"V", type(bits)},
      {"U", type(wide ? Dtype::uint64 : Dtype::uint32)},
      {"W", std::to_string(8 * size)},
      {"R", type(real)},
      {"P", std::string(name(real))},
      {"u32", type(Dtype::uint32)},
      {"C", cuda ? "make_" + type(dtype) : "(" + type(dtype) + ")"},
      {"C2", cuda ? "make_double2" : "(double2)"},
      {"f", wide ? "" : "f"},
      {"exact", wide ? "0x1p53" : "0x1p24f"},
      {"bits", cuda ? (wide ? "__double_as_longlong" : "__float_as_uint") : (wide ? "as_ulong" : "as_uint")},
      {"value", cuda ? (wide ? "__longlong_as_double" : "__uint_as_float") : (wide ? "as_double" : "as_float")},
  };
  w["inf"] = w["value"] + (wide ? "((" + type(Dtype::uint64) + ")0x7ff << 52)" : "(0x7f800000u)");
  w["nan"] = w["value"] + (wide ? "((" + type(Dtype::uint64) + ")0xfff << 51)" : "(0x7fc00000u)");
  return w;
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

std::string instantiate(Language language, std::string_view operation, Dtype dtype) {
  const std::string_view text = find_text(operation, dtype);
  const auto substitutes = words(language, operation, dtype);
  std::string result;
  for (std::size_t i = text.starts_with('\n') ? 1 : 0; i < text.size();) {
    if (text[i] != '@') {
      result += text[i++];
      continue;
    }
    std::size_t end = i + 1;
    while (end < text.size() && is_word(text[end])) ++end;
    const auto found = substitutes.find(text.substr(i + 1, end - i - 1));
    assert(found != substitutes.end());
    result += found->second;
    i = end;
  }
  return result;
}

/// Calls f(operation, dtype) for each helper that a text names, in order of appearance.
template <class F>
void for_each_call(std::string_view text, F f) {
  for (std::size_t at = text.find(prefix); at != std::string_view::npos; at = text.find(prefix, at + 1)) {
    std::size_t end = at;
    while (end < text.size() && (is_word(text[end]) || text[end] == '_')) ++end;
    const std::string_view called = text.substr(at + prefix.size(), end - at - prefix.size());
    const std::size_t split = called.rfind('_');
    for (int t = 0; t < dtype_count; ++t) {
      if (called.substr(split + 1) == name(static_cast<Dtype>(t))) f(called.substr(0, split), static_cast<Dtype>(t));
    }
  }
}

class Collector {
 public:
  explicit Collector(Language language) : language_(language) {}

  void add_calls_of(std::string_view text) {
    for_each_call(text, [&](std::string_view operation, Dtype dtype) {
      if (!seen_.emplace(operation, dtype).second) return;
      const std::string helper = instantiate(language_, operation, dtype);
      add_calls_of(helper);
      text_ += helper + "\n";
    });
  }
  const std::string& text() const { return text_; }

 private:
  Language language_;
  std::set<std::pair<std::string, Dtype>> seen_;
  std::string text_;
};

}  // namespace

std::string_view c_value_type(Language language, Dtype dtype) {
  const TypeNames& names = value_types[static_cast<int>(dtype)];
  return language == Language::cuda ? names.cuda : names.opencl;
}
std::string_view c_stored_type(Language language, Dtype dtype) {
  return c_value_type(language, dtype == Dtype::boolean ? Dtype::uint8 : dtype);
}

std::string helper_name(std::string_view operation, Dtype dtype) {
  if (find_text(operation, dtype).empty()) return {};
  return std::string(prefix) + std::string(operation) + "_" + std::string(name(dtype));
}

std::string helpers_for(Language language, std::string_view text) {
  Collector collector(language);
  collector.add_calls_of(text);
  return collector.text();
}

}  // namespace hyalite
