// Equal values differ only as zeros: and keeps +0. NaN wins.
static __device__ inline double hl_maximum_float64(double a, double b) {
  return a == b ? __longlong_as_double(__double_as_longlong(a) & __double_as_longlong(b)) : b < a || isnan(a) ? a : b;
}

// By the sign bit, so that a NaN changes its sign too.
static __device__ inline double hl_negative_float64(double x) { return __longlong_as_double(__double_as_longlong(x) ^ ((unsigned long long)1 << (64 - 1))); }

extern "C" __global__ void hyalite_gelu_gradient_x_float64(long long n, const double* g, const double* x, double* grad_x) {
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
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
