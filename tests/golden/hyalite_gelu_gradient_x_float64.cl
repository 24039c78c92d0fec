#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF

// Equal values differ only as zeros: and keeps +0. NaN wins.
static inline double hl_maximum_float64(double a, double b) {
  return a == b ? as_double(as_ulong(a) & as_ulong(b)) : b < a || isnan(a) ? a : b;
}

// By the sign bit, so that a NaN changes its sign too.
static inline double hl_negative_float64(double x) { return as_double(as_ulong(x) ^ ((ulong)1 << (64 - 1))); }

__kernel void hyalite_gelu_gradient_x_float64(long n, __global const double* g, __global const double* x, __global double* grad_x) {
  for (long i = get_global_id(0); i < n; i += get_global_size(0)) {
    const double t0 = x[i];
    const double t1 = (0x1.4p+5 < t0) ? 0x1.4p+5 : hl_maximum_float64(t0, -0x1.4p+5);
    const double t2 = rint(t1 * 0x1p+8) * 0x1p-8;
    const double t3 = t2 * 0x1.6ap-1;
    const double t4 = ((t1 - t2) * 0x1.6ap-1) + (t1 * 0x1.3cccfe7799211p-14);
    const double t5 = t3 + t4;
    const double t6 = t1 * t1;
    const double t7 = exp((-0x1p-1) * t6);
    const double t8 = t7 - (t7 * (0x1p-1 * fma(t1, t1, hl_negative_float64(t6))));
    grad_x[i] = g[i] * ((0x1p-1 * (erfc(hl_negative_float64(t5)) + ((exp(hl_negative_float64(t5 * t5)) * 0x1.20dd750429b6dp+0) * (t4 - (t5 - t3))))) + (0x1.9884533d43651p-2 * ((t8 == 0x0p+0) ? 0x0p+0 : (t0 * t8))));
  }
}
