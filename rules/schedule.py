"""Schedules: what a CUDA engineer does to a loop nest, as guarded joins over knob domains.

A kernel's structure gives facts (extract/schedule.py reads them off its loops); each law adds the rows that one step
makes legal, and the last relation of a family holds whole schedules, one flat row each. Legality is in the guards: no row
needs a filter after it. Knobs that others imply (vector widths, swizzles, which tensors are staged) are no columns.

Families are kinds of loop structure:

    product   a contraction with rows and columns of its own, operands staged in shared memory
    chained   a contraction inside the loop of another one: the scores of attention inside its fold over keys
    rows      folds without contractions: a row a warp or a block
    points    no folds
    nest      any of these, one point a thread: of a kernel that no other law serves

Columns are counts of elements, warps or slots. `size` is the bytes of an element of the operands, `sides` the number of
products that share a loop, `shared` and `registers` what a block and a thread may use.
"""
from deplodock.join import Domain, Relation, divides, given, step

# ---- facts -----------------------------------------------------------------------------------------------------------

machine = Relation("machine", ("shared", "accumulators"), keyed=False)
"""Bytes of shared memory for a block; 32-bit accumulators that a thread can hold beside its fragments and addresses."""
product = Relation("product", ("k", "rows", "columns", "depth", "sides", "lefts", "rights", "size"))
"""rows x columns of one tile space, folded over depth; batch axes are in the grid and not here. lefts, rights: the tensors
that the operands with rows, or with columns, are made from: each has a slab of its own."""
chained = Relation("chained", ("k", "rows", "keys", "depth", "width", "size"))
"""rows x keys scores, each folded over depth, then folded over keys into rows x width."""
rows = Relation("rows", ("k", "count", "length", "kept", "size"))
"""kept: 1 if the points of a row are results as well, else 0."""
points = Relation("points", ("k", "outer", "length", "size"))
nest = Relation("nest", ("k", "length"))
"""length: of the innermost axis of the grid."""

# ---- knob domains ----------------------------------------------------------------------------------------------------

row_tile = Domain("row_tile", (16, 32, 64, 128))
column_tile = Domain("column_tile", (16, 32, 64, 128))
depth_chunk = Domain("depth_chunk", (16, 32, 64, 128))
key_chunk = Domain("key_chunk", (16, 32, 64))
row_warps = Domain("row_warps", (1, 2, 4, 8))
column_warps = Domain("column_warps", (1, 2, 4))
slots = Domain("slots", (2, 3, 4, 6))
thread_rows = Domain("thread_rows", (1, 2, 4, 8))
thread_columns = Domain("thread_columns", (1, 2, 4, 8))
vector = Domain("vector", (1, 2, 4, 8))
lanes = Domain("lanes", (1, 2, 4, 8, 16, 32))
warps = Domain("warps", (1, 2, 4, 8, 16, 32))

# ---- what the laws add -----------------------------------------------------------------------------------------------

tile = Relation("tile", ("k", "bm", "bn"))
slab = Relation("slab", ("k", "bm", "bn", "bk"))
ring = Relation("ring", ("k", "bm", "bn", "bk", "stages"))
tensor_core = Relation("tensor_core", ("k", "bm", "bn", "bk", "stages", "wm", "wn"))
register_tiles = Relation("register_tiles", ("k", "bm", "bn", "bk", "stages", "fm", "fn", "wm", "wn"))
attention = Relation("attention", ("k", "bm", "keys", "stages", "wm"))
attention_fma = Relation("attention_fma", ("k", "bm", "keys", "stages", "wm"))
row = Relation("row", ("k", "per_block", "vec", "lanes", "warps"))
row_chunks = Relation("row_chunks", ("k", "vec", "lanes", "warps"))
point = Relation("point", ("k", "vec", "lanes", "warps", "outer"))
serial = Relation("serial", ("k", "lanes"))


# ---- products --------------------------------------------------------------------------------------------------------

@step("exact")
def blockify(k, m, n, d, sides, lefts, rights, size, bm, bn):
    """i = io·bm + ii, ii < bm, guarded by i < M   when the tile is no more than twice the matrix"""
    return given(product(k, m, n, d, sides, lefts, rights, size), row_tile(bm), column_tile(bn)) \
        .when(bm < m * 2 + 16, bn < n * 2 + 16).adds(tile(k, bm, bn))


@step("exact")
def chunk_k(k, m, n, d, sides, lefts, rights, size, bm, bn, bk):
    """k = ko·bk + ki, the tail filled with the fold's identity   when a chunk is no more than twice the depth, and its
    rows are 32 to 256 bytes"""
    return given(tile(k, bm, bn), product(k, m, n, d, sides, lefts, rights, size), depth_chunk(bk)) \
        .when(bk < d * 2 + 16, bk * size <= 256, bk * size >= 32).adds(slab(k, bm, bn, bk))


@step("exact")
def double_buffer(k, m, n, d, sides, lefts, rights, size, bm, bn, bk, stages, shared, accumulators):
    """the slab of step i lives in slot i mod S   when S slabs of all operands fit shared memory"""
    return given(slab(k, bm, bn, bk), product(k, m, n, d, sides, lefts, rights, size), slots(stages), machine(shared, accumulators)) \
        .when(stages * bk * size * (lefts * bm + rights * bn) <= shared - 2048).adds(ring(k, bm, bn, bk, stages))


