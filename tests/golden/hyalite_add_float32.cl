#pragma OPENCL FP_CONTRACT OFF

__kernel void hyalite_add_float32(long n, __global const float* x1, __global const float* x2, __global float* out) {
  for (long i = get_global_id(0); i < n; i += get_global_size(0)) {
    out[i] = x1[i] + x2[i];
  }
}
