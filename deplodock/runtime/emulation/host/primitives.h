// The host's half of the primitives of deplodock/ir/primitive.py: the twin of deplodock/lower/device.cuh.
//
// It holds what device.cuh writes in PTX. What device.cuh writes in plain C++ (dd_floordiv, dd_pow, ..) is one text for
// both: build.py takes it from there. Loads and stores are plain C++ accesses, which the compiler instruments.
#pragma once
#include "cuda.h"

#define DD static inline __attribute__((always_inline))
#define DD_INF __builtin_inff()
#define DD_NAN __builtin_nanf("")

// ---- threads and barriers

DD u32 dd_shared() { return (emu::dynamic_shared() + 1023) & ~1023u; }
DD void dd_bar(u32 id, u32 threads) { emu::named_barrier(id, threads, 1); }

// ---- arithmetic

template <class T> DD T dd_max(T a, T b) { return a > b || a != a ? a : b; }
template <class T> DD T dd_min(T a, T b) { return a < b || a != a ? a : b; }
DD float dd_exp2(float x) {  // results below the smallest normal number are 0, as ex2.approx.ftz has it
  float y = exp2f(x);
  return y < 1.17549435e-38f ? 0.0f : y;
}
DD float dd_rcp(float x) { return 1.0f / x; }
DD float dd_f16(u32 pair, int high) { return (float)emu_from<_Float16>((high ? pair >> 16 : pair) & 0xffffu); }
DD u32 emu_round_bf16(float x) {  // to nearest, ties to even; any NaN is cvt.rn's canonical one
  const u32 v = (u32)emu_bits(x);
  return (v & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : (v + 0x7fffu + (v >> 16 & 1)) >> 16;
}
DD u32 dd_pack_bf16(float low, float high) { return emu_round_bf16(low) | emu_round_bf16(high) << 16; }
DD u32 emu_round_f16(float x) { return x != x ? 0x7fffu : (u32)emu_bits((_Float16)x); }
DD u32 dd_pack_f16(float low, float high) { return emu_round_f16(low) | emu_round_f16(high) << 16; }
DD void dd_check(i64 i, i64 extent) {
  if ((u64)i >= (u64)extent) emu::index_outside(i, extent);
}

// ---- global memory: each piece is one access, so that its alignment is seen

template <int N> struct emu_Piece { typedef u32 type __attribute__((vector_size(N))); };
template <> struct emu_Piece<1> { typedef u8 type; };
template <> struct emu_Piece<2> { typedef u16 type; };
template <> struct emu_Piece<4> { typedef u32 type; };
template <> struct emu_Piece<8> { typedef u64 type; };
template <int N, class T> DD void emu_read(T* x, const void* from) {
  const typename emu_Piece<N>::type piece = *(const typename emu_Piece<N>::type*)from;
  T all[N / sizeof(T) ? N / sizeof(T) : 1];
  __builtin_memcpy(all, &piece, N);
  for (int i = 0; i < (int)(N / sizeof(T)); ++i) x[i] = all[i];
}
template <int N, class T> DD void emu_write(void* to, const T* x) {
  T all[N / sizeof(T) ? N / sizeof(T) : 1];
  for (int i = 0; i < (int)(N / sizeof(T)); ++i) all[i] = x[i];
  typename emu_Piece<N>::type piece;
  __builtin_memcpy(&piece, all, N);
  *(typename emu_Piece<N>::type*)to = piece;
}
template <int N, class T> DD void emu_load(T* x, const void* from) {
#ifdef __SANITIZE_THREAD__
  emu::check_read_only(from, N);
#endif
  emu_read<N>(x, from);
}
#define EMU_GLOBAL(N)                                                                       \
  template <class T> DD void dd_ldg##N(T* x, const void* from) { emu_load<N>(x, from); }    \
  template <class T> DD void dd_stg##N(void* to, const T* x) { emu_write<N>(to, x); }
EMU_GLOBAL(1)
EMU_GLOBAL(2)
EMU_GLOBAL(4)
EMU_GLOBAL(8)
EMU_GLOBAL(16)
DD u32 dd_ldg_half(const void* from) {
  u16 bits[1];
  emu_load<2>(bits, from);
  return bits[0];
}
DD void dd_stg_half(void* to, u32 bits) { *(u16*)to = (u16)bits; }

// ---- shared memory

#define EMU_SHARED_PIECES(N)                                                                                \
  template <class T> DD void dd_lds##N(T* x, u32 from) { emu_read<N>(x, emu::shared_pointer(from)); }       \
  template <class T> DD void dd_sts##N(u32 to, const T* x) { emu_write<N>(emu::shared_pointer(to), x); }
EMU_SHARED_PIECES(1)
EMU_SHARED_PIECES(2)
EMU_SHARED_PIECES(4)
EMU_SHARED_PIECES(8)
EMU_SHARED_PIECES(16)
DD u32 dd_lds_half(u32 from) { return *(u16*)emu::shared_pointer(from); }
DD void dd_sts_half(u32 to, u32 bits) { *(u16*)emu::shared_pointer(to) = (u16)bits; }

// ---- copies

DD void dd_cp_async4_if(u32 to, const void* from, bool ok) { emu::cp_async(to, from, 4, ok); }
DD void dd_cp_async8_if(u32 to, const void* from, bool ok) { emu::cp_async(to, from, 8, ok); }
DD void dd_cp_async16(u32 to, const void* from) { emu::cp_async(to, from, 16, true); }
DD void dd_cp_async16_if(u32 to, const void* from, bool ok) { emu::cp_async(to, from, 16, ok); }
DD void dd_cp_async_commit() { emu::cp_async_commit(); }
template <int N> DD void dd_cp_async_wait() { emu::cp_async_wait(N); }

// ---- tensor cores

DD void dd_ldmatrix_x4(u32 x[4], u32 from) { emu::ldmatrix(from, x, 4, 0); }
DD void dd_ldmatrix_x4_trans(u32 x[4], u32 from) { emu::ldmatrix(from, x, 4, 1); }
DD void dd_stmatrix_x4(u32 to, const u32 x[4]) { emu::stmatrix(to, x, 4, 0); }
DD void dd_stmatrix_x4_trans(u32 to, const u32 x[4]) { emu::stmatrix(to, x, 4, 1); }
DD void dd_mma_m16n8k16_bf16(float d[4], const u32 a[4], const u32 b[2]) { emu::mma_m16n8k16(d, a, b, emu::BF16); }
DD void dd_mma_m16n8k16_f16(float d[4], const u32 a[4], const u32 b[2]) { emu::mma_m16n8k16(d, a, b, emu::F16); }

DD void dd_wgmma_fence() { emu::wgmma_fence(); }
DD void dd_wgmma_commit() { emu::wgmma_commit(); }
template <int N> DD void dd_wgmma_wait() { emu::wgmma_wait(N); }
template <int R> DD void dd_pin(float* x) {}  // a constraint on nvcc's registers: nothing to do here

// dd_wgmma_m64n<N>k16_<type>_<A><B>: A in registers (r) or shared memory with k (k) or its rows (t) contiguous, B likewise.
#define EMU_WGMMA(N, NAME, TYPE, B, TB)                                                                                       \
  template <int ADD> DD void dd_wgmma_m64n##N##k16_##NAME##_r##B(float d[N / 2], const u32 a[4], u64 b) {                     \
    emu::wgmma({d, 0, b, a, N, ADD, 0, TB, TYPE});                                                                            \
  }                                                                                                                           \
  template <int ADD> DD void dd_wgmma_m64n##N##k16_##NAME##_k##B(float d[N / 2], u64 a, u64 b) {                              \
    emu::wgmma({d, a, b, nullptr, N, ADD, 0, TB, TYPE});                                                                      \
  }                                                                                                                           \
  template <int ADD> DD void dd_wgmma_m64n##N##k16_##NAME##_t##B(float d[N / 2], u64 a, u64 b) {                              \
    emu::wgmma({d, a, b, nullptr, N, ADD, 1, TB, TYPE});                                                                      \
  }