@step("reassociates")
def mma_atom(k, m, n, d, sides, lefts, rights, bm, bn, bk, stages, wm, wn, shared, accumulators):
    """a tile is m16n16k16 products of 16-bit operands, accumulated in f32   when warps divide it into such blocks and a
    thread can hold its share"""
    return given(ring(k, bm, bn, bk, stages), product(k, m, n, d, sides, lefts, rights, 2), row_warps(wm), column_warps(wn),
                 machine(shared, accumulators)) \
        .when(divides(wm * 16, bm), divides(wn * 16, bn), bm * bn * sides <= accumulators * 32 * wm * wn) \
        .adds(tensor_core(k, bm, bn, bk, stages, wm, wn))


@step("reassociates")
def register_tile(k, m, n, d, sides, lefts, rights, size, bm, bn, bk, stages, fm, fn, wm, wn, shared, accumulators):
    """ii = a·FM + f: a thread computes FM x FN elements, in partial sums of one chunk   when 8 x 4 lanes and the warps
    divide the tile, and a thread can hold both accumulators"""
    return given(ring(k, bm, bn, bk, stages), product(k, m, n, d, sides, lefts, rights, size), thread_rows(fm), thread_columns(fn),
                 row_warps(wm), column_warps(wn), machine(shared, accumulators)) \
        .when((fm * 4 * wm).equals(bm), (fn * 8 * wn).equals(bn), size >= 4, fm * fn * sides * size <= accumulators * 2,
              wm * wn <= 8) \
        .adds(register_tiles(k, bm, bn, bk, stages, fm, fn, wm, wn))


# ---- products inside the loop of a fold ------------------------------------------------------------------------------

@step("reassociates")
def mma_chain(k, m, t, d, e, bm, keys, stages, wm, shared, accumulators):
    """the accumulator of the first product is the operand of the second   when a warp owns 16 rows, one tile holds the
    width, and a thread can hold scores and result"""
    return given(chained(k, m, t, d, e, 2), row_tile(bm), key_chunk(keys), slots(stages), row_warps(wm),
                 machine(shared, accumulators)) \
        .when(divides(wm * 16, bm), bm < m * 2 + 16, keys < t * 2 + 16, keys * bm + e * bm <= accumulators * 32 * wm,
              bm * d * 2 + stages * keys * 2 * (d + e) <= shared - 2048) \
        .adds(attention(k, bm, keys, stages, wm))


@step("reassociates")
def fma_chain(k, m, t, d, e, size, bm, keys, stages, wm, shared, accumulators):
    """the same outside the tensor cores   when a warp has its rows to itself and a thread can hold scores and result"""
    return given(chained(k, m, t, d, e, size), row_tile(bm), key_chunk(keys), slots(stages), row_warps(wm),
                 machine(shared, accumulators)) \
        .when(size >= 4, divides(wm * 4, bm), bm < m * 2 + 16, keys < t * 2 + 16,
              (keys + e * 2) * bm * size <= accumulators * 128 * wm,
              bm * (d + keys) * size + stages * keys * size * (d + e) <= shared - 2048) \
        .adds(attention_fma(k, bm, keys, stages, wm))


# ---- rows and points -------------------------------------------------------------------------------------------------

@step("reassociates")
def cooperative_reduce(k, count, length, kept, size, v, l, w, accumulators, shared):
    """lane t takes k ≡ t mod T, then a tree over lanes and warps   when vectors are at most 16 bytes and a thread can
    keep its share of the row in registers"""
    return given(rows(k, count, length, kept, size), vector(v), lanes(l), warps(w), machine(shared, accumulators)) \
        .when(v * size <= 16, (l * w * v) < length * 2 + 32, length * size <= accumulators * 4 * l * w) \
        .adds(row(k, 32 // l, v, l, w))


@step("reassociates")
def chunk_row(k, count, length, size, v, l, w, accumulators, shared):
    """k = ko·T·V + t·V + v, the tail filled with the fold's identity   when no block's threads can keep a row, nothing is
    asked of them but its folds, and vectors are at most 16 bytes"""
    return given(rows(k, count, length, 0, size), vector(v), lanes(l), warps(w), machine(shared, accumulators)) \
        .when(v * size <= 16, length * size > accumulators * 4096, l.equals(32), w >= 4).adds(row_chunks(k, v, l, w))


@step("exact")
def tileify(k, outer, length, size, v, l, w):
    """a free axis is a parallel index: each point writes its own element   when vectors are at most 16 bytes"""
    return given(points(k, outer, length, size), vector(v), lanes(l), warps(w)) \
        .when(v * size <= 16, v * l < length * 2 + v, w <= 8).adds(point(k, v, l, w, 32 // l))


@step("exact")
def thread_loops(k, length, l):
    """a free axis is a parallel index; the folds of a point are loops of its thread"""
    return given(nest(k, length), lanes(l)).when(l < length * 2).adds(serial(k, l))


STEPS = (blockify, chunk_k, double_buffer, mma_atom, register_tile, mma_chain, fma_chain, cooperative_reduce, chunk_row, tileify,
         thread_loops)
"""The laws in the order in which they run: each reads what earlier ones added."""
WHOLE = (tensor_core, register_tiles, attention, attention_fma, row, row_chunks, point, serial)
"""Relations whose rows are whole schedules."""
