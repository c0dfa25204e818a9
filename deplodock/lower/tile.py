"""A scheduled kernel -> Tile IR: one recursion over its bodies, and no template for any operator.

An expression lives at the innermost loop whose axis it needs. A fold that uses no axis bound on the way to it is
finished before the loop; one that uses the loop's axis is computed inside, chunk by chunk; siblings share a loop
(lower/structure.py). The same rule places every other expression, so that invariant code and shared loads need no pass.

Knobs of a schedule (a is an axis of the flattened kernel: lower/structure.py's axes_of tells them):

    tile.a      elements of a that a block works on: of a launch axis in all (default 1), of a fold's axis at a time
                (default: all, without a loop)
    vec.a, lanes.a, warps.a     neighbours in registers, then lanes, then warps along a (default 1); of tiles on tensor
                cores, warps only
    warps       of a block, where it is more than the axes take
    atom        mma, wgmma (tensor cores), fma (outer products in registers), none
    stages      of the rings of shared tiles
    copy        async (cp.async) or tma; tma falls back to cp.async for a tile that has no box
    roles       1: a producer warp runs the copies of every loop, the other warps run the bodies; with copy tma
    epilogue    direct; blocked: through shared memory into the layout of vec, lanes and warps; tma: stored by TMA
    sweep.a     1: the block walks all tiles of launch axis a itself
    raster      grid axes, slowest first, joined by commas; reverse.a: 1: the last tile first
    persistent  blocks, which walk the grid; group.a: raster in groups of so many tiles of a
    min_blocks  per multiprocessor; regs: "producer,consumers", registers of a thread
"""
from __future__ import annotations

from dataclasses import replace

from deplodock.ir.index import index
from deplodock.ir.layout import Shared
from deplodock.ir.loop import Const
from deplodock.ir.plan import Kernel
from deplodock.ir.tile import (Access, Compare, CopyOut, Fill, For, GridAxis, Kernel as TileKernel, Map, Part, Reg,
                               SharedTile, Store, StoreShared, all_copies, origin)
from deplodock.ir.tile_verify import verify_tile
from deplodock.lower.box import box
from deplodock.lower.flatten import Facts, Out, all_folds, flatten, outer_folds, params
from deplodock.lower.operators import RESERVED
from deplodock.lower.tile_body import access, lower
from deplodock.lower.tile_fold import evaluate, roles_of
from deplodock.lower.tile_scope import Bound, Knobs, Level, Names, Scope, spreads


def lower_tile(kernel: Kernel, facts: Facts = {}) -> TileKernel:
    """The block-level program of a kernel under its schedule. Outputs without elements have no part.

    IllegalSchedule where the schedule does not fit the kernel.
    """
    knobs, flats = Knobs(kernel.name, kernel.schedule), flatten(kernel, facts)
    if flats:
        folds = [g for f in flats for g in all_folds(o.body for o in f.outs)]
        knobs.require_axes({a.name for x in (*flats, *folds) for a in x.axes})
    known = params(kernel, facts)
    names = Names((*RESERVED, *(p.name for p in known)))
    warps = max([knobs.get("warps", 1), *(spreads(f, knobs)[1] for f in flats)])
    parts = [_part(Scope(flat, knobs, warps, names, evaluate)) for flat in flats]
    group = next(((k[6:], n) for k, n in knobs.values.items() if k.startswith("group.")), None)
    regs = tuple(map(int, str(knobs.get("regs")).split(","))) if knobs.get("regs") else None
    made = TileKernel(kernel.name, known, tuple(parts), warps, knobs.get("min_blocks", 1), knobs.roles,
                      knobs.get("persistent", 0), group, regs, kernel.source)
    boxed = all(c.box for c in all_copies(made))
    knobs.require(not knobs.roles or len(parts) == 1 and boxed, "roles need one part, and a box for every copy")
    verify_tile(made)
    return made


