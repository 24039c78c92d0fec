// The floor of the exact quotient, rounded once: the rounded quotient is too large by 1 exactly if it is an integer that
// x falls short of, and far out by one place if it passed a middle that the floor, a tie, is rounded down from.
static __device__ inline double hl_floor_divide_float64(double x, double y) {
  const double quotient = x / y, whole = floor(quotient), rest = fma(-whole, y, x);
  if (fabs(whole) > 0x1p53) {
    const double below = __longlong_as_double(whole > 0 ? __double_as_longlong(whole) - 1 : __double_as_longlong(whole) + 1), gap = (whole - below) * 0.5;
    const double passed = fma(gap, y, rest), beyond = fma(gap - 1, y, rest);
    const bool between = y > 0 ? passed > 0 && beyond < 0 : passed < 0 && beyond > 0;
    return between && (__double_as_longlong(whole) & 1) ? below : whole;
  }
  return whole == quotient && ((rest < 0 && y > 0) || (rest > 0 && y < 0)) ? whole - 1 : whole;
}

// Exact while the quotient is a small integer, else from fmod; the sign of y, also for zero.
static __device__ inline double hl_remainder_float64(double x, double y) {
  const double whole = hl_floor_divide_float64(x, y), rest = fma(-whole, y, x);
  if (fabs(whole) < 0x1p53 && isfinite(x) && isfinite(y)) return rest == 0 ? copysign((double)0, y) : rest;
  const double r = fmod(x, y);
  if (r == 0) return copysign((double)0, y);
  return (r < 0) != (y < 0) ? r + y : r;
}

extern "C" __global__ void hyalite_divmod_float64(long long n, const double* x1, const double* x2, double* out1, double* out2) {
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    const double t0 = x1[i];
    const double t1 = x2[i];
    const double t2 = hl_floor_divide_float64(t0, t1);
    const double t3 = hl_remainder_float64(t0, t1);
    out1[i] = t2;
    out2[i] = t3;
  }
}
