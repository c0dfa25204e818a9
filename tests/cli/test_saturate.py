"""deplodock saturate: classes, statistics, files, equations."""
from __future__ import annotations

import json
import re

import pytest

SOFTMAX = "x = torch.randn(8, 64)\nF.softmax(x, -1)"
CHAIN = "x, y, z = torch.randn(4, 6), torch.randn(6, 5), torch.randn(5, 3)\nx @ y @ z"


def test_every_class_has_its_type_and_members(deplodock):
    out = deplodock("saturate", "-c", SOFTMAX).out
    assert re.search(r"^%\d+: f32\[\w+:8,\w+:64\] = x$", out, re.M)
    assert re.search(r"^  online\.1\[\w\]\(%\d+, %\d+\)", out, re.M)


def test_nodes_name_the_law_that_brought_them(deplodock):
    out = deplodock("saturate", "-c", SOFTMAX).out
    assert re.search(r"^  online\.1.*# online_\w+$", out, re.M)


def test_statistics(deplodock):
    out = deplodock("saturate", "-c", SOFTMAX, "--stats").out
    assert re.match(r"\d+ e-nodes in \d+ body classes and \d+ tensor classes\nstopped at fixpoint after \d+ rounds", out)
    assert re.search(r"^load_launch +\d+ +\d+\.\d$", out, re.M)


def test_tensor_phase_prints_what_was_entered(deplodock):
    out = deplodock("saturate", "-c", SOFTMAX, "--phase", "tensor").out
    assert "reduction max" in out and out.rstrip().endswith("return softmax")


def test_one_class_and_what_a_tensor_is_made_of(deplodock):
    whole = deplodock("saturate", "-c", SOFTMAX).out.splitlines()
    one = deplodock("saturate", "-c", SOFTMAX, "--class", "0").out.splitlines()
    assert one == whole[:len(one)] and len(one) < 6
    part = deplodock("saturate", "-c", SOFTMAX, "--root", "softmax_max").out
    assert "= softmax_max" in part and "= x" in part and "= softmax_exp" not in part


@pytest.mark.parametrize("option, message", [(("--class", "900"), "there is no class %900"),
                                             (("--root", "nothing"), "the program has no tensor called 'nothing'")])
def test_what_is_not_there_is_named(deplodock, option, message):
    ran = deplodock("saturate", "-c", SOFTMAX, *option)
    assert ran.code == 2 and message in ran.err


def test_groups_of_laws(deplodock):
    assert "online" not in deplodock("saturate", "-c", SOFTMAX, "--laws", "fusion,algebra").out
    ran = deplodock("saturate", "-c", SOFTMAX, "--laws", "fusions")
    assert ran.code == 2 and "no group of laws is called 'fusions'" in ran.err


@pytest.mark.parametrize("code, equation, proved", [
    (SOFTMAX, "F.softmax(x, -1) == torch.exp(x - x.amax(-1, keepdim=True)) / torch.exp(x - x.amax(-1, keepdim=True)).sum(-1, keepdim=True)", True),
    (SOFTMAX, "F.softmax(x, -1) == x", False),
    (SOFTMAX, "F.softmax(x, -1) == F.softmax(x, 0)", False),
    (SOFTMAX, "x + x.sum() == x.sum() + x", True),
    (SOFTMAX, "x.half() == x", False),
    (CHAIN, "(x @ y) @ z == x @ (y @ z)", True),
    (CHAIN, "x @ y == x @ (y + 0.5)", False),
])
def test_equations_between_expressions(deplodock, code, equation, proved):
    ran = deplodock("saturate", "-c", code, "--check", equation)
    assert (ran.code, ran.out) == ((0, f"proved: {equation}\n") if proved else (1, f"not proved: {equation}\n"))


def test_equations_between_printed_terms(deplodock):
    lines = deplodock("saturate", "-c", SOFTMAX).out.splitlines()
    heads = [i for i, line in enumerate(lines) if line.startswith("%")]
    start = next(i for i, j in zip(heads, heads[1:]) if j - i > 2)
    first, second = (re.sub(r"   #.*", "", lines[start + n]).strip() for n in (1, 2))
    name = lines[start].partition(":")[0]
    other = lines[heads[0]].partition(":")[0]
    assert deplodock("saturate", "-c", SOFTMAX, "--check", f"{first} == {second}").code == 0
    assert deplodock("saturate", "-c", SOFTMAX, "--check", f"{name} == {second}").code == 0
    assert deplodock("saturate", "-c", SOFTMAX, "--check", f"{other} == {second}").code == 1


@pytest.mark.parametrize("equation", ["x", "x == y == z", "%0 == x"])
def test_what_is_no_equation_is_named(deplodock, equation):
    ran = deplodock("saturate", "-c", SOFTMAX, "--check", equation)
    assert ran.code == 2 and "an equation" in ran.err


class TestFiles:
    def test_egraph_serialize(self, deplodock, tmp_path):
        deplodock("saturate", "-c", SOFTMAX, "--json", tmp_path / "e.json")
        made = json.loads((tmp_path / "e.json").read_text())
        nodes = made["nodes"]
        assert all(child in nodes for n in nodes.values() for child in n["children"])
        assert {n["eclass"] for n in nodes.values()} == set(made["class_data"])
        assert all(set(n) == {"op", "children", "eclass", "cost", "subsumed"} for n in nodes.values())
        out = deplodock("saturate", "-c", SOFTMAX, "--json", "-").out
        assert json.loads(out)["nodes"] == nodes

    def test_dot(self, deplodock, tmp_path):
        deplodock("saturate", "-c", SOFTMAX, "--dot", tmp_path / "e.dot")
        text = (tmp_path / "e.dot").read_text()
        assert text.startswith("digraph") and text.count("{") == text.count("}") and "subgraph cluster_0" in text


def test_schedules_of_the_chosen_kernels(deplodock):
    out = deplodock("saturate", "-c", "x = torch.randn(64, 64).half()\nx @ x", "--phase", "schedule").out
    assert re.match(r"k_matmul: \d+ schedules \(\d+ tensor_core\)\n", out)
    assert len(re.findall(r"^\* ", out, re.M)) == 1, "one of them is the chosen one"
    costs = [float(c) for c in re.findall(r"^[* ] +([\d.]+) us", out, re.M)]
    assert costs == sorted(costs) and len(costs) == 12
