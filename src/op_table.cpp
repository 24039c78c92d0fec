/// Fills the table of ops from the one list, and encodes scalars.
#include <cstring>
#include <stdexcept>

#include "formula.h"
#include "ops/all.h"
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

/// A number of an elementwise gradient as its result: rounded to a 16-bit dtype, nothing where what it was made from
/// is.
Tensor finished(const Tensor& value, const Tensor& g, Dtype dtype) {
  return settled(widened(dtype) == dtype ? value : astype_if(value, dtype), g);
}

/// What a lazy gradient gives. An elementwise one is made from `g`, others see to nothings themselves.
Tensor lazy(const auto& gradient, const GradientCall& c, const Tensor* g) {
  using G = std::decay_t<decltype(gradient)>;
  if constexpr (std::is_same_v<G, None>) {
    (void)c;
    (void)g;
    return {};
  } else {
    auto value = gradient();
    if constexpr (std::is_same_v<decltype(value), Constant>) {
      return settled(full(to_vector(g->shape()), Scalar(value.value), g->dtype(), g->device()), *g);
    } else if constexpr (is_taken<decltype(value)>) {
      return take_where(value.where, finished(value.value, *g, c.dtype));
    } else {
      return g != nullptr ? finished(value, *g, c.dtype) : value;
    }
  }
}

/// Evaluates the i-th of a tuple of lazy gradients.
template <class Tuple>
Tensor pick(const Tuple& t, int i, const GradientCall& c, const Tensor* g) {
  Tensor r;
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    ((static_cast<int>(I) == i ? void(r = lazy(std::get<I>(t), c, g)) : void()), ...);
  }
  (std::make_index_sequence<std::tuple_size_v<Tuple>>());
  return r;
}

template <class Op>
Tensor elementwise_gradient(const GradientCall& c, int i) {
  // 16-bit types are computed in float32, as in kernels, and rounded once.
  auto leaf = [&](auto k) {
    const Tensor& t = c.leaves[k];
    return t && is_differentiable(t.dtype()) ? widened(t) : t;
  };
  // Of several incoming gradients the one that is read; of a constant, one that is there.
  const std::uint32_t reads = gradient_reads<Op>()[static_cast<std::size_t>(i)].reads;
  std::size_t from = first_incoming(Op::arity, Op::outputs, reads);
  for (int k = 0; reads == 0 && k < Op::outputs && !c.leaves[from]; ++k) {
    from = static_cast<std::size_t>(incoming_leaf(Op::arity, Op::outputs, k));
  }
  const Tensor& g = c.leaves[from];
  if constexpr (HasAttr<Op>) {
    // Attributes are weak numbers here too.
    const auto a = make_attr<Op, Constant>([&](int k) { return Constant{c.attrs->field<double>(k)}; });
    return pick(gradients_over<Op>(leaf, a), i, c, &g);
  } else {
    return pick(gradients_over<Op>(leaf), i, c, &g);
  }
}

/// f(attributes) for an op that has some, else f().
template <class Op>
decltype(auto) with_attributes(const Attributes* attrs, auto f) {
  if constexpr (HasFields<Op>) {
    return f(attrs->as<typename Op::Attr>());
  } else {
    (void)attrs;
    return f();
  }
}

template <class Op>
Tensor other_gradient(const GradientCall& c, int i) {
  return with_attributes<Op>(c.attrs, [&](const auto&... a) {
    return pick(gradients_over<Op>([&](auto k) { return c.leaves[k]; }, a...), i, c, nullptr);
  });
}

template <class Op>
void list_gradients(const GradientCall& c, const std::vector<std::uint8_t>& wanted, std::span<Tensor> result) {
  with_attributes<Op>(
      c.attrs, [&](const auto&... a) { Op::gradients_of(c.leaves[0], c.leaves.subspan(1), wanted, result, a...); });
}

/// By operand, whether the op says a gradient for it: `none` is written.
template <class Op>
constexpr auto gradients_exist() {
  if constexpr (Op::schema.variadic) {
    return std::array{true};
  } else {
    const auto look = []<class... A>(A*...) {
      using G = decltype(gradients_over<Op>(std::declval<Tensor (*)(...)>(), std::declval<const A&>()...));
      return []<class... Each>(std::tuple<Each...>*) {
        return std::array{!std::is_same_v<Each, None>...};
      }(static_cast<G*>(nullptr));
    };
    if constexpr (HasFields<Op>) {
      return look(static_cast<typename Op::Attr*>(nullptr));
    } else {
      return look();
    }
  }
}

