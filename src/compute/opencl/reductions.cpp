/// Reductions: an item for each result where there are many, else a group of items.
#include "compute/opencl/reductions.h"

#include <algorithm>

#include "compute/opencl/kernels.h"
#include "ops/reduce.h"

namespace hyalite::opencl {
namespace {

/// Axes of a reduction that are kept, or reduced, joined where they lie in one step.
struct Axes {
  std::vector<std::int64_t> sizes, strides;
  std::int64_t count = 1;

  void add(std::int64_t size, std::int64_t stride) {
    count *= size;
    if (size == 1) return;
    if (!sizes.empty() && strides.back() == stride * size) {
      sizes.back() *= size;
      strides.back() = stride;
      return;
    }
    sizes.push_back(size);
    strides.push_back(stride);
  }
  /// C's text that adds to `at` where number `i` of these lies; the numbers begin at m[first].
  std::string place(const std::string& i, const std::string& at, int first) const {
    std::string s;
    std::string rest = i;
    for (int a = static_cast<int>(sizes.size()) - 1; a >= 0; --a) {
      const std::string k = std::to_string(first + 2 * a), r = i + "r" + std::to_string(a);
      if (a == 0) {
        s += "    " + at + " += " + rest + " * m[" + std::to_string(first + 1) + "];\n";
      } else {
        s += "    const long " + r + " = " + rest + " / m[" + k + "];\n    " + at + " += (" + rest + " - " + r +
             " * m[" + k + "]) * m[" + std::to_string(first + 2 * a + 1) + "];\n";
        rest = r;
      }
    }
    return s;
  }
  void append(std::vector<std::int64_t>& numbers) const {
    for (std::size_t a = 0; a < sizes.size(); ++a) {
      numbers.push_back(sizes[a]);
      numbers.push_back(strides[a]);
    }
  }
};

/// How a reduction is written in C: its state, where it begins, how a value joins, and how two states do.
struct FoldText {
  std::string state, begin, join, merge, end;  // join: `a` and the value `v`; merge: `a` and `b`; end: of `a`
};

/// The mean of integers, from the sums of their halves, rounded once.
std::string mean_of_halves(Dtype out) {
  const std::string a = "((double)(a.x + (a.y >> 32)) * 4294967296.0 + (double)(a.y & 0xffffffffL))";
  const std::string mean = "(" + a + " / (double)n)";
  return is_16_bit(out) ? "hl_encode_" + std::string(name(out)) + "(hl_odd_float64(" + mean + "))"
                        : "(" + value_type(out) + ")" + mean;
}

FoldText fold_text(Fold f, Dtype in, Dtype out, bool has_float64) {
  const Dtype v = computed(in);
  const std::string V = value_type(v), suffix = std::string(name(v)), O = value_type(out);
  const bool extreme = f == Fold::max || f == Fold::min || f == Fold::argmax || f == Fold::argmin;
  const std::string truth = is_complex(v) ? "(v.x != 0 || v.y != 0)" : "(v != 0)";
  if (f == Fold::any) return {"uchar", "0", "a |= " + truth + ";", "a |= b;", "a"};
  if (f == Fold::all) return {"uchar", "1", "a &= " + truth + ";", "a &= b;", "a"};
  if (extreme) {
    const bool largest = f == Fold::max || f == Fold::argmax, real = is_floating(v);
    if (f == Fold::max || f == Fold::min) {
      const std::string op = largest ? "maximum" : "minimum";
      const std::string call = "hl_" + op + "_" + suffix + "(a, ";
      std::string begin = largest ? "-INFINITY" : "INFINITY";
      if (!real) {
        const bool is_signed = is_signed_integer(v);
        const std::string width = std::to_string(8 * itemsize(v) - 1);
        const std::string bits = "((u" + std::string(V[0] == 'u' ? V.substr(1) : V) + ")1 << " + width + ")";
        begin = largest ? (is_signed ? "(" + V + ")" + bits : "0")
                        : (is_signed ? "(" + V + ")(" + bits + " - 1)" : "(" + V + ")~(" + V + ")0");
      }
      const std::string end = is_16_bit(in) ? "hl_encode_" + std::string(name(in)) + "(a)" : "a";
      return {V, begin, "a = " + call + "v);", "a = " + call + "b);", end};
    }
    return {};  // of arg reductions: written out by the kernel
  }
  if (kind(out) == Kind::integer || out == Dtype::boolean) {
    const std::string wide = is_unsigned_integer(out) ? "ulong" : "long";
    const std::string u = "(ulong)";
    const char* sign = f == Fold::prod ? "*" : "+";
    const std::string joined = "a = (" + wide + ")(" + u + "a " + sign + " " + u + "(" + wide + ")";
    return {wide, f == Fold::prod ? "1" : "0", joined + "v);", joined + "b);", "(" + O + ")a"};
  }
  if (f == Fold::mean && kind(in) == Kind::integer && has_float64) {
    // Exactly: sums of the upper and of the lower halves.
    return {"long2", "(long2)(0, 0)",
            in == Dtype::uint64 ? "a += (long2)((long)(v >> 32), (long)v & 0xffffffffL);"
                                : "a += (long2)((long)v >> 32, (long)v & 0xffffffffL);",
            "a += b;", mean_of_halves(out)};
  }
  const bool is_z = is_complex(out);
  const Dtype part = has_float64 ? Dtype::float64 : Dtype::float32;
  const Dtype acc = is_z ? (has_float64 ? Dtype::complex128 : Dtype::complex64) : part;
  const std::string A = value_type(acc), P = value_type(part);
  const auto widened = [&](const std::string& x) {
    if (!is_z) return "(" + A + ")" + x;
    if (!is_complex(v)) return "(" + A + ")((" + P + ")" + x + ", 0)";
    return "(" + A + ")((" + P + ")" + x + ".x, (" + P + ")" + x + ".y)";
  };
  FoldText t;
  t.state = A;
  if (f == Fold::prod) {
    const std::string times = is_z ? "a = hl_multiply_" + std::string(name(acc)) + "(a, " : "a *= (";
    t.begin = is_z ? "(" + A + ")(1, 0)" : "1";
    t.join = times + widened("v") + ");";
    t.merge = times + "b);";
  } else {
    // -0, so that the sum of nothings is nothing.
    t.begin = is_z ? "(" + A + ")(-0.0, -0.0)" : "(" + A + ")-0.0";
    t.join = "a += " + widened("v") + ";";
    t.merge = "a += b;";
  }
  std::string a =
      f == Fold::mean ? (is_z ? "(" + A + ")(a.x / (" + P + ")n, a.y / (" + P + ")n)" : "(a / (" + A + ")n)") : "a";
  if (f != Fold::prod) a = "(n == 0 && " + std::to_string(f == Fold::sum ? 1 : 0) + " ? (" + A + ")0 : " + a + ")";
  if (is_z) {
    const std::string R = value_type(real_part(out));
    t.end = acc == out ? a : "(" + O + ")((" + R + ")(" + a + ").x, (" + R + ")(" + a + ").y)";
  } else if (is_16_bit(out)) {
    t.end = "hl_encode_" + std::string(name(out)) + "(" + (has_float64 ? "hl_odd_float64(" + a + ")" : a) + ")";
  } else {
    t.end = "(" + O + ")" + a;
  }
  return t;
}

/// Numbers that a reduction's kernel takes.
std::string reduce_body(Fold f, Dtype in, Dtype out, const Axes& kept, const Axes& reduced, bool groups,
                        bool has_float64) {
  const bool arg = f == Fold::argmax || f == Fold::argmin;
  const FoldText t = fold_text(f, in, out, has_float64);
  const Dtype v = computed(in);
  const std::string V = value_type(v), W = std::to_string(group_size);
  const int first_reduced = 2 * static_cast<int>(kept.sizes.size()) + 1;
  std::string s = "__kernel void hyalite_reduce(long count, long n, __global const " + stored_type(in) +
                  "* x, __global " + stored_type(out) + "* out, __constant const long* m) {\n";
  const std::string state = arg ? V : t.state;
  if (groups) {
    s += "  __local " + state + " all[" + W + "];\n";
    if (arg) s += "  __local long places[" + W + "];\n";
    s += "  const int me = get_local_id(0);\n  for (long o = get_group_id(0); o < count; o += get_num_groups(0)) {\n";
  } else {
    s += "  for (long o = get_global_id(0); o < count; o += get_global_size(0)) {\n";
  }
  s += "    long base = m[0];\n" + kept.place("o", "base", 1);
  const bool is_real = is_floating(v);
  const std::string better =
      std::string(is_real ? "(v != v && a == a) || " : "") + (f == Fold::argmax ? "v > a" : "v < a");
  if (arg) {
    s += "    " + V + " a = 0; long place = -1;\n";
  } else {
    s += "    " + state + " a = " + t.begin + ";\n";
  }
  s += groups ? "    for (long j = me; j < n; j += " + W + ") {\n" : "    for (long j = 0; j < n; ++j) {\n";
  s += "    long at = base;\n" + reduced.place("j", "at", first_reduced);
  s += "    const " + V + " v = " + loaded(in, "x[at]") + ";\n";
  s += arg ? "    if (place < 0 || " + better + ") { a = v; place = j; }\n    }\n" : "    " + t.join + "\n    }\n";
  if (groups) {
    s += "    all[me] = a;\n";
    if (arg) s += "    places[me] = place;\n";
    s += "    for (int part = " + W + " / 2; part > 0; part /= 2) {\n      barrier(CLK_LOCAL_MEM_FENCE);\n";
    s += "      if (me < part) {\n";
    if (arg) {
      const std::string nan = is_real ? "(v != v ? a == a || q < place : a == a && " : "(";
      s += "        const " + V + " v = all[me + part]; const long q = places[me + part];\n";
      s += "        if (q >= 0 && (place < 0 || " + nan + "(" + (f == Fold::argmax ? "v > a" : "v < a") +
           " || (v == a && q < place))))) { a = v; place = q; }\n";
      s += "        all[me] = a; places[me] = place;\n";
    } else {
      s += "        const " + state + " b = all[me + part];\n        " + t.merge + "\n        all[me] = a;\n";
    }
    s += "      }\n    }\n    if (me == 0) out[o] = " + (arg ? "(" + value_type(out) + ")place" : t.end) +
         ";\n    barrier(CLK_LOCAL_MEM_FENCE);\n";
  } else {
    s += "    out[o] = " + (arg ? "(" + value_type(out) + ")place" : t.end) + ";\n";
  }
  return s + "  }\n}\n";
}

}  // namespace

template <Fold f>
Outputs reduce(ClDevice& d, const Validated& v, TensorImpl* target) {
  const Call& c = v.call();
  const TensorImpl& x = c.x(0);
  Outputs o = outputs(d, v, target);
  const std::optional<Ints>* given = nullptr;
  if (const auto* a = c.attrs->get_if<SumAttr>()) given = &a->axis;
  if (const auto* a = c.attrs->get_if<ReductionAttr>()) given = &a->axis;
  std::uint64_t mask = 0;
  if (given != nullptr) {
    mask = reduction::axes_mask(*given, x.ndim(), c.op.name());
  } else if (const auto* a = c.attrs->get_if<PlaceAttr>()) {
    mask = a->axis ? std::uint64_t{1} << normalize_axis(*a->axis, x.ndim(), c.op.name().data())
                   : (std::uint64_t{1} << x.ndim()) - 1;
  }
  Axes kept, reduced;
  for (int i = 0; i < x.ndim(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    ((mask >> i & 1) != 0 ? reduced : kept).add(x.shape()[at], x.strides()[at]);
  }
  const TensorRef out = dense_result(d, *o[0]);
  std::vector<std::int64_t> numbers{x.offset()};
  kept.append(numbers);
  reduced.append(numbers);
  // One item for each result where there are many, else a group.
  const bool groups = reduced.count >= 32 && kept.count < 4096 && d.facts().group >= group_size;
  const Ref<Storage> m = sent(d, numbers);
  const std::string body = reduce_body(f, x.dtype(), out->dtype(), kept, reduced, groups, d.facts().has_float64);
  const std::int64_t items =
      groups ? std::min<std::int64_t>(kept.count, 4096) * static_cast<std::int64_t>(group_size) : kept.count;
  launch(d, body, "hyalite_reduce",
         {scalar(kept.count), scalar(reduced.count), memory_of(x), memory_of(*out), ClDevice::buffer(*m)}, items);
  put(d, out, *o[0]);
  return o;
}

#define HYALITE_FOLD(f) template Outputs reduce<Fold::f>(ClDevice&, const Validated&, TensorImpl*);
HYALITE_FOLD(sum)
HYALITE_FOLD(prod)
HYALITE_FOLD(mean)
HYALITE_FOLD(max)
HYALITE_FOLD(min)
HYALITE_FOLD(any)
HYALITE_FOLD(all)
HYALITE_FOLD(argmax)
HYALITE_FOLD(argmin)
#undef HYALITE_FOLD

}  // namespace hyalite::opencl
