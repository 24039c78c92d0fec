extern "C" __global__ void hyalite_multiply_bool(long long n, const unsigned char* x1, const unsigned char* x2, unsigned char* out) {
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    out[i] = (x1[i] != 0) & (x2[i] != 0);
  }
}
