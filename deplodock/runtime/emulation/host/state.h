// The state of a launch: clocks, shadow memory, threads, blocks, clusters. Shared by the runtime's parts.
//
// A thread of CUDA is a fiber; a block runs on one host thread, whose thread-local storage is the block's shared memory;
// the blocks of a cluster take turns. Time is a vector clock per thread (exact happens-before): see clocks below.
#pragma once
#include <stdint.h>
#include <string.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "interface.h"

#define CALLER ((u32)(uintptr_t)__builtin_return_address(0))   // executables are linked below 4 GB (-no-pie)

namespace emu {
typedef uintptr_t Address;

constexpr u32 PAGE = 4096;
constexpr u32 STACK_BYTES = 64 << 10;        // of a thread's fiber; a guard page lies below it
constexpr u32 SHARED_BYTES = 232448;         // the most dynamic shared memory that a block may ask for: 227 KB, sm_90
constexpr u32 WINDOW_BYTES = 256 << 10;      // what 18 bits of a descriptor reach
constexpr u32 NOBODY = 0xffff;               // a thread id that is none
constexpr u32 MBARRIERS = 64;                // clock ids per block for copies that signal an mbarrier
constexpr u32 POISON = 0x7fc0dead;           // a NaN: registers of an accumulator while a wgmma on it is in flight
constexpr long GUARD_BYTES = 256 << 20;      // unmapped on both sides of a buffer: a stray index meets no other buffer

// ---- the launch -------------------------------------------------------------------------------------------------------
struct GlobalAccess { u32 launch, block, block_clock, thread_clock; u16 id; };
struct GlobalWord { GlobalAccess write, read; };         // of one element: its last write and last read

struct Buffer {
  char* data;
  size_t bytes;
  u32 element;                    // bytes: 1, 2 or 4 (8 counts as two)
  bool defined;                   // false: to read what no kernel wrote is a fault
  bool pointed, mapped;           // in this launch: by a pointer, by a tensor map
  bool writable;                  // in this launch
  bool written;                   // writable in some launch
  GlobalWord* words;              // null if unchecked
};

struct Launch {
  const Entry* entry = nullptr;
  uint3 grid{1, 1, 1}, block{1, 1, 1};
  u32 number = 0, cluster = 1, shared = 0, seed = 0, workers = 1;
  u32 grain = 1;                  // log2 of the bytes that a cell of shadow memory stands for
  bool checked = true;
  std::vector<Buffer> buffers;
  void* arguments[64];
  u32 blocks() const { return grid.x * grid.y * grid.z; }
};
extern Launch launch;
extern u32 block_threads, threads, warpgroups;           // of a block; of a cluster; of a cluster
extern u32 fenced_part, clock_words;                     // where a clock's second part starts; words of a clock

void fault(const char* kind, u32 pc, u32 other_pc, const char* format, ...) __attribute__((format(printf, 4, 5)));

// ---- clocks -----------------------------------------------------------------------------------------------------------
// Ids: [0, N) threads of the cluster; [N, 2N) what a thread's cp.async and bulk stores do; [2N, 2N + G) what wgmmas of a
// warpgroup do; then MBARRIERS per block: what TMA loads that signal an mbarrier do. To wait for an asynchronous engine is
// what makes its accesses known, so "read before the wait" is a race like any other, in every schedule.
// A clock has a second part, N words: up to where a thread's accesses are known to be followed by its own proxy fence.
struct Clock { int refs; u32 at[1]; };
class ClockRef {                  // shared and immutable: threads that met at a barrier hold the same one
 public:
  ClockRef() {}
  explicit ClockRef(const u32* at);
  ClockRef(const ClockRef& o) : p(o.p) { if (p) ++p->refs; }
  ClockRef(ClockRef&& o) noexcept : p(o.p) { o.p = nullptr; }
  ClockRef& operator=(ClockRef o) { std::swap(p, o.p); return *this; }
  ~ClockRef();
  u32& operator[](u32 id) const { return p->at[id]; }
  const u32* data() const { return p->at; }
  explicit operator bool() const { return p; }
  bool operator==(const ClockRef& o) const { return p == o.p; }
 private:
  Clock* p = nullptr;
};
struct Known {                    // what a thread knows: the others' clocks, and apart from them its own
  ClockRef others;
  u32 self = 0, clock = 1, async_clock = 0, fenced = 0;
};
struct Meeting { std::vector<u32> clock; ClockRef last; };   // what those who arrived at a barrier know, joined

// ---- shadow of shared memory --------------------------------------------------------------------------------------------
enum Kind { READ, WRITE, ATOMIC };
enum Flag : u16 { PLAIN, IS_ATOMIC, IS_MBARRIER };
struct Access { u32 clock, pc; u16 id, flag; };
struct alignas(64) Cell { Access write, reads[4]; };         // of 1 << grain bytes: the last write, up to four reads since

// ---- waiting ------------------------------------------------------------------------------------------------------------
struct Fiber;
struct Block;
struct Cluster;
struct Waiting { const char* what; u32 pc, a, b; };
struct Barrier {
  u32 arrived = 0, expected = 0, pc = 0;
  std::vector<Fiber*> arrivals, waiters;
  Meeting meeting;
};
struct Collective {               // an operation that the lanes of a warp or warpgroup do together; the last one does it
  u32 arrived = 0, kind = 0, mask = 0, pc = 0;
  void* payload[128];
  Fiber *fibers[128] = {}, *first = nullptr;
};
struct MBarrier {
  u32 address, id, count;
  long pending, bytes;            // arrivals, and bytes expected minus landed, until the phase completes
  u64 phase;
  u32 async_clock;
  Access init;
  bool fenced;
  Meeting meeting;
  ClockRef completed;             // what a waiter learns
  std::vector<Fiber*> waiters;
};

// ---- work in flight -------------------------------------------------------------------------------------------------------
struct Map {                      // what a TensorMap holds; innermost dimension first
  u64 magic;
  char* base;
  u32 element, rank, swizzle;     // bytes; dimensions; bytes, 0 for none
  u32 extent[5], box[5];
  u64 stride[4];                  // bytes, of dimensions 1 .. rank - 1
};
static_assert(sizeof(Map) <= sizeof(TensorMap), "a tensor map holds the description");
struct CpAsync { u32 to; const char* from; u32 bytes, clock, pc; bool read; };
struct BulkStore { Map map; Block* block; u32 from, clock, pc; u16 id; int at[5]; std::vector<char> data; };
struct BulkLoad {
  Map map;
  u32 to, barrier, pc, mask;
  int at[5];
  u32 bytes;
  std::map<Block*, u64> phase;
  std::map<Block*, u32> clock;
};
struct Held { float* registers; u32 count, operations; std::vector<float> value; };  // value empty: an A fragment
struct WgmmaIssue { Wgmma op; Known known; u32 pc, clock; };

// ---- threads, blocks, clusters ----------------------------------------------------------------------------------------------
struct Fiber {
  void* stack_pointer;
  char* stack;
  Block* block;
  u32 id, thread, warp, lane, async_issued;
  uint3 index;
  bool ready, done, wgmma_fenced;
  Known known;
  Waiting waiting;
  // Groups of work in flight; the last one is not yet committed.
  std::vector<std::vector<CpAsync>> copies;
  std::vector<std::vector<BulkStore>> stores;
  std::vector<std::vector<WgmmaIssue>> products;
  std::vector<BulkStore> stores_read;        // stores whose source was read and whose target is not yet written
  std::vector<Held> held;                    // registers that a wgmma in flight uses
  std::vector<u64> dirty;                    // words of the stack touched since the last wgmma.fence
};

struct Block {
  Cluster* cluster;
  u32 rank, linear;
  uint3 index;
  char* window;                              // shared address a is window + a
  u32 window_bytes, dynamic, static_begin, static_end;
  std::vector<Cell> cells;
  std::vector<Fiber> fibers;
  char* stacks;
  std::vector<Fiber*> queue;
  u32 head = 0, live = 0, random = 1;
  void* scheduler;
  Barrier barriers[17];                      // 0 .. 15 are named, 16 is __syncthreads
  std::map<u32, MBarrier> mbarriers;
  std::vector<std::vector<Collective>> warps;
  std::vector<Collective> groups;            // warpgroups
  std::vector<u32> group_registers, products_issued, products_done;
  u32 free_registers;
  std::vector<Fiber*> want_registers;
  u32 last_pc;                               // of the last checked access: where a thread that never ends is
  u32 clock, fenced_clock;                   // for global memory, between blocks: one clock per block
  std::vector<u32> seen, acquired;           // of the other blocks' clocks: by an atomic; and then by a fence
  ClockRef memo[5];
  std::vector<float> accumulators;
  float a[16 * 64], b[16 * 256];
  u64 accesses = 0, switches = 0;
};

struct Cluster {
  std::vector<Block*> blocks;
  std::vector<BulkLoad> loads;
  Barrier all;
  u32 random = 1;
  std::mutex lock;
  std::condition_variable changed;
  int turn = -1;                             // rank of the block that runs; -2: all are done
  u64 number = 0;
  bool quit = false, dead = false;
};

// A kernel's __shared__ variables are the executable's .tbss; the runtime's own thread-local ones stay out of it.
#define KEPT_OUT_OF_SHARED __attribute__((section(".tdata")))
extern thread_local Fiber* current;          // the running fiber, null in the scheduler
extern thread_local Block* mine;             // the block of this host thread

// ---- the parts ------------------------------------------------------------------------------------------------------------
// faults.cc
bool any_fault();
// fibers.cc
u32 random_number(u32& state);
void start(Fiber& f);
void run_until_all_wait(Block& b);
void wake(Fiber* f);
void suspend(Fiber* f, Waiting why);
void yield_to_others(Fiber* f);
// shadow.cc
bool inside(const Block& b, u32 address, u32 bytes);
bool touch(Block& b, u32 address, u32 bytes, Kind kind, const Known& known, u32 id, u32 clock, bool async, u32 pc,
           Flag flag = PLAIN);
bool touch(Fiber* f, u32 address, u32 bytes, Kind kind, u32 pc, Flag flag = PLAIN);
int ordered(const Known& known, u32 id, u32 clock, bool async);
void check(void* p, u32 bytes, Kind kind, u32 pc);
extern bool instrumented;
// globals.cc
bool touch_global(const void* p, u32 bytes, Kind kind, u32 id, u32 clock, u32 pc);
// barriers.cc
Collective& of_warp(Fiber* f, u32 mask);
void release(Fiber* f, Meeting& m);
void acquire(Fiber* f, const ClockRef& snapshot);
void everyone_knows(std::vector<Fiber*>& fibers, Meeting& m);
void exited(Barrier& b, u32 live);
// mbarriers.cc
MBarrier* find_mbarrier(Block& b, u32 address, const char* what, u32 pc);
void progress(MBarrier& m);
void check_initialised(Fiber* f, MBarrier& m, bool by_copy_or_other_block, u32 pc);
// copies.cc
void land(Cluster& c, BulkLoad load);
void write_back(BulkStore& s);
bool encode(Map& map);
// blocks.cc
bool run_launch();
extern std::atomic<u64> total_accesses, total_switches;
// crashes.cc
void catch_crashes();
void install_crash_handlers();
}  // namespace emu
