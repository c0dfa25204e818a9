"""Programs given as text: `-c "F.softmax(torch.randn(8, 8), -1)"`, or a file.

The text is run twice. The first run records: every call in the text goes through a *site*, which keeps what random and
data factories returned (the program's inputs) and the modules that were made (its parameters). The second run, under
torch.export, replays: those calls give the inputs and modules back and all others are traced. Names, lines and control
flow are those of plain Python, as nothing but calls is rewritten.
"""
from __future__ import annotations

import ast
import contextlib
import inspect
import io
import linecache
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import CodeType, FunctionType

import torch
import torch.nn.functional as F
from torch import nn

from deplodock.capture.build import unique
from deplodock.capture.export import (LINES, control_flow_wanted, first_line, gradient_wanted, original_line, source_of_call,
                                      source_of_error)
from deplodock.capture.values import checked_dtype, copied, is_dense
from deplodock.errors import DataDependentShape, DeplodockError, MismatchedDevices, ProgramFailed, ProgramSyntaxError
from deplodock.ir.torch import Source

FACTORIES = {torch.randn, torch.rand, torch.randint, torch.randperm, torch.randn_like, torch.rand_like,
             torch.randint_like, torch.empty, torch.empty_like, torch.empty_strided, torch.from_numpy}
"""Functions whose results become inputs. What arange, full, zeros, ones and eye make is traced instead."""
LITERALS = {torch.tensor, torch.as_tensor}
"""Their results become inputs too, where they are made from numbers and not from tensors."""
CHAIN = {"normal_", "uniform_", "random_", "bernoulli_", "exponential_", "to", "type", "bfloat16", "half", "float",
         "double", "long", "int", "short", "bool", "cuda", "cpu"}
"""Methods that, called at once on a new input, belong to its making: randn(..).half() is one input."""
READERS, READING_METHODS = (bool, int, float, complex), ("item", "tolist", "numpy")
"""What makes Python values of tensors: a replay could not tell that a value which it holds came from an input."""
SITE, EXPRESSION = "__site__", "<expression>"


@dataclass(frozen=True, slots=True)
class Input:
    """Stands in the record for the input of that number."""
    number: int


class _Sites(ast.NodeTransformer):
    """f(a) becomes __site__(n, f, a), with n < 0 where f is a method of a temporary. __init__ is left alone."""

    def __init__(self):
        self.count = 0

    def visit_FunctionDef(self, node: ast.FunctionDef):
        return node if node.name == "__init__" else self.generic_visit(node)

    def visit_Call(self, node: ast.Call):
        temporary = isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Call)
        self.count += 1
        number = -self.count if temporary else self.count
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in ("super", "locals", "globals"):
            return node
        call = ast.Call(ast.Name(SITE, ast.Load()), [ast.Constant(number), node.func, *node.args], node.keywords)
        call = ast.copy_location(call, node)
        # A chain of calls over several lines is attributed to the line of each method's name.
        call.lineno, call.col_offset = node.func.end_lineno, node.func.end_col_offset - 1
        return call


def _as_forward(code: CodeType) -> CodeType:
    """The code under the name `forward`: the only frames whose lines torch.export keeps when it is not strict."""
    inner = tuple(_as_forward(c) if inspect.iscode(c) else c for c in code.co_consts)
    return code.replace(co_name="forward", co_consts=inner)


def as_forward(function: Callable) -> Callable:
    """A function whose lines torch.export keeps; what is not written in Python is called as it is."""
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        return lambda *args, **kwargs: function(*args, **kwargs)  # torch.export asks for a signature
    if not inspect.isfunction(function):
        return function
    renamed = FunctionType(_as_forward(function.__code__), function.__globals__, function.__name__,
                           function.__defaults__, function.__closure__)
    renamed.__kwdefaults__ = function.__kwdefaults__
    return renamed


