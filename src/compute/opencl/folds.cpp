/// Sums and products in double where the device has it, in float32 where it has not; integers and extremes exactly.
#include "compute/opencl/folds.h"

namespace hyalite::opencl {
namespace {

/// The mean of integers, from the sums of their halves, rounded once.
std::string mean_of_halves(Dtype out, const std::string& a) {
  const std::string sum =
      "((double)(" + a + ".x + (" + a + ".y >> 32)) * 4294967296.0 + (double)(" + a + ".y & 0xffffffffL))";
  const std::string mean = "(" + sum + " / (double)n)";
  return is_16_bit(out) ? "hl_encode_" + std::string(name(out)) + "(hl_odd_float64(" + mean + "))"
                        : "(" + value_type(out) + ")" + mean;
}

/// The greatest and the least of numbers.
FoldText extreme_text(bool largest, Dtype in, const std::string& a, const std::string& v) {
  const Dtype t = computed(in);
  const std::string V = value_type(t);
  const std::string call = "hl_" + std::string(largest ? "maximum" : "minimum") + "_" + std::string(name(t));
  std::string begin = largest ? "-INFINITY" : "INFINITY";
  if (!is_floating(t)) {
    const bool is_signed = is_signed_integer(t);
    const std::string width = std::to_string(8 * itemsize(t) - 1);
    const std::string bits = "((u" + (is_signed ? V : V.substr(1)) + ")1 << " + width + ")";
    begin = largest ? (is_signed ? "(" + V + ")" + bits : "0")
                    : (is_signed ? "(" + V + ")(" + bits + " - 1)" : "(" + V + ")~(" + V + ")0");
  }
  const std::string with = a + " = " + call + "(" + a + ", ";
  return {V, begin, with + v + ");", with + "b);",
          is_16_bit(in) ? "hl_encode_" + std::string(name(in)) + "(" + a + ")" : a};
}

/// Sums, means and products of floating and complex numbers.
FoldText sum_text(Fold f, Dtype in, Dtype out, bool has_float64, const std::string& a, const std::string& v) {
  const bool is_z = is_complex(out);
  const Dtype part = has_float64 ? Dtype::float64 : Dtype::float32;
  const Dtype acc = is_z ? (has_float64 ? Dtype::complex128 : Dtype::complex64) : part;
  const std::string A = value_type(acc), P = value_type(part), O = value_type(out);
  const std::string wide = !is_z                       ? "(" + A + ")" + v
                           : !is_complex(computed(in)) ? "(" + A + ")((" + P + ")" + v + ", 0)"
                                                       : "(" + A + ")((" + P + ")" + v + ".x, (" + P + ")" + v + ".y)";
  FoldText t;
  t.state = A;
  if (f == Fold::prod) {
    const std::string times = is_z ? a + " = hl_multiply_" + std::string(name(acc)) + "(" + a + ", " : a + " *= (";
    t.begin = is_z ? "(" + A + ")(1, 0)" : "1";
    t.join = times + wide + ");";
    t.merge = times + "b);";
  } else {
    // -0, so that the sum of nothings is nothing.
    t.begin = is_z ? "(" + A + ")(-0.0, -0.0)" : "(" + A + ")-0.0";
    t.join = a + " += " + wide + ";";
    t.merge = a + " += b;";
  }
  std::string value = a;
  if (f == Fold::mean)
    value = is_z ? "(" + A + ")(" + a + ".x / (" + P + ")n, " + a + ".y / (" + P + ")n)" : "(" + a + " / (" + A + ")n)";
  if (f == Fold::sum) value = "(n == 0 ? (" + A + ")0 : " + value + ")";
  if (is_z) {
    const std::string R = value_type(real_part(out));
    t.end = acc == out ? value : "(" + O + ")((" + R + ")(" + value + ").x, (" + R + ")(" + value + ").y)";
  } else if (is_16_bit(out)) {
    t.end = "hl_encode_" + std::string(name(out)) + "(" + (has_float64 ? "hl_odd_float64(" + value + ")" : value) + ")";
  } else {
    t.end = "(" + O + ")" + value;
  }
  return t;
}

}  // namespace

FoldText fold_text(Fold f, Dtype in, Dtype out, bool has_float64, const std::string& a, const std::string& v) {
  const Dtype t = computed(in);
  if (f == Fold::any || f == Fold::all) {
    const std::string truth = is_complex(t) ? "(" + v + ".x != 0 || " + v + ".y != 0)" : "(" + v + " != 0)";
    const std::string op = f == Fold::any ? " |= " : " &= ";
    return {"uchar", f == Fold::any ? "0" : "1", a + op + truth + ";", a + op + "b;", a};
  }
  if (f == Fold::max || f == Fold::min) return extreme_text(f == Fold::max, in, a, v);
  if (kind(out) == Kind::integer || out == Dtype::boolean) {
    const std::string wide = is_unsigned_integer(out) ? "ulong" : "long";
    const std::string sign = f == Fold::prod ? "*" : "+";
    const std::string joined = a + " = (" + wide + ")((ulong)" + a + " " + sign + " (ulong)(" + wide + ")";
    return {wide, f == Fold::prod ? "1" : "0", joined + v + ");", joined + "b);", "(" + value_type(out) + ")" + a};
  }
  if (f == Fold::mean && kind(in) == Kind::integer && has_float64) {
    // Exactly: sums of the upper and of the lower halves.
    const std::string high = in == Dtype::uint64 ? "(long)(" + v + " >> 32)" : "(long)" + v + " >> 32";
    return {"long2", "(long2)(0, 0)", a + " += (long2)(" + high + ", (long)" + v + " & 0xffffffffL);", a + " += b;",
            mean_of_halves(out, a)};
  }
  return sum_text(f, in, out, has_float64, a, v);
}

std::string merge_lines(const FoldText& t, const std::string& a, const std::string& all) {
  const std::string half = std::to_string(group_size / 2);
  return "    " + all + "[me] = " + a + ";\n    for (int part = " + half +
         "; part > 0; part /= 2) {\n      barrier(CLK_LOCAL_MEM_FENCE);\n      if (me < part) {\n        const " +
         t.state + " b = " + all + "[me + part];\n        " + t.merge + "\n        " + all + "[me] = " + a +
         ";\n      }\n    }\n";
}

}  // namespace hyalite::opencl
