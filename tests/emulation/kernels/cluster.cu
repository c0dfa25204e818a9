// Two blocks of a cluster share a tile of 64 x 64 that one of them copies to both; each writes its half of twice the tile.
#ifdef __CUDACC__
static __device__ __forceinline__ u32 cluster_rank() { u32 r; asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
static __device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
static __device__ __forceinline__ void load_both(u32 to, const TensorMap* m, u32 bar, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
               "[%0], [%1, {%3, %4}], [%2], %5;" :: "r"(to), "l"(m), "r"(bar), "r"(x), "r"(y), "h"((u16)3) : "memory");
}
static __device__ __forceinline__ void arrive_at(u32 bar, u32 rank) {
  asm volatile("{.reg .b32 r; mapa.shared::cluster.u32 r, %0, %1;\nmbarrier.arrive.shared::cluster.b64 _, [r];}"
               :: "r"(bar), "r"(rank) : "memory");
}
#else
static inline __attribute__((always_inline)) u32 cluster_rank() { return emu::cluster_rank(); }
static inline __attribute__((always_inline)) void cluster_sync() { emu::cluster_sync(); }
static inline __attribute__((always_inline)) void load_both(u32 to, const TensorMap* m, u32 bar, int x, int y) {
  const int at[5] = {x, y};
  emu::tma_load(to, m, at, bar, 3);
}
static inline __attribute__((always_inline)) void arrive_at(u32 bar, u32 rank) { emu::mbarrier_arrive(bar, rank, 0, 1); }
#endif

extern "C" __global__ void __cluster_dims__(2, 1, 1) cluster(const __grid_constant__ TensorMap x, float* __restrict__ y, int rounds) {
  const u32 smem = dd_shared(), full = smem + 8192, empty = full + 8, t = threadIdx.x, rank = cluster_rank();
  if (t == 0) {
    dd_mbar_init(full, 1);
    dd_mbar_init(empty, 2);
    dd_mbar_init_fence();
  }
  cluster_sync();
  for (int i = 0; i < rounds; ++i) {
    const int tile = blockIdx.x / 2 * rounds + i;
    if (t == 0) {
      dd_mbar_expect_tx(full, 8192);
      if (rank == 0) {
        dd_mbar_wait(empty, (i & 1) ^ 1);
        load_both(smem, &x, full, 0, tile * 64);
      }
    }
    dd_mbar_wait(full, i & 1);
    for (int e = t; e < 2048; e += 64) {
      const u32 row = rank * 32 + e / 64, column = e % 64, chunk = column / 8 ^ row & 7;
      y[tile * 4096 + row * 64 + column] = 2.0f * dd_bf16(dd_lds_half(smem + row * 128 + chunk * 16 + column % 8 * 2), 0);
    }
    dd_fence_async();
    dd_sync();
    if (t == 0) arrive_at(empty, 0);
  }
  cluster_sync();
}
