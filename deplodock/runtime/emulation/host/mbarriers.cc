// mbarriers: phases that complete when all arrivals and all expected bytes are there.
//
// What arrivals and landed copies know is joined; a waiter learns it when the phase completes.
#include "state.h"

namespace emu {

MBarrier* find_mbarrier(Block& b, u32 address, const char* what, u32 pc) {
  auto found = b.mbarriers.find(address);
  if (found != b.mbarriers.end()) return &found->second;
  fault("mbarrier", pc, 0, "%s at shared 0x%x, where no mbarrier was initialised", what, address);
  return nullptr;
}

void progress(MBarrier& m) {
  if (m.pending || m.bytes) return;
  ++m.phase;
  m.pending = m.count;
  if (launch.checked) {
    if (m.meeting.clock.empty()) m.meeting.clock.assign(clock_words, 0);
    m.completed = ClockRef(m.meeting.clock.data());
  }
  for (Fiber* f : m.waiters) wake(f);
  m.waiters.clear();
}

void check_initialised(Fiber* f, MBarrier& m, bool by_copy_or_other_block, u32 pc) {
  if (launch.checked && ordered(f->known, m.init.id, m.init.clock, false))
    fault("race", pc, m.init.pc, "mbarrier 0x%x is used by thread %u without a barrier since its initialisation at {2}",
          m.address, f->thread);
  if (by_copy_or_other_block && !m.fenced)
    fault("proxy", pc, m.init.pc, "mbarrier 0x%x is used by a copy or by another block without fence.mbarrier_init after {2}",
          m.address);
}

void mbarrier_init(u32 address, u32 count) {
  Fiber* f = current;
  Block& b = *f->block;
  if (address % 8) return fault("misaligned", CALLER, 0, "mbarrier at shared 0x%x: a multiple of 8 is needed", address);
  if (!touch(f, address, 8, WRITE, CALLER, IS_MBARRIER)) return;
  MBarrier& m = b.mbarriers[address];
  m = MBarrier();
  m.address = address;
  m.count = count;
  m.pending = count;
  m.id = (u32)(b.mbarriers.size() - 1) % MBARRIERS;
  m.init = {f->known.clock, CALLER, (u16)f->id, PLAIN};
}

void mbarrier_init_fence() {
  for (auto& [address, m] : current->block->mbarriers)
    if (m.init.id == current->id) m.fenced = true;
}

void mbarrier_arrive(u32 address, int rank, u32 expect_bytes, int arrive) {
  Fiber* f = current;
  if (rank >= (int)launch.cluster)
    return fault("mbarrier", CALLER, 0, "arrive at rank %d of a cluster of %u", rank, launch.cluster);
  Block& b = rank < 0 ? *f->block : *f->block->cluster->blocks[rank];
  if (!b.live)
    fault("mbarrier", CALLER, 0, "thread %u signals mbarrier 0x%x of block rank %u, which has exited", f->thread, address, b.rank);
  MBarrier* m = find_mbarrier(b, address, "arrive", CALLER);
  if (!m) return;
  check_initialised(f, *m, &b != f->block, CALLER);
  release(f, m->meeting);
  m->bytes += expect_bytes;
  if (arrive && --m->pending < 0) {
    fault("mbarrier", CALLER, 0, "more arrivals than the count %u of mbarrier 0x%x in one phase", m->count, address);
    m->pending = 0;
  }
  progress(*m);
}

void mbarrier_wait(u32 address, u32 parity) {
  Fiber* f = current;
  MBarrier* m = find_mbarrier(*f->block, address, "wait", CALLER);
  if (!m) return;
  check_initialised(f, *m, false, CALLER);
  while ((m->phase & 1) == (parity & 1)) {
    m->waiters.push_back(f);
    suspend(f, {"mbarrier", CALLER, address, parity});
  }
  acquire(f, m->completed);
}

// setmaxnreg: registers come from a pool that all warpgroups of the block fill when they give some back.
void registers(u32 count, int increase) {
  Fiber* f = current;
  Block& b = *f->block;
  u32& have = b.group_registers[f->warp / 4];
  if (count % 8 || count < 24 || count > 256)
    return fault("setmaxnreg", CALLER, 0, "%u registers: a multiple of 8 in 24..256 is needed", count);
  if (!increase && have > count) {
    b.free_registers += have - count;
    have = count;
    for (Fiber* x : b.want_registers) wake(x);
    b.want_registers.clear();
  }
  while (increase && have < count) {
    if (b.free_registers >= count - have) {
      b.free_registers -= count - have;
      have = count;
      return;
    }
    b.want_registers.push_back(f);
    suspend(f, {"setmaxnreg.inc (registers wanted, registers free)", CALLER, count - have, b.free_registers});
  }
}
}  // namespace emu
