// CUDA C++ on the host: what nvcc knows without a header. Emitted text is compiled unchanged after this file.
//
// It includes nothing but the runtime's interface: the C library's headers would double the time to compile a kernel.
#pragma once
#include "interface.h"

typedef signed char i8;
typedef short i16;
typedef long long i64;
typedef __SIZE_TYPE__ size_t;
typedef uint3 dim3;
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) uint4 { u32 x, y, z, w; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(8) uint2 { u32 x, y; };
struct alignas(8) int2 { int x, y; };

// Inlined without condition, so that the calls into the runtime return to lines of the kernel.
#define HOST static inline __attribute__((always_inline))
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __restrict__ __restrict
#define __align__(n) __attribute__((aligned(n)))
// One word makes both forms legal C++: a thread_local in a block is static, and "extern thread_local char raw[]" is a
// declaration. A block runs on one host thread, so its shared memory is that thread's own.
#define __shared__ thread_local
#define threadIdx emu::thread_idx()
#define blockIdx emu::block_idx()
#define blockDim emu::block_dim()
#define gridDim emu::grid_dim()

// ---- mathematics: the functions of the C library that CUDA has too, overloaded as in CUDA -------------------------------
#define EMU_UNARY(name)                            \
  extern "C" double name(double) noexcept;         \
  extern "C" float name##f(float) noexcept;        \
  HOST float name(float x) { return name##f(x); }
#define EMU_BINARY(name)                           \
  extern "C" double name(double, double) noexcept; \
  extern "C" float name##f(float, float) noexcept; \
  HOST float name(float x, float y) { return name##f(x, y); }
EMU_UNARY(exp) EMU_UNARY(exp2) EMU_UNARY(expm1) EMU_UNARY(log) EMU_UNARY(log2) EMU_UNARY(log10) EMU_UNARY(log1p)
EMU_UNARY(sin) EMU_UNARY(cos) EMU_UNARY(tan) EMU_UNARY(asin) EMU_UNARY(acos) EMU_UNARY(atan)
EMU_UNARY(sinh) EMU_UNARY(cosh) EMU_UNARY(tanh) EMU_UNARY(asinh) EMU_UNARY(acosh) EMU_UNARY(atanh)
EMU_UNARY(sqrt) EMU_UNARY(cbrt) EMU_UNARY(erf) EMU_UNARY(erfc) EMU_UNARY(lgamma) EMU_UNARY(tgamma)
EMU_UNARY(floor) EMU_UNARY(ceil) EMU_UNARY(trunc) EMU_UNARY(round) EMU_UNARY(rint) EMU_UNARY(nearbyint) EMU_UNARY(fabs)
EMU_BINARY(pow) EMU_BINARY(fmod) EMU_BINARY(remainder) EMU_BINARY(atan2) EMU_BINARY(hypot) EMU_BINARY(copysign)
EMU_BINARY(fmin) EMU_BINARY(fmax)
extern "C" float fmaf(float, float, float) noexcept;
extern "C" double fma(double, double, double) noexcept;
HOST float rsqrtf(float x) { return 1.0f / sqrtf(x); }
HOST double rsqrt(double x) { return 1.0 / sqrt(x); }
HOST float __fdividef(float x, float y) { return x / y; }
HOST float __expf_(float x) { return expf(x); }
#define __expf __expf_                                     // glibc keeps these names for itself
HOST bool isnan(float x) { return x != x; }
HOST bool isnan(double x) { return x != x; }
HOST bool isinf(float x) { return __builtin_isinf(x); }
HOST bool isinf(double x) { return __builtin_isinf(x); }
HOST bool isfinite(float x) { return __builtin_isfinite(x); }
HOST bool isfinite(double x) { return __builtin_isfinite(x); }
template <class A, class B> HOST auto min(A a, B b) -> decltype(a + b) { return (decltype(a + b))a < (decltype(a + b))b ? a : b; }
template <class A, class B> HOST auto max(A a, B b) -> decltype(a + b) { return (decltype(a + b))a > (decltype(a + b))b ? a : b; }

// ---- bits ---------------------------------------------------------------------------------------------------------------
extern "C" void* memcpy(void*, const void*, size_t) noexcept;
template <class T> HOST u64 emu_bits(T v) {
  u64 bits = 0;
  __builtin_memcpy(&bits, &v, sizeof v);
  return bits;
}
template <class T> HOST T emu_from(u64 bits) {
  T v;
  __builtin_memcpy(&v, &bits, sizeof v);
  return v;
}
HOST float __int_as_float(int v) { return emu_from<float>((u32)v); }
HOST int __float_as_int(float v) { return (int)emu_bits(v); }
HOST float __uint_as_float(u32 v) { return emu_from<float>(v); }
HOST u32 __float_as_uint(float v) { return (u32)emu_bits(v); }
HOST double __longlong_as_double(i64 v) { return emu_from<double>((u64)v); }
HOST i64 __double_as_longlong(double v) { return (i64)emu_bits(v); }
HOST int __popc(u32 v) { return __builtin_popcount(v); }
HOST int __ffs(int v) { return __builtin_ffs(v); }
HOST int __clz(int v) { return v ? __builtin_clz((u32)v) : 32; }
HOST size_t __cvta_generic_to_shared(const void* p) { return emu::shared_address(p); }
HOST float2 make_float2(float x, float y) { return {x, y}; }
HOST float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
HOST uint2 make_uint2(u32 x, u32 y) { return {x, y}; }
HOST uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return {x, y, z, w}; }
HOST int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
template <class T> HOST T __ldg(const T* p) { return *p; }
template <class T> HOST T __ldcg(const T* p) { return *p; }
HOST void __trap() { emu::trap(); }

// ---- warps --------------------------------------------------------------------------------------------------------------
template <class T> HOST T __shfl_sync(u32 mask, T v, int lane, int width = 32) {
  return emu_from<T>(emu::warp(emu::SHUFFLE, mask, emu_bits(v), lane, width));
}
template <class T> HOST T __shfl_xor_sync(u32 mask, T v, int lanes, int width = 32) {
  return emu_from<T>(emu::warp(emu::SHUFFLE_XOR, mask, emu_bits(v), lanes, width));
}
template <class T> HOST T __shfl_up_sync(u32 mask, T v, u32 lanes, int width = 32) {
  return emu_from<T>(emu::warp(emu::SHUFFLE_UP, mask, emu_bits(v), lanes, width));
}
template <class T> HOST T __shfl_down_sync(u32 mask, T v, u32 lanes, int width = 32) {
  return emu_from<T>(emu::warp(emu::SHUFFLE_DOWN, mask, emu_bits(v), lanes, width));
}
HOST u32 __ballot_sync(u32 mask, int vote) { return (u32)emu::warp(emu::BALLOT, mask, vote != 0, 0, 32); }
HOST int __any_sync(u32 mask, int vote) { return __ballot_sync(mask, vote) != 0; }
HOST int __all_sync(u32 mask, int vote) { return __ballot_sync(mask, vote) == mask; }
HOST void __syncwarp(u32 mask = ~0u) { emu::warp(emu::SYNC_WARP, mask, 0, 0, 32); }
HOST void __syncthreads() { emu::sync_threads(); }

// ---- fences and atomics ---------------------------------------------------------------------------------------------------
HOST void __threadfence() { emu::thread_fence(); }
HOST void __threadfence_block() { asm volatile("" ::: "memory"); }
template <class T> constexpr emu::AtomicOp emu_add = emu::ADD;
template <> constexpr emu::AtomicOp emu_add<float> = emu::ADD_FLOAT;
template <class T> HOST T emu_atomic(emu::AtomicOp op, T* p, T a, T b = {}) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "atomics have 4 or 8 bytes");
  return emu_from<T>(emu::atomic(op, p, sizeof(T), emu_bits(a), emu_bits(b)));
}
template <class T> HOST T atomicAdd(T* p, T v) { return emu_atomic(emu_add<T>, p, v); }
HOST int atomicMin(int* p, int v) { return emu_atomic(emu::MIN_SIGNED, p, v); }
HOST int atomicMax(int* p, int v) { return emu_atomic(emu::MAX_SIGNED, p, v); }
template <class T> HOST T atomicExch(T* p, T v) { return emu_atomic(emu::EXCHANGE, p, v); }
template <class T> HOST T atomicCAS(T* p, T expected, T v) { return emu_atomic(emu::COMPARE_SWAP, p, expected, v); }
