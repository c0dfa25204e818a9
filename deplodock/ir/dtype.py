"""Element types: their width, kind, and how two of them promote.

Names are short forms of torch's: f32 is torch.float32, bf16 torch.bfloat16, i64 torch.int64, b8 torch.bool.
"""
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
    u8 = "u8"
    b8 = "b8"

    @property
    def bytes(self) -> int:
        """Size of one element in memory, in bytes."""
        return _BYTES[self]

    @property
    def is_float(self) -> bool:
        return self in (Dtype.f64, Dtype.f32, Dtype.f16, Dtype.bf16)

    @property
    def is_16bit(self) -> bool:
        """A floating type whose arithmetic runs in f32, rounded once when stored."""
        return self in (Dtype.f16, Dtype.bf16)

    @property
    def compute(self) -> "Dtype":
        """The type that arithmetic on values of this type is done in."""
        return Dtype.f32 if self.is_16bit else self


_BYTES = {Dtype.f64: 8, Dtype.f32: 4, Dtype.f16: 2, Dtype.bf16: 2, Dtype.i64: 8, Dtype.i32: 4, Dtype.i16: 2,
          Dtype.i8: 1, Dtype.u8: 1, Dtype.b8: 1}

f64, f32, f16, bf16, i64, i32, i16, i8, u8, b8 = Dtype
