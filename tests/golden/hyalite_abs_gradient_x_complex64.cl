#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF

static inline float2 hl_multiply_real_complex64(float2 z, float r) { return (float2)(z.x * r, z.y * r); }

static inline float2 hl_narrow_complex64(double2 z) { return (float2)((float)z.x, (float)z.y); }

// An infinity as 1, anything else as 0, with its sign: a direction for Annex G.
static inline double hl_unit_complex128(double x) { return copysign(isinf(x) ? 1.0 : 0.0, x); }

// z with its exponent taken away, which goes to *exponent.
static inline double2 hl_scaled_complex128(double2 z, int* exponent) {
  const double big = fmax(fabs(z.x), fabs(z.y));
  *exponent = isfinite(big) && big > 0 ? ilogb(big) : 0;
  return (double2)(ldexp(z.x, -*exponent), ldexp(z.y, -*exponent));
}

// z / |z|, also where |z| overflows; an infinity has the direction of its infinite parts.
static inline double2 hl_sign_complex128(double2 z) {
  if (z.x == 0 && z.y == 0) return (double2)(0.0, 0.0);
  if (isnan(z.x) || isnan(z.y)) return (double2)(as_double((ulong)0xfff << 51), as_double((ulong)0xfff << 51));
  if (isinf(z.x) || isinf(z.y)) z = (double2)(hl_unit_complex128(z.x), hl_unit_complex128(z.y));
  int exponent;
  z = hl_scaled_complex128(z, &exponent);
  const double length = sqrt(z.x * z.x + z.y * z.y);
  return (double2)(z.x / length, z.y / length);
}

static inline double2 hl_widen_complex64(float2 z) { return (double2)((double)z.x, (double)z.y); }

static inline float2 hl_sign_complex64(float2 z) { return hl_narrow_complex64(hl_sign_complex128(hl_widen_complex64(z))); }

__kernel void hyalite_abs_gradient_x_complex64(long n, __global const float* g, __global const float2* x, __global float2* grad_x) {
  for (long i = get_global_id(0); i < n; i += get_global_size(0)) {
    grad_x[i] = hl_multiply_real_complex64(hl_sign_complex64(x[i]), g[i]);
  }
}
