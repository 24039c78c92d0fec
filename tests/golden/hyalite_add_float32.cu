extern "C" __global__ void hyalite_add_float32(long long n, const float* x1, const float* x2, float* out) {
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    out[i] = x1[i] + x2[i];
  }
}
