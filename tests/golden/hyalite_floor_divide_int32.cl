#pragma OPENCL FP_CONTRACT OFF

// Floors; by zero 0, and the least integer by -1 wraps.
static inline int hl_floor_divide_int32(int x, int y) {
  if (y == 0) return 0;
  if (y == -1) return (int)((uint)0 - (uint)x);
  const int q = x / y, r = x % y;
  return r != 0 && (r < 0) != (y < 0) ? (int)(q - 1) : q;
}

__kernel void hyalite_floor_divide_int32(long n, __global const int* x1, __global const int* x2, __global int* out) {
  for (long i = get_global_id(0); i < n; i += get_global_size(0)) {
    out[i] = hl_floor_divide_int32(x1[i], x2[i]);
  }
}
