/// Prints kernels: equal subexpressions become one value, values used twice become temporaries, the rest is nested.
#include "compute/codegen/print_c.h"

#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <map>
#include <tuple>
#include <unordered_map>

#include "compute/codegen/prelude.h"

namespace hyalite {
namespace {

/// An operator's symbol in C, or empty.
std::string_view symbol(ExprOp op) {
  switch (op) {
#define HYALITE_ROW(name, symbol) \
  case ExprOp::name:              \
    return #symbol;
    HYALITE_EXPR_ARITHMETIC(HYALITE_ROW)
    HYALITE_EXPR_COMPARISONS(HYALITE_ROW)
    HYALITE_EXPR_BITS(HYALITE_ROW)
#undef HYALITE_ROW
    default:
      return {};
  }
}

bool is_comparison(ExprOp op) { return ExprOp::less <= op && op <= ExprOp::not_equal; }

/// C's function of the same meaning, for float and double.
std::string_view c_function(ExprOp op) {
  switch (op) {
#define HYALITE_ROW(name, arity, stem, accuracy, spelling, ulp) \
  case ExprOp::name:                                            \
    return #spelling;
    HYALITE_FUNCTIONS(HYALITE_ROW)
#undef HYALITE_ROW
    case ExprOp::abs:
      return "fabs";
    case ExprOp::round:
      return "rint";
    case ExprOp::power:
      return "pow";
    case ExprOp::fused_multiply_add:
      return "fma";
    default:
      return name(op);
  }
}

/// A text that stands alone in any expression if it is an atom, else needs parentheses.
struct Text {
  std::string text;
  bool atom = true;
  std::string inside() const { return atom ? text : "(" + text + ")"; }
};

std::string hexadecimal(double value, bool single) {
  char digits[48];
  std::snprintf(digits, sizeof digits, "%a%s", single ? static_cast<double>(static_cast<float>(value)) : value,
                single ? "f" : "");
  return digits;
}

Text literal(Language language, Dtype dtype, double value) {
  const std::string type(c_value_type(language, dtype));
  if (is_complex(dtype)) {
    const bool single = dtype == Dtype::complex64;
    const std::string make = language == Language::cuda ? "make_" + type : "(" + type + ")";
    return {make + "(" + hexadecimal(value, single) + ", " + hexadecimal(0, single) + ")"};
  }
  if (dtype == Dtype::boolean) return {value != 0 ? "true" : "false"};
  if (is_floating(dtype)) {
    assert(std::isfinite(value));
    return {hexadecimal(value, dtype == Dtype::float32), !std::signbit(value)};
  }
  // The constants of formulas are small; the conversion to the type is C's.
  assert(std::fabs(value) < 2147483648.0);
  const std::string digits = std::to_string(static_cast<std::int64_t>(value));
  return {"(" + type + ")" + (value < 0 ? "(" + digits + ")" : digits), false};
}

/// Numbers the values of one kernel and prints them.
class Body {
 public:
  Body(Language language, std::span<const Argument> arguments) : language_(language), arguments_(arguments) {}

  std::string print(std::span<const Assignment> all, std::string_view indent, int& temporaries) {
    std::vector<int> results;
    for (const Assignment& a : all) results.push_back(number(a.value.node()));
    // With two outputs both are computed before either is stored: an output may be one of the inputs.
    const int once_more = results.size() > 1 ? 2 : 1;
    for (int r : results) values_[r].uses += once_more;
    std::string lines;
    const std::string margin(indent);
    std::vector<Text> texts;
    for (const Value& v : values_) {
      Text t = text(v, texts);
      if (v.uses > 1 && v.node->op != ExprOp::attribute && v.node->op != ExprOp::constant) {
        const std::string name = "t" + std::to_string(temporaries++);
        const std::string type(c_value_type(language_, v.node->dtype));
        lines += margin + "const " + type + " " + name + " = " + t.text + ";\n";
        t = {name};
      }
      texts.push_back(std::move(t));
    }
    for (std::size_t k = 0; k < all.size(); ++k)
      lines += margin + all[k].to + " = " + texts[static_cast<std::size_t>(results[k])].text + ";\n";
    return lines;
  }

 private:
  struct Value {
    const ExprNode* node;
    std::array<int, 3> in;
    int uses;
  };
  using Key = std::tuple<ExprOp, Dtype, int, std::uint64_t, std::array<int, 3>>;

