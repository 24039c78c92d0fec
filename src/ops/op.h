/// The vocabulary in which operations are written: what an op's struct may say, and nothing about how it runs.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "hyalite/dtype.h"

namespace hyalite {

// Sets of dtypes an operation has a meaning for.
inline constexpr DtypeSet boolean_types = bit(Dtype::boolean);
inline constexpr DtypeSet signed_types = bit(Dtype::int8) | bit(Dtype::int16) | bit(Dtype::int32) | bit(Dtype::int64);
inline constexpr DtypeSet unsigned_types =
    bit(Dtype::uint8) | bit(Dtype::uint16) | bit(Dtype::uint32) | bit(Dtype::uint64);
inline constexpr DtypeSet integer_types = signed_types | unsigned_types;
inline constexpr DtypeSet real_floating =
    bit(Dtype::float16) | bit(Dtype::bfloat16) | bit(Dtype::float32) | bit(Dtype::float64);
inline constexpr DtypeSet complex_types = bit(Dtype::complex64) | bit(Dtype::complex128);
inline constexpr DtypeSet floating = real_floating | complex_types;
inline constexpr DtypeSet real_types = integer_types | real_floating;
inline constexpr DtypeSet numeric = real_types | complex_types;
inline constexpr DtypeSet all_types = boolean_types | numeric;
inline constexpr DtypeSet float8_types = bit(Dtype::float8_e4m3fn) | bit(Dtype::float8_e5m2);
inline constexpr DtypeSet movable = all_types | float8_types;

inline constexpr int most_outputs = 4;

/// The dtype of an output, from that of the inputs.
enum class Result : std::uint8_t { same, boolean, real_part, index };

/// What autocast does with the op: leave the dtypes, run in the low precision, or run in float32.
enum class Amp : std::uint8_t { keep, low, full };

/// What the front end does with integer and boolean operands.
enum class Integers : std::uint8_t {
  native,      ///< the op has a meaning for them
  to_default,  ///< they become the default float, each rounded once
  in_result,   ///< they are computed exactly, and the result becomes the default float
};

/// What is checked on the values before the first write.
enum class Check : std::uint8_t {
  none,
  integer_exponent,  ///< of an integer, is not negative
  indices,           ///< lie within their axis
  cast,              ///< keeps every value, where that is asked for
};

/// What an op is to the engine. There is no fifth kind.
enum class OpKind : std::uint8_t {
  elementwise,  ///< a formula
  view,         ///< a rule for shape and strides: the operand seen in another way, nothing is computed
  primitive,    ///< each backend's own list has an entry for it, or that device cannot do it
  composite,    ///< other ops
};

/// What an operand is for.
enum class Role : std::uint8_t {
  data,
  index,      ///< places, of any integer dtype, which is not promoted with the data
  condition,  ///< boolean
  bound,      ///< of the first operand, in its dtype; may be absent
};

/// How the op stands in Python's expressions, beside its function.
enum class Slot : std::uint8_t {
  none,
  add,
  subtract,
  multiply,
  true_divide,
  floor_divide,
  remainder,
  divmod,
  power,
  matmul,
  negative,
  positive,
  absolute,
  invert,
  left_shift,
  right_shift,
  bitwise_and,
  bitwise_or,
  bitwise_xor,
  less,
  less_equal,
  equal,
  not_equal,
  greater,
  greater_equal,
};

/// Everything about an op that is not its formula. `file` and `line` are where the struct's schema stands.
struct OpSchema {
  std::string_view name;
  DtypeSet types = numeric;
  std::array<Result, most_outputs> results{};  ///< by output
  Amp amp = Amp::keep;
  double ulp = 0;  ///< largest error in units in the last place (float32, float64); 0: correctly rounded or exact
  /// The same of its first and second derivatives, for an incoming gradient of 1; where a derivative is a sum that
  /// passes through 0, in units of its terms. 16-bit types round that float32 result once more.
  std::array<double, 2> gradient_ulp{};
  double complex_ulp = 6;  ///< of complex results: |error| in units of epsilon * |result|
  Integers integers = Integers::native;
  Slot slot = Slot::none;
  std::string_view with_two = {};  ///< the op of one operand that it is of reals where the second is the number 2
  std::string_view params = {};    ///< names of the operands; by default x, or x1, x2
  std::array<Role, 3> roles{};     ///< of the operands
  bool mixed = false;              ///< accepts unequal dtypes and compares them exactly (comparisons only)
  bool commutes = false;
  bool real_with_complex = false;  ///< a real operand beside a complex one works by component
  bool identity_on_reals = false;  ///< gives a tensor of a real dtype back as it is
  Check check = Check::none;
  OpKind kind = OpKind::elementwise;
  bool keeps_layout = false;  ///< the result lies as the operand does where that is dense; elementwise ones do
  bool variadic = false;      ///< the operand is a list of tensors
  bool deterministic = true;
  bool internal = false;        ///< not part of the public namespace
  bool own_front_end = false;   ///< Python has a function of its own by this name, which calls the op
  std::string_view numpy = {};  ///< NumPy's name where it differs, for the generated value tests; "-" for none
  bool linear = false;          ///< the op of the tangents is the tangent of the op; so it is of every view
  const char* file = __builtin_FILE();
  int line = __builtin_LINE();

