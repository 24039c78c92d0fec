#pragma OPENCL FP_CONTRACT OFF

__kernel void hyalite_maximum_gradient_x1_float32(long n, __global const float* g, __global const float* x1, __global const float* x2, __global float* grad_x1) {
  for (long i = get_global_id(0); i < n; i += get_global_size(0)) {
    const float t0 = g[i];
    const float t1 = x1[i];
    const float t2 = x2[i];
    const float t3 = (t1 == t2) ? (t0 * 0x1p-1f) : ((t2 < t1) ? t0 : 0x0p+0f);
    grad_x1[i] = ((t0 == 0x0p+0f) & isnan(t3)) ? 0x0p+0f : t3;
  }
}
