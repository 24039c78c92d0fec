#pragma OPENCL FP_CONTRACT OFF

// An infinity as 1, anything else as 0, with its sign: a direction for Annex G.
static inline float hl_unit_complex64(float x) { return copysign(isinf(x) ? 1.0f : 0.0f, x); }

static inline float hl_zero_of_nan_complex64(float x) { return isnan(x) ? copysign(0.0f, x) : x; }

// C Annex G, section 5.1: an infinite factor gives an infinite product.
static inline float2 hl_multiply_complex64(float2 a, float2 b) {
  const float ac = a.x * b.x, bd = a.y * b.y, ad = a.x * b.y, bc = a.y * b.x;
  const float x = ac - bd, y = ad + bc;
  if (!(isnan(x) && isnan(y))) return (float2)(x, y);
  bool again = false;
  if (isinf(a.x) || isinf(a.y)) {
    a = (float2)(hl_unit_complex64(a.x), hl_unit_complex64(a.y));
    b = (float2)(hl_zero_of_nan_complex64(b.x), hl_zero_of_nan_complex64(b.y));
    again = true;
  }
  if (isinf(b.x) || isinf(b.y)) {
    b = (float2)(hl_unit_complex64(b.x), hl_unit_complex64(b.y));
    a = (float2)(hl_zero_of_nan_complex64(a.x), hl_zero_of_nan_complex64(a.y));
    again = true;
  }
  if (!again && (isinf(ac) || isinf(bd) || isinf(ad) || isinf(bc))) {
    a = (float2)(hl_zero_of_nan_complex64(a.x), hl_zero_of_nan_complex64(a.y));
    b = (float2)(hl_zero_of_nan_complex64(b.x), hl_zero_of_nan_complex64(b.y));
    again = true;
  }
  if (!again) return (float2)(x, y);
  return (float2)(as_float(0x7f800000u) * (a.x * b.x - a.y * b.y), as_float(0x7f800000u) * (a.x * b.y + a.y * b.x));
}

__kernel void hyalite_multiply_complex64(long n, __global const float2* x1, __global const float2* x2, __global float2* out) {
  for (long i = get_global_id(0); i < n; i += get_global_size(0)) {
    out[i] = hl_multiply_complex64(x1[i], x2[i]);
  }
}
