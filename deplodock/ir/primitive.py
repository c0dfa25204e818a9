"""Primitives: the named operations of one thread that Kernel IR may call, and that two headers implement.

    deplodock/lower/device.cuh               for the GPU: each PTX instruction behind one wrapper
    deplodock/runtime/emulation              for the host: the same names and signatures (its twin)

SIGNATURES is the one list of them; a test compares both headers with it. What a parameter is called says what is done
with it:

    u32 to, u32 from       byte addresses in shared memory, written or read
    void* to, const void* from                    addresses in global memory
    u32 bar                the byte address of an mbarrier
    T x[n]                 n registers of the caller, always by address, so that the emulation can watch them

The first word of a line is who must reach the call together: `thread` (nobody), `warp`, `warpgroup`, `block`, or
`named` (as many threads as its second argument says).
"""
from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

SIGNATURES = """
thread u32 dd_shared()
block void dd_sync()
warp void dd_syncwarp()
named void dd_bar(u32 id, u32 threads)
warp int dd_uniform(int x)
warp template <class T> T dd_shfl_xor(T x, int mask)

thread template <class T> T dd_max(T a, T b)
thread template <class T> T dd_min(T a, T b)
thread template <class T> T dd_abs(T a)
thread template <class T> T dd_sign(T a)
thread template <class T> T dd_floordiv(T a, T b)
thread template <class T> T dd_truncdiv(T a, T b)
thread template <class T> T dd_remainder(T a, T b)
thread template <class T> T dd_fmod(T a, T b)
thread template <class T> T dd_pow(T a, T b)
thread template <class T> T dd_shl(T a, T b)
thread template <class T> T dd_shr(T a, T b)
thread float dd_exp2(float x)
thread float dd_rcp(float x)
thread float dd_rsqrt(float x)
thread float dd_bf16(u32 pair, int high)
thread float dd_f16(u32 pair, int high)
thread u32 dd_pack_bf16(float low, float high)
thread u32 dd_pack_f16(float low, float high)
thread u32 dd_pack_bits(u32 low, u32 high)
thread void dd_check(i64 i, i64 extent)

thread template <class T> void dd_ldg1(T* x, const void* from)
thread template <class T> void dd_ldg2(T* x, const void* from)
thread template <class T> void dd_ldg4(T* x, const void* from)
thread template <class T> void dd_ldg8(T* x, const void* from)
thread template <class T> void dd_ldg16(T* x, const void* from)
thread template <class T> void dd_ldg1_if(T* x, const void* from, bool ok)
thread template <class T> void dd_ldg2_if(T* x, const void* from, bool ok)
thread template <class T> void dd_ldg4_if(T* x, const void* from, bool ok)
thread template <class T> void dd_ldg8_if(T* x, const void* from, bool ok)
thread template <class T> void dd_ldg16_if(T* x, const void* from, bool ok)
thread u32 dd_ldg_half(const void* from)
thread u32 dd_ldg_half_if(const void* from, bool ok)
thread template <class T> void dd_stg1(void* to, const T* x)
thread template <class T> void dd_stg2(void* to, const T* x)
thread template <class T> void dd_stg4(void* to, const T* x)
thread template <class T> void dd_stg8(void* to, const T* x)
thread template <class T> void dd_stg16(void* to, const T* x)
thread void dd_stg_half(void* to, u32 bits)

thread template <class T> void dd_lds1(T* x, u32 from)
thread template <class T> void dd_lds2(T* x, u32 from)
thread template <class T> void dd_lds4(T* x, u32 from)
thread template <class T> void dd_lds8(T* x, u32 from)
thread template <class T> void dd_lds16(T* x, u32 from)
thread u32 dd_lds_half(u32 from)
thread template <class T> void dd_sts1(u32 to, const T* x)
thread template <class T> void dd_sts2(u32 to, const T* x)
thread template <class T> void dd_sts4(u32 to, const T* x)
thread template <class T> void dd_sts8(u32 to, const T* x)
thread template <class T> void dd_sts16(u32 to, const T* x)
thread void dd_sts_half(u32 to, u32 bits)

thread void dd_copy1_if(u32 to, const void* from, bool ok)
thread void dd_copy2_if(u32 to, const void* from, bool ok)
thread void dd_cp_async4_if(u32 to, const void* from, bool ok)
thread void dd_cp_async8_if(u32 to, const void* from, bool ok)
thread void dd_cp_async16(u32 to, const void* from)
thread void dd_cp_async16_if(u32 to, const void* from, bool ok)
thread void dd_cp_async_commit()
thread template <int N> void dd_cp_async_wait()

warp void dd_ldmatrix_x4(u32 x[4], u32 from)
warp void dd_ldmatrix_x4_trans(u32 x[4], u32 from)
warp void dd_stmatrix_x4(u32 to, const u32 x[4])
warp void dd_stmatrix_x4_trans(u32 to, const u32 x[4])
warp void dd_mma_m16n8k16_bf16(float d[4], const u32 a[4], const u32 b[2])
warp void dd_mma_m16n8k16_f16(float d[4], const u32 a[4], const u32 b[2])

warpgroup void dd_wgmma_fence()
warpgroup void dd_wgmma_commit()
warpgroup template <int N> void dd_wgmma_wait()
thread template <int R> void dd_pin(float* x)
thread u64 dd_descriptor(u32 from, u32 leading, u32 stride)

thread void dd_mbar_init(u32 bar, u32 count)
thread void dd_mbar_init_fence()
thread void dd_mbar_expect_tx(u32 bar, u32 bytes)
thread void dd_mbar_arrive(u32 bar)
thread void dd_mbar_wait(u32 bar, u32 parity)
thread void dd_fence_async()
thread void dd_prefetch_map(const TensorMap* map)
thread void dd_tma_load_2d(u32 to, const TensorMap* map, u32 bar, int x, int y)
thread void dd_tma_load_3d(u32 to, const TensorMap* map, u32 bar, int x, int y, int z)
thread void dd_tma_load_4d(u32 to, const TensorMap* map, u32 bar, int x, int y, int z, int u)
thread void dd_tma_load_5d(u32 to, const TensorMap* map, u32 bar, int x, int y, int z, int u, int v)
thread void dd_tma_store_2d(const TensorMap* map, u32 from, int x, int y)
thread void dd_tma_store_3d(const TensorMap* map, u32 from, int x, int y, int z)
thread void dd_tma_store_4d(const TensorMap* map, u32 from, int x, int y, int z, int u)
thread void dd_tma_store_5d(const TensorMap* map, u32 from, int x, int y, int z, int u, int v)
thread void dd_tma_store_commit()
thread void dd_tma_store_wait_read()
warpgroup template <int R> void dd_regs_dec()
warpgroup template <int R> void dd_regs_inc()
"""
"""wgmma() adds a family: dd_wgmma_m64n<N>k16_<bf16|f16>_<r|k|t><k|t>."""

