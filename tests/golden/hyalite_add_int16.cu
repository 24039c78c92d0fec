extern "C" __global__ void hyalite_add_int16(long long n, const short* x1, const short* x2, short* out) {
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    out[i] = (short)((unsigned int)x1[i] + (unsigned int)x2[i]);
  }
}
