// The device's half of the primitives of deplodock/ir/primitive.py: a wrapper for each PTX instruction a kernel may use.
// Items are separated by blank lines; a kernel's source holds only those that it uses, and what they use.
// Every wrapper takes registers by address and is inlined; addresses in shared memory are 32-bit byte addresses.

typedef unsigned char u8; typedef signed char i8; typedef unsigned short u16; typedef short i16;
typedef unsigned int u32; typedef unsigned long long u64; typedef long long i64;
#define DD static __device__ __forceinline__
#define DD_INF __int_as_float(0x7f800000)
#define DD_NAN __int_as_float(0x7fc00000)

struct alignas(64) TensorMap { char opaque[128]; };

// ---- threads and barriers

DD u32 dd_shared() {  // dynamic shared memory, from its first multiple of 1024: the ABI promises 16 only
  extern __shared__ __align__(1024) char dd_bytes[];
  return ((u32)__cvta_generic_to_shared(dd_bytes) + 1023) & ~1023u;
}

DD void dd_sync() { __syncthreads(); }

DD void dd_syncwarp() { __syncwarp(); }

DD void dd_bar(u32 id, u32 threads) { asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(threads) : "memory"); }

DD int dd_uniform(int x) { return __shfl_sync(0xffffffffu, x, 0); }

template <class T> DD T dd_shfl_xor(T x, int mask) { return (T)__shfl_xor_sync(0xffffffffu, x, mask); }

// ---- arithmetic: maxima and minima are NaN if an operand is; integers wrap; shifts past the width give 0 or the sign

template <class T> DD T dd_max(T a, T b) { return a > b || a != a ? a : b; }
template <> __device__ __forceinline__ float dd_max<float>(float a, float b) {
  float c;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
}

template <class T> DD T dd_min(T a, T b) { return a < b || a != a ? a : b; }
template <> __device__ __forceinline__ float dd_min<float>(float a, float b) {
  float c;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
}

template <class T> DD T dd_abs(T a) {
  if constexpr ((T)0.5 != (T)0) return fabs(a);
  else return a < (T)0 ? (T)(0 - (u64)a) : a;
}

template <class T> DD T dd_sign(T a) { return (T)((a > (T)0) - (a < (T)0)); }

template <class T> DD T dd_truncdiv(T a, T b) {
  if constexpr ((T)0.5 != (T)0) return trunc(a / b);
  else return b == (T)0 ? (T)0 : (T)-1 < (T)0 && b == (T)-1 ? (T)(0 - (u64)a) : (T)(a / b);
}

template <class T> DD T dd_fmod(T a, T b) {
  if constexpr ((T)0.5 != (T)0) return fmod(a, b);
  else return b == (T)0 || b == (T)-1 && (T)-1 < (T)0 ? (T)0 : (T)(a % b);
}

template <class T> DD T dd_remainder(T a, T b) {  // has the sign of b
  T r = dd_fmod(a, b);
  return r != (T)0 && (b < (T)0) != (r < (T)0) ? (T)(r + b) : r;
}

template <class T> DD T dd_floordiv(T a, T b) {  // of floats: from the remainder, which is exact
  if constexpr ((T)0.5 != (T)0) {
    if (b == (T)0) return a / b;
    T r = dd_fmod(a, b), q = (a - r) / b;
    if (r != (T)0 && (b < (T)0) != (r < (T)0)) q -= (T)1;
    T f = floor(q);
    return q == (T)0 ? copysign((T)0, a / b) : q - f > (T)0.5 ? f + (T)1 : f;
  } else {
    T q = dd_truncdiv(a, b), r = dd_fmod(a, b);
    return r != (T)0 && (b < (T)0) != (r < (T)0) ? (T)(q - (T)1) : q;
  }
}

template <class T> DD T dd_pow(T a, T b) {
  if constexpr ((T)0.5 != (T)0) return pow(a, b);
  else {
    if (b < (T)0) return a == (T)1 ? (T)1 : a == (T)-1 ? (b & 1 ? (T)-1 : (T)1) : (T)0;
    u64 r = 1, x = (u64)a;
    for (u64 n = (u64)b; n; n >>= 1, x *= x) if (n & 1) r *= x;
    return (T)r;
  }
}

template <class T> DD T dd_shl(T a, T b) { return (u64)b >= 8 * sizeof(T) ? (T)0 : (T)((u64)a << (u64)b); }

template <class T> DD T dd_shr(T a, T b) { return (u64)b >= 8 * sizeof(T) ? (T)(a < (T)0 ? -1 : 0) : (T)(a >> b); }

