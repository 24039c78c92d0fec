/// Writes what follows from the op list and must exist before the library: a function an op, exported under its name,
/// so that programs built against one list run with a longer one. Its output is not committed.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "ops/all.h"

using namespace hyalite;

namespace {

struct Operator {
  Slot slot;
  const char* symbol;
};
constexpr Operator operators[] = {
    {Slot::add, "+"},        {Slot::subtract, "-"},    {Slot::multiply, "*"},       {Slot::true_divide, "/"},
    {Slot::remainder, "%"},  {Slot::less, "<"},        {Slot::less_equal, "<="},    {Slot::equal, "=="},
    {Slot::not_equal, "!="}, {Slot::greater, ">"},     {Slot::greater_equal, ">="}, {Slot::bitwise_and, "&"},
    {Slot::bitwise_or, "|"}, {Slot::bitwise_xor, "^"}, {Slot::left_shift, "<<"},    {Slot::right_shift, ">>"}};

/// The parameter of field `i`, whose default is written only where C++ needs one.
std::string declared(const Attributes& defaults, int i) {
  const AttrField& f = defaults.layout().fields[static_cast<std::size_t>(i)];
  const std::string name(f.name);
  const auto with = [&](std::string value) { return f.required ? name : name + " = " + value; };
  switch (f.type) {
    case AttrType::number:
      return "double " + with(std::to_string(defaults.field<double>(i)));
    case AttrType::scalar:
      return "const Scalar& " + with("0");
    case AttrType::integer:
      return "std::int64_t " + with(std::to_string(defaults.field<std::int64_t>(i)));
    case AttrType::flag:
      return "bool " + with(defaults.field<bool>(i) ? "true" : "false");
    case AttrType::dtype:
      return f.optional ? "std::optional<Dtype> " + with("{}")
                        : "Dtype " + with("Dtype::" + std::string(hyalite::name(defaults.field<Dtype>(i))));
    case AttrType::device:
      return "std::optional<Device> " + with("{}");
    case AttrType::axis:
      return "std::optional<std::int64_t> " + with("{}");
    case AttrType::ints:
      return "const Shape& " + with("{}");
    case AttrType::axes:
      return "const Axes& " + with("{}");
    case AttrType::text:
    case AttrType::choice:
      return "const std::string& " + with('"' + std::string(f.choices.empty() ? "" : f.choices[0]) + '"');
    case AttrType::chain:
      return "const ChainRef& " + name;
  }
  return "";
}

/// A parameter as the definition has it, without the default.
std::string without_default(std::string text) {
  const std::size_t equals = text.find(" = ");
  return text.substr(0, equals);
}

constexpr std::string_view default_params(int arity) { return arity == 0 ? "" : arity == 1 ? "x" : "x1, x2"; }

/// Where the parts of an op go.
struct Files {
  std::ostream &header, &internal, &source;
};

/// An op without its type, so that little is compiled for each.
struct Described {
  const OpSchema& schema;
  int arity, outputs;
  AttrRef defaults;
};

template <class Op>
AttrRef defaults_of() {
  if constexpr (HasAttr<Op>) {
    return Attributes::make(typename Op::template Attr<double>{});
  } else if constexpr (HasFields<Op>) {
    return Attributes::make(typename Op::Attr{});
  } else {
    return {};
  }
}

void write_op(const Files& files, const Described& op, int index) {
  const OpSchema& s = op.schema;
  const AttrRef& defaults = op.defaults;
  const std::string name(s.name), number = std::to_string(index);
  std::string declaration, definition, args, attrs;
  std::string_view names = s.params.empty() ? default_params(op.arity) : s.params;
  const bool numbers = s.kind == OpKind::elementwise;
  while (!names.empty()) {
    const std::size_t comma = names.find(", ");
    std::string one(names.substr(0, comma));
    // C++ has no trouble with these as parameters, but macros of <cmath> and friends do.
    if (one == "min" || one == "max") one += "_value";
    declaration += (declaration.empty() ? "" : ", ") +
                   std::string(s.variadic                ? "const std::vector<Tensor>& "
                               : numbers && op.arity > 1 ? "const Arg& "
                                                         : "const Tensor& ") +
                   one;
    args += (args.empty() ? "" : ", ") + one;
    names = comma == std::string_view::npos ? std::string_view() : names.substr(comma + 2);
  }
  definition = declaration;
  for (int i = 0; defaults && i < static_cast<int>(defaults->layout().fields.size()); ++i) {
    declaration += (declaration.empty() ? "" : ", ") + declared(*defaults, i);
    definition += (definition.empty() ? "" : ", ") + without_default(declared(*defaults, i));
    attrs += ", " + std::string(defaults->layout().fields[static_cast<std::size_t>(i)].name);
  }
  const std::string list = attrs.empty() ? "" : ", detail::attributes(" + number + attrs + ")";
  const std::string count = std::to_string(op.outputs);
  const std::string result = op.outputs > 1 ? "std::array<Tensor, " + count + ">" : "Tensor";
  const std::string call = s.variadic ? "call_list(" + number + ", " + args
                                      : (op.outputs > 1 ? "call_all(" : "call(") + number + ", {" + args + "}";
  std::ostream& out = s.internal ? files.internal : files.header;
  // Without the line, which would change with every formula above it, and compile again whatever includes this.
  out << "/// `" << name << "`; see " << s.file << ".\n";
  out << (s.internal ? "" : "HYALITE_API ") << result << " " << name << "(" << declaration << ");\n";
  files.source << result << " " << name << "(" << definition << ") { return "
               << (op.outputs > 1 ? "detail::taken<" + count + ">(" : "") << "detail::" << call << list << ")"
               << (op.outputs > 1 ? ")" : "") << "; }\n";
  for (const Operator& o : operators) {
    if (o.slot != s.slot) continue;
    out << "inline Tensor operator" << o.symbol << "(const Tensor& a, const Tensor& b) { return " << name
        << "(a, b); }\n";
    out << "inline Tensor operator" << o.symbol << "(const Tensor& a, Scalar b) { return " << name << "(a, b); }\n";
    out << "inline Tensor operator" << o.symbol << "(Scalar a, const Tensor& b) { return " << name << "(a, b); }\n";
  }
  if (s.slot == Slot::negative) out << "inline Tensor operator-(const Tensor& a) { return " << name << "(a); }\n";
  if (s.slot == Slot::invert) out << "inline Tensor operator~(const Tensor& a) { return " << name << "(a); }\n";
}

/// Leaves a file alone that says the same, so that nothing is compiled again that includes it.
bool write_if_changed(const char* path, const std::string& text) {
  std::ostringstream there;
  if (std::ifstream file(path); file && there << file.rdbuf() && there.str() == text) return true;
  std::ofstream file(path);
  file << text;
  return file.good();
}

constexpr char generated[] = "Generated from src/ops by tools/generate_ops.cpp; do not edit.\n";

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: generate_ops HEADER INTERNAL_HEADER SOURCE\n";
    return 2;
  }
  std::ostringstream header, internal, source;
  header << "/// Every operation of this build. " << generated
         << "#pragma once\n\n#include <array>\n#include <optional>\n#include <string>\n#include <utility>\n#include "
            "<vector>\n\n#include "
            "\"hyalite/tensor.h\"\n\nnamespace hyalite {\n\n";
  internal << "/// Operations that only gradients and the front end ask for. " << generated
           << "#pragma once\n\n#include \"hyalite/ops.h\"\n\nnamespace hyalite {\n\n";
  source << "/// The function of each operation: its place in this build's table. " << generated
         << "#include \"apply.h\"\n#include \"ops/make_attributes.h\"\n\nnamespace hyalite {\n\n";
  int index = 0;
  const Files files{header, internal, source};
  AllOps::for_each([&]<class Op>() {
    write_op(files, {Op::schema, Op::arity, Op::outputs, defaults_of<Op>()}, index++);
  });
  for (std::ostream* out : {&files.header, &files.internal, &files.source}) *out << "\n}  // namespace hyalite\n";
  const bool written = write_if_changed(argv[1], header.str()) && write_if_changed(argv[2], internal.str()) &&
                       write_if_changed(argv[3], source.str());
  return written ? 0 : 1;
}
