// Fibers: the threads of a block, each with a stack of its own, run one at a time on the block's host thread.
//
// A fiber runs until it waits (for a barrier, for the other lanes of its warp, for a copy). With seed 0 the ready fibers
// run in order; any other seed picks among them at random, reproducibly.
#include "state.h"

#ifndef __x86_64__
#error "the emulation of CUDA runs on x86-64 only: switching between fibers is written for no other processor"
#endif

extern "C" void emu_switch(void** save, void* load);       // keeps what the ABI says a call preserves
asm(R"(.text
emu_switch:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
)");

namespace emu {

u32 random_number(u32& state) {
  state = state * 1664525 + 1013904223;                    // Numerical Recipes' generator; its high bits are used
  return state >> 8;
}

namespace {
constexpr u32 CONSUMED_BEFORE_COMPACTION = 4096;

void next(void** save) {                                   // leaves the running fiber for the next ready one
  Block& b = *mine;
  ++b.switches;
  if (b.head == b.queue.size()) {
    b.queue.clear();
    b.head = 0;
    current = nullptr;
    return emu_switch(save, b.scheduler);
  }
  if (launch.seed) std::swap(b.queue[b.head], b.queue[b.head + random_number(b.random) % (b.queue.size() - b.head)]);
  Fiber* f = b.queue[b.head++];
  if (b.head > CONSUMED_BEFORE_COMPACTION) {
    b.queue.erase(b.queue.begin(), b.queue.begin() + b.head);
    b.head = 0;
  }
  f->ready = false;
  current = f;
  if (save != &f->stack_pointer) emu_switch(save, f->stack_pointer);
}

void fiber_main() {
  Fiber* f = current;
  launch.entry->call(launch.arguments);
  Block& b = *f->block;
  for (auto& group : f->products)
    if (!group.empty()) {
      fault("wgmma", group[0].pc, 0, "thread %u exits with a wgmma in flight", f->thread);
      break;
    }
  for (auto& group : f->stores)
    if (!group.empty()) {
      fault("tma", group[0].pc, 0, "thread %u exits while its TMA store may still read shared memory: no wait for the "
            "read follows", f->thread);
      break;
    }
  f->done = true;
  --b.live;
  u32 all = 0;
  for (Block* x : b.cluster->blocks) all += x->live;
  exited(b.barriers[16], b.live);
  exited(b.cluster->all, all);
  for (;;) next(&f->stack_pointer);
}
}  // namespace

void start(Fiber& f) {                                     // a fresh stack, which begins in fiber_main
  void** s = (void**)(f.stack + STACK_BYTES) - 1;          // as after a call: 8 past a multiple of 16
  *--s = (void*)fiber_main;
  f.stack_pointer = s - 6;
}
void run_until_all_wait(Block& b) {
  if (b.head < b.queue.size()) next(&b.scheduler);
}
void wake(Fiber* f) {
  if (f->ready || f->done) return;
  f->ready = true;
  f->block->queue.push_back(f);
}
void suspend(Fiber* f, Waiting why) {
  f->waiting = why;
  next(&f->stack_pointer);
}
void yield_to_others(Fiber* f) {
  wake(f);
  next(&f->stack_pointer);
}
}  // namespace emu
