"""The verifier of Tile IR finds what is wrong with a program: a correct one is broken in one place."""
from dataclasses import replace

import pytest

from deplodock.ir.dtype import Dtype
from deplodock.ir.tile import For, LoadGlobal, Map, Mma, MmaWait, Reduce, Slice, Store
from deplodock.ir.tile_verify import MalformedTile, verify_tile
from deplodock.lower.tile import lower_tile
from tests.lowering.cases import CASES


def changed(stmts, kind, change, at=0):
    """The statements with the at-th one of a kind, loops included, replaced by change(it): a tuple of statements."""
    left = [at]

    def walk(stmts):
        out = []
        for s in stmts:
            if isinstance(s, kind) and left[0] == 0:
                left[0] -= 1
                out += change(s)
                continue
            left[0] -= isinstance(s, kind)
            out.append(replace(s, body=tuple(walk(s.body))) if isinstance(s, For) else s)
        return out
    result = tuple(walk(stmts))
    assert left[0] < 0, f"no {kind.__name__}"
    return result


def broken(name, kind, change, at=0):
    c = CASES[name]
    k = lower_tile(c.kernel, c.facts)
    (part,) = k.parts
    return replace(k, parts=(replace(part, body=changed(part.body, kind, change, at)),))


def projected(reg):
    """A tile without its axes."""
    return replace(reg, layout=reg.layout.project(()))


BREACHES = {
    "a tile nobody made": ("rmsnorm", LoadGlobal, lambda s: (), 0, "x_r is used before it is defined"),
    "a tile made twice": ("rmsnorm", LoadGlobal, lambda s: (s, s), 0, "x_r is defined twice"),
    "another dtype": ("rmsnorm", Reduce, lambda s: (replace(s, dst=(replace(s.dst[0], dtype=Dtype.f64),)),), 0,
                      "acc is used as another tile"),
    "an operand laid out otherwise": ("matmul nk", Map, lambda s: (replace(s, dst=projected(s.dst)),), 0,
                                      "laid out differently"),
    "a slice of another tile": ("attention", Slice, lambda s: (replace(s, dst=projected(s.dst)),), 0,
                                "is no part of p"),
    "a ring that nobody reads": ("matmul nk", For, lambda s: (replace(s, body=()),), 0,
                                 "nothing in loop k_0 reads x_s"),
    "too few stages": ("wgmma nk", For, lambda s: (replace(s, stages=2),), 0, "2 stages with lag 1"),
    "a tile that is not filled": ("matmul nk", For, lambda s: (replace(s, copies=s.copies[1:]),), 0,
                                 "x_s is read where nothing"),
    "factors of two dtypes": ("matmul nk", Mma, lambda s: (replace(s, a=replace(s.a, dtype=Dtype.f16)),), 0,
                              "used as another tile"),
    "products that nobody waits for": ("wgmma nk", MmaWait, lambda s: (), 1, "touched while products into it"),
    "register operands in flight": ("wgmma swiglu_down", MmaWait, lambda s: (replace(s, pending=1),), 0,
                                    "products whose operands are registers stay in flight"),
    "accumulators in flight": ("wgmma norm_matmul", MmaWait, lambda s: (), 1,
                               "touched while products into it are in flight"),
    "a store without coordinates": ("rmsnorm", Store, lambda s: (replace(s, dst=replace(s.dst, coords=())),), 0,
                                    "is stored without coordinates"),
}


@pytest.mark.parametrize("name", BREACHES)
def test_a_breach_is_found(name):
    case, kind, change, at, message = BREACHES[name]
    with pytest.raises(MalformedTile, match=message):
        verify_tile(broken(case, kind, change, at))
