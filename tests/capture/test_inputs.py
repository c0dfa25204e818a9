"""What capture says about inputs and parameters, and the other ways to give it a program."""
from __future__ import annotations

import pytest
import torch
from torch import nn

from deplodock.capture import capture_code, capture_expression, capture_file, capture_module
from deplodock.capture.values import copied, moved_to
from deplodock.ir.torch import parse


def facts(*tensors: torch.Tensor) -> list[str]:
    """The declarations of these as inputs of a program that reads them all."""
    program = capture_module(lambda *x: tuple(t.sum() for t in x), tensors).program
    return [line.partition(": ")[2] for line in str(program).splitlines()[:len(tensors)]]


BASE = torch.arange(64.0)


def test_facts_of_inputs():
    assert facts(torch.randn(2, 3)) == ["f32[2,3] = input"]
    assert facts(torch.randn(3, 2).t()) == ["f32[2,3] = input strides=(1,2,)"]
    assert facts(torch.randn(3).expand(2, 3)) == ["f32[2,3] = input strides=(0,1,)"]
    assert facts(torch.tensor(1.0)) == ["f32[] = input"]
    assert facts(torch.randn(0, 4)) == ["f32[0,4] = input"]
    assert facts(BASE.clone()[4:8]) == ["f32[4] = input offset=4"]
    assert facts(BASE.clone()[1:5]) == ["f32[4] = input offset=1 alignment=4"]
    assert facts(BASE.half()[1:5]) == ["f16[4] = input offset=1 alignment=2"]


def test_inputs_that_share_storage():
    x = torch.randn(8)
    assert facts(x[:4], x[2:6]) == ["f32[4] = input", "f32[4] = input offset=2 alignment=8 shares=x_0"]
    assert facts(x[:4], x[4:]) == ["f32[4] = input", "f32[4] = input offset=4"]
    assert facts(x, torch.randn(8)) == ["f32[8] = input", "f32[8] = input"]


def test_positions_are_among_all_arguments():
    def function(a, scale, pair, *, mask=None, unused=None):
        return pair[1] * scale + mask, torch.zeros_like(a)
    given = torch.ones(2), 3.0, [torch.ones(4), torch.ones(4)]
    c = capture_module(function, given, {"mask": torch.ones(4), "unused": torch.ones(1)})
    assert [v.name for v in c.program.inputs] == ["pair_1", "mask"]
    assert c.positions == (3, 4)
    assert [t.tolist() for t in c.eager(*c.inputs)] == [[4.0] * 4, [0.0] * 2]


def test_module_has_paths_of_parameters_buffers_and_constants():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
            self.register_buffer("shift", torch.ones(4), persistent=False)

        def forward(self, x):
            return self.inner(x) + self.shift + torch.tensor([1.0, 2.0, 3.0, 4.0])
    c = capture_module(Model().eval(), (torch.randn(2, 4),))
    assert [v.path for v in c.program.parameters] == ["inner.0.weight", "inner.0.bias", "shift", "lifted_tensor_0"]
    assert list(c.parameters) == ["inner_0_weight", "inner_0_bias", "shift", "lifted_tensor_0"]
    assert c.program.nodes[0].source.text == "return self.inner(x) + self.shift + torch.tensor([1.0, 2.0, 3.0, 4.0])"


def test_tied_parameters_are_one():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 4, bias=False)
            self.second = nn.Linear(4, 4, bias=False)
            self.second.weight = self.first.weight

        def forward(self, x):
            return self.second(self.first(x))
    module = Tied()
    c = capture_module(module, (torch.randn(2, 4),))
    assert len({t.data_ptr() for t in c.parameters.values()}) == 1
    assert all(v.shares == c.program.parameters[0].name for v in c.program.parameters[1:])
    assert torch.equal(c.eager(*c.inputs)[0], module(*c.inputs))


def test_inputs_of_code_keep_the_values_they_had():
    c = capture_code("x = torch.zeros(3) + torch.tensor([1., 2., 3.])\n"
                     "y = torch.tensor([1., 2., 3.]); y.add_(10); x + y")
    assert [t.tolist() for t in c.inputs] == [[1.0, 2.0, 3.0]] * 2
    assert c.eager(*c.inputs)[0].tolist() == [12.0, 14.0, 16.0]


def test_seed_decides_the_inputs():
    first, again, other = (capture_code("torch.randn(4) + 1", seed=s).inputs[0] for s in (0, 0, 1))
    assert torch.equal(first, again) and not torch.equal(first, other)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    capture_code("torch.randn(4) + 1")
    assert torch.equal(before, torch.get_rng_state())


def test_initialising_a_module_is_no_part_of_the_program():
    c = capture_code("l = nn.Linear(2, 2); nn.init.ones_(l.weight); l.weight.data.mul_(3)\n"
                     "with torch.no_grad(): l.bias.zero_()\nl(torch.randn(2))")
    assert c.parameters["l_weight"].tolist() == [[3.0, 3.0], [3.0, 3.0]]
    assert c.parameters["l_bias"].tolist() == [0.0, 0.0]
    assert [n.op for n in c.program.nodes] == ["linear"]