def _part(s: Scope) -> Part:
    flat, knobs, grid = s.flat, s.knobs, []
    for a in flat.axes:
        tile, sweep = knobs.of("tile", a.name), knobs.of("sweep", a.name, 0)
        span = s.spreads[a.name].span
        s.require(tile > 0, f"tile.{a.name} = {tile}")
        s.require(knobs.atom in ("mma", "wgmma") or tile % span == 0,
                  f"tile.{a.name} = {tile} is no multiple of {span} = vec x lanes x warps of {a.name}")
        base = index(0) if sweep or tile >= a.extent else index(origin(a))
        s.order.append(a.name)
        s.bind[a.name] = Bound(a, base, tile, 0, tile)
        if not sweep:
            grid.append(GridAxis(a, tile, -(-a.extent // tile), bool(knobs.of("reverse", a.name, 0))))
    bodies = [o.body for o in flat.outs]
    swept = [a for a in flat.axes if knobs.of("sweep", a.name, 0) and s.bind[a.name].tile < a.extent]
    s.require(len(swept) <= 1, "a block sweeps one axis at most")
    for a in swept:
        evaluate(s, [f for b in bodies for f in outer_folds(b) if a not in f.free])
        s.bind[a.name] = replace(s.bind[a.name], base=index(origin(a)))
        s.levels.append(Level([], a.name, a.name))
    evaluate(s, bodies)
    for o in flat.outs:
        _store(s, o, bodies)
    for a in swept:
        level = s.levels.pop()
        s.emit(For(origin(a), (index(0),), (index(a.extent),), s.bind[a.name].tile, knobs.stages if level.copies else 1,
                   tuple(level.copies), tuple(level.stmts)))
    raster = str(knobs.get("raster", "")).split(",")
    grid.sort(key=lambda g: raster.index(g.axis.name) if g.axis.name in raster else -1)
    return Part(tuple(grid), tuple(s.levels[0].copies), tuple(s.levels[0].stmts))


def _store(s: Scope, o: Out, bodies) -> None:
    """An output: its value, in a layout that suits the store, and its way to memory."""
    knobs = s.knobs
    roles = None if knobs.epilogue == "blocked" else roles_of(s, bodies)
    value = lower(s, o.body, s.frame(o.axes, roles), stage=knobs.epilogue == "tma")
    at = _once(s, o, access(s, o.buffer, o.indices, None))
    if isinstance(value, Const) or value.layout.axes < set(s.tiled(o.axes)):
        value = _spread(s, value, s.frame(o.axes, roles))
    tile = _staging(s, o, at) if knobs.epilogue == "tma" else None
    if tile and (copied := box(at, tile.shape, s.bind)):
        s.emit(StoreShared(tile, value))
        s.emit(CopyOut(at, tile, value.layout, copied))
    else:
        s.emit(Store(at, value))


def _spread(s: Scope, value: Reg | Const, layout) -> Reg:
    """A value that is equal along some axes of an output, in every element of its tile."""
    made = s.reg("out", value.dtype, layout)
    s.emit(Fill(made, value) if isinstance(value, Const) else Map(made, "copy", (value,)))
    return made


def _once(s: Scope, o: Out, at: Access) -> Access:
    """Of the blocks that share an output's tile, the first writes it."""
    shared = [s.bind[a.name].base for a in s.flat.axes if a not in o.axes and not s.bind[a.name].base.is_const]
    return replace(at, guards=at.guards + tuple(Compare("eq", b, index(0)) for b in shared))


def _staging(s: Scope, o: Out, at: Access) -> SharedTile | None:
    """The shared tile through which an output leaves by TMA, in panels of the widest box that divides its columns."""
    names, size = s.tiled(o.axes), o.buffer.dtype.bytes
    near = [a for a in names if at.step(a) == 1]
    if size != 2 or len(names) < 2 or len(near) != 1:
        return None
    rows, columns = tuple(a for a in names if a != near[0]), s.bind[near[0]].tile
    panel = next((p for p in (128, 64, 32) if columns * size % p == 0), None)
    if panel is None:
        return None
    shape = Shared(rows, tuple(s.bind[a].tile for a in rows), near[0], columns, size, panel)
    return SharedTile(s.name(f"{o.buffer.name}_s"), o.buffer.dtype, shape, 1)