DD float dd_exp2(float x) {  // 2 ulp
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

DD float dd_rcp(float x) {  // 1 ulp
  float y;
  asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

DD float dd_rsqrt(float x) { return rsqrtf(x); }

DD float dd_bf16(u32 pair, int high) { return __uint_as_float(high ? pair & 0xffff0000u : pair << 16); }

DD float dd_f16(u32 pair, int high) {
  float x;
  u16 bits = (u16)(high ? pair >> 16 : pair);
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}

DD u32 dd_pack_bf16(float low, float high) {
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

DD u32 dd_pack_f16(float low, float high) {
  u32 pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

DD u32 dd_pack_bits(u32 low, u32 high) { return low & 0xffffu | high << 16; }

DD void dd_check(i64 i, i64 extent) {  // a loaded index outside of its extent stops the program
  if ((u64)i >= (u64)extent) __trap();
}

// ---- global memory: 1 to 16 bytes, into or out of as many registers as they fill

template <class T> DD T dd_element(const u32* words, int i) {
  T x;
  memcpy(&x, (const char*)words + i * sizeof(T), sizeof(T));
  return x;
}

template <int N, class T> DD void dd_spread(T* x, const u32* words) {
#pragma unroll
  for (int i = 0; i < (int)(N / sizeof(T)); ++i) x[i] = dd_element<T>(words, i);
}

template <int N, class T> DD void dd_gather(u32* words, const T* x) {
#pragma unroll
  for (int i = 0; i < (int)(N / sizeof(T)); ++i) memcpy((char*)words + i * sizeof(T), &x[i], sizeof(T));
}

template <int N, class T> DD void dd_zero(T* x) {
#pragma unroll
  for (int i = 0; i < (int)(N / sizeof(T)); ++i) x[i] = (T)0;
}

template <class T> DD void dd_ldg1(T* x, const void* from) {
  u32 w[1];
  asm("{.reg .b8 b; ld.global.nc.b8 b, [%1]; cvt.u32.u8 %0, b;}" : "=r"(w[0]) : "l"(from));
  dd_spread<1>(x, w);
}

template <class T> DD void dd_ldg2(T* x, const void* from) {
  u32 w[1];
  u16 h;
  asm("ld.global.nc.b16 %0, [%1];" : "=h"(h) : "l"(from));
  w[0] = h;
  dd_spread<2>(x, w);
}

template <class T> DD void dd_ldg4(T* x, const void* from) {
  u32 w[1];
  asm("ld.global.nc.b32 %0, [%1];" : "=r"(w[0]) : "l"(from));
  dd_spread<4>(x, w);
}

template <class T> DD void dd_ldg8(T* x, const void* from) {
  u32 w[2];
  asm("ld.global.nc.v2.b32 {%0, %1}, [%2];" : "=r"(w[0]), "=r"(w[1]) : "l"(from));
  dd_spread<8>(x, w);
}

template <class T> DD void dd_ldg16(T* x, const void* from) {
  u32 w[4];
  asm("ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "l"(from));
  dd_spread<16>(x, w);
}

template <class T> DD void dd_ldg1_if(T* x, const void* from, bool ok) { dd_zero<1>(x); if (ok) dd_ldg1(x, from); }

template <class T> DD void dd_ldg2_if(T* x, const void* from, bool ok) { dd_zero<2>(x); if (ok) dd_ldg2(x, from); }

template <class T> DD void dd_ldg4_if(T* x, const void* from, bool ok) { dd_zero<4>(x); if (ok) dd_ldg4(x, from); }

template <class T> DD void dd_ldg8_if(T* x, const void* from, bool ok) { dd_zero<8>(x); if (ok) dd_ldg8(x, from); }

template <class T> DD void dd_ldg16_if(T* x, const void* from, bool ok) { dd_zero<16>(x); if (ok) dd_ldg16(x, from); }

DD u32 dd_ldg_half(const void* from) {
  u16 h;
  asm("ld.global.nc.b16 %0, [%1];" : "=h"(h) : "l"(from));
  return h;
}

DD u32 dd_ldg_half_if(const void* from, bool ok) { return ok ? dd_ldg_half(from) : 0u; }

template <class T> DD void dd_stg1(void* to, const T* x) {
  u32 w[1] = {0};
  dd_gather<1>(w, x);
  asm volatile("{.reg .b8 b; cvt.u8.u32 b, %1; st.global.b8 [%0], b;}" :: "l"(to), "r"(w[0]) : "memory");
}

template <class T> DD void dd_stg2(void* to, const T* x) {
  u32 w[1] = {0};
  dd_gather<2>(w, x);
  asm volatile("st.global.b16 [%0], %1;" :: "l"(to), "h"((u16)w[0]) : "memory");
}

template <class T> DD void dd_stg4(void* to, const T* x) {
  u32 w[1];
  dd_gather<4>(w, x);
  asm volatile("st.global.b32 [%0], %1;" :: "l"(to), "r"(w[0]) : "memory");
}

template <class T> DD void dd_stg8(void* to, const T* x) {
  u32 w[2];
  dd_gather<8>(w, x);
  asm volatile("st.global.v2.b32 [%0], {%1, %2};" :: "l"(to), "r"(w[0]), "r"(w[1]) : "memory");
}

template <class T> DD void dd_stg16(void* to, const T* x) {
  u32 w[4];
  dd_gather<16>(w, x);
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
               :: "l"(to), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]) : "memory");
}

DD void dd_stg_half(void* to, u32 bits) {
  asm volatile("st.global.b16 [%0], %1;" :: "l"(to), "h"((u16)bits) : "memory");
}

// ---- shared memory

template <class T> DD void dd_lds1(T* x, u32 from) {
  u32 w[1];
  asm volatile("{.reg .b8 b; ld.shared.b8 b, [%1]; cvt.u32.u8 %0, b;}" : "=r"(w[0]) : "r"(from) : "memory");
  dd_spread<1>(x, w);
}

template <class T> DD void dd_lds2(T* x, u32 from) {
  u32 w[1];
  u16 h;
  asm volatile("ld.shared.b16 %0, [%1];" : "=h"(h) : "r"(from) : "memory");
  w[0] = h;
  dd_spread<2>(x, w);
}

template <class T> DD void dd_lds4(T* x, u32 from) {
  u32 w[1];
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(w[0]) : "r"(from) : "memory");
  dd_spread<4>(x, w);
}

template <class T> DD void dd_lds8(T* x, u32 from) {
  u32 w[2];
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(w[0]), "=r"(w[1]) : "r"(from) : "memory");
  dd_spread<8>(x, w);
}

