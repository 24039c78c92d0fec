#pragma OPENCL FP_CONTRACT OFF

__kernel void hyalite_add_int16(long n, __global const short* x1, __global const short* x2, __global short* out) {
  for (long i = get_global_id(0); i < n; i += get_global_size(0)) {
    out[i] = (short)((uint)x1[i] + (uint)x2[i]);
  }
}
