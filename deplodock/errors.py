"""One class per kind of mistake. Each says what was expected, what was found, where in the user's program, what to do.

A class is its message: `title`, `expected`, `found` and `advice` are format strings over the facts that the exception
is raised with. `exit_code` is what the command line returns: 1 the user's program or its compilation failed, 2 usage,
3 wrong numbers, 4 no GPU or it failed.

    raise UnsupportedOperator(source, op="aten.sort.default")
"""
from __future__ import annotations


class DeplodockError(Exception):
    """Base of all errors that a user is meant to read. `where` is anything that prints as a place in a program;
    `operator` the ATen overload that capture stopped at, if it did."""

    operator = ""
    exit_code = 1
    title = "error"
    expected = ""
    found = ""
    advice = ""

    def __init__(self, where=None, **facts):
        self.where = where
        self.facts = facts
        super().__init__()

    def __str__(self) -> str:
        lines = [self._text("title")]
        for label, text in (("expected", self._text("expected")), ("found", self._text("found")),
                            ("where", str(self.where) if self.where else ""), ("to do", self._text("advice"))):
            if text:
                lines.append(f"  {label + ':':10}{text}")
        return "\n".join(lines)

    def _text(self, part: str) -> str:
        """A part of the message. A fact of the same name takes the place of the class's own text."""
        return self.facts[part] if part in self.facts else getattr(self, part).format(**self.facts)


# ---- usage -----------------------------------------------------------------------------------------------------------

class UsageError(DeplodockError):
    """The command line or the call itself makes no sense. Facts: title, and any other part."""
    exit_code = 2


class UnknownTarget(UsageError):
    """Facts: target, known (the names that exist)."""
    title = "unknown target {target!r}"
    expected = "an architecture or a GPU: {known}"
    found = "{target}"
    advice = "pass one of these as --target, or leave --target out to compile for the GPU of this machine"


class UnknownName(UsageError):
    """A file has no such object, or it cannot be called without arguments. Facts: name, file, found, advice."""
    title = "{file} has no program called {name!r}"
    expected = "a function, or an nn.Module, at the top level of the file"


class NoModel(UsageError):
    """A folder is no model's. Facts: folder, found."""
    title = "{folder} is no model"
    expected = "a folder with the config.json of a Hugging Face model"
    advice = "check the path; save_pretrained of transformers writes such folders, and `deplodock run` takes those of compile --save"


class UnsupportedModel(DeplodockError):
    """transformers cannot build a model, or it is called in a way that deplodock does not know. Facts: folder, found."""
    title = "unsupported model: {folder}"
    expected = "a family that the installed transformers has, called with tokens, pixels or audio features"
    advice = "update transformers, or compile the module with deplodock.compile and inputs of your own"


class BadWeights(DeplodockError):
    """The weights of a model's folder are damaged, or not this model's. Facts: file, found."""
    title = "cannot take weights from {file}"
    expected = "whole safetensors files that hold every parameter of the model, of its shape"
    advice = "fetch the file again; without safetensors files weights are drawn at random"


# ---- the user's program ----------------------------------------------------------------------------------------------

class ProgramSyntaxError(DeplodockError):
    """Facts: reason."""
    title = "syntax error: {reason}"
    expected = "Python statements, the last of them an expression whose value is the result"
    advice = "correct the program; statements may be separated by newlines or semicolons"


class ProgramFailed(DeplodockError):
    """The program raises when PyTorch runs it. Facts: error (type and message)."""
    title = "the program does not run in PyTorch"
    expected = "a program that runs in eager mode"
    found = "{error}"
    advice = "make it run in PyTorch first"


class CaptureFailed(DeplodockError):
    """The program runs, but torch.export does not trace it. Facts: error (type and message)."""
    title = "PyTorch cannot trace the program"
    expected = "a program that torch.export.export(.., strict=False) takes"
    found = "{error}"
    advice = "keep what it complains about outside of the program"


class TorchIRSyntaxError(DeplodockError):
    """A saved Torch IR is not what str(program) prints. Facts: reason."""
    title = "not a Torch IR: {reason}"
    expected = "one statement a line, such as `softmax: f32[8,8] = softmax x dim=1`"
    advice = "write the file with `deplodock compile --ir torch -o FILE`"


