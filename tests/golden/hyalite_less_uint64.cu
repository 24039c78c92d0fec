extern "C" __global__ void hyalite_less_uint64(long long n, const unsigned long long* x1, const unsigned long long* x2, unsigned char* out) {
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    out[i] = x1[i] < x2[i];
  }
}
