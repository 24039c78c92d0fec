// Rounded once, ties to even; below the normal range the sum with 1/2 rounds at the last subnormal bit.
static __device__ inline unsigned short hl_encode_float16(float x) {
  const unsigned int magnitude = __float_as_uint(x) & 0x7fffffffu, sign = (__float_as_uint(x) >> 16) & 0x8000u;
  if (magnitude > 0x7f800000u) return (unsigned short)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude < 0x38800000u) return (unsigned short)(sign | (__float_as_uint(__uint_as_float(magnitude) + 0.5f) - 0x3f000000u));
  const unsigned int rounded = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  return (unsigned short)(sign | (rounded < 0x7c00u ? rounded : 0x7c00u));
}

static __device__ inline float hl_decode_float16(unsigned short x) {
  const unsigned int magnitude = x & 0x7fffu, sign = (unsigned int)(x & 0x8000u) << 16;
  if (magnitude < 0x400u) return __uint_as_float(__float_as_uint((float)magnitude * 0x1p-24f) | sign);
  const unsigned int normal = (magnitude << 13) + 0x38000000u;
  // Infinity and NaN keep an exponent of ones; a NaN becomes quiet.
  return __uint_as_float((normal + (magnitude < 0x7c00u ? 0u : 0x38000000u)) | (magnitude > 0x7c00u ? 0x400000u : 0u) | sign);
}

extern "C" __global__ void hyalite_where_float16(long long n, const unsigned char* condition, const unsigned short* x1, const unsigned short* x2, unsigned short* out) {
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    out[i] = hl_encode_float16((condition[i] != 0) ? hl_decode_float16(x1[i]) : hl_decode_float16(x2[i]));
  }
}
