"""A program is cut where little is alive; equal regions are compiled once, and run each over its own tensors."""
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from deplodock.capture import capture_code, capture_module
from deplodock.pipeline import compile
from deplodock.regions import cut
from deplodock.runtime.cache import Cache
from deplodock.runtime.memory import plan_slab
from deplodock.stored import loadable
from tests.examples.decoder import model
from tests.programs.support import wrong


def kinds(program, whole: int) -> list[int]:
    return [p.kind for p in cut(program, whole)]


class Blocks(nn.Module):
    """Residual blocks, all of one shape; every block reads a mask that is computed from an input."""

    def __init__(self, blocks: int, width: int = 6):
        super().__init__()
        self.first = nn.ModuleList(nn.Linear(width, 2 * width) for _ in range(blocks))
        self.second = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(blocks))
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, width))

    def forward(self, x, lengths):
        mask = torch.arange(x.shape[0])[:, None] < lengths
        scale = self.scale.cos()
        for first, second in zip(self.first, self.second):
            x = x + second(F.gelu(first(x))) * mask + scale
        return x.sum(-1)


@pytest.fixture(scope="module")
def blocks():
    torch.manual_seed(0)
    return capture_module(Blocks(4).eval(), (torch.randn(5, 6), torch.tensor([3])))


def test_a_small_program_is_one_region_as_it_is(blocks):
    part, = cut(blocks.program)
    assert part.program is blocks.program


def test_layers_are_equal_regions():
    program = capture_module(*model(layers=5)).program
    parts = cut(program)
    assert [p.kind for p in parts] == [0, 1, 1, 1, 1, 1, 2]
    assert all(len(p.program.outputs) == 1 for p in parts)
    assert [v.path for v in parts[2].program.parameters] == [v.path.replace("layers.0", "layers.1") for v in parts[1].program.parameters]
    assert sum("inv_freq" in v.path for v in parts[1].program.parameters) == 1


def test_what_lives_long_prevents_no_cut(blocks):
    parts = cut(blocks.program, 16)
    assert [p.kind for p in parts] == [0, 1, 1, 1, 1, 2]
    assert all(len(p.program.outputs) == 1 for p in parts)


def test_nothing_is_cut_between_an_operator_and_what_follows_it_elementwise():
    program = capture_code("x = torch.randn(4, 4)\nfor i in range(9): x = (x @ x).exp().relu()\nx").program
    assert {p.program.nodes[-1].op for p in cut(program, 7)} == {"relu"}


def test_equal_regions_run_the_same_kernels_over_their_own_tensors(blocks):
    x = compile(blocks, whole=16)
    assert x.times == (1, 4, 1)
    plan, text = x.plan, {}
    assert all(text.setdefault(k.name, k.text) == k.text for k in x.cuda) and len(text) < len(x.cuda)
    made = [b.name for k in (*plan.once, *plan.kernels) for b in k.writes]
    assert len(made) == len(set(made))
    cosines = [k for k in plan.once if "cos" in str(k.outs[0].body)]
    assert len(cosines) == 1, "of a parameter, which all regions read"
    assert plan_slab(plan.kernels, frozenset(b.name for b in plan.outputs)).size < 8 * 256
    assert wrong(x) == []


def test_a_whole_model_is_right_and_is_compiled_a_layer_at_a_time(tmp_path):
    captured, store = capture_module(*model(layers=3)), Cache("program", tmp_path)
    x = compile(captured)
    made = loadable(x, store)
    assert x.times == (1, 3, 1) and x.saturations == 3
    assert wrong(x) == []
    again, longer = compile(captured), compile(capture_module(*model(layers=4)))
    assert loadable(again, store) == made and again.saturations == 0
    loadable(longer, store)
    assert longer.times == (1, 4, 1) and longer.saturations == 1, "the last norm reads another tensor by name"
