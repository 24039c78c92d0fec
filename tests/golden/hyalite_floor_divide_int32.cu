// Floors; by zero 0, and the least integer by -1 wraps.
static __device__ inline int hl_floor_divide_int32(int x, int y) {
  if (y == 0) return 0;
  if (y == -1) return (int)((unsigned int)0 - (unsigned int)x);
  const int q = x / y, r = x % y;
  return r != 0 && (r < 0) != (y < 0) ? (int)(q - 1) : q;
}

extern "C" __global__ void hyalite_floor_divide_int32(long long n, const int* x1, const int* x2, int* out) {
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    out[i] = hl_floor_divide_int32(x1[i], x2[i]);
  }
}
