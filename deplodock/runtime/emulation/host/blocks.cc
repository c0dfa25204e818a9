// Blocks, clusters and the launch: workers draw clusters from the grid; each block of a cluster has a host thread.
//
// The blocks of a cluster take turns: one runs until none of its threads can, then passes the baton. When no block of the
// cluster can go on, one TMA load lands; when none is in flight either, the threads that are left are deadlocked.
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <thread>

#include "collective.h"

// Dynamic shared memory. The ABI promises 16 bytes of alignment and no more: it starts 16 past a 1024-byte boundary.
asm(".pushsection .tbss,\"awT\",@nobits\n.p2align 10\n.zero 16\n.globl emu_dynamic_shared\n.type emu_dynamic_shared, @object\n"
    "emu_dynamic_shared:\n.zero 232448\n.zero 1008\n.popsection");
extern thread_local char emu_dynamic_shared[];

namespace emu {
Launch launch;
u32 block_threads, threads, warpgroups, fenced_part, clock_words;
std::atomic<u64> total_accesses, total_switches;
KEPT_OUT_OF_SHARED thread_local Fiber* current;
KEPT_OUT_OF_SHARED thread_local Block* mine;

namespace {
constexpr u32 REGISTER_FILE = 65536, MOST_REGISTERS = 255;
constexpr int NO_ONE = -1, ALL_DONE = -2;
std::atomic<u32> next_cluster;

// ---- deadlock -----------------------------------------------------------------------------------------------------------

std::string reason(Cluster& cluster, Block& b, const Waiting& w) {
  char s[240];
  const std::string what = w.what;
  if (what == "mbarrier") {
    MBarrier& m = b.mbarriers[w.a];
    snprintf(s, sizeof s, "mbarrier 0x%x (#%u) parity %u: its phase %llu lacks %ld of %u arrivals and %ld bytes", w.a, m.id, w.b,
             m.phase, m.pending, m.count, m.bytes);
  } else if (what == "bar.sync" || what == "__syncthreads" || what == "cluster barrier") {
    const u32 arrived = what[0] == 'c' ? cluster.all.arrived : b.barriers[w.a].arrived;
    snprintf(s, sizeof s, "%s %u: %u of %u threads arrived", w.what, w.a, arrived, w.b);
  } else {
    snprintf(s, sizeof s, "%s (0x%x, 0x%x)", w.what, w.a, w.b);
  }
  return s;
}

std::string ranges(const std::vector<u32>& numbers) {      // "0-31,64"
  std::string s;
  for (size_t i = 0, j; i < numbers.size(); i = j) {
    for (j = i + 1; j < numbers.size() && numbers[j] == numbers[j - 1] + 1;) ++j;
    if (i > 40) return s + " ..";
    s += (i ? "," : "") + std::to_string(numbers[i]);
    if (j > i + 1) s += "-" + std::to_string(numbers[j - 1]);
  }
  return s;
}

void report_deadlock(Cluster& cluster) {
  std::map<std::tuple<u32, u32, std::string>, std::vector<u32>> waiting;
  u32 exited = 0;
  for (Block* b : cluster.blocks)
    for (Fiber& f : b->fibers) {
      if (f.done) ++exited;
      else waiting[{b->rank, f.waiting.pc, reason(cluster, *b, f.waiting)}].push_back(f.thread);
    }
  std::string all;
  for (auto& [key, who] : waiting) {
    auto& [rank, pc, why] = key;
    char where[24];
    snprintf(where, sizeof where, "{%x}", pc);
    const uint3& at = cluster.blocks[rank]->index;
    all += "; block " + std::to_string(at.x) + "," + std::to_string(at.y) + "," + std::to_string(at.z) + " threads " +
           ranges(who) + " wait at " + where + " for " + why;
  }
  fault("deadlock", std::get<1>(waiting.begin()->first), 0, "nothing can run%s (%u threads have exited)", all.c_str(), exited);
}

// ---- a block --------------------------------------------------------------------------------------------------------------

void reset_cells(Block& b, u32 begin, u32 end) {
  const u32 first = begin >> launch.grain, last = std::min((u32)b.cells.size(), (end >> launch.grain) + 1);
  if (last > first) memset((void*)&b.cells[first], 0xff, sizeof(Cell) * (last - first));
}

void reset(Fiber& f, Block& b, u32 thread, const ClockRef& nothing_known) {
  f.block = &b;
  f.thread = thread;
  f.id = b.rank * block_threads + thread;
  f.warp = thread / 32;
  f.lane = thread % 32;
  f.index = {thread % launch.block.x, thread / launch.block.x % launch.block.y, thread / launch.block.x / launch.block.y};
  f.async_issued = 0;
  f.ready = f.done = f.wgmma_fenced = false;
  f.known = Known();
  f.known.self = f.id;
  f.known.others = nothing_known;
  f.waiting = {};
  f.copies.assign(1, {});
  f.stores.assign(1, {});
  f.products.assign(1, {});
  f.stores_read.clear();
  f.held.clear();
  f.stack = b.stacks + (size_t)thread * (STACK_BYTES + PAGE) + PAGE;
  start(f);
  wake(&f);
}

void reset(Block& b, u32 linear) {
  b.linear = linear;
  b.index = {linear % launch.grid.x, linear / launch.grid.x % launch.grid.y, linear / launch.grid.x / launch.grid.y};
  b.clock = 1;
  b.fenced_clock = 0;
  b.seen.clear();
  b.acquired.clear();
  const u32 static_end = b.dynamic - 16, dynamic_end = b.dynamic + SHARED_BYTES;
  memset(b.window + b.dynamic, 0xff, launch.shared);       // NaN
  memset(b.window + b.static_begin, 0xff, static_end - b.static_begin);
  if (b.static_end > dynamic_end) memset(b.window + dynamic_end, 0xff, b.static_end - dynamic_end);
  if (launch.checked) {
    reset_cells(b, b.static_begin, b.dynamic + launch.shared);
    reset_cells(b, dynamic_end, b.static_end);
  }
  b.mbarriers.clear();
  b.queue.clear();
  b.head = 0;
  b.live = block_threads;
  b.random = launch.seed * 7919 + linear + 1;
  for (Barrier& x : b.barriers) x = Barrier();
  const u32 groups = std::max(1u, block_threads / 128);
  b.group_registers.assign(groups, std::min(REGISTER_FILE / block_threads / 8 * 8, MOST_REGISTERS));
  b.free_registers = 0;
  b.want_registers.clear();
  b.products_issued.assign(groups, 0);
  b.products_done.assign(groups, 0);
  b.warps.assign((block_threads + 31) / 32, std::vector<Collective>(1));
  for (auto& w : b.warps) w.reserve(8);                    // references to them are held while lanes wait
  b.groups.assign(groups, Collective());
  const std::vector<u32> zeros(clock_words, 0);
  const ClockRef nothing_known(zeros.data());
  for (u32 t = 0; t < block_threads; ++t) reset(b.fibers[t], b, t, nothing_known);
}

// Runs the block whenever it has the baton, until the whole cluster is done.
void drive(Block& b) {
  Cluster& cluster = *b.cluster;
  std::unique_lock<std::mutex> lock(cluster.lock);
  for (;;) {
    cluster.changed.wait(lock, [&] { return cluster.turn == (int)b.rank || cluster.turn == ALL_DONE; });
    if (cluster.turn == ALL_DONE) return;
    mine = &b;
    for (;;) {
      run_until_all_wait(b);
      int to = NO_ONE;
      bool live = false;
      for (Block* x : cluster.blocks) {
        live |= x->live > 0;
        if (x->head < x->queue.size()) to = x->rank;
      }
      if (to == NO_ONE && !cluster.loads.empty()) {        // nobody can run: now, and only now, a copy lands
        const u32 i = launch.seed ? random_number(cluster.random) % cluster.loads.size() : 0;
        BulkLoad load = std::move(cluster.loads[i]);
        cluster.loads.erase(cluster.loads.begin() + i);
        if (!live) fault("tma", load.pc, 0, "the block ends with a TMA load in flight");
        land(cluster, std::move(load));
        continue;
      }
      if (to == NO_ONE && live) {
        report_deadlock(cluster);
        cluster.dead = true;
      }
      if (to != (int)b.rank) {
        cluster.turn = to == NO_ONE ? ALL_DONE : to;
        cluster.changed.notify_all();
        break;
      }
    }
  }
}

// ---- host threads -----------------------------------------------------------------------------------------------------------

int find_tls(dl_phdr_info* info, size_t, void* out) {      // the first object is the executable itself
  for (int i = 0; i < info->dlpi_phnum; ++i)
    if (info->dlpi_phdr[i].p_type == PT_TLS) {
      auto* range = (Address*)out;
      range[0] = (Address)info->dlpi_tls_data;
      range[1] = info->dlpi_phdr[i].p_memsz;
      range[2] = info->dlpi_phdr[i].p_filesz;
    }
  return 1;
}

void map_window(Block& b) {                                // the thread-local storage of this host thread
  Address tls[3] = {};
  dl_iterate_phdr(find_tls, tls);
  b.window = (char*)(tls[0] & ~1023ull) - 1024;
  b.static_begin = tls[0] + tls[2] - (Address)b.window;
  b.static_end = tls[0] + tls[1] - (Address)b.window;
  b.window_bytes = (b.static_end + 15) & ~15u;
  b.dynamic = emu_dynamic_shared - b.window;
  if (b.dynamic + SHARED_BYTES > WINDOW_BYTES) {
    fault("bounds", 0, 0, "the kernels of this program have %u bytes of static shared memory together: too much for one window",
          b.dynamic - b.static_begin);
    _Exit(3);
  }
}

// All blocks of a cluster meet; the last one prepares what follows.
class Gate {
 public:
  explicit Gate(u32 count) : count(count) {}
  template <class F> void pass(F prepare) {
    std::unique_lock<std::mutex> guard(lock);
    const u32 generation = passed;
    if (++arrived < count) return changed.wait(guard, [&] { return passed != generation; });
    prepare();
    arrived = 0;
    ++passed;
    changed.notify_all();
  }
 private:
  std::mutex lock;
  std::condition_variable changed;
  u32 count, arrived = 0, passed = 0;
};

void draw(Cluster& cluster) {
  const u32 clusters = launch.blocks() / launch.cluster, i = next_cluster++;
  cluster.number = launch.seed & 1 ? clusters - 1 - i : i; // odd seeds run the grid backwards
  cluster.quit = i >= clusters || cluster.dead;
  cluster.loads.clear();
  cluster.all = Barrier();
  cluster.random = launch.seed + 1;
}

void block_thread(Cluster& cluster, u32 rank, Gate& gate) {
  catch_crashes();
  Block b;
  map_window(b);
  b.accumulators.resize(64 * 256);
  if (launch.checked) b.cells.resize((b.window_bytes >> launch.grain) + 8);
  b.fibers.resize(block_threads);
  for (Fiber& f : b.fibers) f.dirty.assign(STACK_BYTES / 256, 0);
  const size_t bytes = (size_t)block_threads * (STACK_BYTES + PAGE);
  b.stacks = (char*)mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  for (u32 t = 0; t < block_threads; ++t) mprotect(b.stacks + (size_t)t * (STACK_BYTES + PAGE), PAGE, PROT_NONE);
  b.rank = rank;
  b.cluster = &cluster;
  cluster.blocks[rank] = &b;
  for (;;) {
    gate.pass([&] { draw(cluster); });
    if (cluster.quit) break;
    reset(b, (u32)cluster.number * launch.cluster + rank);
    gate.pass([&] { cluster.turn = 0; });
    drive(b);
    for (Fiber& f : b.fibers)
      for (BulkStore& s : f.stores_read) write_back(s);    // TMA stores become visible as late as is legal
    mine = nullptr;
  }
  total_accesses += b.accesses;
  total_switches += b.switches;
  gate.pass([] {});                                        // nobody leaves while another may look at its block
  munmap(b.stacks, bytes);
}

void worker(std::atomic<bool>* dead) {
  Cluster cluster;
  cluster.blocks.resize(launch.cluster);
  Gate gate(launch.cluster);
  std::vector<std::thread> blocks;
  for (u32 rank = 0; rank < launch.cluster; ++rank) blocks.emplace_back(block_thread, std::ref(cluster), rank, std::ref(gate));
  for (auto& t : blocks) t.join();
  if (!cluster.dead) return;
  next_cluster = launch.blocks();
  *dead = true;
}
}  // namespace

// Runs the grid; false if it ended in a deadlock.
bool run_launch() {
  block_threads = launch.block.x * launch.block.y * launch.block.z;
  threads = block_threads * launch.cluster;
  warpgroups = std::max(1u, block_threads / 128) * launch.cluster;
  fenced_part = 2 * threads + warpgroups + MBARRIERS * launch.cluster;
  clock_words = fenced_part + threads;
  next_cluster = 0;
  std::atomic<bool> dead{false};
  std::vector<std::thread> workers;
  const u32 count = std::min(launch.workers, std::max(1u, launch.blocks() / launch.cluster));
  for (u32 i = 0; i < count; ++i) workers.emplace_back(worker, &dead);
  for (auto& w : workers) w.join();
  return !dead;
}

// ---- what kernels ask about themselves --------------------------------------------------------------------------------------
uint3 thread_idx() { return current->index; }
uint3 block_idx() { return mine->index; }
uint3 block_dim() { return launch.block; }
uint3 grid_dim() { return launch.grid; }
u32 cluster_rank() { return mine->rank; }
u32 shared_address(const void* p) { return (u32)((char*)p - mine->window); }
u32 dynamic_shared() { return mine->dynamic; }
char* shared_pointer(u32 address) { return mine->window + address; }
}  // namespace emu
