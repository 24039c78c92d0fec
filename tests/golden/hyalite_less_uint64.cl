#pragma OPENCL FP_CONTRACT OFF

__kernel void hyalite_less_uint64(long n, __global const ulong* x1, __global const ulong* x2, __global uchar* out) {
  for (long i = get_global_id(0); i < n; i += get_global_size(0)) {
    out[i] = x1[i] < x2[i];
  }
}
