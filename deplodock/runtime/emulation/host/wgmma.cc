// wgmma: products of a warpgroup on operands in shared memory, done when they are waited for.
//
// From issue to wait the accumulators hold NaN and any plain access to them, or a write to an A fragment, is a fault;
// an access between the last wgmma.fence and the issue is one too. Operands are read at the wait, by the asynchronous
// proxy, on what each of the 128 threads knew when it issued. Descriptors: PTX ISA, "matrix descriptor format".
#include "collective.h"

namespace emu {
float widen(u16 bits, Half type);

namespace {
constexpr int ROWS = 64, DEPTH = 16, LANES = 128;

// Visits an operand of rows x 16: address of 8 elements, first row, first k.
template <class F>
void walk_operand(u64 descriptor, int rows, bool rows_contiguous, u32 pc, F visit) {
  const u32 start = (descriptor & 0x3fff) << 4, leading = (descriptor >> 16 & 0x3fff) << 4;
  const u32 stride = (descriptor >> 32 & 0x3fff) << 4, mode = descriptor >> 62;
  const u32 pitch = mode ? 256 >> mode : 16;               // bytes of a row of a swizzle atom; 16 without swizzle
  if (mode && (start >> 7 & (pitch / 16 - 1)))
    fault("wgmma", pc, 0, "operand at shared 0x%x does not start a %u-byte swizzle atom and the descriptor's base offset is %u",
          start, pitch, (u32)(descriptor >> 49 & 7));
  for (int r = 0; r < rows; r += rows_contiguous ? 8 : 1)
    for (int k = 0; k < DEPTH; k += rows_contiguous ? 1 : 8) {
      u32 a;
      if (!rows_contiguous) a = start + r / 8 * stride + r % 8 * pitch + (mode ? k * 2 : k / 8 * leading);
      else if (mode) a = start + r / (pitch / 2) * leading + k / 8 * stride + k % 8 * pitch + r % (pitch / 2) * 2;
      else a = start + r / 8 * stride + k / 8 * leading + k % 8 * 16;
      if (mode) a ^= ((a >> 7) & (pitch / 16 - 1)) << 4;
      visit(a, r, k);
    }
}

int row_of(int lane, int element) { return 16 * (lane / 32) + lane % 32 / 4 + element / 2 % 2 * 8; }

bool same_groups(Fiber** f, u32 group) {
  const size_t operations = f[0]->products[0].size();
  for (int t = 1; t < LANES; ++t)
    if (f[t]->products.size() != f[0]->products.size() || f[t]->products[0].size() != operations) {
      fault("wgmma", f[t]->waiting.pc, 0, "threads 0 and %d of warpgroup %u issued different wgmmas or groups", t, group);
      for (int i = 0; i < LANES; ++i) f[i]->products.assign(1, {});
      return false;
    }
  return true;
}

// The different knowledge with which the 128 threads issued: one for each clock that they share.
std::vector<const Known*> views_of(Fiber** f, size_t operation, u32 group) {
  const WgmmaIssue& first = f[0]->products[0][operation];
  std::vector<const Known*> views;
  for (int t = 0; t < LANES; ++t) {
    const WgmmaIssue& p = f[t]->products[0][operation];
    const Wgmma &x = p.op, &y = first.op;
    if (x.n != y.n || (!y.fragment && x.a != y.a) || x.b != y.b || !x.add != !y.add)
      fault("wgmma", p.pc, first.pc, "threads 0 and %d of warpgroup %u disagree on descriptors or shape", t, group);
    if (std::none_of(views.begin(), views.end(), [&](const Known* v) { return v->others == p.known.others; }))
      views.push_back(&p.known);
  }
  return views;
}

// out[k * rows + row] = the operand that the descriptor points to.
void fetch(Block& b, const WgmmaIssue& issue, u64 descriptor, int rows, bool rows_contiguous,
           const std::vector<const Known*>& views, u32 id, float* out) {
  walk_operand(descriptor, rows, rows_contiguous, issue.pc, [&](u32 address, int row, int k) {
    for (const Known* v : views)
      if (!touch(b, address, 16, READ, *v, id, issue.clock, true, issue.pc)) break;
    if (!inside(b, address, 16)) return;
    u16 e[8];
    memcpy(e, b.window + address, 16);
    for (int j = 0; j < 8; ++j)
      out[rows_contiguous ? k * rows + row + j : (k + j) * rows + row] = widen(e[j], issue.op.type);
  });
}

void fetch_fragments(Fiber** f, size_t operation, float* out) {
  for (int t = 0; t < LANES; ++t) {
    const Wgmma& op = f[t]->products[0][operation].op;
    for (int j = 0; j < 8; ++j)
      out[(2 * (t % 4) + j % 2 + j / 4 * 8) * ROWS + row_of(t, j)] = widen((u16)(op.fragment[j / 2] >> j % 2 * 16), op.type);
  }
}

Held* held(Fiber* f, const void* registers) {
  for (Held& h : f->held)
    if (h.registers == registers) return &h;
  return nullptr;
}

// The accumulators of all lanes, into one matrix of 64 x n or back.
void move_accumulators(Fiber** f, size_t operation, float* matrix, int n, bool in) {
  for (int t = 0; t < LANES; ++t) {
    Held* h = held(f[t], f[t]->products[0][operation].op.d);
    for (int j = 0; j < n / 2; ++j) {
      float& x = matrix[row_of(t, j) * n + j / 4 * 8 + t % 4 * 2 + j % 2];
      if (in) x = h->value[j];
      else h->value[j] = x;
    }
  }
}

void multiply(Block& b, Fiber** f, size_t operation, u32 group, u32 id) {
  const WgmmaIssue& issue = f[0]->products[0][operation];
  const Wgmma& op = issue.op;
  const int n = op.n;
  const auto views = views_of(f, operation, group);
  if (op.fragment) fetch_fragments(f, operation, b.a);
  else fetch(b, issue, op.a, ROWS, op.transpose_a, views, id, b.a);
  fetch(b, issue, op.b, n, op.transpose_b, views, id, b.b);
  float* d = b.accumulators.data();
  const auto& all = f[0]->products[0];
  if (!operation || all[operation - 1].op.d != op.d) move_accumulators(f, operation, d, n, true);
  if (!op.add) memset(d, 0, sizeof(float) * ROWS * n);
  for (int r = 0; r < ROWS; ++r)
    for (int k = 0; k < DEPTH; ++k) {
      const float x = b.a[k * ROWS + r];
      for (int j = 0; j < n; ++j) d[r * n + j] += x * b.b[k * n + j];
    }
  if (operation + 1 == all.size() || all[operation + 1].op.d != op.d) move_accumulators(f, operation, d, n, false);
  for (int t = 0; t < LANES; ++t) {
    const Wgmma& own = f[t]->products[0][operation].op;
    --held(f[t], own.d)->operations;
    if (own.fragment) --held(f[t], own.fragment)->operations;
  }
}

// Gives a thread the registers that no wgmma in flight uses any more.
void give_back(Fiber* f) {
  for (size_t i = 0; i < f->held.size();) {
    Held& h = f->held[i];
    if (h.operations) {
      ++i;
      continue;
    }
    for (u32 j = 0; j < h.value.size(); ++j) {
      u32 now;
      memcpy(&now, h.registers + j, 4);
      if (now == POISON) continue;
      fault("wgmma", f->waiting.pc, 0, "accumulator register %u of thread %u was written while a wgmma on it was in flight", j,
            f->thread);
      break;
    }
    memcpy(h.registers, h.value.data(), 4 * h.value.size());
    f->held.erase(f->held.begin() + i);
  }
}

// The oldest committed group of all 128 threads.
void run_group(Block& b, Fiber** f) {
  const u32 group = f[0]->warp / 4, id = 2 * threads + warpgroups / launch.cluster * b.rank + group;
  if (!same_groups(f, group)) return;
  const size_t operations = f[0]->products[0].size();
  for (size_t i = 0; i < operations; ++i) multiply(b, f, i, group, id);
  if (operations) b.products_done[group] = f[0]->products[0].back().clock;
  for (int t = 0; t < LANES; ++t) {
    Fiber* x = f[t];
    x->products.erase(x->products.begin());
    give_back(x);
    ClockRef& others = x->known.others;      // the warpgroup's asynchronous reads are over for this thread
    if (!launch.checked || others[id] >= b.products_done[group]) continue;
    ClockRef &from = b.memo[3], &to = b.memo[4];
    if (!(from == others) || to[id] != b.products_done[group]) {
      from = others;
      to = ClockRef(from.data());
      to[id] = b.products_done[group];
    }
    others = to;
  }
}
}  // namespace

void wgmma(Wgmma op) {
  Fiber* f = current;
  bool touched = !f->wgmma_fenced;
  auto hold = [&](float* registers, u32 count, bool accumulator) {
    if (Held* h = held(f, registers)) {
      ++h->operations;
      return;
    }
    const u32 first = (u32)((char*)registers - f->stack) / 4;
    for (u32 i = first; i < first + count && i < STACK_BYTES / 4; ++i) touched |= f->dirty[i / 64] >> i % 64 & 1;
    f->held.push_back({registers, count, 1, std::vector<float>(registers, registers + (accumulator ? count : 0))});
    if (accumulator) std::fill((u32*)registers, (u32*)registers + count, POISON);
  };
  hold(op.d, op.n / 2, true);
  if (op.fragment) hold((float*)op.fragment, 4, false);
  if (touched && launch.checked)
    fault("wgmma", CALLER, 0, "thread %u: wgmma on registers used since the last wgmma.fence (or never fenced)", f->thread);
  u32& clock = f->block->products_issued[f->warp / 4];
  if (f->thread % LANES == 0) ++clock;
  f->products.back().push_back({op, f->known, CALLER, clock});
}

void wgmma_fence() {
  current->wgmma_fenced = true;
  std::fill(current->dirty.begin(), current->dirty.end(), 0);
}

void wgmma_commit() { current->products.emplace_back(); }

void wgmma_wait(u32 groups_left) {
  Fiber* f = current;
  f->waiting.pc = CALLER;
  collective(f, f->block->groups[f->warp / 4], f->thread % LANES, LANES, WGMMA_WAIT + groups_left, "wgmma.wait_group", nullptr,
             CALLER, [&](Collective& c) {
               while (c.fibers[0]->products.size() > groups_left + 1) run_group(*f->block, c.fibers);
             });
}
}  // namespace emu
