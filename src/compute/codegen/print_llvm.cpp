/// Expressions on vectors, and the loop around them.
#include "compute/codegen/print_llvm.h"

#include <bit>
#include <cassert>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "hyalite/error.h"

namespace hyalite {
namespace {

std::string join(std::initializer_list<std::string_view> parts) {
  std::string s;
  for (const std::string_view p : parts) s += p;
  return s;
}

bool is_integer(Dtype t) { return kind(t) == Kind::integer; }
bool is_16_bit(Dtype t) { return t == Dtype::float16 || t == Dtype::bfloat16; }
bool is_computed_float(Dtype t) { return t == Dtype::float32 || t == Dtype::float64; }
bool is_known(Dtype t) { return t == Dtype::boolean || is_integer(t) || is_computed_float(t); }

std::string bits_type(Dtype t) { return "i" + std::to_string(8 * itemsize(t)); }
std::string element_type(Dtype t) {
  return t == Dtype::boolean ? "i1" : t == Dtype::float32 ? "float" : t == Dtype::float64 ? "double" : bits_type(t);
}
std::string stored_type(Dtype t) { return t == Dtype::boolean ? "i8" : element_type(t); }

bool is_function(ExprOp op) {
  switch (op) {
#define HYALITE_ROW(name, ...) case ExprOp::name:
    HYALITE_FUNCTIONS(HYALITE_ROW)
#undef HYALITE_ROW
    case ExprOp::power:
      return true;
    default:
      return false;
  }
}

bool is_comparison(ExprOp op) { return ExprOp::less <= op && op <= ExprOp::not_equal; }

/// Whether an operation can be printed. Division of integers has no instruction on vectors, and the exact quotients of
/// `//` and `%` branch: for these the eager kernels are as fast.
bool can(const ExprNode& n) {
  if (!is_known(n.dtype)) return false;
  const Dtype in = n.in[0] ? n.in[0]->dtype : n.dtype;
  switch (n.op) {
    case ExprOp::leaf:
    case ExprOp::attribute:
      return n.index >= 0;
    case ExprOp::decode:
    case ExprOp::encode:
    case ExprOp::floor_divide:
    case ExprOp::remainder:
    case ExprOp::conj:
    case ExprOp::real:
    case ExprOp::imaginary:
      return false;
    case ExprOp::divide:
    case ExprOp::copysign:
    case ExprOp::fused_multiply_add:
    case ExprOp::sqrt:
      return is_computed_float(in);
    case ExprOp::negative:
    case ExprOp::sign:
      return in != Dtype::boolean;
    case ExprOp::subtract:
      return in != Dtype::boolean;
    case ExprOp::shift_left:
    case ExprOp::shift_right:
      return is_integer(in);
    default:
      return !is_function(n.op) || is_computed_float(in);
  }
}

bool can_all(const ExprNode& n, std::unordered_map<const ExprNode*, bool>& seen) {
  if (const auto at = seen.find(&n); at != seen.end()) return at->second;
  bool all = can(n);
  for (const auto& in : n.in) all = all && (!in || (is_known(in->dtype) && can_all(*in, seen)));
  return seen[&n] = all;
}

/// A number as LLVM writes it exactly: of floats the bits of the double.
std::string literal(double value, Dtype t) {
  if (t == Dtype::boolean) return value != 0 ? "true" : "false";
  if (!is_computed_float(t)) return std::to_string(static_cast<std::int64_t>(value));
  const double held = t == Dtype::float32 ? static_cast<double>(static_cast<float>(value)) : value;
  char digits[32];
  std::snprintf(digits, sizeof digits, "0x%016" PRIX64, std::bit_cast<std::uint64_t>(held));
  return digits;
}

constexpr double not_a_number(Dtype t) {
  return t == Dtype::float32 ? static_cast<double>(std::numeric_limits<float>::quiet_NaN())
                             : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

bool llvm_can(const ExprKernel& kernel) {
  std::unordered_map<const ExprNode*, bool> seen;
  for (const Expr& r : kernel.results) {
    if (!can_all(r.node(), seen)) return false;
  }
  return true;
}

bool llvm_can_cast(Dtype from, Dtype to) {
  if (is_16_bit(from)) return to == Dtype::float32;
  if (is_16_bit(to)) return from == Dtype::float32;
  return is_known(from) && is_known(to);
}

std::string llvm_function(std::string_view name, Dtype dtype) {
  return join({"hyalite_", name, "_", hyalite::name(dtype)});
}

LlvmLoop::LlvmLoop(int bytes, std::size_t narrowest, std::size_t widest) : bytes_(bytes) {
  // As many as fill a vector with the narrowest elements, if the widest then take no more than four vectors.
  const int most = 4 * bytes / static_cast<int>(widest);
  lanes_ = std::min(bytes / static_cast<int>(narrowest), most);
}

// ---- values ---------------------------------------------------------------------------------------------------------

std::string LlvmLoop::vector(std::string_view element) const {
  return join({"<", std::to_string(lanes_), " x ", element, ">"});
}
std::string LlvmLoop::type(Dtype t) const { return vector(element_type(t)); }
std::string LlvmLoop::typed(int v) const {
  const Value& value = values_[static_cast<std::size_t>(v)];
  return type(value.dtype) + " " + value.name;
}

int LlvmLoop::emit(Dtype dtype, const std::string& instruction, bool once) {
  const auto [at, fresh] = known_.try_emplace(join({instruction, " ", name(dtype)}), static_cast<int>(values_.size()));
  if (fresh) values_.push_back({step(instruction, once), dtype});
  return at->second;
}

std::string LlvmLoop::step(const std::string& instruction, bool once) {
  const auto [at, fresh] = steps_.try_emplace(instruction);
  if (fresh) {
    at->second = "%v" + std::to_string(next_++);
    (once ? entry_ : body_) += join({"  ", at->second, " = ", instruction, "\n"});
  }
  return at->second;
}

std::string LlvmLoop::splat(const std::string& element, const std::string& scalar) {
  const std::string v = vector(element);
  const std::string one = step(join({"insertelement ", v, " poison, ", element, " ", scalar, ", i64 0"}), true);
  return join({"shufflevector ", v, " ", one, ", ", v, " poison, ", vector("i32"), " zeroinitializer"});
}

int LlvmLoop::input(int k, Dtype dtype, bool single) {
  for (const Operand& o : inputs_) {
    if (o.k == k) return o.value;
  }
  const std::string stored = stored_type(dtype), at = "%in" + std::to_string(k);
  inputs_.push_back({k, dtype, single, 0});
  int v;
  if (single) {
    const std::string one =
        step(join({"load ", stored, ", ptr ", at, ", align ", std::to_string(itemsize(dtype))}), true);
    if (dtype == Dtype::boolean) {
      const std::string truth = step("icmp ne i8 " + one + ", 0", true);
      v = emit(dtype, splat("i1", truth), true);
    } else {
      v = emit(dtype, splat(stored, one), true);
    }
  } else {
    const std::string place = step(join({"getelementptr ", stored, ", ptr ", at, ", i64 %i"}));
    const std::string load =
        join({"load ", vector(stored), ", ptr ", place, ", align ", std::to_string(itemsize(dtype))});
    v = dtype == Dtype::boolean ? emit(dtype, join({"icmp ne ", vector("i8"), " ", step(load), ", zeroinitializer"}))
                                : emit(dtype, load);
  }
  inputs_.back().value = v;
  return v;
}

int LlvmLoop::constant(double value, Dtype dtype) {
  const std::string key = join({"constant ", literal(value, dtype), " ", name(dtype)});
  const auto [at, fresh] = known_.try_emplace(key, static_cast<int>(values_.size()));
  if (fresh) values_.push_back({join({"splat (", element_type(dtype), " ", literal(value, dtype), ")"}), dtype});
  return at->second;
}

int LlvmLoop::attribute(int place, Dtype dtype) {
  const std::string at = step("getelementptr double, ptr %attributes, i64 " + std::to_string(place), true);
  std::string one = step("load double, ptr " + at + ", align 8", true);
  if (dtype == Dtype::float32) {
    one = step("fptrunc double " + one + " to float", true);
  } else if (is_integer(dtype)) {
    const char* convert = is_unsigned_integer(dtype) ? "fptoui double " : "fptosi double ";
    one = step(join({convert, one, " to ", element_type(dtype)}), true);
  } else if (dtype == Dtype::boolean) {
    one = step("fcmp une double " + one + ", 0.0", true);
  }
  return emit(dtype, splat(element_type(dtype), one), true);
}

// ---- operations -----------------------------------------------------------------------------------------------------

std::vector<int> LlvmLoop::apply(const ExprKernel& kernel, std::span<const int> arguments) {
  Memo memo;
  std::vector<int> results;
  for (const Expr& r : kernel.results) results.push_back(value_of(r.node(), arguments, memo));
  return results;
}

int LlvmLoop::value_of(const ExprNode& node, std::span<const int> arguments, Memo& memo) {
  if (const auto at = memo.find(&node); at != memo.end()) return at->second;
  int v;
  if (node.op == ExprOp::leaf) {
    v = arguments[static_cast<std::size_t>(node.index)];
  } else if (node.op == ExprOp::attribute) {
    v = attribute(arguments[static_cast<std::size_t>(node.index)], node.dtype);
  } else if (node.op == ExprOp::constant) {
    v = constant(node.value, node.dtype);
  } else {
    std::vector<int> in;
    for (const auto& n : node.in) {
      if (n) in.push_back(value_of(*n, arguments, memo));
    }
    v = operation(node, in);
  }
  return memo[&node] = v;
}

int LlvmLoop::operation(const ExprNode& node, std::span<const int> in) {
  const auto name_at = [&](std::size_t k) { return values_[static_cast<std::size_t>(in[k])].name; };
  const Dtype t = values_[static_cast<std::size_t>(in[0])].dtype;
  const bool real = is_computed_float(t);
  if (is_comparison(node.op)) return compare(node.op, in[0], in[1]);
  if (is_function(node.op)) return function(node, in);
  switch (node.op) {
    case ExprOp::negative:
      if (real) {
        // Fenced, or x - -y would become x + y, after which a NaN has another sign.
        const int inside = intrinsic("arithmetic.fence", in), turned = change_sign("xor ", inside, true);
        return intrinsic("arithmetic.fence", {{turned}});
      }
      return emit(t, join({"sub ", type(t), " zeroinitializer, ", name_at(0)}));
    case ExprOp::invert:
      return emit(t,
                  join({"xor ", typed(in[0]), ", splat (", element_type(t), t == Dtype::boolean ? " true)" : " -1)"}));
    case ExprOp::select:
      return select(in[0], in[1], in[2]);
    case ExprOp::fused_multiply_add:
      return intrinsic("fma", in);
    case ExprOp::isnan:
      return emit(Dtype::boolean, join({"fcmp uno ", typed(in[0]), ", ", name_at(0)}));
    case ExprOp::isinf:
    case ExprOp::isfinite: {
      const int size = change_sign("and ", in[0], false);
      return emit(Dtype::boolean,
                  join({node.op == ExprOp::isinf ? "fcmp oeq " : "fcmp olt ", typed(size), ", ",
                        values_[static_cast<std::size_t>(constant(std::numeric_limits<double>::infinity(), t))].name}));
    }
    case ExprOp::abs:
      return real ? change_sign("and ", in[0], false) : intrinsic("abs", in, "i1 false");
    case ExprOp::sqrt:
      return intrinsic("sqrt", in);
    case ExprOp::floor:
      return intrinsic("floor", in);
    case ExprOp::ceil:
      return intrinsic("ceil", in);
    case ExprOp::trunc:
      return intrinsic("trunc", in);
    case ExprOp::round:
      return intrinsic("roundeven", in);
    case ExprOp::copysign:
      return copysign(in[0], in[1]);
    case ExprOp::sign: {
      const int zero = constant(0, t), positive = select(compare(ExprOp::less, zero, in[0]), constant(1, t), in[0]);
      if (is_unsigned_integer(t)) return positive;
      return select(compare(ExprOp::less, in[0], zero), constant(-1, t), positive);
    }
    case ExprOp::maximum:
    case ExprOp::minimum:
      return extreme(node.op == ExprOp::maximum, in[0], in[1]);
    case ExprOp::shift_left:
    case ExprOp::shift_right:
      return shift(node.op == ExprOp::shift_left, in[0], in[1]);
    default:
      return binary(node.op, t, in[0], in[1]);
  }
}

int LlvmLoop::binary(ExprOp op, Dtype t, int a, int b) {
  const auto with = [&](const char* instruction) {
    return emit(t, join({instruction, " ", typed(a), ", ", values_[static_cast<std::size_t>(b)].name}));
  };
  const bool real = is_computed_float(t), boolean = t == Dtype::boolean;
  switch (op) {
    case ExprOp::add:
      return with(real ? "fadd" : boolean ? "or" : "add");
    case ExprOp::subtract:
      return with(real ? "fsub" : "sub");
    case ExprOp::multiply:
      return with(real ? "fmul" : boolean ? "and" : "mul");
    case ExprOp::divide:
      return with("fdiv");
    case ExprOp::bit_and:
      return with("and");
    case ExprOp::bit_or:
      return with("or");
    case ExprOp::bit_xor:
      return with("xor");
    default:
      throw std::logic_error("print_llvm: no instruction for " + std::string(name(op)));
  }
}

int LlvmLoop::compare(ExprOp op, int a, int b) {
  const Dtype t = values_[static_cast<std::size_t>(a)].dtype;
  const bool real = is_computed_float(t);
  const char* how = op == ExprOp::equal       ? (real ? "oeq" : "eq")
                    : op == ExprOp::not_equal ? (real ? "une" : "ne")
                    : op == ExprOp::less      ? (real                   ? "olt"
                                                 : is_signed_integer(t) ? "slt"
                                                                        : "ult")
                                              : (real                   ? "ole"
                                                 : is_signed_integer(t) ? "sle"
                                                                        : "ule");
  return emit(Dtype::boolean,
              join({real ? "fcmp " : "icmp ", how, " ", typed(a), ", ", values_[static_cast<std::size_t>(b)].name}));
}

int LlvmLoop::select(int condition, int a, int b) {
  const Dtype t = values_[static_cast<std::size_t>(a)].dtype;
  return emit(t, join({"select ", typed(condition), ", ", typed(a), ", ", typed(b)}));
}

int LlvmLoop::intrinsic(const std::string& name, std::span<const int> in, const std::string& last) {
  const Dtype t = values_[static_cast<std::size_t>(in[0])].dtype;
  const std::string called = join({"@llvm.", name, ".v", std::to_string(lanes_),
                                   t == Dtype::float32   ? "f32"
                                   : t == Dtype::float64 ? "f64"
                                                         : std::string_view(bits_type(t))});
  std::string list, types;
  for (const int v : in) {
    list += (list.empty() ? "" : ", ") + typed(v);
    types += (types.empty() ? "" : ", ") + type(t);
  }
  if (!last.empty()) {
    list += ", " + last;
    types += ", " + last.substr(0, last.find(' '));
  }
  declared_[called] = join({"declare ", type(t), " ", called, "(", types, ")\n"});
  return emit(t, join({"call ", type(t), " ", called, "(", list, ")"}));
}

/// SLEEF's functions take vectors of the processor; their NaNs have either sign and become one.
int LlvmLoop::function(const ExprNode& node, std::span<const int> in) {
  const Dtype t = values_[static_cast<std::size_t>(in[0])].dtype;
  const int native = bytes_ / static_cast<int>(itemsize(t)), parts = std::max(1, lanes_ / native);
  const std::string called = "@" + llvm_function(name(node.op), t);
  const auto of = [&](int n) { return join({"<", std::to_string(n), " x ", element_type(t), ">"}); };
  const std::string whole = of(native);
  declared_[called] =
      join({"declare ", whole, " ", called, "(", whole, in.size() > 1 ? ", " + whole : std::string(), ")\n"});
  std::vector<std::string> results;
  for (int p = 0; p < parts; ++p) {
    std::string list;
    for (const int v : in) {
      std::string part = values_[static_cast<std::size_t>(v)].name;
      if (parts > 1) {
        std::string mask;
        for (int i = 0; i < native; ++i) mask += (i ? ", i32 " : "i32 ") + std::to_string(p * native + i);
        part = step(join(
            {"shufflevector ", typed(v), ", ", type(t), " poison, <", std::to_string(native), " x i32> <", mask, ">"}));
      }
      list += join({list.empty() ? "" : ", ", whole, " ", part});
    }
    results.push_back(step(join({"call ", whole, " ", called, "(", list, ")"})));
  }
  // Joined pair by pair.
  for (int size = native; results.size() > 1; size *= 2) {
    std::vector<std::string> joined;
    std::string mask;
    for (int i = 0; i < 2 * size; ++i) mask += (i ? ", i32 " : "i32 ") + std::to_string(i);
    for (std::size_t k = 0; k < results.size(); k += 2) {
      joined.push_back(step(join({"shufflevector ", of(size), " ", results[k], ", ", of(size), " ", results[k + 1],
                                  ", <", std::to_string(2 * size), " x i32> <", mask, ">"})));
    }
    results = std::move(joined);
  }
  const std::string nan = step(join({"fcmp uno ", type(t), " ", results[0], ", ", results[0]}));
  return emit(t, join({"select ", vector("i1"), " ", nan, ", ", typed(constant(not_a_number(t), t)), ", ", type(t), " ",
                       results[0]}));
}

/// NaN wins, and maximum(+0, -0) is +0.
int LlvmLoop::extreme(bool largest, int a, int b) {
  const Dtype t = values_[static_cast<std::size_t>(a)].dtype;
  const int first = largest ? compare(ExprOp::less, b, a) : compare(ExprOp::less, a, b);
  if (!is_computed_float(t)) return select(first, a, b);
  const int nan = emit(Dtype::boolean, join({"fcmp uno ", typed(a), ", ", values_[static_cast<std::size_t>(a)].name}));
  const int other = select(binary(ExprOp::bit_or, Dtype::boolean, first, nan), a, b);
  const std::string x = bits(a), y = bits(b);
  const int equal = from_bits(t, step(join({largest ? "and " : "or ", vector(bits_type(t)), " ", x, ", ", y})));
  return select(compare(ExprOp::equal, a, b), equal, other);
}

/// By the width or more, and by negative amounts, all bits are gone.
int LlvmLoop::shift(bool left, int a, int b) {
  const Dtype t = values_[static_cast<std::size_t>(a)].dtype;
  const std::string element = element_type(t), width = std::to_string(8 * itemsize(t));
  const std::string most = join({"splat (", element, " ", std::to_string(8 * itemsize(t) - 1), ")"});
  const int inside = emit(Dtype::boolean, join({"icmp ult ", typed(b), ", splat (", element, " ", width, ")"}));
  const std::string amount = step(join({"and ", typed(b), ", ", most}));
  const char* how = left ? "shl " : is_signed_integer(t) ? "ashr " : "lshr ";
  const int shifted = emit(t, join({how, typed(a), ", ", amount}));
  const int gone = left || !is_signed_integer(t) ? constant(0, t) : emit(t, join({"ashr ", typed(a), ", ", most}));
  return select(inside, shifted, gone);
}

/// The operation on the bits with the sign alone, or with all others.
int LlvmLoop::change_sign(const char* how, int v, bool sign_alone) {
  const Dtype t = values_[static_cast<std::size_t>(v)].dtype;
  const bool wide = t == Dtype::float64;
  const std::string mask =
      sign_alone ? (wide ? "-9223372036854775808" : "-2147483648") : (wide ? "9223372036854775807" : "2147483647");
  const std::string element = bits_type(t);
  return from_bits(t, step(join({how, vector(element), " ", bits(v), ", splat (", element, " ", mask, ")"})));
}

int LlvmLoop::copysign(int a, int b) {
  const std::string x = bits(change_sign("and ", a, false)), y = bits(change_sign("and ", b, true));
  const Dtype t = values_[static_cast<std::size_t>(a)].dtype;
  return from_bits(t, step(join({"or ", vector(bits_type(t)), " ", x, ", ", y})));
}

std::string LlvmLoop::bits(int v) {
  const Dtype t = values_[static_cast<std::size_t>(v)].dtype;
  return step(join({"bitcast ", typed(v), " to ", vector(bits_type(t))}));
}
int LlvmLoop::from_bits(Dtype t, const std::string& bits) {
  return emit(t, join({"bitcast ", vector(bits_type(t)), " ", bits, " to ", type(t)}));
}

// ---- conversions ----------------------------------------------------------------------------------------------------

int LlvmLoop::cast(int value, Dtype to) {
  const Dtype from = values_[static_cast<std::size_t>(value)].dtype;
  if (from == to) return value;
  if (is_16_bit(from)) return decode(value);
  if (is_16_bit(to)) return encode(value, to);
  const auto with = [&](const char* instruction) {
    return emit(to, join({instruction, " ", typed(value), " to ", type(to)}));
  };
  if (to == Dtype::boolean) {
    const bool real = is_computed_float(from);
    return emit(to, join({real ? "fcmp une " : "icmp ne ", typed(value), ", zeroinitializer"}));
  }
  if (is_computed_float(from)) {
    if (to == Dtype::float64) return with("fpext");
    if (to == Dtype::float32) return with("fptrunc");
    // Saturates, and gives 0 for NaN.
    const std::string lanes = std::to_string(lanes_);
    const std::string called = join({is_unsigned_integer(to) ? "@llvm.fptoui.sat.v" : "@llvm.fptosi.sat.v", lanes,
                                     bits_type(to), ".v", lanes, from == Dtype::float32 ? "f32" : "f64"});
    declared_[called] = join({"declare ", type(to), " ", called, "(", type(from), ")\n"});
    return emit(to, join({"call ", type(to), " ", called, "(", typed(value), ")"}));
  }
  const bool is_signed = is_signed_integer(from);
  if (is_computed_float(to)) return with(is_signed ? "sitofp" : "uitofp");
  if (from == Dtype::boolean || itemsize(to) > itemsize(from)) return with(is_signed ? "sext" : "zext");
  if (itemsize(to) < itemsize(from)) return with("trunc");
  // The same bits under another name.
  const std::string same = values_[static_cast<std::size_t>(value)].name;
  const auto [at, fresh] = known_.try_emplace(join({"is ", same, " ", name(to)}), static_cast<int>(values_.size()));
  if (fresh) values_.push_back({same, to});
  return at->second;
}

/// float16 or bfloat16 to float32; a NaN becomes quiet.
int LlvmLoop::decode(int value) {
  if (values_[static_cast<std::size_t>(value)].dtype == Dtype::float16) {
    const std::string half = step(join({"bitcast ", typed(value), " to ", vector("half")}));
    return emit(Dtype::float32, join({"fpext ", vector("half"), " ", half, " to ", vector("float")}));
  }
  const std::string wide = step(join({"zext ", typed(value), " to ", vector("i32")}));
  const std::string shifted = step(join({"shl ", vector("i32"), " ", wide, ", splat (i32 16)"}));
  const int plain = from_bits(Dtype::float32, shifted);
  const int quiet =
      from_bits(Dtype::float32, step(join({"or ", vector("i32"), " ", shifted, ", splat (i32 4194304)"})));
  const std::string name = values_[static_cast<std::size_t>(plain)].name;
  return select(emit(Dtype::boolean, join({"fcmp uno ", typed(plain), ", ", name})), quiet, plain);
}

/// float32 to 16 bits, ties to even; a NaN becomes quiet and keeps sign and leading payload.
int LlvmLoop::encode(int value, Dtype to) {
  if (to == Dtype::float16) {
    const std::string half = step(join({"fptrunc ", typed(value), " to ", vector("half")}));
    return emit(to, join({"bitcast ", vector("half"), " ", half, " to ", vector("i16")}));
  }
  const std::string x = bits(value), v = vector("i32");
  const std::string top = step(join({"lshr ", v, " ", x, ", splat (i32 16)"}));
  const std::string even = step(join({"and ", v, " ", top, ", splat (i32 1)"}));
  const std::string half = step(join({"add ", v, " ", even, ", splat (i32 32767)"}));
  const std::string rounded = step(join({"add ", v, " ", x, ", ", half}));
  const std::string quiet = step(join({"or ", v, " ", x, ", splat (i32 4194304)"}));
  const std::string nan = step(join({"fcmp uno ", typed(value), ", ", values_[static_cast<std::size_t>(value)].name}));
  const std::string chosen =
      step(join({"select ", vector("i1"), " ", nan, ", ", v, " ", quiet, ", ", v, " ", rounded}));
  const std::string shifted = step(join({"lshr ", v, " ", chosen, ", splat (i32 16)"}));
  return emit(to, join({"trunc ", v, " ", shifted, " to ", vector("i16")}));
}

// ---- the loop -------------------------------------------------------------------------------------------------------

void LlvmLoop::output(int k, int value) {
  outputs_.push_back({k, values_[static_cast<std::size_t>(value)].dtype, false, value});
}

std::string LlvmLoop::text(std::string_view name, std::string_view processor, std::string_view tuning,
                           std::string_view features) const {
  const std::string lanes = std::to_string(lanes_);
  std::string entry, phase, tail, out, plain, streamed;
  const auto bytes = [&](Dtype t) { return std::to_string(static_cast<std::size_t>(lanes_) * itemsize(t)); };
  // What is left at the end runs through the same loop once more, in memory of its own.
  const auto operand = [&](const Operand& o, const char* side) {
    const std::string k = std::to_string(o.k), called = std::string(side) + k;
    const std::string first = o.single ? "%" + called : "%all_" + called;
    entry += join({"  %at_", called, " = getelementptr ptr, ptr %", side, ", i64 ", k, "\n"});
    entry += join({"  ", first, " = load ptr, ptr %at_", called, ", align 8\n"});
    if (o.single) return;
    entry += join({"  %rest_", called, " = alloca [", bytes(o.dtype), " x i8], align 64\n"});
    phase += join({"  %", called, " = phi ptr [ %all_", called, ", %entry ], [ %rest_", called, ", %tail ]\n"});
    const bool in = side[0] == 'i';
    std::string& copy = in ? tail : out;
    copy +=
        join({"  %from_", called, " = getelementptr ", stored_type(o.dtype), ", ptr %all_", called, ", i64 %full\n"});
    copy += join({"  %bytes_", called, " = mul i64 %left, ", std::to_string(itemsize(o.dtype)), "\n"});
    const std::string whole = "%from_" + called, part = "%rest_" + called;
    if (in) {
      tail += join({"  store ", vector(stored_type(o.dtype)), " zeroinitializer, ptr ", part, ", align 64\n"});
    }
    copy += join({"  call void @llvm.memcpy.p0.p0.i64(ptr ", in ? part : whole, ", ptr ", in ? whole : part,
                  ", i64 %bytes_", called, ", i1 false)\n"});
  };
  std::string last = body_;
  for (const Operand& o : inputs_) operand(o, "in");
  for (const Operand& o : outputs_) {
    operand(o, "out");
    const std::string called = "out" + std::to_string(o.k), stored = stored_type(o.dtype);
    std::string value = values_[static_cast<std::size_t>(o.value)].name;
    if (o.dtype == Dtype::boolean) {
      last += join({"  %byte_", called, " = zext ", vector("i1"), " ", value, " to ", vector("i8"), "\n"});
      value = "%byte_" + called;
    }
    last += join({"  %to_", called, " = getelementptr ", stored, ", ptr %", called, ", i64 %i\n"});
    const std::string store = join({"  store ", vector(stored), " ", value, ", ptr %to_", called, ", align "});
    const int size = lanes_ * static_cast<int>(itemsize(o.dtype));
    plain += store + std::to_string(itemsize(o.dtype)) + "\n";
    streamed += size < 16 ? store + std::to_string(itemsize(o.dtype)) + "\n"
                          : store + std::to_string(std::min(size, 64)) + ", !nontemporal !0\n";
  }
  std::string s = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)\n";
  for (const auto& [called, line] : declared_) s += line;
  s += join({"\ndefine void @", name, "(ptr %in, ptr %out, i64 %n, ptr %attributes, i1 zeroext %stream) #0 {\nentry:\n",
             entry, entry_});
  s += join({"  %full = and i64 %n, -", lanes, "\n  %left = sub i64 %n, %full\n  br label %phase\n\nphase:\n", phase});
  s += join({"  %limit = phi i64 [ %full, %entry ], [ ", lanes, ", %tail ]\n"});
  s += "  %last = phi i1 [ false, %entry ], [ true, %tail ]\n  %none = icmp eq i64 %limit, 0\n";
  s += "  br i1 %none, label %after, label %loop\n\nloop:\n";
  s += "  %i = phi i64 [ 0, %phase ], [ %next, %latch ]\n" + last;
  s += "  br i1 %stream, label %past, label %through\n\nthrough:\n" + plain + "  br label %latch\n\npast:\n" + streamed;
  s += join({"  br label %latch\n\nlatch:\n  %next = add i64 %i, ", lanes, "\n  %more = icmp ult i64 %next, %limit\n"});
  s += "  br i1 %more, label %loop, label %after\n\nafter:\n  br i1 %last, label %put, label %rest\n\nrest:\n";
  s += "  %done = icmp eq i64 %left, 0\n  br i1 %done, label %exit, label %tail\n\ntail:\n" + tail;
  s += "  br label %phase\n\nput:\n" + out + "  br label %exit\n\nexit:\n  ret void\n}\n\n";
  s += join({"attributes #0 = { nounwind \"stackrealign\" \"min-legal-vector-width\"=\"512\" \"target-cpu\"=\"",
             processor, "\" \"tune-cpu\"=\"", tuning, "\" \"target-features\"=\"", features, "\" }\n!0 = !{i32 1}\n"});
  return s;
}

}  // namespace hyalite