template <class T> DD void dd_lds16(T* x, u32 from) {
  u32 w[4];
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "r"(from) : "memory");
  dd_spread<16>(x, w);
}

DD u32 dd_lds_half(u32 from) {
  u16 h;
  asm volatile("ld.shared.b16 %0, [%1];" : "=h"(h) : "r"(from) : "memory");
  return h;
}

template <class T> DD void dd_sts1(u32 to, const T* x) {
  u32 w[1] = {0};
  dd_gather<1>(w, x);
  asm volatile("{.reg .b8 b; cvt.u8.u32 b, %1; st.shared.b8 [%0], b;}" :: "r"(to), "r"(w[0]) : "memory");
}

template <class T> DD void dd_sts2(u32 to, const T* x) {
  u32 w[1] = {0};
  dd_gather<2>(w, x);
  asm volatile("st.shared.b16 [%0], %1;" :: "r"(to), "h"((u16)w[0]) : "memory");
}

template <class T> DD void dd_sts4(u32 to, const T* x) {
  u32 w[1];
  dd_gather<4>(w, x);
  asm volatile("st.shared.b32 [%0], %1;" :: "r"(to), "r"(w[0]) : "memory");
}

template <class T> DD void dd_sts8(u32 to, const T* x) {
  u32 w[2];
  dd_gather<8>(w, x);
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" :: "r"(to), "r"(w[0]), "r"(w[1]) : "memory");
}

template <class T> DD void dd_sts16(u32 to, const T* x) {
  u32 w[4];
  dd_gather<16>(w, x);
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};"
               :: "r"(to), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]) : "memory");
}

DD void dd_sts_half(u32 to, u32 bits) { asm volatile("st.shared.b16 [%0], %1;" :: "r"(to), "h"((u16)bits) : "memory"); }

// ---- copies from global to shared memory: cp.async has 4, 8 and 16 bytes, smaller pieces go through a register

DD void dd_copy1_if(u32 to, const void* from, bool ok) { u8 x[1]; dd_ldg1_if(x, from, ok); dd_sts1(to, x); }

DD void dd_copy2_if(u32 to, const void* from, bool ok) { dd_sts_half(to, dd_ldg_half_if(from, ok)); }

DD void dd_cp_async4_if(u32 to, const void* from, bool ok) {
  int n = ok ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" :: "r"(to), "l"(from), "r"(n) : "memory");
}

DD void dd_cp_async8_if(u32 to, const void* from, bool ok) {
  int n = ok ? 8 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" :: "r"(to), "l"(from), "r"(n) : "memory");
}

DD void dd_cp_async16(u32 to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(from) : "memory");
}

