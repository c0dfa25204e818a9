extern "C" __global__ void __launch_bounds__(384, 1) k_matmul(const u16* __restrict__ r_1, const u16* __restrict__ w, const u16* __restrict__ x, u16* __restrict__ y, const __grid_constant__ TensorMap map_x, const __grid_constant__ TensorMap map_w, const __grid_constant__ TensorMap map_r, const __grid_constant__ TensorMap map_y) {
  const int thread = threadIdx.x;
  const int lane = threadIdx.x % 32;
  const int warp = dd_uniform(threadIdx.x / 32);
  const int block = blockIdx.x;
  const u32 smem = dd_shared();
  const u32 bars = smem + 0;
  const u32 r_s = smem + 1024;
  const u32 x_s = smem + 17408;
  const u32 w_s = smem + 66560;
  const u32 y_s = smem + 91136;
  if (thread == 0) {
    #pragma unroll 1
    for (int s = 0; s < 1; ++s) {
      dd_mbar_init(bars + s * 8, 1);
      dd_mbar_init(bars + s * 8 + 8, 8);
    }
    #pragma unroll 1
    for (int s = 0; s < 3; ++s) {
      dd_mbar_init(bars + s * 8 + 16, 1);
      dd_mbar_init(bars + s * 8 + 40, 2);
    }
    dd_mbar_init_fence();
  }
  dd_sync();
  if (thread >= 256) {  // the producer
    dd_regs_dec<40>();
    if (thread == 256) {
      int phase_0 = 0;
      int slot_1 = 0;
      int phase_1 = 0;
      #pragma unroll 1
      for (int number = block; number < 12; number += 4) {
        const int m_0 = number / 4 * 128;
        const int n_0 = number % 4 * 64;
        #pragma unroll 1
        for (int k_0 = 0; k_0 < 520; k_0 += 64) {
          dd_mbar_wait(bars + slot_1 * 8 + 40, phase_1 ^ 1);
          dd_mbar_expect_tx(bars + slot_1 * 8 + 16, 24576);
          dd_tma_load_2d(x_s + slot_1 * 16384, &map_x, bars + slot_1 * 8 + 16, k_0, m_0);
          dd_tma_load_2d(w_s + slot_1 * 8192, &map_w, bars + slot_1 * 8 + 16, n_0, k_0);
          slot_1 = slot_1 + 1;
          if (slot_1 == 3) {
            slot_1 = 0;
            phase_1 ^= 1;
          }
        }
        dd_mbar_wait(bars + 8, phase_0 ^ 1);
        dd_mbar_expect_tx(bars, 16384);
        dd_tma_load_2d(r_s, &map_r, bars, n_0, m_0);
        phase_0 ^= 1;
      }
    }
  } else {  // the consumers
    dd_regs_inc<232>();
    int phase_0 = 0;
    int slot_1 = 0;
    int phase_1 = 0;
    #pragma unroll 1
    for (int number_1 = block; number_1 < 12; number_1 += 4) {
      const int m_0 = number_1 / 4 * 128;
      const int n_0 = number_1 % 4 * 64;
      // acc: f32[m:128,n:64] = 0
      float acc[32];
      #pragma unroll
      for (int r = 0; r < 32; ++r)
        acc[r] = 0.0f;
      // for k_0 in 0..520 step 64 ring 3 lag 1:
      int previous_1 = 0;
      #pragma unroll 1
      for (int k_0 = 0; k_0 < 520; k_0 += 64) {
        const u32 x_s_1 = x_s + slot_1 * 16384;
        const u32 w_s_1 = w_s + slot_1 * 8192;
        dd_mbar_wait(bars + slot_1 * 8 + 16, phase_1);
        // mma.fence
        dd_pin<32>(acc);
        dd_wgmma_fence();
        // acc += wgmma x_s, w_s
        dd_wgmma_m64n64k16_bf16_kt<1>(acc, dd_descriptor(x_s_1 + ((warp >> 2) & 1) * 8192, 16, 1024), dd_descriptor(w_s_1, 8192, 1024));
        // acc += wgmma x_s k+16, w_s k+16
        dd_wgmma_m64n64k16_bf16_kt<1>(acc, dd_descriptor(x_s_1 + ((warp >> 2) & 1) * 8192, 16, 1024) + 2, dd_descriptor(w_s_1, 8192, 1024) + 128);
        // acc += wgmma x_s k+32, w_s k+32
        dd_wgmma_m64n64k16_bf16_kt<1>(acc, dd_descriptor(x_s_1 + ((warp >> 2) & 1) * 8192, 16, 1024) + 4, dd_descriptor(w_s_1, 8192, 1024) + 256);
        // acc += wgmma x_s k+48, w_s k+48
        dd_wgmma_m64n64k16_bf16_kt<1>(acc, dd_descriptor(x_s_1 + ((warp >> 2) & 1) * 8192, 16, 1024) + 6, dd_descriptor(w_s_1, 8192, 1024) + 384);
        // mma.commit
        dd_wgmma_commit();
        // mma.wait 1
        dd_wgmma_wait<1>();
        dd_pin<32>(acc);
        if (k_0 != 0) {
          if (thread % 128 == 0)
            dd_mbar_arrive(bars + previous_1 * 8 + 40);
        }
        previous_1 = slot_1;
        slot_1 = slot_1 + 1;
        if (slot_1 == 3) {
          slot_1 = 0;
          phase_1 ^= 1;
        }
      }
      // mma.wait 0
      dd_wgmma_wait<0>();
      dd_pin<32>(acc);
      if (thread % 128 == 0)
        dd_mbar_arrive(bars + previous_1 * 8 + 40);
      const u32 r_s_1 = r_s;
      dd_mbar_wait(bars, phase_0);
      // r_r: bf16[m:128,n:64] = load.shared r_s
      u32 r_r[16];
      #pragma unroll
      for (int r = 0; r < 4; ++r)
        dd_ldmatrix_x4(&r_r[r * 4], r_s_1 + ((lane & 15) * 128 + (warp & 7) * 2048) + (((lane & 7) * 16) ^ ((lane >> 4) * 16) ^ (r * 32)));
      dd_fence_async();
      dd_syncwarp();
      if (lane == 0)
        dd_mbar_arrive(bars + 8);
      phase_0 ^= 1;
      // c: f32[m:128,n:64] = copy r_r
      float c[32];
      #pragma unroll
      for (int r = 0; r < 32; ++r)
        c[r] = dd_bf16(r_r[r / 2], r % 2);
      // add: f32[m:128,n:64] = add acc, c
      float add[32];
      #pragma unroll
      for (int r = 0; r < 32; ++r)
        add[r] = acc[r] + c[r];
      // c_1: bf16[m:128,n:64] = copy add
      u32 c_1[16];
      #pragma unroll
      for (int r = 0; r < 16; ++r)
        c_1[r] = dd_pack_bf16(add[r * 2], add[r * 2 + 1]);
      // y_s: shared bf16[m:128,n:64] = store.shared c_1
      if (thread % 128 == 0)
        dd_tma_store_wait_read();
      dd_bar(warp / 4 + 2, 128);
      #pragma unroll
      for (int r = 0; r < 4; ++r)
        dd_stmatrix_x4(y_s + ((lane & 15) * 128 + (warp & 7) * 2048) + (((lane & 7) * 16) ^ ((lane >> 4) * 16) ^ (r * 32)), &c_1[r * 4]);
      dd_fence_async();
      dd_bar(warp / 4 + 2, 128);
      // tma y[m, n] at m m_0 < 300, n n_0 < 200 <- y_s
      if (thread % 128 == 0) {
        dd_tma_store_2d(&map_y, y_s + warp / 4 * 8192, n_0, m_0 + warp / 4 * 64);
        dd_tma_store_commit();
      }
    }
    if (thread % 128 == 0)
      dd_tma_store_wait_read();
  }
}
