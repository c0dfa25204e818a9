extern "C" __global__ void __launch_bounds__(64, 1) k_attention(const u16* __restrict__ k, const u16* __restrict__ q, const u16* __restrict__ v, u16* __restrict__ y) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int block = blockIdx.x;
  const u32 smem = dd_shared();
  const u32 q_s = smem + 0;
  const u32 k_s = smem + 4096;
  const u32 v_s = smem + 12288;
  const int kv_0 = block / 4;
  const int g_0 = block / 2 % 2;
  const int s_0 = block % 2 * 32;
  #pragma unroll
  for (int r = 0; r < 4; ++r)
    dd_cp_async16(q_s + ((lane >> 3) * 128 + warp * 512) + (((lane & 7) * 16) ^ ((lane >> 3) * 16) ^ (warp * 64)) + r * 1024, q + (g_0 * 4096 + kv_0 * 8192 + s_0 * 64 + ((lane & 7) * 8 + ((lane >> 3) + warp * 4) * 64) + r * 512));
  dd_cp_async_commit();
  // m: f32[s:32] = -inf
  float m[2];
  #pragma unroll
  for (int r = 0; r < 2; ++r)
    m[r] = -DD_INF;
  // o: f32[e:64,s:32] = 0
  float o[32];
  #pragma unroll
  for (int r = 0; r < 32; ++r)
    o[r] = 0.0f;
  // l: f32[s:32] = 0
  float l[2];
  #pragma unroll
  for (int r = 0; r < 2; ++r)
    l[r] = 0.0f;
  // for s1_0 in 0..min(64, s_0+32) step 32 ring 2:
  const int rounds_s1_0 = ((64 < s_0 + 32 ? 64 : s_0 + 32) + 31) / 32;
  #pragma unroll 1
  for (int s = 0; s < 1; ++s) {
    if (s < rounds_s1_0) {
      const int s1_0_ahead = s * 32;
      #pragma unroll
      for (int r = 0; r < 4; ++r)
        dd_cp_async16(k_s + s * 4096 + ((lane >> 3) * 128 + warp * 512) + (((lane & 7) * 16) ^ ((lane >> 3) * 16) ^ (warp * 64)) + r * 1024, k + (kv_0 * 4096 + s1_0_ahead * 64 + ((lane & 7) * 8 + ((lane >> 3) + warp * 4) * 64) + r * 512));
      #pragma unroll
      for (int r = 0; r < 4; ++r)
        dd_cp_async16(v_s + s * 4096 + ((lane >> 3) * 128 + warp * 512) + (((lane & 7) * 16) ^ ((lane >> 3) * 16) ^ (warp * 64)) + r * 1024, v + (kv_0 * 4096 + s1_0_ahead * 64 + ((lane & 7) * 8 + ((lane >> 3) + warp * 4) * 64) + r * 512));
    }
    dd_cp_async_commit();
  }
  int slot = 0;
  #pragma unroll 1
  for (int round = 0; round < rounds_s1_0; ++round) {
    dd_cp_async_wait<0>();
    dd_sync();
    if (round + 1 < rounds_s1_0) {
      const int s1_0_ahead_1 = round * 32 + 32;
      #pragma unroll
      for (int r = 0; r < 4; ++r)
        dd_cp_async16(k_s + (slot < 1 ? slot + 1 : slot - 1) * 4096 + ((lane >> 3) * 128 + warp * 512) + (((lane & 7) * 16) ^ ((lane >> 3) * 16) ^ (warp * 64)) + r * 1024, k + (kv_0 * 4096 + s1_0_ahead_1 * 64 + ((lane & 7) * 8 + ((lane >> 3) + warp * 4) * 64) + r * 512));
      #pragma unroll
      for (int r = 0; r < 4; ++r)
        dd_cp_async16(v_s + (slot < 1 ? slot + 1 : slot - 1) * 4096 + ((lane >> 3) * 128 + warp * 512) + (((lane & 7) * 16) ^ ((lane >> 3) * 16) ^ (warp * 64)) + r * 1024, v + (kv_0 * 4096 + s1_0_ahead_1 * 64 + ((lane & 7) * 8 + ((lane >> 3) + warp * 4) * 64) + r * 512));
    }
    dd_cp_async_commit();
    const int s1_0 = round * 32;
    const u32 k_s_1 = k_s + slot * 4096;
    const u32 v_s_1 = v_s + slot * 4096;
    // acc: f32[s:32,s1:32] = 0
    float acc[16];
    #pragma unroll
    for (int r = 0; r < 16; ++r)
      acc[r] = 0.0f;
    // q_r: bf16[e1:16,s:32] = load.shared q_s
    u32 q_r[4];
    dd_ldmatrix_x4(q_r, q_s + ((lane & 15) * 128 + warp * 2048) + (((lane & 7) * 16) ^ ((lane >> 4) * 16)));
    // k_r: bf16[e1:16,s1:32] = load.shared k_s
    u32 k_r[8];
    #pragma unroll
    for (int r = 0; r < 2; ++r)
      dd_ldmatrix_x4(&k_r[r * 4], k_s_1 + ((lane & 7) * 128 + (lane >> 4) * 1024) + (((lane & 7) * 16) ^ (((lane >> 3) & 1) * 16)) + r * 2048);
    // acc += mma q_r, k_r
    #pragma unroll
    for (int j = 0; j < 4; ++j)
      dd_mma_m16n8k16_bf16(&acc[j * 4], q_r, &k_r[j * 2]);
    // q_r_1: bf16[e1:16,s:32] = load.shared q_s e1+16
    u32 q_r_1[4];
    dd_ldmatrix_x4(q_r_1, q_s + ((lane & 15) * 128 + warp * 2048) + (((lane & 7) * 16) ^ ((lane >> 4) * 16) ^ 32));
    // k_r_1: bf16[e1:16,s1:32] = load.shared k_s e1+16
    u32 k_r_1[8];
    #pragma unroll
    for (int r = 0; r < 2; ++r)
      dd_ldmatrix_x4(&k_r_1[r * 4], k_s_1 + ((lane & 7) * 128 + (lane >> 4) * 1024) + (((lane & 7) * 16) ^ (((lane >> 3) & 1) * 16) ^ 32) + r * 2048);
    // acc += mma q_r_1, k_r_1
    #pragma unroll
    for (int j = 0; j < 4; ++j)
      dd_mma_m16n8k16_bf16(&acc[j * 4], q_r_1, &k_r_1[j * 2]);
    // q_r_2: bf16[e1:16,s:32] = load.shared q_s e1+32
    u32 q_r_2[4];
    dd_ldmatrix_x4(q_r_2, q_s + ((lane & 15) * 128 + warp * 2048) + (((lane & 7) * 16) ^ ((lane >> 4) * 16) ^ 64));
    // k_r_2: bf16[e1:16,s1:32] = load.shared k_s e1+32
    u32 k_r_2[8];
    #pragma unroll
    for (int r = 0; r < 2; ++r)
      dd_ldmatrix_x4(&k_r_2[r * 4], k_s_1 + ((lane & 7) * 128 + (lane >> 4) * 1024) + (((lane & 7) * 16) ^ (((lane >> 3) & 1) * 16) ^ 64) + r * 2048);
    // acc += mma q_r_2, k_r_2
    #pragma unroll
    for (int j = 0; j < 4; ++j)
      dd_mma_m16n8k16_bf16(&acc[j * 4], q_r_2, &k_r_2[j * 2]);
    // q_r_3: bf16[e1:16,s:32] = load.shared q_s e1+48
    u32 q_r_3[4];
    dd_ldmatrix_x4(q_r_3, q_s + ((lane & 15) * 128 + warp * 2048) + (((lane & 7) * 16) ^ ((lane >> 4) * 16) ^ 96));
    // k_r_3: bf16[e1:16,s1:32] = load.shared k_s e1+48
    u32 k_r_3[8];
    #pragma unroll
    for (int r = 0; r < 2; ++r)
      dd_ldmatrix_x4(&k_r_3[r * 4], k_s_1 + ((lane & 7) * 128 + (lane >> 4) * 1024) + (((lane & 7) * 16) ^ (((lane >> 3) & 1) * 16) ^ 96) + r * 2048);
    // acc += mma q_r_3, k_r_3
    #pragma unroll
    for (int j = 0; j < 4; ++j)
      dd_mma_m16n8k16_bf16(&acc[j * 4], q_r_3, &k_r_3[j * 2]);
    // mul: f32[s:32,s1:32] = mul acc, 0.180337
    float mul[16];
    #pragma unroll
    for (int r = 0; r < 16; ++r)
      mul[r] = acc[r] * 0.18033688f;
    // masked: f32[s:32,s1:32] = mask mul where s1 <= s else -inf  unless 0 <= -s1_0+s_0-31
    float masked[16];
    #pragma unroll
    for (int r = 0; r < 16; ++r)
      masked[r] = mul[r];
    if (!(0 <= -s1_0 + s_0 - 31)) {
      #pragma unroll
      for (int r = 0; r < 16; ++r)
        masked[r] = s1_0 + ((lane & 3) * 2 + (r % 2 + r / 4 * 8)) <= s_0 + ((lane >> 2) + warp * 16 + r / 2 % 2 * 8) ? masked[r] : (-DD_INF);
    }
    // top: f32[s:32] = -inf
    float top[2];
    #pragma unroll
    for (int r = 0; r < 2; ++r)
      top[r] = -DD_INF;
    // top = reduce.thread fmax masked
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
      float tree[4];
      #pragma unroll
      for (int j = 0; j < 4; ++j)
        tree[j] = fmaxf(masked[r * 2 + j % 2 + j / 2 * 4], masked[r * 2 + (j + 4) % 2 + (j + 4) / 2 * 4]);
      #pragma unroll
      for (int j = 0; j < 2; ++j)
        tree[j] = fmaxf(tree[j], tree[j + 2]);
      tree[0] = fmaxf(tree[0], tree[1]);
      top[r] = fmaxf(top[r], tree[0]);
    }
    // top = reduce.warp fmax over s1 lanes 0,1
    #pragma unroll
    for (int r = 0; r < 2; ++r)
      top[r] = fmaxf(top[r], dd_shfl_xor(top[r], 1));
    #pragma unroll
    for (int r = 0; r < 2; ++r)
      top[r] = fmaxf(top[r], dd_shfl_xor(top[r], 2));
    // m_new: f32[s:32] = fmax m, top
    float m_new[2];
    #pragma unroll
    for (int r = 0; r < 2; ++r)
      m_new[r] = fmaxf(m[r], top[r]);
    // m_safe: f32[s:32] = finite m_new
    float m_safe[2];
    #pragma unroll
    for (int r = 0; r < 2; ++r)
      m_safe[r] = m_new[r] == (-DD_INF) ? 0.0f : m_new[r];
    // alpha: f32[s:32] = exp2sub m, m_safe
    float alpha[2];
    #pragma unroll
    for (int r = 0; r < 2; ++r)
      alpha[r] = dd_exp2(m[r] - m_safe[r]);
    // p: f32[s:32,s1:32] = exp2sub masked, m_safe
    float p[16];
    #pragma unroll
    for (int r = 0; r < 16; ++r)
      p[r] = dd_exp2(masked[r] - m_safe[r / 2 % 2]);
    // m = copy m_new
    #pragma unroll
    for (int r = 0; r < 2; ++r)
      m[r] = m_new[r];
    // o = mul o, alpha
    #pragma unroll
    for (int r = 0; r < 32; ++r)
      o[r] = o[r] * alpha[r / 2 % 2];
    // slice: f32[s:32,s1:16] = slice p
    float slice[8];
    #pragma unroll
    for (int r = 0; r < 8; ++r)
      slice[r] = p[r];
    // c: bf16[s:32,s1:16] = copy slice
    u32 c[4];
    #pragma unroll
    for (int r = 0; r < 4; ++r)
      c[r] = dd_pack_bf16(slice[r * 2], slice[r * 2 + 1]);
    // v_r: bf16[e:64,s1:16] = load.shared v_s
    u32 v_r[16];
    #pragma unroll
    for (int r = 0; r < 4; ++r)
      dd_ldmatrix_x4_trans(&v_r[r * 4], v_s_1 + (lane & 15) * 128 + (((lane & 7) * 16) ^ ((lane >> 4) * 16) ^ (r * 32)));
    // o += mma c, v_r
    #pragma unroll
    for (int j = 0; j < 8; ++j)
      dd_mma_m16n8k16_bf16(&o[j * 4], c, &v_r[j * 2]);
    // slice_1: f32[s:32,s1:16] = slice p s1+16
    float slice_1[8];
    #pragma unroll
    for (int r = 0; r < 8; ++r)
      slice_1[r] = p[r + 8];
    // c_1: bf16[s:32,s1:16] = copy slice_1
    u32 c_1[4];
    #pragma unroll
    for (int r = 0; r < 4; ++r)
      c_1[r] = dd_pack_bf16(slice_1[r * 2], slice_1[r * 2 + 1]);
    // v_r_1: bf16[e:64,s1:16] = load.shared v_s s1+16
    u32 v_r_1[16];
    #pragma unroll
    for (int r = 0; r < 4; ++r)
      dd_ldmatrix_x4_trans(&v_r_1[r * 4], v_s_1 + (lane & 15) * 128 + (((lane & 7) * 16) ^ ((lane >> 4) * 16) ^ (r * 32)) + 2048);
    // o += mma c_1, v_r_1
    #pragma unroll
    for (int j = 0; j < 8; ++j)
      dd_mma_m16n8k16_bf16(&o[j * 4], c_1, &v_r_1[j * 2]);
    // l = mul l, alpha
    #pragma unroll
    for (int r = 0; r < 2; ++r)
      l[r] = l[r] * alpha[r];
    // l = reduce.thread sum p
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
      float tree_1[4];
      #pragma unroll
      for (int j = 0; j < 4; ++j)
        tree_1[j] = p[r * 2 + j % 2 + j / 2 * 4] + p[r * 2 + (j + 4) % 2 + (j + 4) / 2 * 4];
      #pragma unroll
      for (int j = 0; j < 2; ++j)
        tree_1[j] = tree_1[j] + tree_1[j + 2];
      tree_1[0] = tree_1[0] + tree_1[1];
      l[r] = l[r] + tree_1[0];
    }
    slot = slot == 1 ? 0 : slot + 1;
  }
  // l = reduce.warp sum over s1 lanes 0,1
  #pragma unroll
  for (int r = 0; r < 2; ++r)
    l[r] = l[r] + dd_shfl_xor(l[r], 1);
  #pragma unroll
  for (int r = 0; r < 2; ++r)
    l[r] = l[r] + dd_shfl_xor(l[r], 2);
  // recip: f32[s:32] = recip l
  float recip[2];
  #pragma unroll
  for (int r = 0; r < 2; ++r)
    recip[r] = dd_rcp(l[r]);
  // mul_1: f32[e:64,s:32] = mul o, recip
  float mul_1[32];
  #pragma unroll
  for (int r = 0; r < 32; ++r)
    mul_1[r] = o[r] * recip[r / 2 % 2];
  // c_2: bf16[e:64,s:32] = copy mul_1
  u32 c_2[16];
  #pragma unroll
  for (int r = 0; r < 16; ++r)
    c_2[r] = dd_pack_bf16(mul_1[r * 2], mul_1[r * 2 + 1]);
  // store y[kv, g, s, e] at kv kv_0, g g_0, s s_0, e 0 <- c_2
  #pragma unroll
  for (int r = 0; r < 16; ++r)
    dd_stg4(y + (g_0 * 4096 + kv_0 * 8192 + s_0 * 64 + ((lane & 3) * 2 + ((lane >> 2) + warp * 16) * 64) + (r / 2 * 8 + r % 2 * 512)), &c_2[r]);
}
