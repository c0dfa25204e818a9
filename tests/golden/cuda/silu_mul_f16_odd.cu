extern "C" __global__ void __launch_bounds__(128, 1) k_silu_mul(const u16* __restrict__ g, const u16* __restrict__ u, u16* __restrict__ y) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int block = blockIdx.x;
  const int m_n_0 = block * 256;
  // g_r: f16[m_n:256] = load g[m_n] at m_n m_n_0 < 385
  u32 g_r[1];
  g_r[0] = dd_pack_bits(dd_ldg_half_if(g + (m_n_0 + (lane * 2 + warp * 64)), m_n_0 + (lane * 2 + warp * 64) < 385), dd_ldg_half_if(g + (m_n_0 + (lane * 2 + warp * 64) + 1), m_n_0 + (lane * 2 + warp * 64) + 1 < 385));
  // c: f32[m_n:256] = copy g_r
  float c[2];
  #pragma unroll
  for (int r = 0; r < 2; ++r)
    c[r] = dd_f16(g_r[0], r);
  // sigmoid: f32[m_n:256] = sigmoid c
  float sigmoid[2];
  #pragma unroll
  for (int r = 0; r < 2; ++r)
    sigmoid[r] = dd_rcp(1.0f + expf(-c[r]));
  // mul: f32[m_n:256] = mul c, sigmoid
  float mul[2];
  #pragma unroll
  for (int r = 0; r < 2; ++r)
    mul[r] = c[r] * sigmoid[r];
  // u_r: f16[m_n:256] = load u[m_n] at m_n m_n_0 < 385
  u32 u_r[1];
  u_r[0] = dd_pack_bits(dd_ldg_half_if(u + (m_n_0 + (lane * 2 + warp * 64)), m_n_0 + (lane * 2 + warp * 64) < 385), dd_ldg_half_if(u + (m_n_0 + (lane * 2 + warp * 64) + 1), m_n_0 + (lane * 2 + warp * 64) + 1 < 385));
  // c_1: f32[m_n:256] = copy u_r
  float c_1[2];
  #pragma unroll
  for (int r = 0; r < 2; ++r)
    c_1[r] = dd_f16(u_r[0], r);
  // mul_1: f32[m_n:256] = mul mul, c_1
  float mul_1[2];
  #pragma unroll
  for (int r = 0; r < 2; ++r)
    mul_1[r] = mul[r] * c_1[r];
  // c_2: f16[m_n:256] = copy mul_1
  u32 c_2[1];
  c_2[0] = dd_pack_f16(mul_1[0], mul_1[1]);
  // store y[m_n] at m_n m_n_0 < 385 <- c_2
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (m_n_0 + (lane * 2 + warp * 64 + r) < 385)
      dd_stg_half(y + (m_n_0 + (lane * 2 + warp * 64) + r), c_2[0] >> (r * 16));
  }
}