DD void dd_cp_async16_if(u32 to, const void* from, bool ok) {
  int n = ok ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(to), "l"(from), "r"(n) : "memory");
}

DD void dd_cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int N> DD void dd_cp_async_wait() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }

// ---- tensor cores of sm_80

DD void dd_ldmatrix_x4(u32 x[4], u32 from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(from) : "memory");
}

DD void dd_ldmatrix_x4_trans(u32 x[4], u32 from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(from) : "memory");
}

DD void dd_mma_m16n8k16_bf16(float d[4], const u32 a[4], const u32 b[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

DD void dd_mma_m16n8k16_f16(float d[4], const u32 a[4], const u32 b[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// ---- sm_90: matrices back to shared memory, products of a warpgroup, mbarriers, bulk tensor copies, register budgets

DD void dd_stmatrix_x4(u32 to, const u32 x[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
               :: "r"(to), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]) : "memory");
}

DD void dd_stmatrix_x4_trans(u32 to, const u32 x[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
               :: "r"(to), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]) : "memory");
}

DD void dd_wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

DD void dd_wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int N> DD void dd_wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory"); }

template <int R> DD void dd_pin(float* x) {  // no use of these registers moves across
#pragma unroll
  for (int i = 0; i < R; ++i) asm volatile("" : "+f"(x[i]) :: "memory");
}

DD u64 dd_descriptor(u32 from, u32 leading, u32 stride) {  // of a tile with 128-byte swizzle; offsets in bytes
  return (u64)((from >> 4) & 0x3fff) | (u64)(leading >> 4) << 16 | (u64)(stride >> 4) << 32 | 1ull << 62;
}

DD void dd_mbar_init(u32 bar, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(count) : "memory");
}

DD void dd_mbar_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

DD void dd_mbar_expect_tx(u32 bar, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(bytes) : "memory");
}

DD void dd_mbar_arrive(u32 bar) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(bar) : "memory"); }

DD void dd_mbar_wait(u32 bar, u32 parity) {
  asm volatile("{.reg .pred p; W%=: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @p bra D%=; bra W%=; D%=: }"
               :: "r"(bar), "r"(parity) : "memory");
}

DD void dd_fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

DD void dd_prefetch_map(const TensorMap* map) { asm volatile("prefetch.tensormap [%0];" :: "l"(map) : "memory"); }

DD void dd_tma_load_2d(u32 to, const TensorMap* map, u32 bar, int x, int y) {  // coordinates innermost first
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%2, %3}], [%4];"
               :: "r"(to), "l"(map), "r"(x), "r"(y), "r"(bar) : "memory");
}

DD void dd_tma_load_3d(u32 to, const TensorMap* map, u32 bar, int x, int y, int z) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%2, %3, %4}], [%5];"
               :: "r"(to), "l"(map), "r"(x), "r"(y), "r"(z), "r"(bar) : "memory");
}

DD void dd_tma_load_4d(u32 to, const TensorMap* map, u32 bar, int x, int y, int z, int u) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%2, %3, %4, %5}], [%6];"
               :: "r"(to), "l"(map), "r"(x), "r"(y), "r"(z), "r"(u), "r"(bar) : "memory");
}

DD void dd_tma_load_5d(u32 to, const TensorMap* map, u32 bar, int x, int y, int z, int u, int v) {
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%2, %3, %4, %5, %6}], [%7];"
               :: "r"(to), "l"(map), "r"(x), "r"(y), "r"(z), "r"(u), "r"(v), "r"(bar) : "memory");
}

DD void dd_tma_store_2d(const TensorMap* map, u32 from, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];"
               :: "l"(map), "r"(x), "r"(y), "r"(from) : "memory");
}

DD void dd_tma_store_3d(const TensorMap* map, u32 from, int x, int y, int z) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];"
               :: "l"(map), "r"(x), "r"(y), "r"(z), "r"(from) : "memory");
}

DD void dd_tma_store_4d(const TensorMap* map, u32 from, int x, int y, int z, int u) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4}], [%5];"
               :: "l"(map), "r"(x), "r"(y), "r"(z), "r"(u), "r"(from) : "memory");
}

DD void dd_tma_store_5d(const TensorMap* map, u32 from, int x, int y, int z, int u, int v) {
  asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4, %5}], [%6];"
               :: "l"(map), "r"(x), "r"(y), "r"(z), "r"(u), "r"(v), "r"(from) : "memory");
}

DD void dd_tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

DD void dd_tma_store_wait_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }

template <int R> DD void dd_regs_dec() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(R)); }

template <int R> DD void dd_regs_inc() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(R)); }