class UnsupportedOperator(DeplodockError):
    """Facts: op (its ATen name, and which argument if it is only that)."""
    title = "unsupported operator {op}"
    expected = "operators that deplodock has a definition of (deplodock/capture/operators lists them)"
    found = "{op}"
    advice = "write it with supported operators, or keep this part of the program in PyTorch"


class UnsupportedOutput(DeplodockError):
    """Facts: found."""
    title = "the program returns something that is not a tensor"
    expected = "a tensor, or tuples, lists and dicts of tensors"
    advice = "return tensors only"


class DataDependentShape(DeplodockError):
    """A shape, a number or a branch depends on the values of tensors. Facts: found."""
    title = "data-dependent shape"
    expected = "shapes and control flow that are known before the program runs"
    advice = "use torch.where in place of a branch or a boolean index, or keep this part of the program in PyTorch"


class WrongDtype(DeplodockError):
    """Facts: name (of the value), dtype."""
    title = "wrong dtype: {name} is {dtype}"
    expected = ("float64, float32, float16, bfloat16, int64, int32, int16, int8, uint8 or bool, dense and strided; "
                "uint16, uint32 and uint64 where PyTorch has the operator")
    found = "{dtype}"
    advice = "convert it to one of these dtypes, complex numbers to pairs of reals"


class MismatchedDevices(DeplodockError):
    """Facts: found (which tensor is where)."""
    title = "tensors on different devices"
    expected = "all inputs and parameters of a program on one device"
    advice = "move them to one device before the program, with .to(device)"


class RandomNumbers(DeplodockError):
    """Facts: op."""
    title = "random numbers in the program"
    expected = "a program that computes the same result from the same inputs"
    found = "{op}"
    advice = "draw the numbers outside and pass them as an input"


class TrainingMode(DeplodockError):
    """Facts: found (the operator and the option that asks for training)."""
    title = "training mode"
    expected = "inference: no active dropout, no batch statistics"
    advice = "call .eval() on the module, or pass training=False (dropout_p=0.0 for attention)"


class OverlappingWrite(DeplodockError):
    """The program writes to a tensor that is seen through another one, or through several elements. Facts: name, found."""
    title = "the program writes to {name} in place, which overlaps"
    expected = "a tensor whose memory no other input, parameter or element shares"
    advice = "pass a copy of one of them (x.clone()), or use the out-of-place form of the operator"


# ---- the machine -----------------------------------------------------------------------------------------------------

class NoGpu(DeplodockError):
    """Facts: reason."""
    exit_code = 4
    title = "no usable GPU"
    expected = "an NVIDIA GPU of compute capability 8.0 or newer, and its driver"
    found = "{reason}"
    advice = "run with --device cpu (the emulation), or see `deplodock doctor`"


class OtherGpu(NoGpu):
    """Code for one architecture, and a GPU that does not run it. Facts: arch, gpu (its name and compute capability)."""
    title = "the program is compiled for another GPU"
    expected = "a GPU that runs code for {arch}"
    found = "{gpu}"
    advice = "compile it with --target for this GPU, or run it with --device cpu (the emulation)"


class OtherVersion(DeplodockError):
    """A saved program was written by another version. Facts: folder, wanted, given."""
    title = "{folder} was saved by another version"
    expected = "{wanted}"
    found = "{given}"
    advice = "compile and save the program again with this version, or load it with that one"


class DamagedProgram(DeplodockError):
    """A file of a saved program is not what was written. Facts: folder, file, reason."""
    title = "the saved program in {folder} is damaged"
    expected = "the files that `deplodock compile --save` wrote, as they were"
    found = "{file}: {reason}"
    advice = "compile and save the program again"


class WeightsChanged(DeplodockError):
    """A file of weights that a saved program refers to is not what it was. Facts: file, reason."""
    title = "{file} is not what it was when the program was saved"
    expected = "a safetensors file that holds the program's parameters, unchanged"
    found = "{reason}"
    advice = "restore the file, or compile and save the program again"


class UnsavableContainer(DeplodockError):
    """Arguments or results of a program are in a container that no file can name. Facts: found."""
    title = "the program cannot be saved: no file can hold how it is called"
    expected = "arguments and results in tuples, lists and dicts, or in containers that PyTorch can serialise"
    found = "{found}"
    advice = "pass and return tuples or dicts, or register the type with a serialized_type_name"


