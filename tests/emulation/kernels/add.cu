// z = x + y
extern "C" __global__ void add(const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ z, int n) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) z[i] = x[i] + y[i];
}
