"""Values of a head's weights: not-a-number, infinity, all zeros. Pure.

vLLM loads such weights without a message, and then accepts none of the drafts. Files are read in pieces.
A piece is tested as one large integer, which needs no array library: 100 MB take less than a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache

from peagle_sm.core.heads.weights import BITS, Tensor
from peagle_sm.core.words import Finding, error_finding

PIECE_BYTES = 1 << 20
_EXPONENTS: Mapping[str, tuple[int, int]] = {
    "F16": (0x7C00, 10),
    "BF16": (0x7F80, 7),
    "F32": (0x7F800000, 23),
    "F64": (0x7FF0000000000000, 52),
    "F8_E5M2": (0x7C, 2),
    "F8_E4M3": (0x7F, 0),  # this format has no infinity; all ones is its only NaN
}
"""Bits of a float's exponent, and the number of bits below it."""
_SHOWN = 3


@cache
def _masks(dtype: str, size: int) -> tuple[int, int, int]:
    """Return the masks of a piece: exponents, the lowest bit of each exponent, signs."""
    width, (exponent, below) = BITS[dtype] // 8, _EXPONENTS[dtype]

    def repeated(value: int) -> int:
        return int.from_bytes(value.to_bytes(width, "little") * (size // width), "little")

    return repeated(exponent), repeated(1 << below), repeated(1 << (8 * width - 1))


def _scan(read: Callable[[str, int, int], bytes], tensor: Tensor) -> tuple[bool, bool]:
    """Return whether a tensor has a value that is not finite, and whether all its values are zero."""
    zeros = True
    for start in range(tensor.start, tensor.end, PIECE_BYTES):
        piece = read(tensor.file, start, min(PIECE_BYTES, tensor.end - start))
        exponents, lowest, signs = _masks(tensor.dtype, len(piece))
        bits = int.from_bytes(piece, "little")
        # An exponent of all ones overflows into the sign's place, which the mask has cleared.
        if ((bits & exponents) + lowest) & signs:
            return True, False
        zeros = zeros and not bits & ~signs
    return False, zeros


def value_faults(read: Callable[[str, int, int], bytes], tensors: Mapping[str, Tensor]) -> Iterator[Finding]:
    """Yield weights with values that are not finite, and weights that are all zeros.

    Args:
        read: reads a byte range of a file: name, start, length.
        tensors: the head's tensors by name.

    Raises:
        OSError: ``read`` raised it.
    """
    scans = {
        name: _scan(read, tensor)
        for name, tensor in tensors.items()
        if tensor.dtype in _EXPONENTS and tensor.end > tensor.start
    }
    broken = [name for name, (not_finite, _) in scans.items() if not_finite]
    if broken:
        yield error_finding(
            "values",
            f"{_listed(broken)}: found NaN or infinity; allowed: finite numbers",
            "Export the head again from a checkpoint of its training that has finite weights.",
        )
    zeros = [name for name, (_, zero) in scans.items() if zero and not name.endswith(".bias")]
    if zeros:
        yield Finding(
            "warning",
            f"{_listed(zeros)}: all values are 0, as if the weights were never trained or written",
            "Export the head again, and compare its acceptance with `peagle-sm compare`.",
            check="values",
        )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"
