// What the host's version of CUDA (cuda.h, device.cuh) calls: the functions of the emulation's runtime.
//
// Included by every emulated kernel, so it includes nothing itself: a kernel then compiles in about 0.1 s. The wrappers
// that call these functions are always inlined, so that a function's return address lies in a line of the kernel's text.
#pragma once

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;
typedef unsigned char u8;

struct alignas(64) TensorMap { char opaque[128]; };      // the runtime keeps its own description of a tensor in it
struct uint3 { u32 x, y, z; };

namespace emu {

// ---- where this thread is -----------------------------------------------------------------------------------------
uint3 thread_idx() __attribute__((const));
uint3 block_idx() __attribute__((const));
uint3 block_dim() __attribute__((const));
uint3 grid_dim() __attribute__((const));
u32 cluster_rank();

// ---- shared memory: an address is an offset in the block's window, as the 32-bit addresses of PTX are -----------------
u32 shared_address(const void* p);
char* shared_pointer(u32 address) __attribute__((const));
u32 dynamic_shared();                                     // where the dynamic shared memory begins

// ---- barriers and fences ------------------------------------------------------------------------------------------
void sync_threads();
void named_barrier(u32 id, u32 threads, int wait);        // wait 0: arrive only
void cluster_sync();
void thread_fence();
void proxy_fence();                                       // fence.proxy.async

// ---- warps --------------------------------------------------------------------------------------------------------
enum WarpOp { SHUFFLE, SHUFFLE_XOR, SHUFFLE_UP, SHUFFLE_DOWN, BALLOT, SYNC_WARP };
u64 warp(WarpOp op, u32 mask, u64 value, u32 arg, u32 width);

// ---- what stops a program, and loads through the read-only path --------------------------------------------------------
void trap();
void index_outside(long long index, long long extent);
void check_read_only(const void* p, u32 bytes);           // ld.global.nc: no kernel writes there during the launch

// ---- atomics ------------------------------------------------------------------------------------------------------
enum AtomicOp { ADD, ADD_FLOAT, MIN_SIGNED, MAX_SIGNED, EXCHANGE, COMPARE_SWAP };
u64 atomic(AtomicOp op, void* p, int bytes, u64 a, u64 b); // bytes 4 or 8; the old value

// ---- asynchronous copies ------------------------------------------------------------------------------------------
void cp_async(u32 to, const void* from, u32 bytes, bool read); // read false: zeros, nothing is read
void cp_async_commit();
void cp_async_wait(u32 groups_left);
void mbarrier_init(u32 barrier, u32 count);
void mbarrier_init_fence();
void mbarrier_arrive(u32 barrier, int rank, u32 expect_bytes, int arrive); // rank -1: this block's
void mbarrier_wait(u32 barrier, u32 parity);
void tma_load(u32 to, const TensorMap* map, const int* at, u32 barrier, int multicast_mask); // -1: this block only
void tma_store(const TensorMap* map, u32 from, const int* at);
void bulk_commit();
void bulk_wait(u32 groups_left, int only_read);

// ---- matrices -----------------------------------------------------------------------------------------------------
enum Half { BF16, F16 };
void ldmatrix(u32 address, u32* fragment, int matrices, int transposed);
void stmatrix(u32 address, const u32* fragment, int matrices, int transposed);
void mma_m16n8k16(float* d, const u32* a, const u32* b, Half type);
struct Wgmma {
  float* d;
  u64 a, b;                       // descriptors of shared memory
  const u32* fragment;            // A in registers instead, or null
  int n, add, transpose_a, transpose_b;
  Half type;
};
void wgmma(Wgmma op);
void wgmma_fence();
void wgmma_commit();
void wgmma_wait(u32 groups_left);
void registers(u32 count, int increase);                  // setmaxnreg

// ---- what a translation unit says of its kernel ------------------------------------------------------------------------
struct Entry {
  const char* name;
  void (*call)(void** arguments);
  u32 parameters;
  u64 read_only;                  // bit i: parameter i is a pointer to const
  void (*probe)(volatile int*);
};

template <class T> struct Plain { typedef T type; };
template <class T> struct Plain<const T> { typedef T type; };
template <class T> struct Plain<T&> { typedef T type; };
template <class T> struct Plain<const T&> { typedef T type; };
template <class T> constexpr bool reads_only = false;
template <class T> constexpr bool reads_only<const T*> = true;
template <class T> constexpr bool reads_only<const T* __restrict> = true;

template <int... I> struct Numbers {};
template <int N, int... I> struct Count : Count<N - 1, N - 1, I...> {};
template <int... I> struct Count<0, I...> { typedef Numbers<I...> type; };

template <auto kernel> struct Caller;
template <class... P, void (*kernel)(P...)> struct Caller<kernel> {
  template <int... I> static inline __attribute__((always_inline)) void spread(void** a, Numbers<I...>) {
    kernel(*(typename Plain<P>::type*)a[I]...);
  }
  static void call(void** a) { spread(a, typename Count<sizeof...(P)>::type{}); }
  template <int... I> static constexpr u64 mask(Numbers<I...>) { return (((u64)reads_only<P> << I) | ... | 0); }
  static constexpr Entry entry(const char* name, void (*probe)(volatile int*)) {
    return {name, call, sizeof...(P), mask(typename Count<sizeof...(P)>::type{}), probe};
  }
};

}  // namespace emu