  /// Of output k, where it follows from the dtype that the op computes in.
  constexpr Dtype result_dtype(Dtype computed, int k = 0) const {
    const Result rule = results[static_cast<std::size_t>(k)];
    return rule == Result::boolean     ? Dtype::boolean
           : rule == Result::real_part ? real_part(computed)
           : rule == Result::index     ? Dtype::int64
                                       : computed;
  }
  constexpr bool follows_layout() const { return keeps_layout || kind == OpKind::elementwise; }
  constexpr bool is_linear() const { return linear || kind == OpKind::view; }
  constexpr bool has(Role role) const { return roles[0] == role || roles[1] == role || roles[2] == role; }
  constexpr bool is_condition(std::size_t operand) const { return operand == 0 && roles[0] == Role::condition; }
  constexpr bool is_bound(std::size_t operand) const { return operand > 0 && has(Role::bound); }
  constexpr bool is_index(std::size_t operand) const { return operand < 3 && roles[operand] == Role::index; }
};

/// An elementwise op with N operands; Derived is the op, its kernel and the node that backward visits.
template <class Derived, int N>
struct Kernel {
  static constexpr int arity = N;
  static constexpr int outputs = 1;
};
template <class Derived>
using UnaryKernel = Kernel<Derived, 1>;
template <class Derived>
using BinaryKernel = Kernel<Derived, 2>;
template <class Derived>
using TernaryKernel = Kernel<Derived, 3>;

/// An op made of other ops, which record themselves: its gradient follows from theirs. One that has a better gradient
/// of its own says it, as other kernels do.
template <class Derived, int N>
struct Composite : Kernel<Derived, N> {
  static constexpr bool own_gradient = false;
};
template <class Op>
inline constexpr bool has_own_gradient = !requires {
  Op::own_gradient;
};

/// "No gradient", which is not "gradient zero".
struct None {};
inline constexpr None none;

/// The gradient of a side not taken: nothing, not zero, so that no slope it meets can make a number of it
/// (docs/decisions/0011). In a gradient it is -0, which added to any number changes none of its bits.
struct Nothing {};
inline constexpr Nothing nothing;

/// A gradient that is `value` where the condition holds, and nothing elsewhere.
template <class M, class V>
struct Taken {
  M where;
  V value;
};
template <class M, class V>
constexpr Taken<M, V> taken(M where, V value) {
  return {where, value};
}
template <class T>
inline constexpr bool is_taken = false;
template <class M, class V>
inline constexpr bool is_taken<Taken<M, V>> = true;

/// One lazy expression an input, so that a node computes, and saves for, only the gradients that are wanted.
template <class... G>
constexpr auto grads(G... g) {
  return std::tuple<G...>(g...);
}

/// The results of an op with more than one, in their order; also its incoming gradients. `at<1>(g)` is the second.
template <class... T>
struct Several {
  std::tuple<T...> of;
};
template <class... T>
constexpr Several<T...> several(T... results) {
  return {{results...}};
}
template <int k, class... T>
constexpr auto at(const Several<T...>& s) {
  return std::get<k>(s.of);
}
template <class T>
inline constexpr bool is_several = false;
template <class... T>
inline constexpr bool is_several<Several<T...>> = true;

/// A constant in a formula: converted once to the type it meets. A bare float or double does not compile there.
struct Constant {
  double value;
};
constexpr Constant operator""_c(unsigned long long v) { return {static_cast<double>(v)}; }
constexpr Constant operator""_c(long double v) { return {static_cast<double>(v)}; }
constexpr Constant operator-(Constant c) { return {-c.value}; }
constexpr Constant operator+(Constant a, Constant b) { return {a.value + b.value}; }
constexpr Constant operator-(Constant a, Constant b) { return {a.value - b.value}; }
constexpr bool operator==(Constant a, Constant b) { return a.value == b.value; }

/// An op with attributes has `template <class S = double> struct Attr`: an aggregate of S with defaults, and `names`.
template <class Op>
concept HasAttr = requires {
  typename Op::template Attr<double>;
};

/// Other ops with attributes have a plain `struct Attr` with fields of any type, and `names`.
template <class Op>
concept HasFields = requires {
  typename Op::Attr;
};

template <class Op>
inline constexpr int attr_count = [] {
  if constexpr (HasAttr<Op>) {
    return static_cast<int>(Op::template Attr<double>::names.size());
  } else {
    return 0;
  }
}();

/// The op's attributes with each field made by f(index).
template <class Op, class S, class F>
constexpr auto make_attr(F f) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return typename Op::template Attr<S>{f(static_cast<int>(I))...};
  }
  (std::make_index_sequence<attr_count<Op>>());
}

/// A list of ops; `for_each` calls `f.template operator()<Op>()` for each, in order.
template <class... Ops>
struct OpList {
  static constexpr int size = sizeof...(Ops);
  template <class F>
  static constexpr void for_each(F&& f) {
    (f.template operator()<Ops>(), ...);
  }
};

/// Where an op stands in a list.
template <class Op, class List>
struct IndexIn;
template <class Op, class... Ops>
struct IndexIn<Op, OpList<Ops...>> {
  static constexpr int value = [] {
    int i = 0, found = -1;
    ((std::is_same_v<Op, Ops> ? found = i : 0, ++i), ...);
    return found;
  }();
};

}  // namespace hyalite
