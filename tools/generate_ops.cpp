/// Writes what follows from the op list and must exist before the library: hyalite/ops.h. Its output is not committed.
#include <cstdio>
#include <fstream>
#include <iostream>
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

std::string declared(const AttrField& f) {
  const std::string name(f.name);
  switch (f.type) {
    case AttrType::number:
      return "double " + name + (f.required ? "" : " = " + std::to_string(f.fallback));
    case AttrType::integer:
      return "std::int64_t " + name + (f.required ? "" : " = " + std::to_string(static_cast<long long>(f.fallback)));
    case AttrType::flag:
      return "bool " + name + (f.required ? "" : f.fallback != 0 ? " = true" : " = false");
    case AttrType::dtype:
      return f.required ? "Dtype " + name : "std::optional<Dtype> " + name + " = {}";
    case AttrType::ints:
      return "const Shape& " + name;
    case AttrType::axes:
      return "const Axes& " + name + " = {}";
    case AttrType::chain:
      return "const std::shared_ptr<const ViewChain>& " + name;
  }
  return "";
}

std::string passed(const AttrField& f) {
  const std::string name(f.name);
  const bool wrapped = f.type == AttrType::axes || (f.type == AttrType::dtype && !f.required);
  return wrapped ? "detail::attribute(" + name + ")" : "AttrValue(" + name + ")";
}

template <class Op>
void write_op(std::ostream& out, int index) {
  constexpr OpSchema s = Op::schema;
  const std::string name(s.name), number = std::to_string(index);
  std::string params, args, attrs;
  std::string_view names = s.params.empty() ? (Op::arity == 1 ? "x" : "x1, x2") : s.params;
  std::vector<AttrField> fields;
  if constexpr (HasAttr<Op>) {
    using A = typename Op::template Attr<double>;
    const auto defaults = std::bit_cast<std::array<double, attr_count<Op>>>(A{});
    for (int i = 0; i < attr_count<Op>; ++i) fields.push_back({A::names[i], AttrType::number, defaults[i]});
  } else if constexpr (requires { Op::fields; }) {
    fields.assign(Op::fields.begin(), Op::fields.end());
  }
  const bool numbers = s.primitive == Primitive::elementwise;
  while (!names.empty()) {
    const std::size_t comma = names.find(", ");
    std::string one(names.substr(0, comma));
    // C++ has no trouble with these as parameters, but macros of <cmath> and friends do.
    if (one == "min" || one == "max") one += "_value";
    params += (params.empty() ? "" : ", ") +
              std::string(s.variadic                 ? "const std::vector<Tensor>& "
                          : numbers && Op::arity > 1 ? "const Arg& "
                                                     : "const Tensor& ") +
              one;
    args += (args.empty() ? "" : ", ") + one;
    names = comma == std::string_view::npos ? std::string_view() : names.substr(comma + 2);
  }
  for (const AttrField& f : fields) {
    params += ", " + declared(f);
    attrs += (attrs.empty() ? "" : ", ") + passed(f);
  }
  const std::string list = attrs.empty() ? "" : ", Attrs{" + attrs + "}";
  const std::string result = Op::outputs == 2 ? "std::pair<Tensor, Tensor>" : "Tensor";
  const std::string call = s.variadic ? "call_list(" + number + ", " + args
                                      : (Op::outputs == 2 ? "call_two(" : "call(") + number + ", {" + args + "}";
  out << "/// `" << name << "`; see " << s.file << ":" << s.line << ".\n";
  out << "inline " << result << " " << name << "(" << params << ") {\n  return detail::" << call << list << ");\n}\n";
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

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: generate_ops OUT\n";
    return 2;
  }
  std::ofstream out(argv[1]);
  out << "/// Every operation of this build. Generated from src/ops by tools/generate_ops.cpp; do not edit.\n"
         "#pragma once\n\n#include <optional>\n#include <utility>\n#include <vector>\n\n#include "
         "\"hyalite/tensor.h\"\n\n"
         "namespace hyalite {\n\n";
  int index = 0;
  AllOps::for_each([&]<class Op>() { write_op<Op>(out, index++); });
  out << "\n}  // namespace hyalite\n";
  return out.good() ? 0 : 1;
}
