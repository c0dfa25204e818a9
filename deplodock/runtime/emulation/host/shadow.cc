// Shadow memory: bounds, initialisation, races and proxy fences of shared memory, and the compiler's hooks.
//
// Kernels compiled with -fsanitize=thread call __tsan_read4(p) and its kin before each load and store. libtsan is not
// linked: the functions are ours, so plain C++ accesses are checked while the emitted text stays as it is. The return
// address of such a call gives the line of the text.
//
// For every cell of shared memory the last write is kept, and up to four reads since: one for each parity of warpgroup
// and of lane. A racing reader beyond those can be forgotten.
#include "state.h"

namespace emu {
constexpr u64 YIELD_EVERY = 1 << 20;         // accesses of a block between forced switches: a spinning thread lets others run
bool instrumented = false;                   // whether a hook ever ran outside a launch: see main.cc

// How an access that a clock (of thread or engine `id`) dates stands to a thread that knows `known`: 0 before it,
// 1 unordered, 2 before it but not followed by a proxy fence that `known` includes, as asynchronous accesses need.
int ordered(const Known& known, u32 id, u32 clock, bool async) {
  if (id == known.self) return async && known.fenced < clock ? 2 : 0;
  if (id == threads + known.self) return known.async_clock < clock;
  if (known.others[id] < clock) return 1;
  return async && id < threads && known.others[fenced_part + id] < clock ? 2 : 0;
}

bool inside(const Block& b, u32 a, u32 n) {
  const u32 dynamic_end = b.dynamic + SHARED_BYTES;        // static memory lies on both sides of the dynamic
  return (a >= b.dynamic && a + n <= b.dynamic + launch.shared) || (a >= b.static_begin && a + n <= b.dynamic - 16) ||
         (a >= dynamic_end && a + n <= b.static_end);
}

namespace {
std::string who(u32 id) {
  const u32 t = id % threads;
  if (id < 2 * threads) {
    std::string rank = launch.cluster > 1 ? " of cluster rank " + std::to_string(t / block_threads) : "";
    return (id < threads ? "thread " : "an asynchronous copy of thread ") + std::to_string(t % block_threads) + rank;
  }
  if (id < 2 * threads + warpgroups) return "a wgmma of warpgroup " + std::to_string((id - 2 * threads) % std::max(1u, block_threads / 128));
  return "a TMA load on mbarrier #" + std::to_string((id - 2 * threads - warpgroups) % MBARRIERS);
}

const char* name_of(Kind kind, bool async) {
  if (async) return kind == READ ? "asynchronous read" : "asynchronous write";
  return kind == ATOMIC ? "atomic" : kind == WRITE ? "write" : "read";
}

void conflict(u32 address, const char* now, const char* before, u32 id, const Access& other, int how, u32 pc) {
  const std::string x = who(id), y = who(other.id);
  if (how == 2)
    fault("proxy", pc, other.pc, "%s by %s of shared 0x%x: the %s by %s at {2} was not followed by that thread's proxy fence",
          now, x.c_str(), address, before, y.c_str());
  else if (other.id >= threads && before[0] == 'w')
    fault("race", pc, other.pc, "%s by %s of shared 0x%x, before what %s at {2} writes there was waited for", now, x.c_str(),
          address, y.c_str());
  else
    fault("race", pc, other.pc, "%s by %s of shared 0x%x is not ordered after the %s by %s at {2}", now, x.c_str(), address,
          before, y.c_str());
}

inline u32 reader_slot(u32 id) { return (id >> 7 & 1) * 2 + ((id ^ id >> 5) & 1); }

// One cell's part of an access; false if a fault was told, and then none is told for the rest of the access.
inline bool touch_cell(Cell& cell, u32 address, Kind kind, const Known& known, const Access& now, bool async, bool quiet) {
  bool told = quiet;
  int how;
  const Access& w = cell.write;
  Access* mine_read = &cell.reads[reader_slot(now.id)];
  if (kind == READ && mine_read->id == now.id && mine_read->clock == now.clock) return !told;  // seen since the last wait
  if (w.id == NOBODY) {
    if (kind != WRITE && !told) {
      fault("uninitialised", now.pc, 0, "%s by %s of shared 0x%x, which nobody wrote", name_of(kind, async),
            who(now.id).c_str(), address);
      told = true;
    }
  } else {
    if (!told && now.flag != IS_MBARRIER && w.flag == IS_MBARRIER) {
      fault("mbarrier", now.pc, w.pc, "%s by %s of shared 0x%x touches the mbarrier made at {2}", name_of(kind, async),
            who(now.id).c_str(), address);
      told = true;
    }
    if (!told && !(kind == ATOMIC && w.flag == IS_ATOMIC) && (how = ordered(known, w.id, w.clock, async))) {
      conflict(address, name_of(kind, async), "write", now.id, w, how, now.pc);
      told = true;
    }
  }
  if (kind == READ) {
    *mine_read = now;
    return !told;
  }
  for (Access& r : cell.reads) {
    if (r.id != NOBODY && !told && r.id != now.id && (how = ordered(known, r.id, r.clock, async))) {
      conflict(address, name_of(kind, async), "read", now.id, r, how, now.pc);
      told = true;
    }
    r.id = NOBODY;
  }
  cell.write = now;
  return !told;
}
}  // namespace

// An access of `bytes` at a shared address by thread or engine `id`, at its time `clock`, on the knowledge `known`.
bool touch(Block& b, u32 address, u32 bytes, Kind kind, const Known& known, u32 id, u32 clock, bool async, u32 pc,
           Flag flag) {
  if (!inside(b, address, bytes)) {
    fault("bounds", pc, 0, "%s of %u bytes at shared 0x%x by %s: dynamic shared memory is 0x%x..0x%x, static 0x%x..0x%x",
          name_of(kind, async), bytes, address, who(id).c_str(), b.dynamic, b.dynamic + launch.shared, b.static_begin,
          b.dynamic - 16);
    return false;
  }
  if (!launch.checked) return true;
  const Access now{clock, pc, (u16)id, (u16)(kind == ATOMIC ? IS_ATOMIC : flag)};
  bool fine = true;
  for (u32 i = address >> launch.grain, end = (address + bytes - 1) >> launch.grain; i <= end; ++i)
    fine &= touch_cell(b.cells[i], i << launch.grain, kind, known, now, async, !fine);
  return fine;
}
bool touch(Fiber* f, u32 address, u32 bytes, Kind kind, u32 pc, Flag flag) {
  return touch(*f->block, address, bytes, kind, f->known, f->id, f->known.clock, false, pc, flag);
}

namespace {
// A local whose address escapes: perhaps an accumulator, which no plain code may touch while a wgmma on it is in flight.
void touch_stack(Fiber* f, char* p, u32 bytes, Kind kind, u32 pc) {
  if (!f->wgmma_fenced) return;
  const u32 first = (u32)(p - f->stack) / 4, end = ((u32)(p - f->stack) + bytes + 3) / 4;
  for (u32 i = first; i < end; ++i) f->dirty[i / 64] |= 1ull << i % 64;
  for (Held& h : f->held)
    if (p < (char*)(h.registers + h.count) && p + bytes > (char*)h.registers && (kind != READ || !h.value.empty()))
      fault("wgmma", pc, 0, "%s of %s register %u by thread %u while a wgmma on it is in flight", name_of(kind, false),
            h.value.empty() ? "A fragment" : "accumulator", (u32)((float*)p - h.registers), f->thread);
}
}  // namespace

inline __attribute__((always_inline)) void check(void* p, u32 bytes, Kind kind, u32 pc) {
  Fiber* f = current;
  if (!f) {                                  // outside a launch: main.cc's probe
    instrumented = true;
    return;
  }
  Block& b = *f->block;
  ++b.accesses;
  b.last_pc = pc;
  const Address on_stack = (Address)p - (Address)f->stack, shared = (Address)p - (Address)b.window;
  if (on_stack < STACK_BYTES) return touch_stack(f, (char*)p, bytes, kind, pc);
  if (bytes <= 16 && (Address)p % bytes)
    fault("misaligned", pc, 0, "%s of %u bytes at an address that is %u mod %u by thread %u", name_of(kind, false), bytes,
          (u32)((Address)p % bytes), bytes, f->thread);
  if (shared < b.window_bytes) touch(f, (u32)shared, bytes, kind, pc);
  else touch_global(p, bytes, kind, f->id, f->known.clock, pc);
  if (b.accesses % YIELD_EVERY == 0) yield_to_others(f);
}

}  // namespace emu

#define HOOKS(n)                                                                  \
  void __tsan_read##n(void* p) { emu::check(p, n, emu::READ, CALLER); }           \
  void __tsan_write##n(void* p) { emu::check(p, n, emu::WRITE, CALLER); }         \
  void __tsan_unaligned_read##n(void* p) { emu::check(p, n, emu::READ, CALLER); } \
  void __tsan_unaligned_write##n(void* p) { emu::check(p, n, emu::WRITE, CALLER); }
extern "C" {
HOOKS(1) HOOKS(2) HOOKS(4) HOOKS(8) HOOKS(16)
void __tsan_read_range(void* p, size_t n) { emu::check(p, (u32)n, emu::READ, CALLER); }
void __tsan_write_range(void* p, size_t n) { emu::check(p, (u32)n, emu::WRITE, CALLER); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}

struct SourceLocation { const char* file; u32 line, column; };
void __ubsan_handle_out_of_bounds(SourceLocation*, u64 index) {
  emu::fault("bounds", CALLER, 0, "index %lld outside an array of fixed size", (long long)index);
}
}
