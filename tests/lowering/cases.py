"""Kernels under schedules: what lowering, emulation and schedule laws are tested on. Sizes are small; rings wrap, tiles
are ragged, and blocks have several tiles, so that what can go wrong does.

    CASES[name] = Case(kernel, facts)       the kernel bears its schedule
"""
from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Mapping

from deplodock.ir.dtype import b8, bf16, f16, f32, f64, i32, i64, u8
from deplodock.ir.plan import Kernel
from tests.lowering import terms as t


@dataclass(frozen=True)
class Storage:
    """Where an input lies: see lower/flatten.py."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    alignment: int = 16


@dataclass(frozen=True)
class Case:
    kernel: Kernel
    facts: Mapping[str, Storage] = field(default_factory=dict)


def case(kernel: Kernel, knobs: dict, facts: Mapping[str, Storage] | None = None) -> Case:
    return Case(replace(kernel, schedule=tuple(sorted(knobs.items()))), facts or {})


ROW = {"vec.k": 4, "lanes.k": 32, "warps.k": 4}
ROW1 = ROW | {"vec.k1": 4, "lanes.k1": 32, "warps.k1": 4}
MMA = {"atom": "mma", "tile.m": 32, "tile.n": 64, "tile.k": 32, "warps.m": 2, "warps.n": 2, "stages": 3}
BLOCKED = {"epilogue": "blocked", "vec.n": 8, "lanes.n": 4, "lanes.m": 8}
FMA = {"atom": "fma", "tile.m": 32, "tile.n": 32, "tile.k": 16, "lanes.m": 4, "lanes.n": 8, "warps.m": 2, "stages": 3}
FLASH = {"atom": "mma", "tile.s": 32, "tile.s1": 32, "tile.e": 64, "warps.s": 2, "stages": 2}
FLASH_FMA = {"atom": "fma", "tile.s": 32, "tile.s1": 16, "tile.e": 32, "lanes.s": 4, "lanes.e": 8, "lanes.s1": 8,
             "warps.s": 4, "stages": 2}
PLAIN = {"tile.m": 16, "tile.n": 32, "tile.k": 8, "vec.n": 2, "lanes.n": 8, "lanes.m": 4, "warps.n": 2}
WGMMA = {"atom": "wgmma", "tile.m": 128, "tile.n": 64, "tile.k": 64, "warps.m": 8, "stages": 3}
FLASH_WGMMA = {"atom": "wgmma", "tile.s": 64, "tile.s1": 64, "tile.e": 64, "warps.s": 4, "stages": 2}
FULL = {"atom": "mma", "tile.g_s": 32, "tile.s": 32, "tile.e": 64, "warps.g_s": 2, "stages": 2}
LINEAR = {"atom": "mma", "tile.s": 32, "tile.t": 32, "tile.e": 64, "warps.s": 2, "stages": 2}
TMA, ROLES = {"copy": "tma"}, {"copy": "tma", "roles": 1}

CASES: dict[str, Case] = {
    # ---- points
    "silu_mul": case(t.silu_mul(6, 1024), {"tile.m_n": 1024, "vec.m_n": 8, "lanes.m_n": 32, "warps.m_n": 4}),
    "silu_mul f32 ragged": case(t.silu_mul(7, 1020, f32),
        {"tile.m_n": 512, "vec.m_n": 4, "lanes.m_n": 32, "warps.m_n": 4}),
    "silu_mul f16 odd": case(t.silu_mul(5, 77, f16), {"tile.m_n": 256, "vec.m_n": 2, "lanes.m_n": 32, "warps.m_n": 4}),
    "silu_mul one": case(t.silu_mul(1, 1, f32), {}),
    "silu_mul empty": case(t.silu_mul(0, 8), {"tile.m_n": 8}),
    "silu_mul strided": case(t.silu_mul(6, 64, f32),
        {"tile.m": 4, "tile.n": 32, "vec.n": 4, "lanes.n": 8, "lanes.m": 4},
        {"g": Storage((6, 64), (1, 6)), "u": Storage((6, 64), (80, 1), 4)}),
    "silu_mul expanded": case(t.silu_mul(6, 64, f32),
        {"tile.m": 4, "tile.n": 32, "vec.n": 4, "lanes.n": 8, "lanes.m": 4},
        {"g": Storage((6, 64), (0, 1)), "u": Storage((6, 64), (1, 0))}),
    "transpose": case(t.transpose(50, 66), {"tile.n": 32, "tile.m": 32, "lanes.m": 32, "warps.n": 4}),
    "scalar": case(t.scalar(), {}),
    "iota": case(t.iota(100), {"tile.n": 64, "lanes.n": 32}),
    "concat": case(t.concat(37, 60), {"tile.i": 32, "lanes.i": 32}),
    "flip_pad": case(t.flip_pad(37, 3), {"tile.i": 32, "lanes.i": 32}),
    "reshape": case(t.reshape(120, 8), {"tile.i_j": 64, "lanes.i_j": 32}),
    "embedding": case(t.embedding(13, 50, 96), {"tile.t": 4, "tile.e": 64, "vec.e": 8, "lanes.e": 8, "lanes.t": 4}),
    "gathered elements": case(t.gathered_elements(13, 50, 96), {"tile.t": 4, "tile.e": 64, "vec.e": 2, "lanes.e": 32}),
    "integers": case(t.integers(77), {"tile.n": 64, "vec.n": 2, "lanes.n": 32}),
    "f64 points": case(t.silu_mul(5, 30, f64), {"tile.m_n": 64, "vec.m_n": 2, "lanes.m_n": 32}),
    # ---- rows
    "rmsnorm": case(t.rmsnorm(3, 3584), {"tile.k": 3584, "vec.k": 8, "lanes.k": 32, "warps.k": 2}),
    "rmsnorm f32 ragged": case(t.rmsnorm(3, 1000, f32), ROW | {"tile.k": 1024}),
    "rmsnorm f16": case(t.rmsnorm(5, 96, f16), {"tile.m": 4, "tile.k": 96, "vec.k": 1, "lanes.k": 32, "warps.m": 4}),
    "rmsnorm swept": case(t.rmsnorm(3, 1000), ROW1 | {"tile.k": 512, "sweep.k": 1, "tile.k1": 512}),
    "rmsnorm long": case(t.rmsnorm(2, 20000, f32),
        {"tile.k": 128, "sweep.k": 1, "tile.k1": 128, "vec.k": 4, "lanes.k": 32, "vec.k1": 4, "lanes.k1": 32}),
    "add_rmsnorm": case(t.add_rmsnorm(3, 1024), ROW | {"tile.k": 1024}),
    "layernorm": case(t.layernorm(3, 1000), ROW | {"tile.k": 1024}),
    "layernorm f64": case(t.layernorm(3, 100, f64), {"tile.k": 128, "lanes.k": 32, "warps.k": 4}),
    "softmax": case(t.softmax(6, 512), {"tile.m": 4, "tile.k": 512, "vec.k": 8, "lanes.k": 32, "warps.m": 4}),
    "softmax ragged": case(t.softmax(3, 500, f32), ROW | {"tile.k": 512}),
    "softmax one": case(t.softmax(3, 1), {"tile.m": 4, "lanes.m": 4}),
    "online_softmax swept": case(t.online_softmax(3, 1500), ROW1 | {"tile.k": 512, "sweep.k": 1, "tile.k1": 512}),
    "column_sum": case(t.column_sum(300, 130), {"tile.n": 64, "vec.n": 2, "lanes.n": 32, "tile.m": 64, "warps.m": 4}),
    "total": case(t.total(30, 70), {"tile.m_n": 512, "vec.m_n": 2, "lanes.m_n": 32, "warps.m_n": 4}),
    "total i64": case(t.total(3, 7, i64), {"tile.m_n": 32, "lanes.m_n": 32}),
    **{f"row {monoid}{part or ''} {d}": case(t.row_fold(monoid, 5, 77, d, part),
                                             {"tile.m": 2, "warps.m": 2, "tile.k": 32, "lanes.k": 16})
       for monoid, d, part in (("max", f32, 0), ("min", f32, 0), ("prod", f32, 0), ("any", b8, 0), ("all", b8, 0),
                               ("max", i32, 0), ("min", u8, 0), ("sum", i64, 0), ("argmax", f32, 1), ("argmax", f32, 0),
                               ("argmin", i64, 1), ("argmax", bf16, 1))},
    "argmax block": case(t.row_fold("argmax", 3, 500, f32, 1), {"vec.k": 2, "lanes.k": 32, "warps.k": 4}),
    "window_max": case(t.window_max(20, 3), {"tile.i": 4, "tile.j": 8, "lanes.j": 8, "lanes.i": 4}),
    "window_argmax": case(t.window_argmax(20, 3), {"tile.i": 4, "tile.j": 8, "lanes.j": 8, "lanes.i": 4}),
    "average_pool": case(t.average_pool(50, 3), {"tile.i": 32, "lanes.i": 32}),
    "empty fold": case(t.row_fold("sum", 5, 0), {}),
    # ---- products on tensor cores
    "matmul nk": case(t.matmul(64, 128, 96), MMA),
    "matmul f16": case(t.matmul(64, 128, 96, d=f16), MMA),
    "matmul kn": case(t.matmul(64, 128, 96, "kn"), MMA),
    "matmul k64": case(t.matmul(64, 128, 192), MMA | {"tile.k": 64}),
    "matmul n96": case(t.matmul(64, 96, 192), MMA | {"tile.n": 96}),
    "matmul ragged nk": case(t.matmul(50, 72, 88), MMA),
    "matmul ragged kn add": case(t.matmul(50, 72, 88, "kn", "add"), MMA),
    "matmul odd nk silu": case(t.matmul(33, 65, 77, "nk", "silu"), MMA),
    "matmul odd kn add": case(t.matmul(33, 65, 77, "kn", "add"), MMA | BLOCKED),
    "matmul kn add blocked": case(t.matmul(64, 128, 96, "kn", "add"), MMA | BLOCKED),
    "matmul one chunk": case(t.matmul(64, 64, 64), MMA | {"tile.k": 64}),
    "matmul one row": case(t.matmul(1, 64, 64), {"tile.n": 4, "tile.k": 64, "vec.k": 2, "lanes.k": 32, "warps.n": 4}),
    "matmul without products": case(t.matmul(16, 32, 40), PLAIN),
    "matmul transposed input": case(t.matmul(64, 64, 96), MMA, {"x": Storage((64, 96), (1, 64))}),
    "matmul unaligned input": case(t.matmul(64, 64, 96), MMA, {"x": Storage((64, 96), (97, 1), 2)}),
    "norm_matmul": case(t.norm_matmul(50, 64, 88), MMA),
    "norm_then_matmul": case(t.norm_then_matmul(64, 64, 96),
        MMA | {"tile.k1": 32, "vec.k": 4, "lanes.k": 8, "lanes.m": 4}),
    "gate_up": case(t.gate_up(64, 64, 96), MMA),
    "gate_up norm": case(t.gate_up(64, 64, 96, norm=True), MMA),
    "swiglu_down": case(t.swiglu_down(64, 64, 88), MMA),
    "grouped_matmul": case(t.grouped_matmul(2, 25, 2, 3, 16, 64),
        {k.replace(".m", ".b_s").replace(".k", ".g_r_e"): v for k, v in MMA.items()}),
    "projections": case(t.projections(50, 96, 40, 88), {k: v for k, v in MMA.items() if not k.endswith(".n")}
                        | {"tile.q": 64, "tile.v": 64, "warps.q": 2, "warps.v": 2}),
    "rope_matmul": case(t.rope_matmul(64, 32, 96),
        {"atom": "mma", "tile.m": 32, "tile.p": 2, "tile.h": 32, "tile.k": 32, "warps.m": 2, "warps.h": 2,
         "stages": 3}),
    "conv1d": case(t.conv1d(2, 50, 64, 32),
        {"atom": "mma", "tile.i": 32, "tile.n": 32, "tile.tap": 1, "tile.ch": 64, "warps.i": 2, "stages": 3}),
    "conv1d nested rings": case(t.conv1d(2, 50, 64, 32),
        {"atom": "mma", "tile.i": 32, "tile.n": 32, "tile.tap": 1, "tile.ch": 32, "warps.i": 2, "stages": 3}),
    "gathered_matmul": case(t.gathered_matmul(50, 77, 64, 96), {k.replace(".m", ".t"): v for k, v in MMA.items()}),
    "batched_matmul": case(t.batched_matmul(2, 3, 25, 40, 48), {k.replace(".m", ".h_m"): v for k, v in MMA.items()}),
    "cosine bf16": case(t.cosine(50, 72, 88, bf16), MMA),
    # ---- products in registers
    "fma nk": case(t.matmul(64, 64, 96, d=f32), FMA),
    "fma nk, neighbouring columns": case(t.matmul(64, 64, 96, d=f32), FMA | {"vec.n": 4, "tile.k": 32}),
    "fma kn": case(t.matmul(64, 64, 96, "kn", d=f32), FMA | {"vec.n": 4}),
    "fma long": case(t.matmul(33, 40, 700, "kn", "add", d=f32), FMA | {"vec.n": 4}),
    "fma long chunks": case(t.matmul(33, 40, 700, d=f32), FMA | {"tile.k": 128, "stages": 2}),
    "fma odd": case(t.matmul(33, 65, 77, "nk", "silu", d=f32), FMA),
    "fma f64": case(t.matmul(33, 40, 77, d=f64), FMA | {"tile.n": 16}),
    "fma bf16": case(t.matmul(64, 64, 96), FMA),
    "fma norm": case(t.norm_matmul(50, 64, 88, d=f32), FMA),
    "fma computed": case(t.swiglu_down(64, 64, 88, d=f32), FMA),
    "fma gate_up": case(t.gate_up(64, 64, 96, d=f32), FMA),
    "fma residual norm": case(t.residual_norm_matmul(7, 20, 32, 2, 8, f32),
        {"atom": "fma", "tile.m": 8, "tile.n": 32, "tile.k": 32, "tile.a": 1, "tile.e": 8, "lanes.m": 4, "lanes.n": 8,
         "lanes.k": 8, "stages": 2}),
    "fma norm first, two parts": case(t.norm_then_projections(7, 20, 12, 32, f32),
        {"atom": "fma", "tile.m": 16, "tile.q": 32, "tile.v": 16, "tile.k": 32, "tile.k1": 32, "lanes.m": 8,
         "lanes.q": 4, "lanes.v": 4, "lanes.k1": 4, "warps.m": 2, "stages": 2}),
    "fma gathered": case(t.gathered_matmul(50, 77, 64, 96, f32), {k.replace(".m", ".t"): v for k, v in FMA.items()}),
    "fma cosine": case(t.cosine(50, 72, 88), FMA),
    "fma rope": case(t.rope_matmul(64, 32, 96, f32),
        {"atom": "fma", "tile.m": 32, "tile.p": 2, "tile.h": 16, "tile.k": 16, "lanes.m": 4, "lanes.h": 8, "warps.m": 2,
         "stages": 3}),
    # ---- attention
    "attention": case(t.attention(4, 2, 64, 64), FLASH),
    "attention f16": case(t.attention(4, 2, 64, 64, d=f16), FLASH),
    "attention d128": case(t.attention(2, 1, 64, 128), FLASH | {"tile.e": 128}),
    "attention d80": case(t.attention(2, 1, 64, 80), FLASH | {"tile.e": 80}),
    "attention ragged": case(t.attention(2, 1, 50, 64), FLASH),
    "attention full ragged": case(t.attention(2, 1, 50, 64, causal=False), FULL),
    "attention mask": case(t.attention(2, 1, 50, 64, causal=False, mask=True), FLASH),
    "attention window": case(t.attention(2, 1, 200, 64, window=40), FLASH),
    "attention cross": case(t.attention(2, 1, 50, 64, causal=False, T=70), FULL),
    "attention packed heads": case(t.attention(4, 1, 32, 64),
        FLASH | {"tile.g": 4, "tile.s": 16, "warps.g": 2, "warps.s": 1}),
    "attention parts": case(t.attention_parts(2, 64, 96, 64), LINEAR),
    "attention decode": case(t.attention(14, 2, 1, 64, causal=False, T=300),
        {"atom": "mma", "tile.g": 16, "tile.e": 64, "tile.s": 64, "stages": 3}),
    "attention f32": case(t.attention(4, 2, 64, 32, d=f32), FLASH_FMA),
    "attention f32 ragged": case(t.attention(2, 1, 50, 32, d=f32, mask=True), FLASH_FMA),
    "attention f32 d160": case(t.attention(2, 1, 40, 160, d=f32), FLASH_FMA | {"tile.e": 160}),
    "linear_attention": case(t.linear_attention(64, 64), LINEAR),
    "attention plain": case(t.attention(2, 1, 9, 32, d=f32),
        {"tile.s1": 8, "tile.e": 32, "lanes.e": 8, "lanes.s1": 4, "warps.e": 2}),
    "attention decode plain": case(t.attention(4, 2, 1, 32, causal=False, T=77),
        {"tile.s": 32, "tile.e": 32, "vec.e": 2, "lanes.e": 8, "lanes.s": 4, "warps.s": 4}),
    "dead rows": case(t.dead_rows(50, 64), FLASH),
    "dead rows f32": case(t.dead_rows(50, 32, f32), FLASH_FMA),
    "expected_position": case(t.expected_position(50, 64), FLASH),
    "expected_position f32": case(t.expected_position(50, 32, f32), FLASH_FMA),
    "softmax_matmul": case(t.softmax_matmul(50, 64, 88), MMA | {"tile.k2": 32, "vec.k": 4, "lanes.k": 8, "lanes.m": 4,
                                                               "tile.k1": 32, "vec.k1": 4, "lanes.k1": 8}),
    "softmax_matmul f32": case(t.softmax_matmul(50, 64, 88, f32),
        FMA | {"tile.k2": 16, "tile.k": 32, "lanes.k": 8, "tile.k1": 32, "lanes.k1": 8}),
    # ---- wgmma, TMA, roles
    "wgmma nk": case(t.matmul(128, 128, 320), WGMMA),
    "wgmma kn": case(t.matmul(128, 128, 320, "kn"), WGMMA),
    "wgmma ragged add": case(t.matmul(100, 72, 88, "nk", "add"), WGMMA | {"tile.n": 48}),
    "wgmma two panels": case(t.matmul(128, 96, 512), WGMMA | {"tile.n": 96, "tile.k": 128}),
    "wgmma norm_matmul": case(t.norm_matmul(128, 64, 192), WGMMA),
    "wgmma swiglu_down": case(t.swiglu_down(128, 64, 192), WGMMA),
    "wgmma attention": case(t.attention(4, 2, 128, 64), FLASH_WGMMA),
    "wgmma attention d128": case(t.attention(2, 1, 128, 128), FLASH_WGMMA | {"tile.e": 128}),
    "wgmma linear_attention": case(t.linear_attention(192, 64),
        LINEAR | {"atom": "wgmma", "tile.s": 64, "tile.t": 64, "warps.s": 4, "stages": 3}),
    "wgmma rope_matmul": case(t.rope_matmul(128, 32, 128),
        {"atom": "wgmma", "tile.m": 64, "tile.p": 2, "tile.h": 32, "tile.k": 64, "warps.m": 4, "stages": 3}),
    "wgmma conv1d": case(t.conv1d(2, 100, 128, 64),
        {"atom": "wgmma", "tile.i": 64, "tile.n": 64, "tile.tap": 1, "tile.ch": 64, "warps.i": 4, "stages": 3}),
    "tma matmul add": case(t.matmul(300, 200, 520, "nk", "add"), WGMMA | TMA | {"epilogue": "tma"}),
    "tma mma": case(t.matmul(64, 128, 192), MMA | TMA | {"tile.k": 64}),
    "tma beside cp.async": case(t.matmul(64, 128, 192), MMA | TMA | {"tile.k": 64}, {"x": Storage((64, 192), (193, 1), 2)}),
    "roles matmul add": case(t.matmul(300, 200, 520, "kn", "add"),
        WGMMA | ROLES | {"epilogue": "tma", "persistent": 4}),
    "roles gate_up norm": case(t.gate_up(300, 128, 512, norm=True),
        WGMMA | ROLES | {"tile.n": 32, "epilogue": "tma", "persistent": 4}),
    "roles attention": case(t.attention(4, 2, 256, 64),
        FLASH_WGMMA | ROLES | {"epilogue": "tma", "reverse.s": 1, "raster": "s,kv,g"}),
}
