// Operations that the lanes of a warp or a warpgroup do together: shuffles, matrix loads, products, waits for wgmma.
#pragma once
#include <unistd.h>

#include "state.h"

namespace emu {
// Kinds of operation beside those of WarpOp; lanes that meet in different ones have diverged.
enum { LDMATRIX = 20, STMATRIX, MMA, WGMMA_WAIT = 30 };

// Lane `slot` arrives with `payload`; the last of `needed` lanes calls `operation`, and all go on.
template <class F>
void collective(Fiber* f, Collective& c, u32 slot, u32 needed, u32 kind, const char* name, void* payload, u32 pc, F operation) {
  if (c.arrived && c.kind != kind) {         // nothing that follows would mean anything
    fault("divergent", pc, c.pc, "thread %u is at %s while thread %u of its group waits in %s at {2}", f->thread, name,
          c.first->thread, c.first->waiting.what);
    _exit(3);
  }
  if (c.arrived && c.pc != pc)          // report.py drops it where both addresses are one line, duplicated by g++
    fault("branch", pc, c.pc, "thread %u is at %s while thread %u of its group waits in another one, at {2}", f->thread,
          name, c.first->thread);
  if (!c.arrived) {
    c.first = f;
    c.pc = pc;
  }
  c.kind = kind;
  c.payload[slot] = payload;
  c.fibers[slot] = f;
  if (++c.arrived < needed) return suspend(f, {name, pc, c.mask, c.arrived});
  c.arrived = 0;
  operation(c);
  for (Fiber*& x : c.fibers) {
    if (x && x != f) wake(x);
    x = nullptr;
  }
}
}  // namespace emu
