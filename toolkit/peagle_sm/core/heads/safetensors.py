"""The header of a safetensors file: every rule of the format, held before any tensor is loaded. Pure.

Source of the rules: the format's own page (github.com/safetensors/safetensors, "Format") and its loader,
which refuses headers over 100 MB, duplicate names, holes and overlaps.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, TypeGuard

Shape = tuple[int, ...]

LENGTH_BYTES = 8
MAX_HEADER_BYTES = 100_000_000
MAX_DIMENSIONS = 16
"""More than any model has; a header with thousands of them is an attack on whoever multiplies them."""

BITS: Mapping[str, int] = {
    **{"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6},
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
}
FLOATS = frozenset({"F16", "BF16", "F32"})


class HeaderFault(ValueError):
    """A file that is not whole, or not what it says; the message says how, with the file's name."""


@dataclass(frozen=True)
class Tensor:
    """One tensor: ``start`` and ``end`` are bytes from the beginning of ``file``."""

    dtype: str
    shape: Shape
    file: str = ""
    start: int = 0
    end: int = 0

    @property
    def count(self) -> int:
        """How many values it has."""
        return prod(self.shape)


def header_length(first: bytes, size: int, name: str) -> int:
    """The length of the header, from the first eight bytes of a file of ``size`` bytes.

    Raises:
        HeaderFault: the file is cut short, is something else, or claims a header that is too long.
    """
    if len(first) < LENGTH_BYTES or size < LENGTH_BYTES:
        raise HeaderFault(f"{name} is cut short or is no safetensors file ({size} bytes)")
    length = int.from_bytes(first[:LENGTH_BYTES], "little")
    if length > MAX_HEADER_BYTES and length <= size - LENGTH_BYTES:
        raise HeaderFault(f"{name} claims a header of {length} bytes; safetensors allows {MAX_HEADER_BYTES}")
    if not 0 < length <= size - LENGTH_BYTES:
        raise HeaderFault(f"{name} is cut short or is no safetensors file ({size} bytes)")
    return length


def parse_header(text: bytes, size: int, name: str) -> dict[str, Tensor]:
    """Read a header; ``size`` is the whole file's.

    Raises:
        HeaderFault: it is no JSON object, a name comes twice, or offsets leave holes, overlap, pass the
            end of the file, or do not fit the tensor's shape.
    """
    entries = _json_object(text, name)
    begin = LENGTH_BYTES + len(text)
    found = {key: _tensor(key, entry, name, begin) for key, entry in entries.items() if key != "__metadata__"}
    _metadata(entries.get("__metadata__", {}), name)
    _covers(found, begin, size, name)
    return found


def _json_object(text: bytes, name: str) -> dict[str, Any]:
    if not text.startswith(b"{"):
        raise HeaderFault(f"{name} has no safetensors header: it does not begin with a brace")

    def once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, value in pairs:
            if key in made:
                raise HeaderFault(f"{name}: {key!r} stands twice in the header")
            made[key] = value
        return made

    try:
        document = json.loads(text.decode("utf-8"), object_pairs_hook=once)
    except HeaderFault:
        raise
    except (ValueError, RecursionError) as error:
        raise HeaderFault(f"{name} has no safetensors header: {error}") from error
    if not isinstance(document, dict):
        raise HeaderFault(f"{name} has no safetensors header: it is no JSON object")
    return document


def _metadata(value: Any, name: str) -> None:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise HeaderFault(f"{name}: __metadata__ is not a mapping of text to text")


def _tensor(key: str, entry: Any, name: str, begin: int) -> Tensor:
    if not isinstance(entry, dict):
        raise HeaderFault(f"{name}: {key} has no dtype, shape and offsets")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in BITS:
        raise HeaderFault(f"{name}: {key} has dtype {dtype!r}; allowed: {', '.join(sorted(BITS))}")
    if not _whole_numbers(shape) or len(shape) > MAX_DIMENSIONS:
        raise HeaderFault(f"{name}: {key} has no shape of whole numbers, {MAX_DIMENSIONS} at most")
    if not _whole_numbers(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise HeaderFault(f"{name}: {key} has no pair of rising data_offsets")
    bits = prod(shape) * BITS[dtype]
    if bits != 8 * (offsets[1] - offsets[0]):
        raise HeaderFault(
            f"{name}: {key} is {'x'.join(map(str, shape)) or 'a scalar'} of {dtype}, {bits // 8} bytes, "
            "and its "
            f"offsets span {offsets[1] - offsets[0]}"
        )
    return Tensor(dtype, tuple(shape), name, begin + offsets[0], begin + offsets[1])


def _whole_numbers(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(each) is int and 0 <= each < 2**63 for each in value)


def _covers(found: Mapping[str, Tensor], begin: int, size: int, name: str) -> None:
    reached, last = begin, "the header"
    for key, tensor in sorted(found.items(), key=lambda item: (item[1].start, item[1].end)):
        if tensor.start < reached:
            raise HeaderFault(f"{name}: {key} overlaps {last}")
        if tensor.start > reached:
            raise HeaderFault(f"{name}: {tensor.start - reached} bytes between {last} and {key} are nobody's")
        reached, last = tensor.end, key
    if reached > size:
        raise HeaderFault(f"{name} is cut short: {size} bytes, and its header calls for {reached}")
    if reached < size:
        raise HeaderFault(f"{name}: {size - reached} bytes after {last} are nobody's")