/// An op may say its tangent: of the operands' tangents, the operands, the output and the attributes.
template <class Op>
constexpr bool has_tangent() {
  const auto takes = []<class... A>(A*...) {
    if constexpr (Op::arity == 1) {
      return requires(const Tensor& t, const A&... a) { Op::tangent(t, t, t, a...); };
    } else if constexpr (Op::arity == 2) {
      return requires(const Tensor& t, const A&... a) { Op::tangent(t, t, t, t, t, a...); };
    } else {
      return false;
    }
  };
  if constexpr (HasFields<Op>) {
    return takes(static_cast<typename Op::Attr*>(nullptr));
  } else {
    return takes();
  }
}

template <class Op>
Tensor tangent_of(const TangentCall& c) {
  return with_attributes<Op>(c.attrs, [&](const auto&... a) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return Op::tangent(c.tangents[I]..., c.leaves[1 + I]..., c.leaves[1 + Op::arity], a...);
    }
    (std::make_index_sequence<Op::arity>());
  });
}

template <class Op>
void inferred(const Call& c, OutputSpec* const* to) {
  with_attributes<Op>(c.attrs, [&](const auto&... a) {
    if constexpr (Op::outputs > 1) {
      const auto specs = Op::infer(c, a...);
      for (std::size_t k = 0; k < specs.size(); ++k) *to[k] = specs[k];
    } else {
      **to = Op::infer(c, a...);
    }
  });
}

template <class Op>
Outputs composed(const Call& c) {
  const auto operand = [&](std::size_t i) { return Tensor::share(c.in[i].tensor); };
  const auto one = [](Tensor t) { return TensorRef::adopt(t.leak()); };
  auto result = with_attributes<Op>(c.attrs, [&](const auto&... a) {
    if constexpr (Op::schema.variadic) {
      std::vector<Tensor> all;
      for (std::size_t i = 0; i < c.in.size(); ++i) all.push_back(operand(i));
      return Op::compose(all, a...);
    } else {
      return [&]<std::size_t... I>(std::index_sequence<I...>) { return Op::compose(operand(I)..., a...); }
      (std::make_index_sequence<Op::arity>());
    }
  });
  if constexpr (Op::outputs > 1) {
    Outputs o;
    std::apply([&](auto&... t) { (o.add(one(t)), ...); }, result.of);
    return o;
  } else {
    return Outputs(one(result));
  }
}

template <class Op>
OpInfo make_info(int index) {
  OpInfo o;
  o.schema = Op::schema;
  o.index = index;
  o.arity = Op::arity;
  o.outputs = Op::outputs;
  o.node_name = node_name(Op::schema.name);
  o.params = split_params(Op::schema, Op::arity);
  if constexpr (Op::schema.kind == OpKind::elementwise) {
    o.elementwise = IndexIn<Op, Elementwise>::value;
    constexpr auto reads = gradient_reads<Op>();
    for (int i = 0; i < Op::arity; ++i) {
      o.reads[i] = reads[i];
      o.has_gradient |= reads[i].exists;
    }
    if constexpr (HasAttr<Op>) o.defaults = Attributes::make(typename Op::template Attr<double>{});
    o.gradient = &elementwise_gradient<Op>;
  } else {
    if constexpr (Op::schema.kind != OpKind::view && has_own_gradient<Op>) o.infer = &inferred<Op>;
    o.needs_shapes = true;
    if constexpr (HasFields<Op>) o.defaults = Attributes::make(typename Op::Attr{});
    if constexpr (Op::schema.kind == OpKind::view) {
      o.view = [](const Call& c, OutputSpec& v) {
        return with_attributes<Op>(c.attrs, [&](const auto&... a) { return Op::view(c.x(0), a..., v); });
      };
    }
    if constexpr (Op::schema.kind == OpKind::composite) o.compose = &composed<Op>;
    if constexpr (Op::arity != 0 && has_own_gradient<Op>) {
      constexpr auto exists = gradients_exist<Op>();
      for (std::size_t i = 0; i < exists.size(); ++i) {
        o.reads[i].exists = exists[i];
        o.has_gradient |= exists[i];
      }
      if constexpr (Op::schema.variadic) {
        o.gradients = &list_gradients<Op>;
      } else if constexpr (std::ranges::count(exists, true) != 0) {
        o.gradient = &other_gradient<Op>;
      }
      if constexpr (has_tangent<Op>()) o.tangent = &tangent_of<Op>;
    }
    for (std::size_t i = 0; i < o.fields().size(); ++i) {
      if (o.fields()[i].type == AttrType::device) o.device_field = static_cast<int>(i);
    }
  }
  return o;
}

}  // namespace

const std::vector<OpInfo>& op_table() {
  static const std::vector<OpInfo> table = [] {
    std::vector<OpInfo> t;
    AllOps::for_each([&]<class Op>() { t.push_back(make_info<Op>(static_cast<int>(t.size()))); });
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
