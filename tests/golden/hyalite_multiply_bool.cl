#pragma OPENCL FP_CONTRACT OFF

__kernel void hyalite_multiply_bool(long n, __global const uchar* x1, __global const uchar* x2, __global uchar* out) {
  for (long i = get_global_id(0); i < n; i += get_global_size(0)) {
    out[i] = (x1[i] != 0) & (x2[i] != 0);
  }
}