def test_expressions_are_over_the_inputs_of_the_code():
    c = capture_code("x = torch.randn(4, 8); l = nn.Linear(8, 8); w = nn.Parameter(torch.randn(8))\n"
                     "y = l(x) * w; y.relu()")
    e = capture_expression("torch.maximum(y, 0 * y) + torch.randn(8)", c)
    assert [v.name for v in e.program.inputs] == ["x", "randn"]
    assert torch.equal(e.inputs[0], c.inputs[0])
    assert e.program.parameters == c.program.parameters
    assert all(torch.equal(e.parameters[n], t) for n, t in c.parameters.items())
    assert str(e.program.nodes[-1].source) == "<expression>:1: torch.maximum(y, 0 * y) + torch.randn(8)"
    expected = c.eager(*c.inputs)[0] + e.inputs[1]
    torch.testing.assert_close(e.eager(*e.inputs)[0], expected)


FILE = """
import torch
from dataclasses import dataclass
from torch import nn

@dataclass
class Sizes:
    width: "int" = 8

class Model(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.linear = nn.Linear(sizes.width, sizes.width)
    def forward(self, x, scale=1.0):
        return doubled(self.linear(x)) * scale

def doubled(x):
    return x * 2

model = Model(Sizes())

def program():
    return torch.tanh(doubled(torch.randn(3, Sizes().width)))

def function(x, scale):
    return doubled(x) / scale

example_inputs = {}

if __name__ == "__main__":
    raise SystemExit("a captured file is not run as a script")
"""
INPUTS = {
    "program": ("None", ["mul", "tanh"]),
    "model": ("torch.randn(3, 8)", ["linear", "mul", "mul"]),
    "function": ("{'x': torch.randn(3), 'scale': torch.tensor(2.0)}", ["mul", "div"]),
    "doubled": ("lambda: (torch.randn(5),)", ["mul"]),
}


@pytest.mark.parametrize("name", INPUTS)
def test_file(name, tmp_path):
    inputs, ops = INPUTS[name]
    path = tmp_path / "file.py"
    path.write_text(FILE.replace("example_inputs = {}", f"example_inputs = {inputs}"))
    c = capture_file(f"{path}:{name}")
    assert [n.op for n in c.program.nodes] == ops
    doubles = next(n for n in c.program.nodes if n.op == "mul")
    assert str(doubles.source) == f"{path}:18: return x * 2"


def test_file_can_import_its_neighbours(tmp_path):
    (tmp_path / "neighbour_of_capture.py").write_text("def scaled(x): return x * 3\n")
    (tmp_path / "file.py").write_text("import torch\nfrom neighbour_of_capture import scaled\n"
                                      "def f(): return scaled(torch.randn(3))\n")
    assert [n.op for n in capture_file(f"{tmp_path / 'file.py'}:f").program.nodes] == ["mul"]


def test_moving_keeps_strides_offsets_and_sharing():
    base = torch.arange(24.0)
    tensors = [base.view(4, 6).t(), base[3:7], torch.randn(3).expand(2, 3)]
    moved = moved_to("cpu", tensors)
    for t, m in zip(tensors, moved):
        assert torch.equal(t, m) and t.stride() == m.stride() and t.storage_offset() == m.storage_offset()
    places = [t.untyped_storage().data_ptr() for t in (*moved[:2], base, copied(base))]
    assert places[0] == places[1] and len(set(places)) == 3


def test_captured_program_moves_to_another_device():
    text = "x = torch.randn(4); l = nn.Linear(4, 4); l(x) + torch.arange(4) + torch.zeros_like(torch.randn(4))"
    c = capture_code(text).to("meta")
    assert {t.device.type for t in (*c.inputs, *c.parameters.values(), *c.eager(*c.inputs))} == {"meta"}


def test_what_a_program_prints_is_printed_once(capsys):
    captured = capture_code("x = torch.randn(3); print('made', tuple(x.shape)); x + 1")
    capture_expression("x + 2", captured)
    assert capsys.readouterr().out == "made (3,)\n"


def test_what_a_program_writes_to_its_inputs_is_part_of_it():
    captured = capture_code("x = torch.zeros(3); y = torch.ones(3); z = torch.randn(3); z.mul_(y); z[1:] += 1; z.sum()")
    program = captured.program
    assert (program.writes, len(program.outputs), program.returned) == (("z",), 2, ("sum",))
    total, z = captured.eager(*captured.inputs)
    assert torch.equal(z[1:], captured.inputs[0][1:] + 1) and torch.equal(total, z.sum())
    assert capture_expression("z * 2", captured).program.writes == ()
    assert str(program).splitlines()[-2:] == [f"z <- {program.written[0]}", "return sum"]
    assert parse(str(program)) == program
