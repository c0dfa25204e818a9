"""The host's half of the primitives: the same signatures as the device's, and the same values where they are exact."""
import re
import subprocess

import ml_dtypes
import numpy as np
import pytest

from deplodock.ir.primitive import PRIMITIVES, wgmma
from deplodock.lower.cuda import header
from deplodock.runtime.emulation import Launch, Pointer, emulate
from deplodock.runtime.emulation.build import HOST, find_compiler, unit_text

PRODUCTS = [f"dd_wgmma_m64n{n}k16_{t}_{a}{b}" for n in (8, 112, 256) for t in ("bf16", "f16") for a in "rkt" for b in "kt"]


@pytest.fixture(scope="module")
def declarations() -> set[str]:
    """What the host's headers declare, as PRIMITIVES writes it, macros expanded."""
    unit, _, _ = unit_text({"k": "\n".join(PRODUCTS)}).partition('#include "k.cu"')
    text = subprocess.run((find_compiler(), "-E", "-P", "-I", str(HOST), "-x", "c++", "-"), input=unit, capture_output=True,
                          text=True, check=True, timeout=60).stdout
    text = re.sub(r"static (?:inline __attribute__\(\(always_inline\)\)|inline __attribute__\(\(always_inline\)\)) ?", "", text)
    text = re.sub(r"\[(\d+) / 2\]", lambda m: f"[{int(m[1]) // 2}]", text)
    return {re.sub(r"\s+", " ", d) for d in re.findall(r"((?:template <[^<>]*> )?\w+ dd_\w+\([^()]*\)) *\{", text)}


@pytest.mark.parametrize("name", PRIMITIVES)
def test_host_has_every_primitive(name, declarations):
    assert PRIMITIVES[name].signature in declarations


@pytest.mark.parametrize("name", PRODUCTS)
def test_host_has_every_product(name, declarations):
    assert wgmma(name).signature in declarations


def test_device_has_every_primitive():
    """The other half: one definition of each in lower/device.cuh."""
    text = "\n".join(item for _, item in header()[1]).replace("DD ", "")
    for p in PRIMITIVES.values():
        assert text.count(p.signature + " {") == 1, p.name


