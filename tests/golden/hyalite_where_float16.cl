#pragma OPENCL FP_CONTRACT OFF

// Rounded once, ties to even; below the normal range the sum with 1/2 rounds at the last subnormal bit.
static inline ushort hl_encode_float16(float x) {
  const uint magnitude = as_uint(x) & 0x7fffffffu, sign = (as_uint(x) >> 16) & 0x8000u;
  if (magnitude > 0x7f800000u) return (ushort)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude < 0x38800000u) return (ushort)(sign | (as_uint(as_float(magnitude) + 0.5f) - 0x3f000000u));
  const uint rounded = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  return (ushort)(sign | (rounded < 0x7c00u ? rounded : 0x7c00u));
}

static inline float hl_decode_float16(ushort x) {
  const uint magnitude = x & 0x7fffu, sign = (uint)(x & 0x8000u) << 16;
  if (magnitude < 0x400u) return as_float(as_uint((float)magnitude * 0x1p-24f) | sign);
  const uint normal = (magnitude << 13) + 0x38000000u;
  // Infinity and NaN keep an exponent of ones; a NaN becomes quiet.
  return as_float((normal + (magnitude < 0x7c00u ? 0u : 0x38000000u)) | (magnitude > 0x7c00u ? 0x400000u : 0u) | sign);
}

__kernel void hyalite_where_float16(long n, __global const uchar* condition, __global const ushort* x1, __global const ushort* x2, __global ushort* out) {
  for (long i = get_global_id(0); i < n; i += get_global_size(0)) {
    out[i] = hl_encode_float16((condition[i] != 0) ? hl_decode_float16(x1[i]) : hl_decode_float16(x2[i]));
  }
}
