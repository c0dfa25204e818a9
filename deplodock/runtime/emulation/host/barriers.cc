// Barriers and the meetings of a warp: who waits, and what everyone knows afterwards.
//
// Edges of happens-before: __syncthreads, named barriers (arriving without waiting too), __syncwarp, the cluster barrier.
// Shuffles and votes exchange values and order nothing.
#include <stdlib.h>

#include "collective.h"

namespace emu {
constexpr u32 SYNC_THREADS = 16;             // the barrier's place in Block::barriers

ClockRef::ClockRef(const u32* at) : p((Clock*)malloc(sizeof(int) + sizeof(u32) * clock_words)) {
  p->refs = 1;
  memcpy(p->at, at, sizeof(u32) * clock_words);
}
ClockRef::~ClockRef() {
  if (p && !--p->refs) free(p);
}

namespace {
void join(u32* a, const u32* b) {
  for (u32 i = 0; i < clock_words; ++i) a[i] = std::max(a[i], b[i]);
}
}  // namespace

// The thread's knowledge joins the meeting's, and its time advances: what it does from here on is not known there.
void release(Fiber* f, Meeting& m) {
  if (!launch.checked) return;
  if (m.clock.empty()) m.clock.assign(clock_words, 0);
  Known& k = f->known;
  if (!(m.last == k.others)) {               // threads that met before bring the same clock: join it once
    join(m.clock.data(), k.others.data());
    m.last = k.others;
  }
  u32* c = m.clock.data();
  c[f->id] = std::max(c[f->id], k.clock);
  c[threads + f->id] = std::max(c[threads + f->id], k.async_clock);
  c[fenced_part + f->id] = std::max(c[fenced_part + f->id], k.fenced);
  ++k.clock;
}

// The thread learns what a completed phase of an mbarrier knows.
void acquire(Fiber* f, const ClockRef& snapshot) {
  if (!launch.checked || !snapshot || snapshot == f->known.others) return;
  ClockRef &own = mine->memo[0], &other = mine->memo[1], &joined = mine->memo[2];   // whole warps join the same two
  if (!(own == f->known.others) || !(other == snapshot)) {
    own = f->known.others;
    other = snapshot;
    joined = ClockRef(own.data());
    join(&joined[0], snapshot.data());
  }
  f->known.others = joined;
}

void everyone_knows(std::vector<Fiber*>& fibers, Meeting& m) {
  if (!launch.checked) return;
  ClockRef shared(m.clock.data());
  for (Fiber* f : fibers) f->known.others = shared;
  std::fill(m.clock.begin(), m.clock.end(), 0);
  m.last = ClockRef();
}

namespace {
void open(Barrier& b) {
  everyone_knows(b.waiters, b.meeting);
  for (Fiber* f : b.waiters)
    if (f != current) wake(f);
  b.arrived = 0;
  b.arrivals.clear();
  b.waiters.clear();
}

void arrive(Fiber* f, Barrier& b, u32 id, u32 expected, bool wait, const char* name, u32 pc) {
  ++b.arrived;
  b.arrivals.push_back(f);
  release(f, b.meeting);
  if (wait) b.waiters.push_back(f);
  if (b.arrived >= expected) open(b);
  else if (wait) suspend(f, {name, pc, id, expected});
}
}  // namespace

void exited(Barrier& b, u32 live) {          // a thread that has exited counts as arrived
  if (b.arrived && b.arrived >= live) open(b);
}

void sync_threads() {
  Fiber* f = current;
  Barrier& b = f->block->barriers[SYNC_THREADS];
  if (b.arrived && b.pc != CALLER)           // report.py drops it where both addresses are one line, duplicated by g++
    fault("branch", CALLER, b.pc, "thread %u is at another __syncthreads than thread %u, which waits at {2}", f->thread,
          b.arrivals[0]->thread);
  b.pc = CALLER;
  arrive(f, b, SYNC_THREADS, f->block->live, true, "__syncthreads", CALLER);
}

void named_barrier(u32 id, u32 count, int wait) {
  Fiber* f = current;
  if (id > 15 || count % 32)
    return fault("barrier", CALLER, 0, "bar.sync %u, %u: ids are 0..15, counts are multiples of 32", id, count);
  Barrier& b = f->block->barriers[id];
  if (b.arrived && b.expected != count)
    fault("barrier", CALLER, b.pc, "named barrier %u is entered with count %u and, at {2}, with %u", id, count, b.expected);
  b.expected = count;
  b.pc = CALLER;
  arrive(f, b, id, count, wait, "bar.sync", CALLER);
}

void cluster_sync() {
  u32 all = 0;
  for (Block* b : mine->cluster->blocks) all += b->live;
  arrive(current, mine->cluster->all, 0, all, true, "cluster barrier", CALLER);
}

void proxy_fence() {
  Known& k = current->known;
  k.fenced = k.clock++;
}

// ---- operations of a warp ---------------------------------------------------------------------------------------------

Collective& of_warp(Fiber* f, u32 mask) {    // one for each mask in use: halves of a warp may meet apart
  auto& all = f->block->warps[f->warp];
  for (Collective& c : all)
    if (c.mask == mask || !c.arrived) {
      c.mask = mask;
      return c;
    }
  all.emplace_back();
  all.back().mask = mask;
  return all.back();
}

namespace {
struct Lane { u64 value, result; u32 arg, width; };

u32 source_lane(WarpOp op, u32 lane, const Lane& x) {      // PTX ISA, shfl.sync: within segments of `width` lanes
  const u32 w = x.width, begin = lane / w * w;
  switch (op) {
    case SHUFFLE: return begin + x.arg % w;
    case SHUFFLE_XOR: return (lane ^ x.arg) >= begin + w ? lane : lane ^ x.arg;
    case SHUFFLE_UP: return lane - begin < x.arg ? lane : lane - x.arg;
    case SHUFFLE_DOWN: return lane - begin + x.arg >= w ? lane : lane + x.arg;
    default: return lane;
  }
}

void exchange(WarpOp op, Collective& c, u32 mask, u32 pc) {
  u64 ballot = 0;
  for (u32 l = 0; l < 32; ++l)
    if (mask >> l & 1) ballot |= (u64)(((Lane*)c.payload[l])->value != 0) << l;
  for (u32 l = 0; l < 32; ++l) {
    if (!(mask >> l & 1)) continue;
    Lane& x = *(Lane*)c.payload[l];
    const u32 from = source_lane(op, l, x);
    if (op == BALLOT) {
      x.result = ballot;
    } else if (!(mask >> from & 1)) {
      fault("divergent", pc, 0, "lane %u reads lane %u, which is not in the mask 0x%x", l, from, mask);
      x.result = POISON;
    } else {
      x.result = ((Lane*)c.payload[from])->value;
    }
  }
}

void sync_lanes(Collective& c, u32 mask) {
  if (!launch.checked) return;
  Meeting m;
  std::vector<Fiber*> lanes;
  for (u32 l = 0; l < 32; ++l)
    if (mask >> l & 1) {
      release(c.fibers[l], m);
      lanes.push_back(c.fibers[l]);
    }
  everyone_knows(lanes, m);
}
}  // namespace

u64 warp(WarpOp op, u32 mask, u64 value, u32 arg, u32 width) {
  static const char* names[] = {"shfl", "shfl.xor", "shfl.up", "shfl.down", "vote", "__syncwarp"};
  Fiber* f = current;
  if (!(mask >> f->lane & 1)) {
    fault("divergent", CALLER, 0, "lane %u is not in its own mask 0x%x", f->lane, mask);
    return value;
  }
  Lane lane{value, 0, arg, width};
  const u32 pc = CALLER;
  collective(f, of_warp(f, mask), f->lane, __builtin_popcount(mask), op, names[op], &lane, pc, [&](Collective& c) {
    if (op == SYNC_WARP) sync_lanes(c, mask);
    else exchange(op, c, mask, pc);
  });
  return lane.result;
}
}  // namespace emu
