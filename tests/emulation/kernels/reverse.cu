// Each warp reverses its 32 numbers through shared memory: only __syncwarp orders the lanes.
extern "C" __global__ void reverse(const float* __restrict__ x, float* __restrict__ y) {
  __shared__ float s[4][32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  s[warp][lane] = x[threadIdx.x];
  dd_syncwarp();
  y[threadIdx.x] = s[warp][31 - lane];
}
