// Global memory: bounds, races, reads of what no kernel wrote, writes to what a kernel declares const.
//
// For every element the last write and the last read are kept. Within a cluster, accesses are ordered by the threads'
// clocks, as in shared memory; between clusters by one clock per block: __threadfence, then an atomic, releases; an
// atomic on the same word, then __threadfence, acquires. A fence by one thread counts for its block.
#include "state.h"

extern char __executable_start, _end;

namespace emu {
namespace {

KEPT_OUT_OF_SHARED thread_local u32 last_buffer;           // the place of a thread's last buffer: most accesses go there again

Buffer* find_buffer(const char* p, u32 bytes) {
  auto& all = launch.buffers;
  auto holds = [&](const Buffer& b) { return p >= b.data && p + bytes <= b.data + b.bytes; };
  if (last_buffer >= all.size() || !holds(all[last_buffer]))
    for (last_buffer = 0; last_buffer < all.size() && !holds(all[last_buffer]);) ++last_buffer;
  return last_buffer < all.size() ? &all[last_buffer] : nullptr;
}

const char* verb(Kind kind) { return kind == WRITE ? "writes" : kind == ATOMIC ? "updates" : "reads"; }

bool same_cluster(u32 x, u32 y) { return x / launch.cluster == y / launch.cluster; }

// Whether `before` is ordered before an access that this block makes now.
bool comes_before(const GlobalAccess& before, u32 id, bool async) {
  if (before.launch != launch.number) return true;         // launches follow each other
  if (same_cluster(before.block, mine->linear)) {
    if (!current || async || id == before.id) return true; // copies: only what they do to other blocks is checked
    return !ordered(current->known, before.id, before.thread_clock, false);
  }
  return !mine->acquired.empty() && mine->acquired[before.block] >= before.block_clock;
}

std::string describe(const Buffer& b, const char* p) {
  return "byte " + std::to_string(p - b.data) + " of buffer {b" + std::to_string(&b - launch.buffers.data()) + "}";
}

std::string nearest(const char* p) {
  for (Buffer& b : launch.buffers) {
    const long offset = p - b.data;
    if (offset > -GUARD_BYTES && offset < (long)b.bytes + GUARD_BYTES)
      return describe(b, p) + ", which has " + std::to_string(b.bytes) + " bytes";
  }
  return "an address that is near no buffer";
}

void conflict(const Buffer& b, const char* p, Kind kind, const GlobalAccess& before, const char* how, u32 pc) {
  const bool here = same_cluster(before.block, mine->linear);
  const u32 x = before.block % launch.grid.x, y = before.block / launch.grid.x % launch.grid.y;
  std::string other = "block " + std::to_string(x) + "," + std::to_string(y) + "," +
                      std::to_string(before.block / launch.grid.x / launch.grid.y);
  if (here) other += " thread " + std::to_string(before.id % threads % block_threads);
  fault("global", pc, 0, "%s %s, %s in this launch by %s, with nothing that orders the two", verb(kind),
        describe(b, p).c_str(), how, other.c_str());
}

void touch_word(Buffer& b, char* p, Kind kind, const GlobalAccess& now, u32 pc) {
  GlobalWord& w = b.words[(p - b.data) / b.element];
  const bool async = now.id >= threads;
  if (!b.defined && !w.write.launch && kind == READ)
    fault("uninitialised", pc, 0, "reads %s, which no kernel wrote", describe(b, p).c_str());
  if (kind == ATOMIC) {
    w.write.launch = std::max(w.write.launch, 1u);
    return;
  }
  if (!comes_before(w.write, now.id, async)) conflict(b, p, kind, w.write, "written", pc);
  if (kind == WRITE) {
    if (!comes_before(w.read, now.id, async)) conflict(b, p, kind, w.read, "read", pc);
    w.write = now;
  } else if (!async) {
    w.read = now;
  }
}
}  // namespace

bool touch_global(const void* address, u32 bytes, Kind kind, u32 id, u32 clock, u32 pc) {
  char* p = (char*)address;
  Buffer* b = find_buffer(p, bytes);
  if (!b) {
    if (p >= &__executable_start && p < &_end) return true;          // tables of constants
    fault("bounds", pc, 0, "%s %u bytes of global memory at %s", verb(kind), bytes, nearest(p).c_str());
    return false;
  }
  if (!launch.checked) return true;
  if (kind == READ && !b->writable && b->defined) return true;       // nothing that this launch does can matter to it
  if (kind != READ && !b->writable)
    fault("const", pc, 0, "%s %s, which this kernel takes as a pointer to const", verb(kind), describe(*b, p).c_str());
  const GlobalAccess now{launch.number, mine->linear, mine->clock, clock, (u16)id};
  for (u32 i = 0; i < bytes; i += b->element) touch_word(*b, p + i, kind, now, pc);
  return true;
}

// Loads through the read-only path (ld.global.nc) may return what was there before any write of this launch.
void check_read_only(const void* address, u32 bytes) {
  char* p = (char*)address;
  const Buffer* b = find_buffer(p, bytes);
  if (!b || !b->writable) return;
  for (u32 i = 0; i < bytes; i += b->element)
    if (b->words[(p + i - b->data) / b->element].write.launch == launch.number)
      return fault("global", CALLER, 0, "reads %s, which this launch wrote, through the read-only path", describe(*b, p + i).c_str());
}

void thread_fence() {
  mine->fenced_clock = mine->clock++;
  mine->acquired = mine->seen;
}

namespace {
std::mutex atomic_lock;
std::map<void*, std::vector<u32>> atomic_clocks;           // of each word: the block clocks that its last atomic left
u32 atomic_launch;

void order_by_atomic(void* p) {                            // on global memory: release what was fenced, see what was released
  std::lock_guard<std::mutex> guard(atomic_lock);
  if (atomic_launch != launch.number) atomic_clocks.clear();
  atomic_launch = launch.number;
  std::vector<u32>&left = atomic_clocks[p], &seen = mine->seen;
  left.resize(launch.blocks());
  seen.resize(launch.blocks());
  seen[mine->linear] = mine->fenced_clock;
  for (size_t i = 0; i < seen.size(); ++i) left[i] = seen[i] = std::max(left[i], seen[i]);
}

template <class T> T as(u64 bits) { T v; memcpy(&v, &bits, sizeof v); return v; }
u64 bits(float v) { u32 r; memcpy(&r, &v, 4); return r; }

u64 apply(AtomicOp op, u64 old, u64 a, u64 b) {
  switch (op) {
    case ADD: return old + a;
    case ADD_FLOAT: return bits(as<float>(old) + as<float>(a));
    case MIN_SIGNED: return (int)old < (int)a ? old : a;
    case MAX_SIGNED: return (int)old > (int)a ? old : a;
    case EXCHANGE: return a;
    case COMPARE_SWAP: return old == a ? b : old;
  }
  return old;
}
}  // namespace

u64 atomic(AtomicOp op, void* p, int bytes, u64 a, u64 b) {
  check(p, bytes, ATOMIC, CALLER);
  if (launch.checked && (Address)p - (Address)mine->window >= mine->window_bytes) order_by_atomic(p);
  for (;;) {
    u64 old = bytes == 4 ? __atomic_load_n((u32*)p, __ATOMIC_SEQ_CST) : __atomic_load_n((u64*)p, __ATOMIC_SEQ_CST);
    const u64 now = apply(op, old, a, b);
    u32 narrow = (u32)old;
    if (bytes == 4 ? __atomic_compare_exchange_n((u32*)p, &narrow, (u32)now, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)
                   : __atomic_compare_exchange_n((u64*)p, &old, now, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
      return old;
  }
}
}  // namespace emu
