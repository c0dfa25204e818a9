"""Element types: their width, kind, and how two of them promote.

Names are short forms of torch's: f32 is torch.float32, bf16 torch.bfloat16, i64 torch.int64, b8 torch.bool.
"""
import math
from enum import StrEnum


class Dtype(StrEnum):
    """An element type. A str, so that it prints and keys as its name."""

    f64 = "f64"
    f32 = "f32"
    f16 = "f16"
    bf16 = "bf16"
    i64 = "i64"
    i32 = "i32"
    i16 = "i16"
    i8 = "i8"
    u64 = "u64"
    u32 = "u32"
    u16 = "u16"
    u8 = "u8"
    b8 = "b8"

    @property
    def bytes(self) -> int:
        """Size of one element in memory, in bytes."""
        return _BYTES[self]

    @property
    def torch_name(self) -> str:
        """The name of the same type in torch: getattr(torch, d.torch_name)."""
        return _TORCH_NAMES[self]

    @classmethod
    def of_torch(cls, dtype) -> "Dtype | None":
        """The type of a torch.dtype; None where there is none (complex, quantised, 8-bit floats ..)."""
        return _OF_TORCH.get(str(dtype).removeprefix("torch."))

    @property
    def is_float(self) -> bool:
        return self in (Dtype.f64, Dtype.f32, Dtype.f16, Dtype.bf16)

    @property
    def is_16bit(self) -> bool:
        """A floating type whose arithmetic runs in f32, rounded once when stored."""
        return self in (Dtype.f16, Dtype.bf16)

    @property
    def is_unsigned(self) -> bool:
        """An integer type without a sign: of torch's, whose arithmetic on it wraps modulo 2^n too."""
        return self in (Dtype.u64, Dtype.u32, Dtype.u16, Dtype.u8)

    @property
    def extremes(self) -> tuple[float, float]:
        """The least and the greatest value; infinities of floats, False and True of b8."""
        if self.is_float:
            return -math.inf, math.inf
        if self == Dtype.b8:
            return False, True
        bits = 8 * self.bytes
        return (0, (1 << bits) - 1) if self.is_unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)

    @property
    def compute(self) -> "Dtype":
        """The type that arithmetic on values of this type is done in."""
        return Dtype.f32 if self.is_16bit else self


_BYTES = {Dtype.f64: 8, Dtype.f32: 4, Dtype.f16: 2, Dtype.bf16: 2, Dtype.i64: 8, Dtype.i32: 4, Dtype.i16: 2,
          Dtype.i8: 1, Dtype.u64: 8, Dtype.u32: 4, Dtype.u16: 2, Dtype.u8: 1, Dtype.b8: 1}
_TORCH_NAMES = {Dtype.f64: "float64", Dtype.f32: "float32", Dtype.f16: "float16", Dtype.bf16: "bfloat16",
                Dtype.i64: "int64", Dtype.i32: "int32", Dtype.i16: "int16", Dtype.i8: "int8",
                Dtype.u64: "uint64", Dtype.u32: "uint32", Dtype.u16: "uint16", Dtype.u8: "uint8",
                Dtype.b8: "bool"}
_OF_TORCH = {name: d for d, name in _TORCH_NAMES.items()}

f64, f32, f16, bf16, i64, i32, i16, i8, u64, u32, u16, u8, b8 = Dtype