def run(body: str, inputs: dict[str, np.ndarray], out: np.ndarray, types: dict[str, str]) -> np.ndarray:
    """Runs `body` once for each i below the length of `out`."""
    params = ", ".join(f"const {types[n]}* __restrict__ {n}" for n in inputs)
    text = (f'extern "C" __global__ void k({params}, {types["out"]}* __restrict__ out, int n) {{\n'
            f"  const int i = blockIdx.x * 256 + threadIdx.x;\n  if (i >= n) return;\n  {body}\n}}\n")
    launch = Launch("k", (-(-out.size // 256), 1, 1), (256, 1, 1), (*map(Pointer, inputs), Pointer("out"), out.size))
    emulate({"k": text}, [launch], inputs | {"out": out}, undefined={"out"})
    return out


def test_unpacking_bf16_is_exact():
    bits = np.arange(1 << 16, dtype=np.uint16)
    got = run("out[i] = dd_bf16((u32)x[i] << 16 * (i % 2), i % 2);", {"x": bits}, np.empty(bits.size, np.float32),
              {"x": "u16", "out": "float"})
    want = bits.view(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(got, want)


def test_unpacking_f16_is_exact():
    bits = np.arange(1 << 16, dtype=np.uint16)
    got = run("out[i] = dd_f16((u32)x[i] << 16 * (i % 2), i % 2);", {"x": bits}, np.empty(bits.size, np.float32),
              {"x": "u16", "out": "float"})
    np.testing.assert_array_equal(got, bits.view(np.float16).astype(np.float32))


def hard_floats() -> np.ndarray:
    """Zeros, infinities, NaN, subnormals, ties of both 16-bit formats, the edges of their ranges, and many others."""
    rng = np.random.default_rng(0)
    halves = np.arange(1 << 16, dtype=np.uint32)
    ties = np.concatenate([halves << 16 | 0x8000, halves << 16 | 0x7FFF, halves << 16 | 0x8001]).view(np.float32)
    small = np.ldexp(rng.uniform(1, 2, 4000), rng.integers(-30, 18, 4000)).astype(np.float32)
    special = np.array([0, -0.0, np.inf, -np.inf, np.nan, 65504, 65519.99, 65520, 2 ** -24, 2 ** -25, 3 * 2.0 ** -26, 1e38], np.float32)
    return np.concatenate([ties, small, -small, special])


@pytest.mark.parametrize("name, numpy_type", [("bf16", ml_dtypes.bfloat16), ("f16", np.float16)])
def test_packing_rounds_to_nearest_even(name, numpy_type):
    x = hard_floats()
    got = run(f"out[i] = dd_pack_{name}(x[i], -x[i]);", {"x": x}, np.empty(x.size, np.uint32), {"x": "float", "out": "u32"})
    with np.errstate(over="ignore", invalid="ignore"):
        low, high = ((got & 0xFFFF).astype(np.uint16).view(numpy_type), (got >> 16).astype(np.uint16).view(numpy_type))
        want = x.astype(numpy_type)
    np.testing.assert_array_equal(low.astype(np.float32), want.astype(np.float32))
    np.testing.assert_array_equal(high.astype(np.float32), -want.astype(np.float32))


def test_maxima_and_minima_keep_nan():
    x = np.array([1, np.nan, 3, np.nan, -np.inf], np.float32)
    y = np.array([2, 2, np.nan, np.nan, 5], np.float32)
    pair = {"x": "float", "y": "float", "out": "float"}
    np.testing.assert_array_equal(run("out[i] = dd_max(x[i], y[i]);", {"x": x, "y": y}, np.empty(5, np.float32), pair), np.maximum(x, y))
    np.testing.assert_array_equal(run("out[i] = dd_min(x[i], y[i]);", {"x": x, "y": y}, np.empty(5, np.float32), pair), np.minimum(x, y))


def test_exp2_flushes_what_is_below_the_smallest_normal_number():
    x = np.array([-150, -127, -126.5, -126, -1, 0, 0.5, 127, 128, -np.inf, np.nan], np.float32)
    got = run("out[i] = dd_exp2(x[i]);", {"x": x}, np.empty(x.size, np.float32), {"x": "float", "out": "float"})
    with np.errstate(over="ignore"):
        want = np.exp2(x)
    np.testing.assert_allclose(got, np.where(want < np.finfo(np.float32).tiny, 0, want), rtol=2.0 ** -22)


@pytest.mark.parametrize("size, ctype, numpy_type", [
    (n, c, t) for n in (1, 2, 4, 8, 16)
    for c, t in (("u8", np.uint8), ("bool", np.bool_), ("u16", np.uint16), ("float", np.float32), ("double", np.float64), ("i64", np.int64))
    if np.dtype(t).itemsize <= n])
def test_pieces_pass_through_shared_memory(size, ctype, numpy_type):
    count = size // np.dtype(numpy_type).itemsize
    x = (np.random.default_rng(0).integers(0, 2, 64 * count) * 77).astype(numpy_type)
    out = np.empty_like(x)
    text = f"""extern "C" __global__ void k(const {ctype}* __restrict__ x, {ctype}* __restrict__ out) {{
  const u32 smem = dd_shared(), t = threadIdx.x;
  {ctype} v[{count}], w[{count}];
  dd_ldg{size}_if(v, x + t * {count}, t < 32);
  if (t >= 32) dd_ldg{size}(v, x + t * {count});
  dd_sts{size}(smem + t * {size}, v);
  dd_sync();
  dd_lds{size}(w, smem + (63 - t) * {size});
  dd_stg{size}(out + (63 - t) * {count}, w);
}}
"""
    emulate({"k": text}, [Launch("k", (1, 1, 1), (64, 1, 1), (Pointer("x"), Pointer("out")), 1024 + 1024)],
            {"x": x, "out": out}, undefined={"out"})
    np.testing.assert_array_equal(out, x)


def test_bytes_that_lie_together_are_written_apart():
    """Each thread its own byte of shared memory, in a kernel whose tensors have none: no race."""
    x, out = np.arange(32, dtype=np.float32), np.empty(32, np.float32)
    text = """extern "C" __global__ void k(const float* __restrict__ x, float* __restrict__ out) {
  const u32 smem = dd_shared(), t = threadIdx.x;
  bool b[1] = {x[t] > 6};
  dd_sts1(smem + t, b);
  dd_sync();
  dd_lds1(b, smem + (31 - t));
  out[t] = b[0];
}
"""
    emulate({"k": text}, [Launch("k", (1, 1, 1), (32, 1, 1), (Pointer("x"), Pointer("out")), 1024 + 32)],
            {"x": x, "out": out}, undefined={"out"})
    np.testing.assert_array_equal(out, x[::-1] > 6)


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_mma_multiplies_in_both_types(dtype):
    """One warp, one product, fragments filled by hand from the PTX ISA's layout."""
    numpy_type = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}[dtype]
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((16, 16)).astype(numpy_type), rng.standard_normal((8, 16)).astype(numpy_type)
    out = np.empty((16, 8), np.float32)
    text = f"""extern "C" __global__ void k(const u32* __restrict__ a, const u32* __restrict__ b, float* __restrict__ out) {{
  const int row = threadIdx.x / 4, pair = threadIdx.x % 4;
  const u32 fa[4] = {{a[row * 8 + pair], a[(row + 8) * 8 + pair], a[row * 8 + pair + 4], a[(row + 8) * 8 + pair + 4]}};
  const u32 fb[2] = {{b[row * 8 + pair], b[row * 8 + pair + 4]}};
  float d[4] = {{}};
  dd_mma_m16n8k16_{dtype}(d, fa, fb);
  for (int i = 0; i < 4; ++i) out[(row + i / 2 * 8) * 8 + pair * 2 + i % 2] = d[i];
}}
"""
    emulate({"k": text}, [Launch("k", (1, 1, 1), (32, 1, 1), (Pointer("a"), Pointer("b"), Pointer("out")))],
            {"a": a, "b": b, "out": out}, undefined={"out"})
    np.testing.assert_allclose(out, a.astype(np.float64) @ b.astype(np.float64).T, rtol=1e-5, atol=1e-5)


def test_transposed_matrices():
    """ldmatrix.trans of what stmatrix.trans stored gives it back; stmatrix then ldmatrix.trans transposes each 8 x 8."""
    x = np.arange(256, dtype=np.uint16).reshape(4, 8, 8)
    back, turned = np.empty_like(x), np.empty_like(x)
    text = """extern "C" __global__ void k(const u32* __restrict__ x, u32* __restrict__ back, u32* __restrict__ turned) {
  const u32 smem = dd_shared(), t = threadIdx.x;
  u32 v[4], w[4];
  for (int i = 0; i < 4; ++i) v[i] = x[i * 32 + t];
  dd_stmatrix_x4_trans(smem + t * 16, v);
  dd_syncwarp();
  dd_ldmatrix_x4_trans(w, smem + t * 16);
  for (int i = 0; i < 4; ++i) back[i * 32 + t] = w[i];
  dd_syncwarp();
  dd_stmatrix_x4(smem + t * 16, v);
  dd_syncwarp();
  dd_ldmatrix_x4_trans(w, smem + t * 16);
  for (int i = 0; i < 4; ++i) turned[i * 32 + t] = w[i];
}
"""
    emulate({"k": text}, [Launch("k", (1, 1, 1), (32, 1, 1), (Pointer("x"), Pointer("back"), Pointer("turned")), 2048)],
            {"x": x, "back": back, "turned": turned}, undefined={"back", "turned"})
    np.testing.assert_array_equal(back, x)
    np.testing.assert_array_equal(turned, x.transpose(0, 2, 1))
