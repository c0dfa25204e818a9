// After a kernel's text in a translation unit: makes it known to the runtime, which finds all kernels in one section.
//
// build.py writes EMU_SHARED for dynamic shared memory that the kernel declares under a name of its own, before the
// kernel, and EMU_KERNEL after it. The probe is one store, compiled as the kernel is: the runtime calls it to see whether
// the compiler instruments.
#pragma once
#include "interface.h"

#define EMU_SHARED(type, name) extern thread_local type name[] asm("emu_dynamic_shared");
#define EMU_KERNEL(kernel)                                                                             \
  namespace emu_of_##kernel {                                                                          \
  static void probe(volatile int* p) { *p = 1; }                                                       \
  static const emu::Entry entry = emu::Caller<kernel>::entry(#kernel, probe);                          \
  __attribute__((section("emu_entries"), used)) static const emu::Entry* const listed = &entry;        \
  }
