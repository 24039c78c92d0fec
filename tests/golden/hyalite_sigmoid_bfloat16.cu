static __device__ inline float hl_decode_bfloat16(unsigned short x) { return __uint_as_float((unsigned int)x << 16); }

// By the sign bit, so that a NaN changes its sign too.
static __device__ inline float hl_negative_float32(float x) { return __uint_as_float(__float_as_uint(x) ^ ((unsigned int)1 << (32 - 1))); }

// Rounded once, ties to even.
static __device__ inline unsigned short hl_encode_bfloat16(float x) {
  const unsigned int b = __float_as_uint(x);
  if ((b & 0x7fffffffu) > 0x7f800000u) return (unsigned short)((b >> 16) | 0x40u);
  return (unsigned short)((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
}

extern "C" __global__ void hyalite_sigmoid_bfloat16(long long n, const unsigned short* x, unsigned short* out) {
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    const float t0 = hl_decode_bfloat16(x[i]);
    const bool t1 = t0 < 0x0p+0f;
    const float t2 = exp(t1 ? t0 : hl_negative_float32(t0));
    out[i] = hl_encode_bfloat16((t1 ? t2 : 0x1p+0f) / (0x1p+0f + t2));
  }
}
