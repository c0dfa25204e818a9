// Asynchronous copies: cp.async and TMA, as late as is legal.
//
// A cp.async lands at the wait for its group, a TMA load when no thread can run any more, a TMA store reads shared memory
// at wait_group.read and writes global memory at wait_group or the block's end. Until then destinations hold NaN, and to
// the shadow memory the write was made by an engine that nobody has waited for.
#include "state.h"

namespace emu {
namespace {
constexpr u64 MAP_MAGIC = 0x70616d6464ull;
constexpr u32 PIECE = 16;                    // bytes that swizzling keeps together

u32 box_bytes(const Map& m) {
  u32 n = m.element;
  for (u32 i = 0; i < m.rank; ++i) n *= m.box[i];
  return n;
}

u32 swizzled(const Map& m, u32 address) {    // on bits of the address, as the hardware does it
  return m.swizzle ? address ^ (((address >> 7) & (m.swizzle / 16 - 1)) << 4) : address;
}

// Visits a box by pieces of 16 bytes: offset in shared memory before swizzling, global address, valid bytes [begin, end).
template <class F>
void walk(const Map& m, const int* at, F visit) {
  const u32 inner = m.box[0] * m.element, rows = box_bytes(m) / inner;
  for (u32 row = 0; row < rows; ++row) {
    long offset = (long)at[0] * m.element;
    bool valid = true;
    for (u32 d = 1, rest = row; d < m.rank; ++d) {
      const long x = (long)at[d] + rest % m.box[d];
      rest /= m.box[d];
      valid &= x >= 0 && x < (long)m.extent[d];
      offset += x * (long)m.stride[d - 1];
    }
    for (u32 b = 0; b < inner; b += PIECE) {
      const long x = (long)at[0] * m.element + b, end = (long)m.extent[0] * m.element, piece = PIECE;
      const long first = std::clamp(-x, 0l, piece), last = valid ? std::clamp(end - x, 0l, piece) : 0;
      visit(row * inner + b, m.base + offset + b, (u32)first, (u32)std::max(first, last));
    }
  }
}

bool check_map(const Map& m, u32 address, u32 pc) {
  if (m.magic != MAP_MAGIC) {
    fault("tma", pc, 0, "the address given for a tensor map is not that of a parameter that holds one");
    return false;
  }
  const u32 align = m.swizzle ? 8 * m.swizzle : 128;
  if (address % align)
    fault("tma", pc, 0, "shared address 0x%x of a box with %u-byte swizzle is not a multiple of %u", address, m.swizzle, align);
  return true;
}

u32 tma_clock_id(const Block& b, const MBarrier& m) { return 2 * threads + warpgroups + MBARRIERS * b.rank + m.id; }
}  // namespace

// Checks what cuTensorMapEncodeTiled does, and that a swizzled row is as long as its swizzle (shorter ones are not modelled);
// marks the map as good.
bool encode(Map& m) {
  const u32 inner = m.box[0] * m.element;
  bool fine = inner % 16 == 0 && (!m.swizzle || inner == m.swizzle);
  for (u32 i = 0; i < m.rank; ++i) fine &= m.box[i] >= 1 && m.box[i] <= 256;
  for (u32 i = 0; i + 1 < m.rank; ++i) fine &= m.stride[i] % 16 == 0;
  m.magic = MAP_MAGIC;
  return fine;
}

// ---- cp.async ---------------------------------------------------------------------------------------------------------

void cp_async(u32 to, const void* from, u32 bytes, bool read) {
  Fiber* f = current;
  Block& b = *f->block;
  ++b.accesses;
  if (to % bytes || (read && (Address)from % bytes))
    fault("misaligned", CALLER, 0, "cp.async of %u bytes by thread %u: shared 0x%x, global address %u mod %u", bytes, f->thread,
          to, (u32)((Address)from % bytes), bytes);
  const u32 clock = ++f->async_issued;
  const bool readable = !read || touch_global(from, bytes, READ, f->id, f->known.clock, CALLER);
  touch(b, to, bytes, WRITE, f->known, threads + f->id, clock, false, CALLER);
  if (!readable || !inside(b, to, bytes)) return;
  memset(b.window + to, 0xff, bytes);
  f->copies.back().push_back({to, (const char*)from, bytes, clock, CALLER, read});
}

void cp_async_commit() { current->copies.emplace_back(); }

void cp_async_wait(u32 groups_left) {
  Fiber* f = current;
  while (f->copies.size() > groups_left + 1) {
    for (CpAsync& c : f->copies[0]) {
      if (c.read) memcpy(f->block->window + c.to, c.from, c.bytes);
      else memset(f->block->window + c.to, 0, c.bytes);
      f->known.async_clock = std::max(f->known.async_clock, c.clock);
      touch(f, c.to, c.bytes, WRITE, c.pc);  // from here on a write of this thread, by the generic proxy
    }
    f->copies.erase(f->copies.begin());
  }
}

// ---- TMA loads ----------------------------------------------------------------------------------------------------------

void tma_load(u32 to, const TensorMap* map, const int* at, u32 barrier, int mask) {
  Fiber* f = current;
  BulkLoad load{*(const Map*)map, to, barrier, CALLER, mask < 0 ? 1u << f->block->rank : (u32)mask, {}, 0, {}, {}};
  if (!check_map(load.map, to, CALLER)) return;
  std::copy(at, at + 5, load.at);
  load.bytes = box_bytes(load.map);
  for (Block* b : f->block->cluster->blocks) {
    if (!(load.mask >> b->rank & 1)) continue;
    MBarrier* m = find_mbarrier(*b, barrier, "TMA load", CALLER);
    if (!m) return;
    check_initialised(f, *m, true, CALLER);
    load.phase[b] = m->phase;
    load.clock[b] = ++m->async_clock;
    touch(*b, to, load.bytes, WRITE, f->known, tma_clock_id(*b, *m), m->async_clock, true, CALLER);
    if (inside(*b, to, load.bytes)) memset(b->window + to, 0xff, load.bytes);
  }
  f->block->cluster->loads.push_back(std::move(load));
}

namespace {
void land_in(Block& b, BulkLoad& load) {
  const u32 tma_reader = 2 * threads + warpgroups;         // an asynchronous engine: its reads of global memory are not kept
  walk(load.map, load.at, [&](u32 offset, const char* global, u32 begin, u32 end) {
    char piece[PIECE] = {};                  // outside the tensor: zeros
    if (end > begin) {
      touch_global(global + begin, end - begin, READ, tma_reader, 0, load.pc);
      memcpy(piece + begin, global + begin, end - begin);
    }
    const u32 address = swizzled(load.map, load.to + offset);
    if (inside(b, address, PIECE)) memcpy(b.window + address, piece, PIECE);
  });
  MBarrier* m = find_mbarrier(b, load.barrier, "completion of a TMA load", load.pc);
  if (!m) return;
  if (m->phase != load.phase[&b])
    fault("expect_tx", load.pc, 0, "%u bytes land on mbarrier 0x%x in phase %llu but were issued for phase %llu: fewer bytes "
          "were expected than copied", load.bytes, load.barrier, m->phase, load.phase[&b]);
  m->bytes -= load.bytes;
  if (m->bytes < 0 && !m->pending) {
    fault("expect_tx", load.pc, 0, "%ld bytes more land on mbarrier 0x%x than were expected", -m->bytes, load.barrier);
    m->bytes = 0;
  }
  if (launch.checked) {
    if (m->meeting.clock.empty()) m->meeting.clock.assign(clock_words, 0);
    u32& known = m->meeting.clock[tma_clock_id(b, *m)];
    known = std::max(known, load.clock[&b]);
  }
  progress(*m);
}
}  // namespace

void land(Cluster& c, BulkLoad load) {
  for (u32 rank = 0; rank < c.blocks.size(); ++rank)
    if (load.mask >> rank & 1) land_in(*c.blocks[rank], load);
}

// ---- TMA stores ---------------------------------------------------------------------------------------------------------

void tma_store(const TensorMap* map, u32 from, const int* at) {
  Fiber* f = current;
  BulkStore s{*(const Map*)map, f->block, from, ++f->async_issued, CALLER, (u16)(threads + f->id), {}, {}};
  if (!check_map(s.map, from, CALLER)) return;
  std::copy(at, at + 5, s.at);
  const u32 bytes = box_bytes(s.map);
  touch(*f->block, from, bytes, READ, f->known, s.id, s.clock, true, CALLER);
  if (inside(*f->block, from, bytes)) f->stores.back().push_back(std::move(s));
}

void bulk_commit() { current->stores.emplace_back(); }

namespace {
void read_source(BulkStore& s) {
  walk(s.map, s.at, [&](u32 offset, char*, u32, u32) {
    const char* p = s.block->window + swizzled(s.map, s.from + offset);
    s.data.insert(s.data.end(), p, p + PIECE);
  });
}
}  // namespace

void write_back(BulkStore& s) {
  walk(s.map, s.at, [&](u32 offset, char* global, u32 begin, u32 end) {
    if (end <= begin) return;
    if (touch_global(global + begin, end - begin, WRITE, s.id, s.clock, s.pc))
      memcpy(global + begin, &s.data[offset] + begin, end - begin);
  });
}

void bulk_wait(u32 groups_left, int only_read) {
  Fiber* f = current;
  while (f->stores.size() > groups_left + 1) {
    for (BulkStore& s : f->stores[0]) {
      read_source(s);
      f->known.async_clock = std::max(f->known.async_clock, s.clock);
      f->stores_read.push_back(std::move(s));
    }
    f->stores.erase(f->stores.begin());
  }
  if (only_read) return;
  for (BulkStore& s : f->stores_read) write_back(s);
  f->stores_read.clear();
}
}  // namespace emu
