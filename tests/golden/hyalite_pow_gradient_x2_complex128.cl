#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF

// An infinity as 1, anything else as 0, with its sign: a direction for Annex G.
static inline double hl_unit_complex128(double x) { return copysign(isinf(x) ? 1.0 : 0.0, x); }

static inline double hl_zero_of_nan_complex128(double x) { return isnan(x) ? copysign(0.0, x) : x; }

// C Annex G, section 5.1: an infinite factor gives an infinite product.
static inline double2 hl_multiply_complex128(double2 a, double2 b) {
  const double ac = a.x * b.x, bd = a.y * b.y, ad = a.x * b.y, bc = a.y * b.x;
  const double x = ac - bd, y = ad + bc;
  if (!(isnan(x) && isnan(y))) return (double2)(x, y);
  bool again = false;
  if (isinf(a.x) || isinf(a.y)) {
    a = (double2)(hl_unit_complex128(a.x), hl_unit_complex128(a.y));
    b = (double2)(hl_zero_of_nan_complex128(b.x), hl_zero_of_nan_complex128(b.y));
    again = true;
  }
  if (isinf(b.x) || isinf(b.y)) {
    b = (double2)(hl_unit_complex128(b.x), hl_unit_complex128(b.y));
    a = (double2)(hl_zero_of_nan_complex128(a.x), hl_zero_of_nan_complex128(a.y));
    again = true;
  }
  if (!again && (isinf(ac) || isinf(bd) || isinf(ad) || isinf(bc))) {
    a = (double2)(hl_zero_of_nan_complex128(a.x), hl_zero_of_nan_complex128(a.y));
    b = (double2)(hl_zero_of_nan_complex128(b.x), hl_zero_of_nan_complex128(b.y));
    again = true;
  }
  if (!again) return (double2)(x, y);
  return (double2)(as_double((ulong)0x7ff << 52) * (a.x * b.x - a.y * b.y), as_double((ulong)0x7ff << 52) * (a.x * b.y + a.y * b.x));
}

// By the sign bit, so that a NaN changes its sign too.
static inline double hl_negative_float64(double x) { return as_double(as_ulong(x) ^ ((ulong)1 << (64 - 1))); }

static inline double2 hl_conj_complex128(double2 z) { return (double2)(z.x, hl_negative_float64(z.y)); }

static inline bool hl_equal_complex128(double2 a, double2 b) { return a.x == b.x && a.y == b.y; }

static inline double hl_real_complex128(double2 z) { return z.x; }

// z with its exponent taken away, which goes to *exponent.
static inline double2 hl_scaled_complex128(double2 z, int* exponent) {
  const double big = fmax(fabs(z.x), fabs(z.y));
  *exponent = isfinite(big) && big > 0 ? ilogb(big) : 0;
  return (double2)(ldexp(z.x, -*exponent), ldexp(z.y, -*exponent));
}

// C Annex G, section 5.1, with both operands scaled. Beside an infinity the finite part of a is as good as 0, and b is
// not scaled, so that no part of it becomes 0.
static inline double2 hl_divide_complex128(double2 a, double2 b) {
  if ((isinf(a.x) || isinf(a.y)) && isfinite(b.x) && isfinite(b.y) && (b.x != 0 || b.y != 0)) {
    a = (double2)(isfinite(a.x) ? 0.0 : a.x, isfinite(a.y) ? 0.0 : a.y);
    const double x = a.x * b.x + a.y * b.y, y = a.y * b.x - a.x * b.y;
    if (!(isnan(x) && isnan(y))) return (double2)(x, y);
    a = (double2)(hl_unit_complex128(a.x), hl_unit_complex128(a.y));
    return (double2)(as_double((ulong)0x7ff << 52) * (a.x * b.x + a.y * b.y), as_double((ulong)0x7ff << 52) * (a.y * b.x - a.x * b.y));
  }
  int up, down;
  a = hl_scaled_complex128(a, &up);
  b = hl_scaled_complex128(b, &down);
  const double d = b.x * b.x + b.y * b.y;
  const double x = ldexp((a.x * b.x + a.y * b.y) / d, up - down), y = ldexp((a.y * b.x - a.x * b.y) / d, up - down);
  if (!(isnan(x) && isnan(y))) return (double2)(x, y);
  if (d == 0 && (!isnan(a.x) || !isnan(a.y))) {
    const double infinity = copysign(as_double((ulong)0x7ff << 52), b.x);
    return (double2)(infinity * a.x, infinity * a.y);
  }
  if ((isinf(b.x) || isinf(b.y)) && isfinite(a.x) && isfinite(a.y)) {
    b = (double2)(hl_unit_complex128(b.x), hl_unit_complex128(b.y));
    return (double2)(0 * (a.x * b.x + a.y * b.y), 0 * (a.y * b.x - a.x * b.y));
  }
  return (double2)(x, y);
}