  /// The number of the value that a node computes; equal computations have equal numbers.
  int number(const ExprNode& node) {
    if (const auto seen = by_node_.find(&node); seen != by_node_.end()) return seen->second;
    std::array<int, 3> in{-1, -1, -1};
    for (int k = 0; k < 3; ++k) {
      if (node.in[k]) in[k] = number(*node.in[k]);
    }
    std::uint64_t bits;
    std::memcpy(&bits, &node.value, sizeof bits);
    const auto [place, is_new] =
        by_key_.try_emplace(Key{node.op, node.dtype, node.index, bits, in}, static_cast<int>(values_.size()));
    if (is_new) {
      values_.push_back({&node, in, 0});
      for (int k : in) {
        if (k >= 0) ++values_[k].uses;
      }
    }
    return by_node_[&node] = place->second;
  }

  Text text(const Value& v, const std::vector<Text>& texts) const {
    const ExprNode& node = *v.node;
    const Dtype dtype = v.in[0] < 0 ? node.dtype : values_[v.in[0]].node->dtype;
    std::vector<Text> in;
    for (int k : v.in) {
      if (k >= 0) in.push_back(texts[k]);
    }
    switch (node.op) {
      case ExprOp::leaf: {
        const Argument& a = arguments_[static_cast<std::size_t>(node.index)];
        const std::string element = a.name + "[" + a.place + "]";
        return node.dtype == Dtype::boolean ? Text{element + " != 0", false} : Text{element};
      }
      case ExprOp::attribute:
        return {argument(node.index)};
      case ExprOp::constant:
        return literal(language_, node.dtype, node.value);
      case ExprOp::select:
        return {in[0].inside() + " ? " + in[1].inside() + " : " + in[2].inside(), false};
      case ExprOp::encode:
        return call(helper_name("encode", node.dtype), {cast(dtype, Dtype::float32, in[0], true)});
      case ExprOp::cast:
        return cast(dtype, node.dtype, in[0], false);
      case ExprOp::invert:
        if (dtype == Dtype::boolean) return {"!" + in[0].inside(), false};
        return {"(" + std::string(c_value_type(language_, dtype)) + ")~" + in[0].inside(), false};
      default:
        return operation(node, dtype, v, in);
    }
  }

  Text operation(const ExprNode& node, Dtype dtype, const Value& v, const std::vector<Text>& in) const {
    if (in.size() == 2 && values_[v.in[1]].node->dtype != dtype) return mixed(node, is_complex(dtype), in);
    if (const std::string helper = helper_name(name(node.op), dtype); !helper.empty()) return call(helper, in);
    const std::string sign(symbol(node.op));
    if (sign.empty()) return call(std::string(c_function(node.op)), in);
    if (dtype == Dtype::boolean && node.op == ExprOp::add) return infix(in, "|");
    if (dtype == Dtype::boolean && node.op == ExprOp::multiply) return infix(in, "&");
    if (kind(dtype) == Kind::integer && !is_comparison(node.op)) return wrapping(in, sign, dtype);
    return infix(in, sign);
  }

  /// By the rules of casts. With `to_round` the result is rounded once more: what is lost on the way to float32 then
  /// stays visible in its last bit.
  Text cast(Dtype from, Dtype to, const Text& x, bool to_round) const {
    const auto as = [&](Dtype t, const Text& v) {
      return Text{"(" + std::string(c_value_type(language_, t)) + ")" + v.inside(), false};
    };
    if (to == Dtype::boolean) {
      if (is_complex(from)) return {x.inside() + ".x != 0 || " + x.inside() + ".y != 0", false};
      return from == to ? x : Text{x.inside() + " != 0", false};
    }
    if (is_complex(to)) {
      const Dtype part = real_part(to);
      const auto component = [&](const char* c) { return cast(real_part(from), part, {x.inside() + c, true}, false); };
      const std::string type(c_value_type(language_, to));
      const std::string make = language_ == Language::cuda ? "make_" + type : "(" + type + ")";
      if (!is_complex(from)) return {make + "(" + cast(from, part, x, false).text + ", 0)"};
      return {make + "(" + component(".x").text + ", " + component(".y").text + ")"};
    }
    if (is_complex(from)) return cast(real_part(from), to, {x.inside() + ".x"}, to_round);
    if (is_floating(from) && kind(to) == Kind::integer)
      return call(helper_name(from == Dtype::float32 ? "from_float32" : "from_float64", to), {x});
    if (to_round && from != Dtype::float32 && kind(from) != Kind::boolean && itemsize(from) > 2) {
      const Text wide = itemsize(from) == 8 && kind(from) == Kind::integer ? call(helper_name("sticky", from), {x}) : x;
      return call(helper_name("odd", Dtype::float64), {as(Dtype::float64, wide)});
    }
    return from == to ? x : as(to, x);
  }

