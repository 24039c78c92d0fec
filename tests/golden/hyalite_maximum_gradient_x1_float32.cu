extern "C" __global__ void hyalite_maximum_gradient_x1_float32(long long n, const float* g, const float* x1, const float* x2, float* grad_x1) {
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    const float t0 = g[i];
    const float t1 = x1[i];
    const float t2 = x2[i];
    const float t3 = (t1 == t2) ? (t0 * 0x1p-1f) : ((t2 < t1) ? t0 : 0x0p+0f);
    grad_x1[i] = ((t0 == 0x0p+0f) & isnan(t3)) ? 0x0p+0f : t3;
  }
}