WGMMA = re.compile(r"dd_wgmma_m64n(\d+)k16_(bf16|f16)_([rkt])([kt])")
"""Columns, type, where A is (r: registers; in shared memory k: with k, t: with its rows contiguous), B likewise."""


@dataclass(frozen=True, slots=True)
class Parameter:
    type: str
    name: str
    size: int | None
    """Registers that it stands for; None: a value, or as many as the call moves."""

    @property
    def is_registers(self) -> bool:
        return self.size is not None or self.type in ("T*", "const T*", "float*")


@dataclass(frozen=True, slots=True)
class Primitive:
    name: str
    scope: str
    result: str
    template: str
    params: tuple[Parameter, ...]

    @property
    def signature(self) -> str:
        """The C++ declaration, as both headers have it."""
        args = ", ".join(f"{p.type} {p.name}" + (f"[{p.size}]" if p.size else "") for p in self.params)
        return (f"template <{self.template}> " if self.template else "") + f"{self.result} {self.name}({args})"


def parse(signature: str, scope: str = "thread") -> Primitive:
    """A declaration of SIGNATURES, or of a header."""
    m = re.fullmatch(r"(?:template <([^>]*)> )?(\w+) (dd_\w+)\((.*)\)", signature)
    if not m:
        raise ValueError(f"no declaration of a primitive: {signature!r}")
    params = []
    for text in m[4].split(", ") if m[4] else ():
        p = re.fullmatch(r"(.*?) (\w+)(?:\[(\d+)\])?", text)
        if not p:
            raise ValueError(f"no parameter: {text!r} in {signature!r}")
        params.append(Parameter(p[1], p[2], int(p[3]) if p[3] else None))
    return Primitive(m[3], scope, m[2], m[1] or "", tuple(params))


PRIMITIVES: dict[str, Primitive] = {
    p.name: p for p in (parse(text, scope) for scope, text in
                        (line.split(" ", 1) for line in SIGNATURES.splitlines() if line))}


@lru_cache(maxsize=None)
def wgmma(name: str) -> Primitive:
    """The asynchronous product of a warpgroup's 64 rows: d = d * ADD + a b. a and b are descriptors, or a registers."""
    m = WGMMA.fullmatch(name)
    if not m or int(m[1]) % 8 or not 8 <= int(m[1]) <= 256:
        raise KeyError(f"no primitive is called {name!r}")
    a = Parameter("const u32", "a", 4) if m[3] == "r" else Parameter("u64", "a", None)
    d = Parameter("float", "d", int(m[1]) // 2)
    return Primitive(name, "warpgroup", "void", "int ADD", (d, a, Parameter("u64", "b", None)))


def primitive(name: str) -> Primitive:
    """The primitive of a name; KeyError if there is none."""
    return PRIMITIVES[name] if name in PRIMITIVES else wgmma(name)