  /// A complex value with a real one.
  static Text mixed(const ExprNode& node, bool complex_first, const std::vector<Text>& in) {
    const std::string op(name(node.op));
    if (complex_first) return call(helper_name(op + "_real", node.dtype), in);
    const bool commutes = node.op == ExprOp::add || node.op == ExprOp::multiply;
    return commutes ? call(helper_name(op + "_real", node.dtype), {in[1], in[0]})
                    : call(helper_name("real_" + op, node.dtype), in);
  }
  static Text call(const std::string& function, const std::vector<Text>& in) {
    assert(!function.empty());
    std::string list;
    for (const Text& t : in) list += (list.empty() ? "" : ", ") + t.text;
    return {function + "(" + list + ")"};
  }
  static Text infix(const std::vector<Text>& in, const std::string& sign) {
    return {in[0].inside() + " " + sign + " " + in[1].inside(), false};
  }
  /// Signed overflow is undefined in C, and short integers become int there.
  Text wrapping(const std::vector<Text>& in, const std::string& sign, Dtype dtype) const {
    if (dtype == Dtype::uint32 || dtype == Dtype::uint64) return infix(in, sign);
    const Dtype wide = itemsize(dtype) == 8 ? Dtype::uint64 : Dtype::uint32;
    const std::string to = "(" + std::string(c_value_type(language_, wide)) + ")";
    const std::string inner = to + in[0].inside() + " " + sign + " " + to + in[1].inside();
    return {"(" + std::string(c_value_type(language_, dtype)) + ")(" + inner + ")", false};
  }

  std::string argument(int index) const {
    assert(index >= 0);
    return arguments_[static_cast<std::size_t>(index)].name;
  }

  Language language_;
  std::span<const Argument> arguments_;
  std::vector<Value> values_;
  std::map<Key, int> by_key_;
  std::unordered_map<const ExprNode*, int> by_node_;
};

std::string kernel_text(Language language, const ExprKernel& kernel) {
  const bool cuda = language == Language::cuda;
  const std::string integer(c_value_type(language, Dtype::int64));
  std::string text = cuda ? "extern \"C\" __global__ void " : "__kernel void ";
  text += kernel.signature.name + "(" + integer + " n";
  text += parameters(language, kernel.signature.arguments) + ") {\n";
  if (cuda) {
    text += "  const long long step = (long long)gridDim.x * blockDim.x;\n";
    text += "  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {\n";
  } else {
    text += "  for (long i = get_global_id(0); i < n; i += get_global_size(0)) {\n";
  }
  std::vector<Assignment> stores;
  for (const Argument& a : kernel.signature.arguments) {
    if (a.is_output) stores.push_back({a.name + "[" + a.place + "]", kernel.results[stores.size()]});
  }
  int temporaries = 0;
  const std::string lines = assignment_lines(language, kernel.signature.arguments, stores, "    ", temporaries);
  return text + lines + "  }\n}\n";
}

}  // namespace

std::string assignment_lines(Language language, std::span<const Argument> arguments, std::span<const Assignment> all,
                             std::string_view indent, int& temporaries) {
  return Body(language, arguments).print(all, indent, temporaries);
}

std::string parameters(Language language, std::span<const Argument> arguments) {
  std::string text;
  for (const Argument& a : arguments) {
    if (a.is_local) continue;
    if (a.is_attribute) {
      text += ", " + std::string(c_value_type(language, a.dtype)) + " " + a.name;
    } else {
      text += std::string(", ") + (language == Language::cuda ? "" : "__global ") + (a.is_output ? "" : "const ");
      text += std::string(c_stored_type(language, a.dtype)) + "* " + a.name;
    }
  }
  return text;
}

std::string complete_source(Language language, const std::string& bodies) {
  const std::string text = helpers_for(language, bodies) + bodies;
  if (language == Language::cuda) return text;
  const bool wide = text.find("double") != std::string::npos;
  return std::string(wide ? "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n" : "") +
         "#pragma OPENCL FP_CONTRACT OFF\n\n" + text;
}

std::string program_source(Language language, std::span<const ExprKernel> kernels) {
  std::string bodies;
  for (const ExprKernel& k : kernels) bodies += (bodies.empty() ? "" : "\n") + kernel_text(language, k);
  return complete_source(language, bodies);
}

std::string kernel_source(Language language, const ExprKernel& kernel) {
  return program_source(language, std::span(&kernel, 1));
}

std::span<const std::string_view> compile_options(Language language) {
  static constexpr std::string_view cuda[] = {"--fmad=false", "--prec-div=true", "--prec-sqrt=true", "--ftz=false"};
  static constexpr std::string_view opencl[] = {"-cl-std=CL1.2", "-cl-fp32-correctly-rounded-divide-sqrt"};
  return language == Language::cuda ? std::span<const std::string_view>(cuda) : opencl;
}

}  // namespace hyalite
