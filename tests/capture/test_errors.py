"""Bad programs, and word for word what the user is told. tests/cli has the exit codes."""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from deplodock.capture import capture_code, capture_expression, capture_file, capture_module, capture_torch_ir
from deplodock.errors import (DeplodockError, MismatchedDevices, OverlappingWrite, ProgramFailed, UnknownName, UsageError,
                              WrongDtype)
from deplodock.ir.dtype import Dtype
from deplodock.ir.torch import parse

BAD = {
    "syntax error": (
        'x = = 3', "ProgramSyntaxError", """\
syntax error: invalid syntax
  expected: Python statements, the last of them an expression whose value is the result
  where:    <-c>:1: x = = 3
  to do:    correct the program; statements may be separated by newlines or semicolons
"""),
    "no expression": (
        'x = torch.randn(3)', "ProgramSyntaxError", """\
syntax error: the last statement is not an expression
  expected: Python statements, the last of them an expression whose value is the result
  where:    <-c>:1: x = torch.randn(3)
  to do:    correct the program; statements may be separated by newlines or semicolons
"""),
    "empty": (
        '', "ProgramSyntaxError", """\
syntax error: there is no program
  expected: Python statements, the last of them an expression whose value is the result
  where:    <-c>:1
  to do:    correct the program; statements may be separated by newlines or semicolons
"""),
    "unsupported operator": (
        'x = torch.randn(8)\ntorch.sort(x + 1)', "UnsupportedOperator", """\
unsupported operator aten.sort.default
  expected: operators that deplodock has a definition of (deplodock/capture/operators lists them)
  found:    aten.sort.default
  where:    <-c>:2: torch.sort(x + 1)
  to do:    write it with supported operators, or keep this part of the program in PyTorch
"""),
    "cumulative sum": (
        'torch.randn(8).cumsum(0)', "UnsupportedOperator", """\
unsupported operator aten.cumsum.default
  expected: operators that deplodock has a definition of (deplodock/capture/operators lists them)
  found:    aten.cumsum.default
  where:    <-c>:1: torch.randn(8).cumsum(0)
  to do:    write it with supported operators, or keep this part of the program in PyTorch
"""),
    "boolean index": (
        'x = torch.randn(8); x[x > 0]', "DataDependentShape", """\
data-dependent shape
  expected: shapes and control flow that are known before the program runs
  found:    a size or a Python number that depends on a tensor's values
  where:    <-c>:1: x[x > 0]
  to do:    use torch.where in place of a branch or a boolean index, or keep this part of the program in PyTorch
"""),
    "operator that looks at values": (
        'x = torch.randn(5, 1, 4).log_softmax(2); n = torch.tensor([2])\nF.ctc_loss(x, torch.tensor([[1, 2]]), n, n)',
        "DataDependentShape", """\
data-dependent shape
  expected: shapes and control flow that are known before the program runs
  found:    a branch, a size or a Python number that depends on a tensor's values
  where:    <-c>:2: F.ctc_loss(x, torch.tensor([[1, 2]]), n, n)
  to do:    use torch.where in place of a branch or a boolean index, or keep this part of the program in PyTorch
"""),
    "branch on a value": (
        'x = torch.randn(8)\ny = x if x.sum() > 0 else -x\ny', "DataDependentShape", """\
data-dependent shape
  expected: shapes and control flow that are known before the program runs
  found:    a branch, a size or a Python number that depends on a tensor's values
  where:    <-c>:2: y = x if x.sum() > 0 else -x
  to do:    use torch.where in place of a branch or a boolean index, or keep this part of the program in PyTorch
"""),
    "number read from a tensor": (
        'x = torch.randn(8)\nscale = x.sum().item()\nx * scale', "DataDependentShape", """\
data-dependent shape
  expected: shapes and control flow that are known before the program runs
  found:    item reads a tensor's value into Python
  where:    <-c>:2: scale = x.sum().item()
  to do:    use torch.where in place of a branch or a boolean index, or keep this part of the program in PyTorch
"""),
    "number that becomes a tensor": (
        'x = torch.randn(8); torch.tensor(x.sum().item()) + x', "DataDependentShape", """\
data-dependent shape
  expected: shapes and control flow that are known before the program runs
  found:    item reads a tensor's value into Python
  where:    <-c>:1: torch.tensor(x.sum().item()) + x
  to do:    use torch.where in place of a branch or a boolean index, or keep this part of the program in PyTorch
"""),
    "size from a value": (
        'x = torch.randn(8); x[:int(x.argmax())]', "DataDependentShape", """\
data-dependent shape
  expected: shapes and control flow that are known before the program runs
  found:    int reads a tensor's value into Python
  where:    <-c>:1: x[:int(x.argmax())]
  to do:    use torch.where in place of a branch or a boolean index, or keep this part of the program in PyTorch
"""),
    "complex input": (
        'torch.randn(4, dtype=torch.complex64) * 2', "WrongDtype", """\
wrong dtype: randn is torch.complex64
  expected: float64, float32, float16, bfloat16, int64, int32, int16, int8, uint8 or bool, dense and strided; uint16, uint32 and uint64 where PyTorch has the operator
  found:    torch.complex64
  where:    <-c>:1: torch.randn(4, dtype=torch.complex64) * 2
  to do:    convert it to one of these dtypes, complex numbers to pairs of reals
"""),
    "complex inside": (
        'x = torch.randn(4, 2); torch.view_as_complex(x)', "WrongDtype", """\
wrong dtype: the result of aten.view_as_complex.default is torch.complex64
  expected: float64, float32, float16, bfloat16, int64, int32, int16, int8, uint8 or bool, dense and strided; uint16, uint32 and uint64 where PyTorch has the operator
  found:    torch.complex64
  where:    <-c>:1: torch.view_as_complex(x)
  to do:    convert it to one of these dtypes, complex numbers to pairs of reals
"""),
    "8-bit float": (
        'x = torch.randn(8).to(torch.float8_e4m3fn); x.float()', "WrongDtype", """\
wrong dtype: x is torch.float8_e4m3fn
  expected: float64, float32, float16, bfloat16, int64, int32, int16, int8, uint8 or bool, dense and strided; uint16, uint32 and uint64 where PyTorch has the operator
  found:    torch.float8_e4m3fn
  where:    <-c>:1: x = torch.randn(8).to(torch.float8_e4m3fn)
  to do:    convert it to one of these dtypes, complex numbers to pairs of reals
"""),
    "inputs on two devices": (
        "x = torch.randn(4); y = torch.randn(4, device='meta'); x + y", "MismatchedDevices", """\
tensors on different devices
  expected: all inputs and parameters of a program on one device
  found:    tensors on cpu and meta
  where:    <-c>:1: x + y
  to do:    move them to one device before the program, with .to(device)
"""),
    "device in the program": (
        "x = torch.randn(4); x.to('meta')", "MismatchedDevices", """\
tensors on different devices
  expected: all inputs and parameters of a program on one device
  found:    inputs on cpu, aten._to_copy.default on meta
  where:    <-c>:1: x.to('meta')
  to do:    move them to one device before the program, with .to(device)
"""),
    "functional dropout": (
        'F.dropout(torch.randn(4))', "TrainingMode", """\
training mode
  expected: inference: no active dropout, no batch statistics
  found:    aten.native_dropout.default in training mode
  where:    <-c>:1: F.dropout(torch.randn(4))
  to do:    call .eval() on the module, or pass training=False (dropout_p=0.0 for attention)
"""),
    "dropout in training mode": (
        'drop = nn.Dropout(0.5).train(); drop(torch.randn(8))', "TrainingMode", """\
training mode
  expected: inference: no active dropout, no batch statistics
  found:    aten.native_dropout.default in training mode
  where:    <-c>:1: drop(torch.randn(8))
  to do:    call .eval() on the module, or pass training=False (dropout_p=0.0 for attention)
"""),
    "batch norm in training mode": (
        'norm = nn.BatchNorm1d(4).train(); norm(torch.randn(8, 4))', "TrainingMode", """\
training mode
  expected: inference: no active dropout, no batch statistics
  found:    aten._native_batch_norm_legit_functional.default in training mode
  where:    <-c>:1: norm(torch.randn(8, 4))
  to do:    call .eval() on the module, or pass training=False (dropout_p=0.0 for attention)
"""),
    "attention dropout": (
        'q = torch.randn(2, 2, 4, 8); F.scaled_dot_product_attention(q, q, q, dropout_p=0.1)', "TrainingMode", """\
training mode
  expected: inference: no active dropout, no batch statistics
  found:    scaled_dot_product_attention with dropout_p=0.1
  where:    <-c>:1: F.scaled_dot_product_attention(q, q, q, dropout_p=0.1)
  to do:    call .eval() on the module, or pass training=False (dropout_p=0.0 for attention)
"""),
    "random numbers": (
        'x = torch.rand(8); x + torch.bernoulli(x)', "RandomNumbers", """\
random numbers in the program
  expected: a program that computes the same result from the same inputs
  found:    aten.rand.default
  where:    <-c>:1: x + torch.bernoulli(x)
  to do:    draw the numbers outside and pass them as an input
"""),
    "random fill": (
        'x = torch.randn(8); x.clone().normal_()', "RandomNumbers", """\
random numbers in the program
  expected: a program that computes the same result from the same inputs
  found:    aten.normal_functional.default
  where:    <-c>:1: x.clone().normal_()
  to do:    draw the numbers outside and pass them as an input
"""),
    "complex constant": (
        "x = torch.randn(4, 2)\ny = torch.view_as_complex(x)\ntorch.view_as_real(y * torch.polar(torch.ones(4), torch.arange(4.)))",
        "WrongDtype", """\
wrong dtype: the result of aten.polar.default is torch.complex64
  expected: float64, float32, float16, bfloat16, int64, int32, int16, int8, uint8 or bool, dense and strided; uint16, uint32 and uint64 where PyTorch has the operator
  found:    torch.complex64
  where:    <-c>:3: torch.view_as_real(y * torch.polar(torch.ones(4), torch.arange(4.)))
  to do:    convert it to one of these dtypes, complex numbers to pairs of reals
"""),
    "not a tensor": (
        'x = torch.randn(4); x, 3', "UnsupportedOutput", """\
the program returns something that is not a tensor
  expected: a tensor, or tuples, lists and dicts of tensors
  found:    3
  to do:    return tensors only
"""),
    "fails in PyTorch": (
        'x = torch.randn(4, 3)\nx @ x', "ProgramFailed", """\
the program does not run in PyTorch
  expected: a program that runs in eager mode
  found:    RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x3 and 4x3)
  where:    <-c>:2: x @ x
  to do:    make it run in PyTorch first
"""),
    "raises": (
        "x = torch.randn(4)\nraise ValueError('no')\nx", "ProgramFailed", """\
the program does not run in PyTorch
  expected: a program that runs in eager mode
  found:    ValueError: no
  where:    <-c>:2: raise ValueError('no')
  to do:    make it run in PyTorch first
"""),
    "index out of range": (
        'embedding = nn.Embedding(4, 3); embedding(torch.tensor([1, 9]))', "ProgramFailed", """\
the program does not run in PyTorch
  expected: a program that runs in eager mode
  found:    IndexError: index out of range in self
  where:    <-c>:1: embedding(torch.tensor([1, 9]))
  to do:    make it run in PyTorch first
"""),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_program_is_named(name):
    program, kind, message = BAD[name]
    with pytest.raises(DeplodockError) as raised:
        capture_code(program)
    assert str(raised.value) == message.strip("\n")
    assert type(raised.value).__name__ == kind
    assert raised.value.exit_code == 1


@pytest.mark.parametrize("name", ["branch on a value", "number read from a tensor"])
def test_errors_are_all_that_is_printed(name, capfd):
    with pytest.raises(DeplodockError):
        capture_code(BAD[name][0])
    assert capfd.readouterr() == ("", "")


def add_to(x, y):
    return x.add_(y)


@pytest.mark.parametrize("given, found", [
    (lambda x: (x, x), "y lies in the same memory"), (lambda x: (x[:3], x[2:5]), "y lies in the same memory"),
    (lambda x: (x.as_strided((2, 3), (0, 1)), x[:3]), "several of its elements are one"),
])
def test_module_that_writes_to_memory_that_is_seen_twice(given, found):
    with pytest.raises(DeplodockError) as error:
        capture_module(add_to, given(torch.ones(5)))
    assert isinstance(error.value, OverlappingWrite) and found in str(error.value)


def test_module_with_inputs_on_two_devices():
    with pytest.raises(MismatchedDevices, match="a on cpu, b on meta"):
        capture_module(lambda a, b: (a * 2, b * 2), (torch.ones(3), torch.ones(3, device="meta")))


REFUSED = {
    "bits of floats": (lambda x: x & 1, WrongDtype),
    "classes of 32 bits": (lambda x: F.cross_entropy(x + 1, x[:, 0].int()), WrongDtype),
    "the largest of nothing": (torch.max, ProgramFailed),
    "the largest along nothing": (lambda x: x.max(0).values, ProgramFailed),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_pytorch_traces_but_does_not_run(name):
    function, kind = REFUSED[name]
    x = torch.zeros(0 if kind is ProgramFailed else 2, 3)
    with pytest.raises((RuntimeError, IndexError)):
        function(x)
    with pytest.raises(kind):
        capture_module(function, (x,))


def test_module_with_a_sparse_input():
    with pytest.raises(WrongDtype, match="sparse"):
        capture_module(lambda x: x * 2, (torch.eye(3).to_sparse(),))


SAME, FLOAT = "as another operand has: PyTorch promotes neither", "a floating dtype: PyTorch computes it in no other"
ONE_OF_THEM, THE_OPERAND = "convert one of them to the dtype of the other", "convert the operand to a floating dtype"

DTYPES = {
    "aten.mm.default": (lambda a, h, i: torch.mm(a, h), "f16", f"torch.float32, {SAME}", ONE_OF_THEM),
    "aten.matmul.default": (lambda a, h, i: a[None] @ h, "f16", f"torch.float32, {SAME}", ONE_OF_THEM),
    "aten.mv.default": (lambda a, h, i: torch.mv(a, i[0]), "i64", f"torch.float32, {SAME}", ONE_OF_THEM),
    "aten.linear.default": (lambda a, h, i: F.linear(h, h, a[0]), "f32", f"torch.float16, {SAME}", ONE_OF_THEM),
    "aten.addmm.default": (lambda a, h, i: torch.addmm(h, a, a), "f32", f"torch.float16, {SAME}", ONE_OF_THEM),
    "aten.conv1d.default": (lambda a, h, i: F.conv1d(a[None], h[None]), "f16", f"torch.float32, {SAME}", ONE_OF_THEM),
    "aten.softmax.int": (lambda a, h, i: i.softmax(0), "i64", FLOAT, THE_OPERAND),
    "aten.var.correction": (lambda a, h, i: i.var(0), "i64", FLOAT, THE_OPERAND),
    "aten.gelu.default": (lambda a, h, i: F.gelu(i), "i64", FLOAT, THE_OPERAND),
}


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes_that_pytorch_traces_but_does_not_compute(name):
    function, dtype, expected, advice = DTYPES[name]
    a, dtype = torch.ones(3, 3), f"torch.{Dtype[dtype].torch_name}"
    with pytest.raises(WrongDtype) as raised:
        capture_module(function, (a, a.half(), a.long()))
    title, *rest = str(raised.value).splitlines()
    whole = "the result of" if expected == FLOAT else "an operand of"
    assert title == f"wrong dtype: {whole} {name} is {dtype}"
    assert rest[:2] == [f"  expected: {expected}", f"  found:    {dtype}"]
    assert rest[2].startswith("  where:    ") and __file__ in rest[2]
    assert rest[3:] == [f"  to do:    {advice}"]


FILES = {
    "nothing of this name": ("x = 3", "model", UnknownName, "nothing of this name"),
    "not a program": ("model = 3", "model", UnknownName, "found:    int"),
    "a class": ("class Model(nn.Module): pass", "Model", UnknownName, "a class\n  to do:    make an instance: `model = Model"),
    "nothing to call it with": ("def model(x): return x", "model", UnknownName, "add `example_inputs"),
    "no name": ("", "", UsageError, "a file and a name in it"),
}


@pytest.mark.parametrize("name", FILES)
def test_bad_file_is_named(name, tmp_path):
    text, program, kind, message = FILES[name]
    (tmp_path / "file.py").write_text(text)
    with pytest.raises(kind, match=message) as raised:
        capture_file(f"{tmp_path / 'file.py'}:{program}")
    assert raised.value.exit_code == 2 and "where:" not in str(raised.value)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(UsageError, match="cannot read .*nowhere.py"):
        capture_file(f"{tmp_path}/nowhere.py:model")


def test_expression_over_a_program_without_names():
    saved = capture_torch_ir("x: f32[3] = input\ny: f32[3] = neg x\nreturn y")
    with pytest.raises(UsageError, match="no names for the expression '-x'"):
        capture_expression("-x", saved)


TORCH_IR = {
    "a line that is no statement": ("x = input", "expected `name: dtype"),
    "unknown dtype": ("x: f7[3] = input\nreturn x", "f7 is not a dtype"),
    "unknown operator": ("x: f32[3] = input\ny: f32[3] = frobnicate x\nreturn y", "no operator called frobnicate"),
    "unknown name": ("x: f32[3] = input\ny: f32[3] = neg z\nreturn y", "z is not defined above this line"),
    "missing operand": ("x: f32[3] = input\ny: f32[3] = add x\nreturn y", "expected b at the end of the line"),
    "missing option": ("x: f32[3] = input\ny: f32[3] = softmax x\nreturn y", "expected dim="),
    "wrong option": ("x: f32[3] = input\ny: f32[3] = softmax x axis=0\nreturn y", "options in the order dim"),
    "too much": ("x: f32[3] = input\ny: f32[3] = neg x x\nreturn y", "unexpected 'x'"),
    "twice": ("x: f32[3] = input\nx: f32[3] = neg x\nreturn x", "x is defined twice"),
    "no return": ("x: f32[3] = input", "the last line must be `return`"),
    "after return": ("x: f32[3] = input\nreturn x\ny: f32[3] = neg x", "statements after return"),
    "open parenthesis": ("x: f32[3] = input\ny: f32[3] = permute x dims=(0,\nreturn y", "a parenthesis is not closed"),
    "unreadable": ("x: f32[3] = input\ny: f32[3] = neg x 'a\nreturn y", "cannot read"),
    "unknown fact": ("x: f32[3] = input colour=3\nreturn x", "no fact called colour"),
}


@pytest.mark.parametrize("name", TORCH_IR)
def test_bad_torch_ir_is_named(name):
    text, message = TORCH_IR[name]
    with pytest.raises(DeplodockError, match=message) as raised:
        parse(text)
    assert raised.value.exit_code == 1 and "<torch ir>" in str(raised.value)
