#pragma OPENCL FP_CONTRACT OFF

// By the sign bit, so that a NaN changes its sign too.
static inline float hl_negative_float32(float x) { return as_float(as_uint(x) ^ ((uint)1 << (32 - 1))); }

__kernel void hyalite_maximum_gradient_x1_float32(long n, __global const float* g, __global const float* x1, __global const float* x2, __global float* grad_x1) {
  for (long i = get_global_id(0); i < n; i += get_global_size(0)) {
    const float t0 = x2[i];
    const float t1 = x1[i];
    const bool t2 = isnan(t1);
    const float t3 = g[i];
    grad_x1[i] = (!((t0 <= t1) | t2)) ? hl_negative_float32(0x0p+0f) : ((((t1 == t0) | (t2 & isnan(t0))) ? (t3 * 0x1p-1f) : t3) + 0x0p+0f);
  }
}
