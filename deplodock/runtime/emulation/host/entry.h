// The end of a translation unit of kernels: the table of its entries, its dynamic shared memory, the probe.
//
// build.py writes, after the kernels: EMU_SHARED(name) for each name that kernels give their dynamic shared memory, then
// EMU_ENTRIES(EMU_ENTRY(kernel), ..).
#pragma once

// The ABI promises 16 bytes of alignment for dynamic shared memory and no more: it starts 16 past a 1024-byte boundary.
asm(".pushsection .tbss,\"awT\",@nobits\n.p2align 10\n.zero 16\n.globl emu_dynamic_shared\nemu_dynamic_shared:\n"
    ".zero 232448\n.zero 1008\n.popsection");
#define EMU_SHARED(name) asm(".globl " #name "\n.set " #name ", emu_dynamic_shared");
#define EMU_ENTRY(kernel) emu::Caller<kernel>::entry(#kernel)
#define EMU_ENTRIES(...)                                                                   \
  extern "C" const emu::Entry emu_entries[] = {__VA_ARGS__};                               \
  extern "C" const int emu_entry_count = sizeof emu_entries / sizeof emu_entries[0];       \
  extern "C" void emu_probe(volatile int* p) { *p = 1; }
