// One block of 256 threads per row of 2048: two levels of reduction, over lanes and over warps.
extern "C" __global__ void __launch_bounds__(256)
rmsnorm(const float* __restrict__ x, const float* __restrict__ weight, float* __restrict__ y) {
  __shared__ float part[8];
  const char* row = (const char*)(x + blockIdx.x * 2048);
  float v[2][4], sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    dd_ldg16(v[i], row + 16 * (threadIdx.x + 256 * i));
    for (int j = 0; j < 4; ++j) sum += v[i][j] * v[i][j];
  }
#pragma unroll
  for (int m = 16; m > 0; m >>= 1) sum += dd_shfl_xor(sum, m);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = part[threadIdx.x % 8];
#pragma unroll
  for (int m = 4; m > 0; m >>= 1) sum += dd_shfl_xor(sum, m);
  const float scale = dd_rsqrt(sum / 2048.0f + 1e-6f);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float w[4];
    dd_ldg16(w, weight + 4 * (threadIdx.x + 256 * i));
    for (int j = 0; j < 4; ++j) w[j] *= v[i][j] * scale;
    dd_stg16(y + blockIdx.x * 2048 + 4 * (threadIdx.x + 256 * i), w);
  }
}
