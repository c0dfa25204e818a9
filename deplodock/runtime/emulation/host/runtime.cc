// The runtime of the emulation, as one translation unit, so that the checks of an access inline into its hook.
// Compiled once, without instrumentation, and linked to every translation unit of kernels.
#include "state.h"

#include "collective.h"

#include "faults.cc"
#include "barriers.cc"
#include "fibers.cc"
#include "globals.cc"
#include "shadow.cc"
#include "mbarriers.cc"
#include "copies.cc"
#include "matrices.cc"
#include "wgmma.cc"
#include "crashes.cc"
#include "blocks.cc"
#include "main.cc"
