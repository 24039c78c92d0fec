#pragma OPENCL FP_CONTRACT OFF

static inline float hl_decode_bfloat16(ushort x) { return as_float((uint)x << 16); }

// By the sign bit, so that a NaN changes its sign too.
static inline float hl_negative_float32(float x) { return as_float(as_uint(x) ^ ((uint)1 << (32 - 1))); }

// Rounded once, ties to even.
static inline ushort hl_encode_bfloat16(float x) {
  const uint b = as_uint(x);
  if ((b & 0x7fffffffu) > 0x7f800000u) return (ushort)((b >> 16) | 0x40u);
  return (ushort)((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
}

__kernel void hyalite_sigmoid_bfloat16(long n, __global const ushort* x, __global ushort* out) {
  for (long i = get_global_id(0); i < n; i += get_global_size(0)) {
    const float t0 = hl_decode_bfloat16(x[i]);
    const bool t1 = t0 < 0x0p+0f;
    const float t2 = exp(t1 ? t0 : hl_negative_float32(t0));
    out[i] = hl_encode_bfloat16((t1 ? t2 : 0x1p+0f) / (0x1p+0f + t2));
  }
}
