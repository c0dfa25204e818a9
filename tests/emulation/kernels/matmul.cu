// c = a b in fp32: tiles of 32 x 64, k in steps of 32 through static shared memory, 2 x 4 results a thread.
extern "C" __global__ void __launch_bounds__(256)
matmul(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int M, int N, int K) {
  __shared__ float sa[32][33], sb[32][64];
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16, m0 = blockIdx.y * 32, n0 = blockIdx.x * 64;
  float acc[2][4] = {};
  for (int k0 = 0; k0 < K; k0 += 32) {
    for (int i = threadIdx.x; i < 32 * 32; i += 256) sa[i / 32][i % 32] = a[(m0 + i / 32) * K + k0 + i % 32];
    for (int i = threadIdx.x; i < 32 * 64; i += 256) sb[i / 64][i % 64] = b[(k0 + i / 64) * N + n0 + i % 64];
    __syncthreads();
    for (int k = 0; k < 32; ++k)
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 4; ++j) acc[i][j] += sa[ty * 2 + i][k] * sb[k][tx * 4 + j];
    __syncthreads();
  }
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 4; ++j) c[(m0 + ty * 2 + i) * N + n0 + tx * 4 + j] = acc[i][j];
}
