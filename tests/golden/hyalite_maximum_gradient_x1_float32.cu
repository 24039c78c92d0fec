// By the sign bit, so that a NaN changes its sign too.
static __device__ inline float hl_negative_float32(float x) { return __uint_as_float(__float_as_uint(x) ^ ((unsigned int)1 << (32 - 1))); }

extern "C" __global__ void hyalite_maximum_gradient_x1_float32(long long n, const float* g, const float* x1, const float* x2, float* grad_x1) {
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    const float t0 = x2[i];
    const float t1 = x1[i];
    const bool t2 = isnan(t1);
    const float t3 = g[i];
    grad_x1[i] = (!((t0 <= t1) | t2)) ? hl_negative_float32(0x0p+0f) : ((((t1 == t0) | (t2 & isnan(t0))) ? (t3 * 0x1p-1f) : t3) + 0x0p+0f);
  }
}
