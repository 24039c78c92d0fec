extern "C" __global__ void hyalite_leaky_relu_float32(long long n, const float* x, float slope, float* out) {
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    const float t0 = x[i];
    out[i] = (0x0p+0f < t0) ? t0 : (slope * t0);
  }
}
