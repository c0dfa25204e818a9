// Matrix operations of a warp: ldmatrix, stmatrix, mma.sync. Fragment layouts as in the PTX ISA, sections on
// ldmatrix and on matrix fragments for mma.m16n8k16. Products are summed in f32, in order of k.
#include "collective.h"

namespace emu {
float widen(u16 bits, Half type) {
  if (type == F16) {
    _Float16 x;
    memcpy(&x, &bits, 2);
    return (float)x;
  }
  const u32 wide = (u32)bits << 16;
  float x;
  memcpy(&x, &wide, 4);
  return x;
}

namespace {
struct Rows { u32 address; u32* all; };

// Each lane gives the address of a row of 16 bytes; each then moves its own elements, so that races are seen lane by lane.
void move_matrices(u32 address, u32* to, const u32* from, int matrices, bool transposed, u32 pc) {
  Fiber* f = current;
  u32 rows[32];
  Rows payload{address, rows};
  const char* name = to ? "ldmatrix" : "stmatrix";
  collective(f, of_warp(f, ~0u), f->lane, 32, to ? LDMATRIX : STMATRIX, name, &payload, pc, [&](Collective& c) {
    for (int l = 0; l < 32; ++l)
      for (int i = 0; i < 32; ++i) ((Rows*)c.payload[l])->all[i] = ((Rows*)c.payload[i])->address;
  });
  Block& b = *f->block;
  const u32 bytes = transposed ? 2 : 4;
  for (int i = 0; i < matrices; ++i)
    for (u32 half = 0; half < 4 / bytes; ++half) {
      const u32 row = transposed ? f->lane % 4 * 2 + half : f->lane / 4;
      const u32 column = transposed ? f->lane / 4 * 2 : f->lane % 4 * 4;
      if (rows[8 * i + row] % 16)
        fault("misaligned", pc, 0, "%s: row address 0x%x is not a multiple of 16", name, rows[8 * i + row]);
      const u32 at = rows[8 * i + row] + column;
      touch(f, at, bytes, to ? READ : WRITE, pc);
      if (!inside(b, at, bytes)) continue;
      if (to) memcpy((char*)&to[i] + 2 * half, b.window + at, bytes);
      else memcpy(b.window + at, (const char*)&from[i] + 2 * half, bytes);
    }
  ++b.accesses;
}

struct Product { float* d; const u32 *a, *b; };

void multiply(Collective& c, Half type) {
  float a[16][16], b[16][8], d[16][8];
  for (int l = 0; l < 32; ++l) {
    const Product& x = *(Product*)c.payload[l];
    const int row = l / 4, column = l % 4 * 2;
    for (int e = 0; e < 8; ++e)
      a[row + e / 2 % 2 * 8][column + e % 2 + e / 4 * 8] = widen((u16)(x.a[e / 2] >> e % 2 * 16), type);
    for (int e = 0; e < 4; ++e) {
      b[column + e % 2 + e / 2 * 8][row] = widen((u16)(x.b[e / 2] >> e % 2 * 16), type);
      d[row + e / 2 * 8][column + e % 2] = x.d[e];
    }
  }
  for (int i = 0; i < 16; ++i)
    for (int k = 0; k < 16; ++k)
      for (int j = 0; j < 8; ++j) d[i][j] += a[i][k] * b[k][j];
  for (int l = 0; l < 32; ++l)
    for (int e = 0; e < 4; ++e) ((Product*)c.payload[l])->d[e] = d[l / 4 + e / 2 * 8][l % 4 * 2 + e % 2];
}
}  // namespace

void ldmatrix(u32 address, u32* fragment, int matrices, int transposed) {
  move_matrices(address, fragment, nullptr, matrices, transposed, CALLER);
}
void stmatrix(u32 address, const u32* fragment, int matrices, int transposed) {
  move_matrices(address, nullptr, fragment, matrices, transposed, CALLER);
}
void mma_m16n8k16(float* d, const u32* a, const u32* b, Half type) {
  Fiber* f = current;
  Product lane{d, a, b};
  collective(f, of_warp(f, ~0u), f->lane, 32, MMA, "mma.sync", &lane, CALLER, [&](Collective& c) { multiply(c, type); });
}
}  // namespace emu