class Text(nn.Module):
    """A program given as text. Made by recording one run; called with the inputs, it replays the text with them.

    inputs: the tensors that the factories made, in order, as they were when made; `names` are what the text calls them.
    Raises ProgramSyntaxError; ProgramFailed with the user's line; MismatchedDevices.
    """

    def __init__(self, text: str, file: str = "<-c>", expression: str | None = None, like: Text | None = None,
                 seed: int = 0, names: Mapping[str, object] | None = None, place: str = EXPRESSION):
        """expression: evaluated after the text, its value is the result; like: a Text of the same statements, whose
        inputs and modules this one takes over, and whose own result is then not computed; names: what else is in scope;
        place: the file of the expression, for errors.
        """
        super().__init__()
        text = one_statement_a_line(text, file)
        self.text, self.file, self.seed, self.given_names = text, file, seed, dict(names or {})
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        self.code, statements = _compiled(text, file, expression, place, replace=like is not None)
        self.record = {key: v for key, v in like.record.items() if abs(key[0]) <= statements} if like else {}
        self.inputs: list[torch.Tensor] = list(like.inputs) if like else []
        self.factories: list[str] = list(like.factories) if like else []
        self.sources: list[Source | None] = list(like.sources) if like else []
        self.bound, self.bound_names = nn.Module(), {}
        self.recording, self.repeats = True, like is not None
        self.held = [copied(t) for t in self.inputs]
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            try:
                self.forward(*self.held)
            except DeplodockError as error:
                error.where = error.where or source_of_error(error)
                raise
            except (Exception, SystemExit) as error:
                raise self._explained(error) from error
        self.recording = False
        self._check_inputs()
        self._bind()

    @property
    def names(self) -> list[str]:
        """For each input the variable of the text that holds it, else the name of its factory."""
        variables = {id(v): n for n, v in reversed(self.scope.items()) if isinstance(v, torch.Tensor)}
        return [variables.get(id(t), factory) for t, factory in zip(self.held, self.factories)]

    def forward(self, *given):
        """The value of the text's last expression; `given` are the inputs."""
        seen: dict[int, int] = {}

        def site(number, f, *args, **kwargs):
            key = number, seen.get(number, 0)
            seen[number] = key[1] + 1
            match self.record.get(key):
                case None: pass
                case Input(n): return given[n] if n < len(given) else self.held[n]
                case known if id(known) in self.bound_names: return getattr(self.bound, self.bound_names[id(known)])
                case known: return known
            if not self.recording and (f in READERS or getattr(f, "__name__", "") in READING_METHODS) and any(
                    isinstance(t, torch.Tensor) for t in (getattr(f, "__self__", None), *args)):
                raise DataDependentShape(found=f"{f.__name__} reads a tensor's value into Python")
            result = f(*args, **kwargs)
            if self.recording:
                self._keep(key, f, args, result)
            return result

        scope = {"torch": torch, "nn": nn, "F": F, "__name__": "__main__", "__file__": self.file, **self.given_names}
        scope[SITE] = site
        if self.recording:
            self.scope = scope
        body, expression = self.code
        heard = self.recording and not self.repeats          # what it prints is printed once
        with contextlib.nullcontext() if heard else contextlib.redirect_stdout(io.StringIO()):
            exec(body, scope)
            return eval(expression, scope)

    def _keep(self, key: tuple[int, int], f, args: tuple, result) -> None:
        """Records the result of a call, if it is an input, a module or a parameter."""
        if inspect.isclass(f) and isinstance(result, nn.Module):
            result.eval()  # an explicit .train() that follows is kept
        chained = key[0] < 0 and f.__name__ in CHAIN and self.held and getattr(f, "__self__", None) is self.held[-1]
        made = inspect.isroutine(f) and (f in FACTORIES or f in LITERALS and not any(map(_has_tensor, args)))
        if isinstance(result, torch.Tensor) and (chained or made):
            self.record[key] = Input(len(self.inputs))
            self.inputs.append(copied(result))
            self.held.append(result)
            self.factories.append(self.factories[-1] if chained else f.__name__)
            self.sources.append(source_of_call())
        elif isinstance(result, torch.Tensor) and not is_dense(result):
            checked_dtype(f"the result of {f.__name__}", result)
        elif isinstance(result, nn.Module) or f is nn.Parameter or self._initialises(f):
            self.record[key] = result

    def _check_inputs(self) -> None:
        """WrongDtype for an input that no program can have, with the line that made it."""
        for name, t, where in zip(self.names, self.inputs, self.sources):
            checked_dtype(name, t, where)

    def _initialises(self, f) -> bool:
        """Whether a call sets the values of a module's parameters: that is part of making the module."""
        written = getattr(f, "__self__", None)
        if not isinstance(written, torch.Tensor) or not f.__name__.endswith("_") or f.__name__.endswith("__"):
            return getattr(f, "__module__", "") == "torch.nn.init"
        modules = [m for m in self.record.values() if isinstance(m, nn.Module)]
        held = [t for m in modules for t in (*m.parameters(), *m.buffers())]
        held += [p for p in self.record.values() if isinstance(p, nn.Parameter)]
        return written.untyped_storage().data_ptr() in {t.untyped_storage().data_ptr() for t in held}

    def _bind(self) -> None:
        """Registers the recorded modules and parameters under the names that the text gives them."""
        held = {id(m): m for m in self.record.values() if isinstance(m, (nn.Module, nn.Parameter))}
        modules = [m for m in held.values() if isinstance(m, nn.Module)]
        inner = {id(c) for m in modules for c in (*m.modules(), *m.parameters()) if c is not m}
        for m in (m for key, m in held.items() if key not in inner):
            name = next((n for n, v in self.scope.items() if v is m), type(m).__name__.lower())
            name = unique(name, dir(self.bound))
            setattr(self.bound, name, m)
            self.bound_names[id(m)] = name

    def _explained(self, error: Exception) -> Exception:
        """What went wrong while recording, with the user's line."""
        devices = {t.device for t in self.inputs}
        devices |= {p.device for m in self.record.values() if isinstance(m, nn.Module) for p in m.parameters()}
        where = source_of_error(error)
        if len(devices) > 1:
            return MismatchedDevices(where, found="tensors on " + " and ".join(sorted(map(str, devices))))
        return (gradient_wanted(error, where) or control_flow_wanted(error, where)
                or ProgramFailed(where, error=f"{type(error).__name__}: {first_line(error)}"))


