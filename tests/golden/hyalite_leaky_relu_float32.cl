#pragma OPENCL FP_CONTRACT OFF

__kernel void hyalite_leaky_relu_float32(long n, __global const float* x, float slope, __global float* out) {
  for (long i = get_global_id(0); i < n; i += get_global_size(0)) {
    const float t0 = x[i];
    out[i] = (0x0p+0f < t0) ? t0 : (slope * t0);
  }
}
