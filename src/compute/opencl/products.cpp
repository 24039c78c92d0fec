/// Products of matrices, and of all elements but one.
#include <algorithm>
#include <optional>

#include "compute/opencl/clblast.h"
#include "compute/opencl/kernels.h"
#include "compute/opencl/primitives.h"

namespace hyalite::opencl {

namespace {

/// From here on a library's kernel is worth its start.
constexpr std::int64_t large_product = std::int64_t{1} << 18;  // multiplications

std::int64_t size_from_end(const TensorImpl& t, int axis) {
  return t.shape()[static_cast<std::size_t>(t.ndim() - axis)];
}

/// Whether a product is one for a library: of each batch, and so large.
bool is_large(const TensorImpl& x, const TensorImpl& y) {
  return x.ndim() >= 2 && y.ndim() >= 2 &&
         size_from_end(x, 2) * size_from_end(x, 1) * size_from_end(y, 1) >= large_product;
}

/// The last two axes of a batch as a library takes them: one of them without gaps, the batches one step apart.
std::optional<Matrix> matrix_of(const TensorImpl& t, const TensorImpl& out) {
  const int n = t.ndim();
  const auto stride = [&](int i) { return t.strides()[static_cast<std::size_t>(i)]; };
  const std::int64_t rows = size_from_end(t, 2), cols = size_from_end(t, 1), down = stride(n - 2),
                     across = stride(n - 1);
  Matrix m{ClDevice::buffer(*t.storage()), t.offset()};
  if ((across == 1 || cols == 1) && down >= cols) {
    m.lead = down;
  } else if ((down == 1 || rows == 1) && across >= rows) {
    m.lead = across;
    m.transposed = true;
  } else {
    return {};
  }
  // Every axis of the batch goes on with the steps of the one behind it, or all of them repeat.
  std::optional<std::int64_t> expected;
  for (int i = out.ndim() - 3; i >= 0; --i) {
    const int own = i - (out.ndim() - n);
    const std::int64_t all = out.shape()[static_cast<std::size_t>(i)];
    if (all == 1) continue;
    const std::int64_t step = own < 0 || t.shape()[static_cast<std::size_t>(own)] == 1 ? 0 : stride(own);
    if (step < 0 || (expected && step != *expected)) return {};
    if (!expected) m.batch = step;
    expected = step * all;
  }
  return m;
}

bool by_library(ClDevice& d, const TensorImpl& x, const TensorImpl& y, const TensorImpl& out) {
  const auto a = matrix_of(x, out), b = matrix_of(y, out), c = matrix_of(out, out);
  if (!a || !b || !c || c->transposed) return false;
  const std::int64_t rows = size_from_end(x, 2), cols = size_from_end(y, 1);
  return clblast_product(d, {x.dtype(), rows, cols, size_from_end(x, 1), out.numel() / (rows * cols), *a, *b, *c});
}

/// Of 16 bits in float32, as our kernel sums them; of dense copies where a stride is in the way.
bool by_library_or_copies(ClDevice& d, const TensorImpl& x, const TensorImpl& y, TensorImpl& out) {
  const Dtype t = computed_in(x.dtype());
  if ((!is_floating(t) && !is_complex(t)) || !is_large(x, y) || out.numel() == 0) return false;
  if (!clblast_problem().empty()) return false;
  if (t == out.dtype() && by_library(d, x, y, out)) return true;
  const TensorRef a = dense(d, x, t), b = dense(d, y, t);
  const TensorRef made = t == out.dtype() ? TensorRef::share(&out) : make(d, t, out.shape(), row_major(out.shape()));
  if (!by_library(d, *a, *b, *made)) return false;
  if (made.get() != &out) convert(d, *made, out);
  return true;
}

}  // namespace

Outputs matmul(ClDevice& d, const Validated& v, TensorImpl*) {
  const TensorImpl &x = v.call().x(0), &y = v.call().x(1);
  Outputs o = outputs(d, v, nullptr);
  const Dtype t = x.dtype();
  const TensorRef out = dense_result(d, *o[0]);
  if (by_library_or_copies(d, x, y, *out)) {
    put(d, out, *o[0]);
    return o;
  }
  const auto axis = [](const TensorImpl& a, int from_end) { return static_cast<std::size_t>(a.ndim() - from_end); };
  const std::int64_t inner = x.shape()[axis(x, 1)];
  const bool row = x.ndim() == 1, column = y.ndim() == 1;
  const std::int64_t rows = row ? 1 : x.shape()[axis(x, 2)], cols = column ? 1 : y.shape()[axis(y, 1)];
  const std::int64_t row_step = row ? 0 : x.strides()[axis(x, 2)], x_step = x.strides()[axis(x, 1)];
  const std::int64_t y_step = column ? y.strides()[0] : y.strides()[axis(y, 2)];
  const std::int64_t col_step = column ? 0 : y.strides()[axis(y, 1)];
  // The axes in front, broadcast.
  std::vector<std::int64_t> numbers{x.offset(), row_step, x_step, y.offset(), y_step, col_step};
  const int lead = std::max({x.ndim() - 2, y.ndim() - 2, 0});
  std::string places, rest = "b";
  for (int a = lead - 1; a >= 0; --a) {
    const auto of = [&](const TensorImpl& s, std::int64_t* size) -> std::int64_t {
      const int own = a - (lead - (s.ndim() - 2));
      if (s.ndim() < 2 || own < 0 || s.shape()[static_cast<std::size_t>(own)] == 1) return 0;
      *size = s.shape()[static_cast<std::size_t>(own)];
      return s.strides()[static_cast<std::size_t>(own)];
    };
    std::int64_t size = 1;
    const std::int64_t sx = of(x, &size), sy = of(y, &size);
    const std::string k = std::to_string(numbers.size()), r = "r" + std::to_string(a), c = "c" + std::to_string(a);
    places += "    const long " + r + " = " + rest + " / m[" + k + "], " + c + " = " + rest + " - " + r + " * m[" + k +
              "];\n    p += " + c + " * m[" + std::to_string(numbers.size() + 1) + "];\n    q += " + c + " * m[" +
              std::to_string(numbers.size() + 2) + "];\n";
    rest = r;
    numbers.insert(numbers.end(), {size, sx, sy});
  }
  const Dtype w = computed_in(t);
  const bool integer = kind(t) == Kind::integer;
  const std::string A = integer ? "ulong" : value_type(w);
  std::string step;
  if (integer) {
    step = "s += (ulong)u * (ulong)v;";
  } else if (is_complex(w)) {
    step = "s += (" + A + ")(u.x * v.x - u.y * v.y, u.x * v.y + u.y * v.x);";
  } else {
    step = "s = fma(u, v, s);";
  }
  const std::string S = stored_type(t), U = value_type(w);
  std::string body = "__kernel void hyalite_matmul(long count, long rows, long cols, long inner, __global const " + S +
                     "* x, __global const " + S + "* y, __global " + S + "* out, __constant const long* m) {\n";
  body += "  for (long i = get_global_id(0); i < count; i += get_global_size(0)) {\n";
  body += "    const long l = i / cols, col = i - l * cols, b = l / rows, row = l - b * rows;\n";
  body += "    long p = m[0] + row * m[1], q = m[3] + col * m[5];\n" + places;
  body += "    " + A + " s = " + (is_complex(w) ? "(" + A + ")(0, 0)" : "0") + ";\n";
  body += "    for (long k = 0; k < inner; ++k) {\n      const " + U + " u = " + loaded(t, "x[p + k * m[2]]") +
          ", v = " + loaded(t, "y[q + k * m[4]]") + ";\n      " + step + "\n    }\n";
  body += "    out[i] = " + (is_16_bit(t) ? "hl_encode_" + std::string(name(t)) + "(s)" : "(" + value_type(t) + ")s") +
          ";\n  }\n}\n";
  const Ref<Storage> m = sent(d, numbers);
  launch(d, body, "hyalite_matmul",
         {scalar(out->numel()), scalar(rows), scalar(cols), scalar(inner), memory_of(x), memory_of(y), memory_of(*out),
          ClDevice::buffer(*m)},
         out->numel());
  put(d, out, *o[0]);
  return o;
}

/// The product of all elements of a row but one, and its coefficients along directions, as the CPU has them: a product
/// of (x + e1 d1 + e2 d2 + ...) with e * e = 0. Numbers carry an exponent of their own.
Outputs others(ClDevice& d, const Validated& v, TensorImpl*) {
  const TensorImpl& x = v.call().x(0);
  const TensorImpl& directions = v.call().x(1);
  constexpr std::int64_t most = 4;  // of directions: their sets lie in an item's registers
  const std::int64_t count = directions.shape()[0];
  if (count > most || !d.facts().has_float64) {
    throw Unsupported("prod(): a derivative of an order above " + std::to_string(most + 1) +
                      ", or on a device without float64, is not on opencl; write x1 * x2 * ..., or take it on the CPU");
  }
  Outputs o = outputs(d, v, nullptr);
  const TensorRef a = dense(d, x, x.dtype()), along = dense(d, directions, x.dtype()), out = dense_result(d, *o[0]);
  const bool is_z = is_complex(x.dtype());
  const std::string T = value_type(x.dtype()), sets = std::to_string(1 << count), n = std::to_string(count);
  const auto pair = [&](const std::string& s) { return "(double2)((double)" + s + ".x, (double)" + s + ".y)"; };
  std::string body = std::string("typedef struct { ") + (is_z ? "double2" : "double") + " v; long e; } wide;\n";
  body += is_z ? R"(
static inline double size_of(double2 z) { return fmax(fabs(z.x), fabs(z.y)); }
static inline bool is_none(double2 z) { return z.x == 0 && z.y == 0 && signbit(z.x); }
static inline double2 scaled(double2 z, int by) { return (double2)(ldexp(z.x, by), ldexp(z.y, by)); }
static inline double2 times(double2 a, double2 b) { return hl_multiply_complex128(a, b); }
#define NOTHING ((double2)(-0.0, -0.0))
#define ZERO ((double2)(0.0, 0.0))
#define ONE ((double2)(1.0, 0.0))
)"
               : R"(
static inline double size_of(double x) { return fabs(x); }
static inline bool is_none(double x) { return x == 0 && signbit(x); }
static inline double scaled(double x, int by) { return ldexp(x, by); }
static inline double times(double a, double b) { return a * b; }
#define NOTHING (-0.0)
#define ZERO (0.0)
#define ONE (1.0)
)";
  const std::string V = is_z ? "double2" : "double";
  body += "static inline wide of(" + V + R"( v, long e) {
  const double size = size_of(v);
  wide w = {v, e};
  if (size == 0) { w.v = ZERO; w.e = 0; return w; }
  if ((size > 0x1p300 || size < 0x1p-300) && isfinite(size)) {
    const int k = ilogb(size);
    w.v = scaled(v, -k);
    w.e = e + k;
  }
  return w;
}
static inline wide product(wide a, wide b) {
  if (is_none(a.v) || is_none(b.v)) { wide none = {NOTHING, 0}; return none; }
  return of(times(a.v, b.v), a.e + b.e);
}
static inline wide sum(wide a, wide b) {
  if (is_none(a.v) || (size_of(a.v) == 0 && !is_none(b.v))) return b;
  if (size_of(b.v) == 0) return a;
  if (a.e < b.e) { const wide c = a; a = b; b = c; }
  return of(a.v + scaled(b.v, (int)max(b.e - a.e, -3000L)), a.e);
}
)";
  const auto load = [&](const std::string& element) { return is_z ? pair(element) : "(double)" + element; };
  body += "__kernel void hyalite_others(long count, long n, __global const " + T + "* x, __global const " + T +
          "* along, __global " + T + R"(* out) {
  for (long i = get_global_id(0); i < count; i += get_global_size(0)) {
    const long row = i / n * n;
    wide term[)" +
          sets + "];\n    for (int s = 1; s < " + sets + R"(; ++s) { term[s].v = NOTHING; term[s].e = 0; }
    term[0] = of(ONE, 0);
    for (long j = row; j < row + n; ++j) {
      if (j == i) continue;
      const wide f = of()" +
          load("x[j]") + ", 0);\n      for (int s = " + sets + R"( - 1; s >= 0; --s) {
        wide all = product(term[s], f);
        for (int a = 0; a < )" +
          n + R"(; ++a) {
          if ((s >> a & 1) == 0) continue;
          const )" +
          V + " d = " + load("along[a * count + j]") + R"(;
          wide w = {NOTHING, 0};
          if (!is_none(d)) w = of(d, 0);
          all = sum(all, product(term[s & ~(1 << a)], w));
        }
        term[s] = all;
      }
    }
    const wide w = term[)" +
          sets + " - 1];\n    const " + V + R"( r = scaled(w.v, (int)clamp(w.e, -3000L, 3000L)) + ZERO;
    out[i] = )" +
          (is_z ? "(" + T + ")((" + value_type(real_part(x.dtype())) + ")r.x, (" + value_type(real_part(x.dtype())) +
                      ")r.y)"
                : "(" + T + ")r") +
          ";\n  }\n}\n";
  launch(d, body, "hyalite_others",
         {scalar(x.numel()), scalar(x.shape()[1]), memory_of(*a), memory_of(*along), memory_of(*out)}, x.numel());
  put(d, out, *o[0]);
  return o;
}

}  // namespace hyalite::opencl
