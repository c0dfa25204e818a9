"""Every row of the table of operators: what is captured computes what PyTorch computes."""
from __future__ import annotations

import pytest
import torch

from deplodock.capture import capture_code, capture_torch_ir
from deplodock.capture.export import leaves
from deplodock.capture.operators import TABLE
from deplodock.ir.torch import OPERATORS, parse
from deplodock.reference import MEANING, evaluate, reference
from tests.capture.programs import PROGRAMS


class Counted(dict):
    """The table, noting which rows are used."""

    def __init__(self, table):
        super().__init__(table)
        self.used = set()

    def __getitem__(self, name):
        self.used.add(name)
        return super().__getitem__(name)

    def get(self, name, default=None):
        self.used.add(name)
        return super().get(name, default)


@pytest.fixture(scope="module")
def table():
    return Counted(TABLE)


@pytest.fixture(scope="module")
def captured(table):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("deplodock.capture.graph.TABLE", table)
        return {name: capture_code(text) for name, text in PROGRAMS.items()}


@pytest.mark.parametrize("name", PROGRAMS)
def test_captured_program_computes_what_pytorch_computes(captured, name):
    c = captured[name]
    got = c.eager(*c.inputs)
    given = [t.clone() for t in c.text.inputs]
    with torch.no_grad():
        want = leaves(c.text(*given)) + [given[c.text.names.index(name)] for name in c.program.writes]
    y64 = reference(c.program, c.inputs, c.parameters)
    assert len(got) == len(want) == len(y64) == len(c.program.outputs)
    for output, g, w, r in zip(c.program.outputs, got, want, y64):
        assert (g.dtype, g.shape) == (w.dtype, w.shape), output
        assert torch.equal(torch.nan_to_num(g), torch.nan_to_num(w)), output
        tolerance = 2e-2 if any(n.dtype.is_16bit for n in c.program.nodes) else 2e-5
        assert torch.allclose(w.to(r.dtype), r, rtol=tolerance, atol=tolerance, equal_nan=True), output


@pytest.mark.parametrize("name", PROGRAMS)
def test_shapes_and_dtypes_of_nodes_are_those_of_their_values(captured, name):
    c = captured[name]
    values = dict(zip((v.name for v in c.program.inputs), c.inputs)) | c.parameters
    wide = {n: t.to(torch.float64) if t.is_floating_point() else t for n, t in values.items()}
    for node in c.program.nodes:
        wide[node.name] = evaluate(node, wide, torch.device("cpu"))
        assert tuple(wide[node.name].shape) == node.shape, node
        assert wide[node.name].is_floating_point() == node.dtype.is_float, node


@pytest.mark.parametrize("name", PROGRAMS)
def test_text_form_parses_to_an_equal_program(captured, name):
    program = captured[name].program
    text = str(program)
    assert parse(text) == program
    assert str(parse(text)) == text


@pytest.mark.parametrize("name", PROGRAMS)
def test_saved_program_computes_the_same(captured, name):
    c = captured[name]
    outputs = capture_torch_ir(str(c.program)).graph(*c.parameters.values(), *c.inputs)
    tolerance = 2e-2 if any(n.dtype.is_16bit for n in c.program.nodes) else 2e-5
    for output, got, want in zip(c.program.outputs, outputs, c.eager(*c.inputs), strict=True):
        assert got.dtype == want.dtype, output
        assert torch.allclose(got, want, rtol=tolerance, atol=tolerance, equal_nan=True), output


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_node_has_a_line_of_the_program(captured, name):
    c = captured[name]
    lines = {line.strip() for line in c.text.text.splitlines()}
    for node in c.program.nodes:
        assert node.source and node.source.file == "<-c>" and node.source.text in lines, node


def test_every_row_is_used(captured, table):
    """torch.export turns lift_fresh_copy into clone; graphs of Dynamo keep it (tests/test_dynamo.py)."""
    assert set(TABLE) - table.used <= {"lift_fresh_copy.default"}


def test_every_operator_of_torch_ir_is_made_and_has_a_meaning(captured):
    made = {node.op for c in captured.values() for node in c.program.nodes}
    assert made == set(OPERATORS)
    shaped = set("cast reshape expand full arange as_strided fold upsample_nearest upsample_linear".split())
    assert set(MEANING) | shaped == made
