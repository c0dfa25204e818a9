extern "C" __global__ void __launch_bounds__(64, 1) k_matmul(const float* __restrict__ w, const float* __restrict__ x, float* __restrict__ y) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int block = blockIdx.x;
  const u32 smem = dd_shared();
  const u32 x_s = smem + 0;
  const u32 w_s = smem + 6144;
  const int m_0 = block / 2 * 32;
  const int n_0 = block % 2 * 32;
  // acc: f32[m:32,n:32] = 0
  float acc[16];
  #pragma unroll
  for (int r = 0; r < 16; ++r)
    acc[r] = 0.0f;
  // for k_0 in 0..96 step 16 ring 3:
  const int rounds_k_0 = 6;
  #pragma unroll 1
  for (int s = 0; s < 2; ++s) {
    if (s < rounds_k_0) {
      const int k_0_ahead = s * 16;
      #pragma unroll
      for (int r = 0; r < 2; ++r)
        dd_cp_async16(x_s + s * 2048 + ((lane >> 2) * 64 + warp * 512) + (((lane & 3) * 16) ^ ((lane >> 3) * 16)) + r * 1024, x + (k_0_ahead + m_0 * 96 + ((lane & 3) * 4 + ((lane >> 2) + warp * 8) * 96) + r * 1536));
      #pragma unroll
      for (int r = 0; r < 2; ++r)
        dd_cp_async16(w_s + s * 2048 + ((lane >> 2) * 64 + warp * 512) + (((lane & 3) * 16) ^ ((lane >> 3) * 16)) + r * 1024, w + (k_0_ahead + n_0 * 96 + ((lane & 3) * 4 + ((lane >> 2) + warp * 8) * 96) + r * 1536));
    }
    dd_cp_async_commit();
  }
  int slot = 0;
  #pragma unroll 1
  for (int round = 0; round < rounds_k_0; ++round) {
    dd_cp_async_wait<1>();
    dd_sync();
    if (round + 2 < rounds_k_0) {
      const int k_0_ahead_1 = round * 16 + 32;
      #pragma unroll
      for (int r = 0; r < 2; ++r)
        dd_cp_async16(x_s + (slot < 1 ? slot + 2 : slot - 1) * 2048 + ((lane >> 2) * 64 + warp * 512) + (((lane & 3) * 16) ^ ((lane >> 3) * 16)) + r * 1024, x + (k_0_ahead_1 + m_0 * 96 + ((lane & 3) * 4 + ((lane >> 2) + warp * 8) * 96) + r * 1536));
      #pragma unroll
      for (int r = 0; r < 2; ++r)
        dd_cp_async16(w_s + (slot < 1 ? slot + 2 : slot - 1) * 2048 + ((lane >> 2) * 64 + warp * 512) + (((lane & 3) * 16) ^ ((lane >> 3) * 16)) + r * 1024, w + (k_0_ahead_1 + n_0 * 96 + ((lane & 3) * 4 + ((lane >> 2) + warp * 8) * 96) + r * 1536));
    }
    dd_cp_async_commit();
    const u32 x_s_1 = x_s + slot * 2048;
    const u32 w_s_1 = w_s + slot * 2048;
    // x_r: f32[k:4,m:32] = load.shared x_s
    float x_r[16];
    #pragma unroll
    for (int r = 0; r < 4; ++r)
      dd_lds16(&x_r[r * 4], x_s_1 + ((lane >> 3) * 64 + warp * 256) + (((lane >> 4) * 16) ^ (warp * 32)) + r * 512);
    // w_r: f32[k:4,n:32] = load.shared w_s
    float w_r[16];
    #pragma unroll
    for (int r = 0; r < 4; ++r)
      dd_lds16(&w_r[r * 4], w_s_1 + (lane & 7) * 64 + ((lane >> 1) & 3) * 16 + r * 512);
    // acc += fma x_r, w_r
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
      #pragma unroll
      for (int r = 0; r < 16; ++r)
        acc[r] = acc[r] + x_r[r / 4 * 4 + i] * w_r[r % 4 * 4 + i];
    }
    // x_r_1: f32[k:4,m:32] = load.shared x_s k+4
    float x_r_1[16];
    #pragma unroll
    for (int r = 0; r < 4; ++r)
      dd_lds16(&x_r_1[r * 4], x_s_1 + ((lane >> 3) * 64 + warp * 256) + (((lane >> 4) * 16) ^ (warp * 32) ^ 16) + r * 512);
    // w_r_1: f32[k:4,n:32] = load.shared w_s k+4
    float w_r_1[16];
    #pragma unroll
    for (int r = 0; r < 4; ++r)
      dd_lds16(&w_r_1[r * 4], w_s_1 + (lane & 7) * 64 + ((((lane >> 1) & 3) * 16) ^ 16) + r * 512);
    // acc += fma x_r_1, w_r_1
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
      #pragma unroll
      for (int r = 0; r < 16; ++r)
        acc[r] = acc[r] + x_r_1[r / 4 * 4 + i] * w_r_1[r % 4 * 4 + i];
    }
    // x_r_2: f32[k:4,m:32] = load.shared x_s k+8
    float x_r_2[16];
    #pragma unroll
    for (int r = 0; r < 4; ++r)
      dd_lds16(&x_r_2[r * 4], x_s_1 + ((lane >> 3) * 64 + warp * 256) + (((lane >> 4) * 16) ^ (warp * 32) ^ 32) + r * 512);
    // w_r_2: f32[k:4,n:32] = load.shared w_s k+8
    float w_r_2[16];
    #pragma unroll
    for (int r = 0; r < 4; ++r)
      dd_lds16(&w_r_2[r * 4], w_s_1 + (lane & 7) * 64 + ((((lane >> 1) & 3) * 16) ^ 32) + r * 512);
    // acc += fma x_r_2, w_r_2
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
      #pragma unroll
      for (int r = 0; r < 16; ++r)
        acc[r] = acc[r] + x_r_2[r / 4 * 4 + i] * w_r_2[r % 4 * 4 + i];
    }
    // x_r_3: f32[k:4,m:32] = load.shared x_s k+12
    float x_r_3[16];
    #pragma unroll
    for (int r = 0; r < 4; ++r)
      dd_lds16(&x_r_3[r * 4], x_s_1 + ((lane >> 3) * 64 + warp * 256) + (((lane >> 4) * 16) ^ (warp * 32) ^ 48) + r * 512);
    // w_r_3: f32[k:4,n:32] = load.shared w_s k+12
    float w_r_3[16];
    #pragma unroll
    for (int r = 0; r < 4; ++r)
      dd_lds16(&w_r_3[r * 4], w_s_1 + (lane & 7) * 64 + ((((lane >> 1) & 3) * 16) ^ 48) + r * 512);
    // acc += fma x_r_3, w_r_3
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
      #pragma unroll
      for (int r = 0; r < 16; ++r)
        acc[r] = acc[r] + x_r_3[r / 4 * 4 + i] * w_r_3[r % 4 * 4 + i];
    }
    slot = slot == 2 ? 0 : slot + 1;
  }
  // store y[m, n] at m m_0, n n_0 <- acc
  #pragma unroll
  for (int r = 0; r < 16; ++r)
    dd_stg4(y + (m_0 * 64 + n_0 + (((lane >> 3) + warp * 4) * 64 + (lane & 7)) + (r / 4 * 512 + r % 4 * 8)), &acc[r]);
}