#define EMU_WGMMA_N(N)                                                                                     \
  EMU_WGMMA(N, bf16, emu::BF16, k, 0) EMU_WGMMA(N, bf16, emu::BF16, t, 1)                                  \
  EMU_WGMMA(N, f16, emu::F16, k, 0) EMU_WGMMA(N, f16, emu::F16, t, 1)
// build.py writes EMU_WGMMA_N(N) for each N that a kernel uses.

// ---- mbarriers, bulk tensor copies, register budgets

DD void dd_mbar_init(u32 bar, u32 count) { emu::mbarrier_init(bar, count); }
DD void dd_mbar_init_fence() { emu::mbarrier_init_fence(); }
DD void dd_mbar_expect_tx(u32 bar, u32 bytes) { emu::mbarrier_arrive(bar, -1, bytes, 1); }
DD void dd_mbar_arrive(u32 bar) { emu::mbarrier_arrive(bar, -1, 0, 1); }
DD void dd_mbar_wait(u32 bar, u32 parity) { emu::mbarrier_wait(bar, parity); }
DD void dd_fence_async() { emu::proxy_fence(); }
DD void dd_prefetch_map(const TensorMap* map) {}
DD void emu_bulk_load(u32 to, const TensorMap* map, u32 bar, int x, int y, int z = 0, int u = 0, int v = 0) {
  const int at[5] = {x, y, z, u, v};
  emu::tma_load(to, map, at, bar, -1);
}
DD void emu_bulk_store(const TensorMap* map, u32 from, int x, int y, int z = 0, int u = 0, int v = 0) {
  const int at[5] = {x, y, z, u, v};
  emu::tma_store(map, from, at);
}
DD void dd_tma_load_2d(u32 to, const TensorMap* map, u32 bar, int x, int y) { emu_bulk_load(to, map, bar, x, y); }
DD void dd_tma_load_3d(u32 to, const TensorMap* map, u32 bar, int x, int y, int z) { emu_bulk_load(to, map, bar, x, y, z); }
DD void dd_tma_load_4d(u32 to, const TensorMap* map, u32 bar, int x, int y, int z, int u) {
  emu_bulk_load(to, map, bar, x, y, z, u);
}
DD void dd_tma_load_5d(u32 to, const TensorMap* map, u32 bar, int x, int y, int z, int u, int v) {
  emu_bulk_load(to, map, bar, x, y, z, u, v);
}
DD void dd_tma_store_2d(const TensorMap* map, u32 from, int x, int y) { emu_bulk_store(map, from, x, y); }
DD void dd_tma_store_3d(const TensorMap* map, u32 from, int x, int y, int z) { emu_bulk_store(map, from, x, y, z); }
DD void dd_tma_store_4d(const TensorMap* map, u32 from, int x, int y, int z, int u) { emu_bulk_store(map, from, x, y, z, u); }
DD void dd_tma_store_5d(const TensorMap* map, u32 from, int x, int y, int z, int u, int v) {
  emu_bulk_store(map, from, x, y, z, u, v);
}
DD void dd_tma_store_commit() { emu::bulk_commit(); }
DD void dd_tma_store_wait_read() { emu::bulk_wait(0, 1); }
template <int R> DD void dd_regs_dec() { emu::registers(R, 0); }
template <int R> DD void dd_regs_inc() { emu::registers(R, 1); }
