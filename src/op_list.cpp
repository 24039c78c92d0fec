/// The table of ops, joined from its families, and scalars in the bytes of their dtype.
#include "op_list.h"

#include <cctype>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>

#include "apply.h"
#include "hyalite/error.h"
#include "tensor/float_formats.h"

namespace hyalite {
namespace {

std::string node_name(std::string_view op) {
  std::string r;
  bool upper = true;
  for (const char c : op) {
    if (c == '_') {
      upper = true;
    } else {
      r += upper ? static_cast<char>(std::toupper(c)) : c;
      upper = false;
    }
  }
  return r + "Backward";
}

std::vector<std::string> split_params(const OpSchema& s, int arity) {
  if (arity == 0) return {};
  if (s.params.empty()) return arity == 1 ? std::vector<std::string>{"x"} : std::vector<std::string>{"x1", "x2"};
  std::vector<std::string> r;
  std::string_view rest = s.params;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(", ");
    r.emplace_back(rest.substr(0, comma));
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 2);
  }
  return r;
}

}  // namespace

OpInfo& add_entry(std::vector<OpInfo>& table, const OpSchema& schema, int arity, int outputs) {
  const int index = static_cast<int>(table.size());
  OpInfo& o = table.emplace_back();
  o.schema = schema;
  o.index = index;
  o.arity = arity;
  o.outputs = outputs;
  o.elementwise = schema.kind == OpKind::elementwise ? index : -1;  // they stand first
  o.node_name = node_name(schema.name);
  o.params = split_params(schema, arity);
  return o;
}

Tensor leaf_of(const Tensor& t) { return t && is_differentiable(t.dtype()) ? widened(t) : t; }

const Tensor& incoming(const GradientCall& c, int arity, int outputs, std::uint32_t reads) {
  auto from = static_cast<std::size_t>(first_incoming(arity, outputs, reads));
  for (int k = 0; reads == 0 && k < outputs && !c.leaves[from]; ++k) {
    from = static_cast<std::size_t>(incoming_leaf(arity, outputs, k));
  }
  return c.leaves[from];
}

Tensor finished(const Tensor& value, const Tensor& g, Dtype dtype) {
  return settled(widened(dtype) == dtype ? value : astype_if(value, dtype), g);
}

const std::vector<OpInfo>& op_table() {
  static const std::vector<OpInfo> table = [] {
    std::vector<OpInfo> t;
#define HYALITE_ENTER(name, List) enter_##name(t);
    HYALITE_FAMILIES(HYALITE_ENTER, HYALITE_ENTER)
    return t;
  }();
  return table;
}

const OpInfo& find_op(std::string_view name) {
  for (const OpInfo& o : op_table()) {
    if (o.name() == name) return o;
  }
  throw ValueError("there is no op named " + std::string(name), {{"op", std::string(name)}});
}

void encode_scalar(const Scalar& s, Dtype dtype, std::byte* to) {
  auto put = [&](auto x) { std::memcpy(to, &x, sizeof x); };
  const bool whole = s.kind <= Kind::integer;
  auto floating = [&]<Dtype D>(auto zero) {
    using Bits = decltype(zero);
    if (!whole) return put(static_cast<Bits>(encode_float<D>(s.re)));
    put(static_cast<Bits>(s.is_unsigned ? encode_integer<D>(static_cast<std::uint64_t>(s.integer))
                                        : encode_integer<D>(s.integer)));
  };
  auto number = [&](auto type) -> decltype(type) {
    using F = decltype(type);
    if (!whole) return static_cast<F>(s.re);
    return s.is_unsigned ? static_cast<F>(static_cast<std::uint64_t>(s.integer)) : static_cast<F>(s.integer);
  };
  // A float for an integer dtype saturates, as astype does; NaN gives 0.
  auto integral = [&](auto type) {
    using I = decltype(type);
    if (whole) return put(static_cast<I>(s.integer));
    if (s.re != s.re) return put(I{0});
    constexpr double low = static_cast<double>(std::numeric_limits<I>::min());
    const double high = std::ldexp(1.0, std::numeric_limits<I>::digits);
    put(s.re < low     ? std::numeric_limits<I>::min()
        : s.re >= high ? std::numeric_limits<I>::max()
                       : static_cast<I>(s.re));
  };
  switch (dtype) {
    case Dtype::boolean:
      return put(static_cast<std::uint8_t>(whole ? s.integer != 0 : s.re != 0 || s.im != 0));
    case Dtype::int8:
      return integral(std::int8_t{});
    case Dtype::int16:
      return integral(std::int16_t{});
    case Dtype::int32:
      return integral(std::int32_t{});
    case Dtype::int64:
      return integral(std::int64_t{});
    case Dtype::uint8:
      return integral(std::uint8_t{});
    case Dtype::uint16:
      return integral(std::uint16_t{});
    case Dtype::uint32:
      return integral(std::uint32_t{});
    case Dtype::uint64:
      return integral(std::uint64_t{});
    case Dtype::float16:
      return floating.template operator()<Dtype::float16>(std::uint16_t{});
    case Dtype::bfloat16:
      return floating.template operator()<Dtype::bfloat16>(std::uint16_t{});
    case Dtype::float32:
      return put(number(float{}));
    case Dtype::float64:
      return put(number(double{}));
    case Dtype::complex64:
      return put(std::complex<float>(number(float{}), static_cast<float>(s.im)));
    case Dtype::complex128:
      return put(std::complex<double>(number(double{}), s.im));
    case Dtype::float8_e4m3fn:
      return floating.template operator()<Dtype::float8_e4m3fn>(std::uint8_t{});
    case Dtype::float8_e5m2:
      return floating.template operator()<Dtype::float8_e5m2>(std::uint8_t{});
  }
}

}  // namespace hyalite