def _compiled(text: str, file: str, expression: str | None, place: str,
              replace: bool) -> tuple[tuple[CodeType, CodeType], int]:
    """The statements and the result expression with their sites, and how many sites the statements have.

    replace: the expression takes the place of the text's last statement, if that is one.
    """
    body = _parsed(text, file)
    last = body.pop() if body and (expression is None or replace and isinstance(body[-1], ast.Expr)) else None
    place = file if expression is None else place
    if expression is not None:
        linecache.cache[place] = (len(expression), None, expression.splitlines(True), place)
        statements = _parsed(expression, place)
        last = statements[0] if len(statements) == 1 else None
    if not isinstance(last, ast.Expr):
        line = last.lineno if last else 1
        source = Source(place, original_line(place, line), linecache.getline(place, line))
        reason = "the last statement is not an expression" if last else "there is no program"
        raise ProgramSyntaxError(source, reason=reason)
    sites = _Sites()
    module = ast.fix_missing_locations(sites.visit(ast.Module(body, [])))
    statements = sites.count
    result = ast.fix_missing_locations(ast.Expression(sites.visit(last.value)))
    return (_as_forward(compile(module, file, "exec")), _as_forward(compile(result, place, "eval"))), statements


def one_statement_a_line(text: str, file: str) -> str:
    """The text with statements that share a line on lines of their own, so that a line tells which of them it is.

    original_line() in export.py knows the lines of the text as it was given.
    """
    statements = _parsed(text, file)
    LINES.pop(file, None)
    if all(a.end_lineno < b.lineno for a, b in zip(statements, statements[1:])):
        return text
    LINES[file] = tuple(n for s in statements for n in range(s.lineno, s.end_lineno + 1))
    return "\n".join(ast.get_source_segment(text, s) for s in statements)


def _parsed(text: str, file: str) -> list[ast.stmt]:
    try:
        return ast.parse(text, file).body
    except SyntaxError as error:
        raise ProgramSyntaxError(Source(file, error.lineno or 1, error.text or ""), reason=error.msg) from error


def _has_tensor(value) -> bool:
    return isinstance(value, torch.Tensor) or isinstance(value, (list, tuple)) and any(map(_has_tensor, value))
