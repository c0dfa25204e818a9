extern "C" __global__ void __launch_bounds__(128, 1) k_matmul(const u16* __restrict__ r_1, const u16* __restrict__ w, const u16* __restrict__ x, u16* __restrict__ y) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int block = blockIdx.x;
  const u32 smem = dd_shared();
  const u32 x_s = smem + 0;
  const u32 w_s = smem + 6144;
  const int m_0 = block / 2 * 32;
  const int n_0 = block % 2 * 64;
  // acc: f32[m:32,n:64] = 0
  float acc[16];
  #pragma unroll
  for (int r = 0; r < 16; ++r)
    acc[r] = 0.0f;
  // for k_0 in 0..88 step 32 ring 3:
  const int rounds_k_0 = 3;
  #pragma unroll 1
  for (int s = 0; s < 2; ++s) {
    if (s < rounds_k_0) {
      const int k_0_ahead = s * 32;
      dd_cp_async16_if(x_s + s * 2048 + ((lane >> 2) * 64 + warp * 512) + (((lane & 3) * 16) ^ ((lane >> 3) * 16)), x + (k_0_ahead + m_0 * 88 + ((lane & 3) * 8 + ((lane >> 2) + warp * 8) * 88)), m_0 + ((lane >> 2) + warp * 8) < 50 && k_0_ahead + (lane & 3) * 8 < 88);
      #pragma unroll
      for (int r = 0; r < 2; ++r)
        dd_cp_async16_if(w_s + s * 4096 + ((lane >> 3) * 128 + warp * 512) + (((lane & 7) * 16) ^ ((lane >> 3) * 16) ^ ((warp & 1) * 64)) + r * 2048, w + (k_0_ahead * 72 + n_0 + (((lane >> 3) + warp * 4) * 72 + (lane & 7) * 8) + r * 1152), n_0 + (lane & 7) * 8 < 72 && k_0_ahead + ((lane >> 3) + warp * 4 + r * 16) < 88);
    }
    dd_cp_async_commit();
  }
  int slot = 0;
  #pragma unroll 1
  for (int round = 0; round < rounds_k_0; ++round) {
    dd_cp_async_wait<1>();
    dd_sync();
    if (round + 2 < rounds_k_0) {
      const int k_0_ahead_1 = round * 32 + 64;
      dd_cp_async16_if(x_s + (slot < 1 ? slot + 2 : slot - 1) * 2048 + ((lane >> 2) * 64 + warp * 512) + (((lane & 3) * 16) ^ ((lane >> 3) * 16)), x + (k_0_ahead_1 + m_0 * 88 + ((lane & 3) * 8 + ((lane >> 2) + warp * 8) * 88)), m_0 + ((lane >> 2) + warp * 8) < 50 && k_0_ahead_1 + (lane & 3) * 8 < 88);
      #pragma unroll
      for (int r = 0; r < 2; ++r)
        dd_cp_async16_if(w_s + (slot < 1 ? slot + 2 : slot - 1) * 4096 + ((lane >> 3) * 128 + warp * 512) + (((lane & 7) * 16) ^ ((lane >> 3) * 16) ^ ((warp & 1) * 64)) + r * 2048, w + (k_0_ahead_1 * 72 + n_0 + (((lane >> 3) + warp * 4) * 72 + (lane & 7) * 8) + r * 1152), n_0 + (lane & 7) * 8 < 72 && k_0_ahead_1 + ((lane >> 3) + warp * 4 + r * 16) < 88);
    }
    dd_cp_async_commit();
    const u32 x_s_1 = x_s + slot * 2048;
    const u32 w_s_1 = w_s + slot * 4096;
    // x_r: bf16[k:16,m:32] = load.shared x_s
    u32 x_r[4];
    dd_ldmatrix_x4(x_r, x_s_1 + ((lane & 15) * 64 + (warp >> 1) * 1024) + ((((lane >> 1) & 3) * 16) ^ ((lane >> 4) * 16)));
    // w_r: bf16[k:16,n:64] = load.shared w_s
    u32 w_r[8];
    #pragma unroll
    for (int r = 0; r < 2; ++r)
      dd_ldmatrix_x4_trans(&w_r[r * 4], w_s_1 + (lane & 15) * 128 + (((lane & 7) * 16) ^ ((lane >> 4) * 16) ^ ((warp & 1) * 32) ^ (r * 64)));
    // acc += mma x_r, w_r
    #pragma unroll
    for (int j = 0; j < 4; ++j)
      dd_mma_m16n8k16_bf16(&acc[j * 4], x_r, &w_r[j * 2]);
    // x_r_1: bf16[k:16,m:32] = load.shared x_s k+16
    u32 x_r_1[4];
    dd_ldmatrix_x4(x_r_1, x_s_1 + ((lane & 15) * 64 + (warp >> 1) * 1024) + ((((lane >> 1) & 3) * 16) ^ ((lane >> 4) * 16) ^ 32));
    // w_r_1: bf16[k:16,n:64] = load.shared w_s k+16
    u32 w_r_1[8];
    #pragma unroll
    for (int r = 0; r < 2; ++r)
      dd_ldmatrix_x4_trans(&w_r_1[r * 4], w_s_1 + (lane & 15) * 128 + (((lane & 7) * 16) ^ ((lane >> 4) * 16) ^ ((warp & 1) * 32) ^ (r * 64)) + 2048);
    // acc += mma x_r_1, w_r_1
    #pragma unroll
    for (int j = 0; j < 4; ++j)
      dd_mma_m16n8k16_bf16(&acc[j * 4], x_r_1, &w_r_1[j * 2]);
    slot = slot == 2 ? 0 : slot + 1;
  }
  // r_r: bf16[m:32,n:64] = load r[m, n] at m m_0 < 50, n n_0 < 72
  u32 r_r[8];
  #pragma unroll
  for (int r = 0; r < 8; ++r)
    dd_ldg4_if(&r_r[r], r_1 + (m_0 * 72 + n_0 + (((lane >> 2) + (warp >> 1) * 16) * 72 + ((lane & 3) * 2 + (warp & 1) * 16)) + (r % 2 * 576 + (r / 2 % 2 * 8 + r / 4 * 32))), m_0 + ((lane >> 2) + (warp >> 1) * 16 + r % 2 * 8) < 50 && n_0 + ((lane & 3) * 2 + (warp & 1) * 16 + (r / 2 % 2 * 8 + r / 4 * 32)) < 72);
  // c: f32[m:32,n:64] = copy r_r
  float c[16];
  #pragma unroll
  for (int r = 0; r < 16; ++r)
    c[r] = dd_bf16(r_r[r / 2], r % 2);
  // add: f32[m:32,n:64] = add acc, c
  float add[16];
  #pragma unroll
  for (int r = 0; r < 16; ++r)
    add[r] = acc[r] + c[r];
  // c_1: bf16[m:32,n:64] = copy add
  u32 c_1[8];
  #pragma unroll
  for (int r = 0; r < 8; ++r)
    c_1[r] = dd_pack_bf16(add[r * 2], add[r * 2 + 1]);
  // store y[m, n] at m m_0 < 50, n n_0 < 72 <- c_1
  #pragma unroll
  for (int r = 0; r < 8; ++r) {
    if (m_0 + ((lane >> 2) + (warp >> 1) * 16 + r % 2 * 8) < 50 && n_0 + ((lane & 3) * 2 + (warp & 1) * 16 + (r / 2 % 2 * 8 + r / 4 * 32)) < 72)
      dd_stg4(y + (m_0 * 72 + n_0 + (((lane >> 2) + (warp >> 1) * 16) * 72 + ((lane & 3) * 2 + (warp & 1) * 16)) + (r % 2 * 576 + (r / 2 % 2 * 8 + r / 4 * 32))), &c_1[r]);
  }
}
