extern "C" __global__ void hyalite_gelu_gradient_x_float64(long long n, const double* g, const double* x, double* grad_x) {
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    const double t0 = g[i];
    const double t1 = x[i];
    const double t2 = t0 * ((0x1p-1 * erfc((-0x1.6a09e667f3bcdp-1) * t1)) + ((0x1.9884533d43651p-2 * t1) * exp(((-0x1p-1) * t1) * t1)));
    grad_x[i] = ((t0 == 0x0p+0) & isnan(t2)) ? 0x0p+0 : t2;
  }
}