// C99 Annex G, section 6.3.1; exp(x) in two halves where it overflows and its product may not.
static inline double2 hl_exp_complex128(double2 z) {
  const double x = z.x, y = z.y;
  if (y == 0) return (double2)(exp(x), y);
  if (!isfinite(y)) {
    if (isinf(x)) return x > 0 ? (double2)(x, as_double((ulong)0xfff << 51)) : (double2)(0.0, copysign(0.0, y));
    return (double2)(as_double((ulong)0xfff << 51), as_double((ulong)0xfff << 51));
  }
  if (x > 709.0) {
    const double half_way = exp(0.5 * x);
    return (double2)(half_way * cos(y) * half_way, half_way * sin(y) * half_way);
  }
  const double e = exp(x);
  return (double2)(e * cos(y), e * sin(y));
}

// C99 Annex G, section 6.3.2; near the unit circle from |z|^2 - 1.
static inline double2 hl_log_complex128(double2 z) {
  const double angle = atan2(z.y, z.x);
  if (isinf(z.x) || isinf(z.y)) return (double2)(as_double((ulong)0x7ff << 52), angle);
  if (isnan(z.x) || isnan(z.y)) return (double2)(as_double((ulong)0xfff << 51), as_double((ulong)0xfff << 51));
  const double big = fmax(fabs(z.x), fabs(z.y)), small = fmin(fabs(z.x), fabs(z.y));
  if (big > 0.5 && big < 2.0) return (double2)(0.5 * log1p(fma(big - 1, big + 1, small * small)), angle);
  if (big > 0x1p1000) return (double2)(log(hypot(0.5 * big, 0.5 * small)) + 0x1.62e42fefa39efp-1, angle);
  if (big < 0x1p-900) return (double2)(log(hypot(0x1p120 * big, 0x1p120 * small)) - 0x1.4cb5ecf0a9650p+6, angle);
  return (double2)(log(hypot(big, small)), angle);
}

// Small whole exponents by products, exact where the result is; else exp(b log a).
static inline double2 hl_power_complex128(double2 a, double2 b) {
  if (b.x == 0 && b.y == 0) return (double2)(1.0, 0.0);
  if (a.x == 0 && a.y == 0 && b.y == 0) return b.x > 0 ? (double2)(0.0, 0.0) : (double2)(isnan(b.x) ? as_double((ulong)0xfff << 51) : as_double((ulong)0x7ff << 52), 0.0);
  if (b.y == 0 && b.x == trunc(b.x) && fabs(b.x) <= 8) {
    double2 r = (double2)(1.0, 0.0);
    for (int i = 0; i < (int)fabs(b.x); ++i) r = hl_multiply_complex128(r, a);
    return b.x < 0 ? hl_divide_complex128((double2)(1.0, 0.0), r) : r;
  }
  return hl_exp_complex128(hl_multiply_complex128(b, hl_log_complex128(a)));
}

__kernel void hyalite_pow_gradient_x2_complex128(long n, __global const double2* g, __global const double2* x1, __global const double2* x2, __global double2* grad_x2) {
  for (long i = get_global_id(0); i < n; i += get_global_size(0)) {
    const double2 t0 = x1[i];
    const double2 t1 = x2[i];
    grad_x2[i] = hl_multiply_complex128(g[i], hl_conj_complex128((hl_equal_complex128(t0, (double2)(0x0p+0, 0x0p+0)) & (0x0p+0 <= hl_real_complex128(t1))) ? (double2)(0x0p+0, 0x0p+0) : hl_multiply_complex128(hl_power_complex128(t0, t1), hl_log_complex128(t0))));
  }
}
