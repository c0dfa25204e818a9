// c[m,n] = sum_k a[m,k] b[n,k] in bf16: tiles of 64 x 64, 4 warps of 32 x 32, a ring of 3 stages of 32 by cp.async.
// Rows of 64 bytes, whose chunks of 16 are swizzled by the row.
extern "C" __global__ void __launch_bounds__(128)
mma(const u16* __restrict__ a, const u16* __restrict__ b, u16* __restrict__ c, int M, int N, int K) {
  const u32 smem = dd_shared(), t = threadIdx.x, warp = t / 32, lane = t % 32;
  const int m0 = blockIdx.y * 64, n0 = blockIdx.x * 64, wm = warp / 2 * 32, wn = warp % 2 * 32, steps = K / 32;
  auto at = [&](u32 slot, u32 operand, u32 row, u32 chunk) {
    return smem + slot * 8192 + operand * 4096 + row * 64 + ((chunk ^ (row >> 1 & 3)) << 4);
  };
  auto load = [&](int k) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const u32 row = (t + 128 * i) / 4, chunk = t % 4;
      dd_cp_async16(at(k % 3, 0, row, chunk), a + (m0 + row) * K + k * 32 + chunk * 8);
      dd_cp_async16_if(at(k % 3, 1, row, chunk), b + (n0 + row) * K + k * 32 + chunk * 8, n0 + row < N);
    }
  };
  float d[2][4][4] = {};
  for (int k = 0; k < 2; ++k) {
    if (k < steps) load(k);
    dd_cp_async_commit();
  }
  for (int k = 0; k < steps; ++k) {
    dd_cp_async_wait<1>();
    dd_sync();
    if (k + 2 < steps) load(k + 2);
    dd_cp_async_commit();
#pragma unroll
    for (int kk = 0; kk < 2; ++kk) {
      u32 fa[2][4], fb[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        dd_ldmatrix_x4(fa[i], at(k % 3, 0, wm + 16 * i + lane % 16, 2 * kk + lane / 16));
        dd_ldmatrix_x4(fb[i], at(k % 3, 1, wn + 16 * i + lane / 16 * 8 + lane % 8, 2 * kk + lane / 8 % 2));
      }
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) dd_mma_m16n8k16_bf16(d[i][j], fa[i], &fb[j / 2][j % 2 * 2]);
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int row = m0 + wm + 16 * i + lane / 4, column = n0 + wn + 8 * j + lane % 4 * 2;
      u32 pair[2] = {dd_pack_bf16(d[i][j][0], d[i][j][1]), dd_pack_bf16(d[i][j][2], d[i][j][3])};
      if (column < N) {
        dd_stg4(c + row * N + column, &pair[0]);
        dd_stg4(c + (row + 8) * N + column, &pair[1]);
      }
    }
}
