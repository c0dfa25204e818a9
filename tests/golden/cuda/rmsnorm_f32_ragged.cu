extern "C" __global__ void __launch_bounds__(128, 1) k_rmsnorm(const float* __restrict__ w, const float* __restrict__ x, float* __restrict__ y) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int block = blockIdx.x;
  const u32 smem = dd_shared();
  const u32 partial = smem + 0;
  const int m_0 = block;
  // acc: f32[] = 0
  float acc[1];
  acc[0] = 0.0f;
  // x_r: f32[k:1024] = load x[m, k] at m m_0, k 0 < 1000
  float x_r[8];
  #pragma unroll
  for (int r = 0; r < 2; ++r)
    dd_ldg16_if(&x_r[r * 4], x + (m_0 * 1000 + (lane * 4 + warp * 128) + r * 512), lane * 4 + warp * 128 + r * 512 < 1000);
  // mul: f32[k:1024] = mul x_r, x_r
  float mul[8];
  #pragma unroll
  for (int r = 0; r < 8; ++r)
    mul[r] = x_r[r] * x_r[r];
  // acc = reduce.thread sum mul
  float tree[4];
  #pragma unroll
  for (int j = 0; j < 4; ++j)
    tree[j] = mul[j] + mul[j + 4];
  #pragma unroll
  for (int j = 0; j < 2; ++j)
    tree[j] = tree[j] + tree[j + 2];
  tree[0] = tree[0] + tree[1];
  acc[0] = acc[0] + tree[0];
  // acc = reduce.block sum over k lanes 0,1,2,3,4 warps 0,1
  acc[0] = acc[0] + dd_shfl_xor(acc[0], 1);
  acc[0] = acc[0] + dd_shfl_xor(acc[0], 2);
  acc[0] = acc[0] + dd_shfl_xor(acc[0], 4);
  acc[0] = acc[0] + dd_shfl_xor(acc[0], 8);
  acc[0] = acc[0] + dd_shfl_xor(acc[0], 16);
  dd_sts4(partial + (warp * 32 + lane) * 4, acc);
  dd_sync();
  dd_lds4(acc, partial + lane * 4);
  float part[1];
  dd_lds4(part, partial + lane * 4 + 128);
  acc[0] = acc[0] + part[0];
  float part_1[1];
  dd_lds4(part_1, partial + lane * 4 + 256);
  acc[0] = acc[0] + part_1[0];
  float part_2[1];
  dd_lds4(part_2, partial + lane * 4 + 384);
  acc[0] = acc[0] + part_2[0];
  // mul_1: f32[] = mul acc, 0.001
  float mul_1[1];
  mul_1[0] = acc[0] * 0.001f;
  // add: f32[] = add mul_1, 1e-06
  float add[1];
  add[0] = mul_1[0] + 1.0e-06f;
  // rsqrt: f32[] = rsqrt add
  float rsqrt[1];
  rsqrt[0] = dd_rsqrt(add[0]);
  // mul_2: f32[k:1024] = mul x_r, rsqrt
  float mul_2[8];
  #pragma unroll
  for (int r = 0; r < 8; ++r)
    mul_2[r] = x_r[r] * rsqrt[0];
  // w_r: f32[k:1024] = load w[k] at k 0 < 1000
  float w_r[8];
  #pragma unroll
  for (int r = 0; r < 2; ++r)
    dd_ldg16_if(&w_r[r * 4], w + (lane * 4 + warp * 128 + r * 512), lane * 4 + warp * 128 + r * 512 < 1000);
  // mul_3: f32[k:1024] = mul mul_2, w_r
  float mul_3[8];
  #pragma unroll
  for (int r = 0; r < 8; ++r)
    mul_3[r] = mul_2[r] * w_r[r];
  // store y[m, k] at m m_0, k 0 < 1000 <- mul_3
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (lane * 4 + warp * 128 + r * 512 < 1000)
      dd_stg16(y + (m_0 * 1000 + (lane * 4 + warp * 128) + r * 512), &mul_3[r * 4]);
  }
}
