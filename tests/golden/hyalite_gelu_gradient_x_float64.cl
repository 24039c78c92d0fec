#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF

__kernel void hyalite_gelu_gradient_x_float64(long n, __global const double* g, __global const double* x, __global double* grad_x) {
  for (long i = get_global_id(0); i < n; i += get_global_size(0)) {
    const double t0 = g[i];
    const double t1 = x[i];
    const double t2 = t0 * ((0x1p-1 * erfc((-0x1.6a09e667f3bcdp-1) * t1)) + ((0x1.9884533d43651p-2 * t1) * exp(((-0x1p-1) * t1) * t1)));
    grad_x[i] = ((t0 == 0x0p+0) & isnan(t2)) ? 0x0p+0 : t2;
  }
}