class CorruptCache(DeplodockError):
    """A cache entry does not match its checksum and could not be made again. Facts: path, reason."""
    title = "corrupt cache entry"
    expected = "an entry whose checksum matches its content"
    found = "{path}: {reason}"
    advice = "delete the file, or the whole folder: everything in it can be made again"


class ToolMissing(DeplodockError):
    """A program that a stage needs is not installed. Facts: tool, purpose, advice."""
    title = "{tool} is not installed"
    expected = "{tool} on PATH or in an installed package: with it {purpose}"


class IllegalSchedule(DeplodockError):
    """No code exists for a kernel under its schedule. Facts: kernel, reason."""
    title = "kernel {kernel} cannot be lowered under its schedule"
    expected = "knobs that fit the kernel's loops and each other (deplodock/lower/tile.py describes them)"
    found = "{reason}"
    advice = "choose other knobs; if no schedule was given by hand, this is a bug of deplodock: please report it"


class NoKernel(DeplodockError):
    """No candidate kernel computes a tensor that the program needs. Facts: tensor."""
    title = "no kernel computes {tensor}"
    expected = "a kernel whose loops are feasible for every tensor that is stored"
    advice = "this is a gap in extract/kernels.py: please report the program with the folder that --dump writes"


class NoSchedule(DeplodockError):
    """No schedule law offers a row that a kernel can be lowered with. Facts: kernel, tried, kernels (all that have none).
    """
    title = "no schedule for kernel {kernel}"
    expected = "a schedule that its loops can be lowered with"
    found = "none among {tried} that the laws offer"
    advice = "this is a gap in rules/schedule.py: please report the program with the folder that --dump writes"


class KernelRejected(DeplodockError):
    """The CUDA compiler refuses what was emitted. Facts: name, arch, found (its first errors)."""
    title = "kernel {name} does not compile for {arch}"
    expected = "CUDA text that the compiler accepts"
    advice = "this is a bug of deplodock: please report it with the folder that --dump writes"


class LaunchFailed(DeplodockError):
    """A kernel cannot be loaded or run. Facts: name, reason."""
    exit_code = 4
    title = "kernel {name} failed on the GPU"
    expected = "a kernel that runs to its end"
    found = "{reason}"
    advice = ("start a new process: the GPU's context may be lost. A kernel that loads an index outside of its dimension "
              "stops the GPU, and whoever uses it next is told: check the tensors of indices, on the CPU if need be; else "
              "please report it with the folder that --dump writes")


class EmulationFault(DeplodockError):
    """A kernel does something wrong on the CPU emulation. Facts: kernel, kind, found, advice, others. `faults` has all."""
    exit_code = 4
    title = "kernel {kernel} is wrong: {kind}{others}"
    expected = "a kernel without races, stray accesses, reads of what nobody wrote, or threads that wait forever"
    faults: tuple = ()


class IndexOutOfRange(DeplodockError, IndexError):
    """A loaded index selects nothing, which stops the program. Facts: found."""
    title = "index out of range"
    expected = "indices inside the dimension that they select from (x[index] counts negative ones from its end)"
    advice = "check the tensor of indices that the program was called with"


class BrokenFact(DeplodockError):
    """A compiled program is called with a tensor that it was not compiled for. Facts: name, fact, wanted, given."""
    title = "{name} has another {fact} than the program was compiled for"
    expected = "{wanted}"
    found = "{given}"
    advice = "pass such a tensor, or compile the program for this one"


class TooManyVariants(DeplodockError):
    """A compiled module is called in more ways than it may have programs for. Facts: count, found (what is new)."""
    title = "more than {count} variants of one module"
    expected = "calls whose arguments agree with one of the {count} that were compiled for"
    advice = "pad arguments to few shapes, or allow more: deplodock.compile(.., variants=N)"


class GradientWanted(DeplodockError):
    """A compiled program is asked for gradients. Facts: name (of the input)."""
    title = "input {name} requires a gradient"
    expected = "inference: a compiled program computes no gradients"
    found = "requires_grad=True, outside torch.no_grad()"
    advice = "call the program under torch.no_grad(), or pass {name}.detach()"


class WrongNumbers(DeplodockError):
    """A result breaks the promise of its numerics mode. Facts: output, error, bound."""
    exit_code = 3
    title = "wrong numbers in {output}"
    expected = "{bound}"
    found = "{error}"
    advice = "this is a bug of deplodock: please report it with the folder that --dump writes"
