// An infinity as 1, anything else as 0, with its sign: a direction for Annex G.
static __device__ inline float hl_unit_complex64(float x) { return copysign(isinf(x) ? 1.0f : 0.0f, x); }

static __device__ inline float hl_zero_of_nan_complex64(float x) { return isnan(x) ? copysign(0.0f, x) : x; }

// C Annex G, section 5.1: an infinite factor gives an infinite product.
static __device__ inline float2 hl_multiply_complex64(float2 a, float2 b) {
  const float ac = a.x * b.x, bd = a.y * b.y, ad = a.x * b.y, bc = a.y * b.x;
  const float x = ac - bd, y = ad + bc;
  if (!(isnan(x) && isnan(y))) return make_float2(x, y);
  bool again = false;
  if (isinf(a.x) || isinf(a.y)) {
    a = make_float2(hl_unit_complex64(a.x), hl_unit_complex64(a.y));
    b = make_float2(hl_zero_of_nan_complex64(b.x), hl_zero_of_nan_complex64(b.y));
    again = true;
  }
  if (isinf(b.x) || isinf(b.y)) {
    b = make_float2(hl_unit_complex64(b.x), hl_unit_complex64(b.y));
    a = make_float2(hl_zero_of_nan_complex64(a.x), hl_zero_of_nan_complex64(a.y));
    again = true;
  }
  if (!again && (isinf(ac) || isinf(bd) || isinf(ad) || isinf(bc))) {
    a = make_float2(hl_zero_of_nan_complex64(a.x), hl_zero_of_nan_complex64(a.y));
    b = make_float2(hl_zero_of_nan_complex64(b.x), hl_zero_of_nan_complex64(b.y));
    again = true;
  }
  if (!again) return make_float2(x, y);
  return make_float2(__uint_as_float(0x7f800000u) * (a.x * b.x - a.y * b.y), __uint_as_float(0x7f800000u) * (a.x * b.y + a.y * b.x));
}

extern "C" __global__ void hyalite_multiply_complex64(long long n, const float2* x1, const float2* x2, float2* out) {
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    out[i] = hl_multiply_complex64(x1[i], x2[i]);
  }
}
