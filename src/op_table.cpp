/// The entries of one family of ops in the table; CMake compiles this file once for each.
#include "op_list.h"

#include "formula.h"
#include HYALITE_FAMILY_HEADER

#define HYALITE_JOIN(a, b) a##b
#define HYALITE_ENTER(family) HYALITE_JOIN(enter_, family)

namespace hyalite {

namespace {

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
  static constexpr auto reads = gradient_reads<Op>();
  const auto leaf = [&](auto k) { return leaf_of(c.leaves[k]); };
  const Tensor& g = incoming(c, Op::arity, Op::outputs, reads[static_cast<std::size_t>(i)].reads);
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
      new (*to) OutputSpec(Op::infer(c, a...));  // which is made there, without a copy
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
void enter(std::vector<OpInfo>& table) {
  OpInfo& o = add_entry(table, Op::schema, Op::arity, Op::outputs);
  if constexpr (Op::schema.kind == OpKind::elementwise) {
    static constexpr auto reads = gradient_reads<Op>();
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
}

}  // namespace

void HYALITE_ENTER(HYALITE_FAMILY)(std::vector<OpInfo>& table) {
  HYALITE_OPS::for_each([&]<class Op>() { enter<Op>(table); });
}

}  // namespace hyalite
