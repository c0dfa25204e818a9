// c[m,n] = sum_k a[m,k] b[n,k] in bf16 on Hopper: a producer, two consumers of 64 x 64, a ring of 3 stages of 64 filled by
// TMA, results through a staging tile by TMA. Blocks take several tiles.
extern "C" __global__ void __launch_bounds__(384, 1)
gemm(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap c,
     int M, int N, int K) {
  const u32 smem = dd_shared(), staging = smem + 3 * 24576, full = staging + 2 * 8192, empty = full + 24;
  const int t = threadIdx.x, columns = (N + 63) / 64, tiles = (M + 127) / 128 * columns, steps = K / 64;
  if (t == 0) {
    for (int i = 0; i < 3; ++i) {
      dd_mbar_init(full + 8 * i, 1);
      dd_mbar_init(empty + 8 * i, 2);
    }
    dd_mbar_init_fence();
  }
  dd_sync();
  u32 slot = 0, phase = 0;
  if (t >= 256) {
    dd_regs_dec<40>();
    if (t == 256)
      for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x)
        for (int k = 0; k < steps; ++k) {
          const u32 stage = smem + slot * 24576;
          dd_mbar_wait(empty + 8 * slot, phase ^ 1);
          dd_mbar_expect_tx(full + 8 * slot, 24576);
          dd_tma_load_2d(stage, &a, full + 8 * slot, k * 64, tile / columns * 128);
          dd_tma_load_2d(stage + 16384, &b, full + 8 * slot, k * 64, tile % columns * 64);
          if (++slot == 3) { slot = 0; phase ^= 1; }
        }
    return;
  }
  dd_regs_inc<232>();
  const int group = t / 128, warp = t % 128 / 32, lane = t % 32;
  const u32 panel = staging + group * 8192;
  float d[32];
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    u32 previous = 0;
    for (int k = 0; k < steps; ++k) {
      const u32 stage = smem + slot * 24576;
      dd_mbar_wait(full + 8 * slot, phase);
      const u64 da = dd_descriptor(stage + group * 8192, 16, 1024), db = dd_descriptor(stage + 16384, 16, 1024);
      dd_pin<32>(d);
      dd_wgmma_fence();
      for (int i = 0; i < 4; ++i) {
        if (k == 0 && i == 0) dd_wgmma_m64n64k16_bf16_kk<0>(d, da, db);
        else dd_wgmma_m64n64k16_bf16_kk<1>(d, da + 2 * i, db + 2 * i);
      }
      dd_wgmma_commit();
      dd_wgmma_wait<1>();
      if (k > 0 && t % 128 == 0) dd_mbar_arrive(empty + 8 * previous);
      previous = slot;
      if (++slot == 3) { slot = 0; phase ^= 1; }
    }
    dd_wgmma_wait<0>();
    if (t % 128 == 0) dd_mbar_arrive(empty + 8 * previous);
    if (t % 128 == 0) dd_tma_store_wait_read();
    dd_bar(1 + group, 128);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const u32 row = 16 * warp + lane % 16, chunk = 2 * j + lane / 16;
      const u32 x[4] = {dd_pack_bf16(d[8 * j], d[8 * j + 1]), dd_pack_bf16(d[8 * j + 2], d[8 * j + 3]),
                        dd_pack_bf16(d[8 * j + 4], d[8 * j + 5]), dd_pack_bf16(d[8 * j + 6], d[8 * j + 7])};
      dd_stmatrix_x4(panel + row * 128 + ((chunk ^ row & 7) << 4), x);
    }
    dd_fence_async();
    dd_bar(1 + group, 128);
    if (t % 128 == 0) {
      dd_tma_store_2d(&c, panel, tile % columns * 64, tile / columns * 128 + group * 64);
      dd_tma_store_commit();
    }
  }
  if (t % 128 == 0) dd_tma_store_wait_read();
}
