"""Reads what a check needs of a folder: configs, headers and the vocabulary's map; never the weights.

Where the bytes come from is the caller's: a function that reads a piece of a file. So a head on the hub or in
S3 is looked at for some hundred kilobytes.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from peagle_sm.core.heads.fault import FileRecord, HeadFault
from peagle_sm.core.heads.files import (
    CARD,
    CONFIG,
    CONFIGS_WITH_CODE,
    INDEX,
    MAX_TEXT_BYTES,
    code_faults,
    file_faults,
    index_faults,
    licence_of,
    read_json,
    shards,
)
from peagle_sm.core.heads.safetensors import LENGTH_BYTES, HeaderFault, Tensor, header_length, parse_header
from peagle_sm.core.heads.weights import TO_DRAFT, TO_TARGET

Read = Callable[[str, int, int], bytes]
"""A file's name, where to begin, how many bytes: what stands there."""
MAX_MAP_BYTES = 64_000_000
_ARRAYS = {"I64": "q", "I32": "i", "U8": "B", "I8": "b", "BOOL": "B"}
_FIRST_BYTES = 64 * 1024  # most headers fit, so one read finds them


@dataclass(frozen=True)
class Folder:
    """A folder of files somewhere: sizes in bytes, a way to read pieces, each file's sha256 where told."""

    place: str
    sizes: Mapping[str, int]
    read: Read
    sha256: Mapping[str, str] = field(default_factory=dict)
    revision: str | None = None
    licence: str | None = None

    def text(self, name: str) -> bytes | None:
        """A small file whole; None when it is not there.

        Raises:
            ValueError: it is too large for a text.
        """
        size = self.sizes.get(name)
        if size is None:
            return None
        if size > MAX_TEXT_BYTES:
            raise ValueError(f"{name} has {size} bytes, too many for a text")
        return self.read(name, 0, size)

    def only(self, names: Iterable[str]) -> Folder:
        """The same folder with some of its files."""
        return replace(self, sizes={name: self.sizes[name] for name in names})

    def records(self) -> tuple[FileRecord, ...]:
        """Its files by name."""
        return tuple(FileRecord(n, size, self.sha256.get(n)) for n, size in sorted(self.sizes.items()))


@dataclass(frozen=True)
class Contents:
    """What was read: the config (None where there is none), tensors by name, the maps' values."""

    config: Mapping[str, Any] | None
    tensors: Mapping[str, Tensor]
    values: Mapping[str, Sequence[int]]
    licence: str | None
    faults: tuple[HeadFault, ...]


def local_folder(directory: Path) -> Folder:
    """A folder on this machine; what hides behind a dot (git's, the hub's own notes) does not count.

    Raises:
        OSError: it cannot be read.
    """
    found = {
        path.relative_to(directory).as_posix(): path.stat().st_size
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(directory).parts)
    }

    def read(name: str, start: int, length: int) -> bytes:
        with (directory / name).open("rb") as file:
            file.seek(start)
            return file.read(length)

    return Folder(str(directory), found, read)


def read_contents(folder: Folder) -> Contents:
    """Read a folder; everything wrong with its files is among the faults.

    Raises:
        OSError: whatever the folder's ``read`` raises.
    """
    faults = list(file_faults(folder.sizes))
    texts = {name: _json(folder, name, faults) for name in (*CONFIGS_WITH_CODE, INDEX)}
    for name in CONFIGS_WITH_CODE:
        faults += code_faults(name, texts[name])
    config = texts[CONFIG]
    if CONFIG not in folder.sizes:
        faults.append(HeadFault("config", "error", "there is no config.json in it"))
    elif not isinstance(config, Mapping):
        faults.append(HeadFault("config", "error", "config.json is no JSON object"))
    tensors = _tensors(folder, faults)
    if texts[INDEX] is not None:
        faults += index_faults(texts[INDEX], {n: each.file for n, each in tensors.items()}, folder.sizes)
    values = {n: _values(folder, tensors[n]) for n in (TO_TARGET, TO_DRAFT) if _is_map(tensors.get(n))}
    licence = folder.licence or licence_of(folder.sizes, _card(folder))
    if licence is None:
        faults.append(HeadFault("licence", "warning", "neither its card nor a file names its licence"))
    return Contents(config if isinstance(config, Mapping) else None, tensors, values, licence, tuple(faults))


def _json(folder: Folder, name: str, faults: list[HeadFault]) -> Any:
    try:
        text = folder.text(name)
        return None if text is None else read_json(text, name)
    except ValueError as error:
        faults.append(HeadFault("config", "error", str(error)))
        return None


def _card(folder: Folder) -> str | None:
    try:
        text = folder.text(CARD)
    except ValueError:
        return None
    return None if text is None else text.decode("utf-8", errors="replace")


def _tensors(folder: Folder, faults: list[HeadFault]) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for name in shards(folder.sizes):
        try:
            header = read_header(folder, name)
        except HeaderFault as error:
            faults.append(HeadFault("header", "error", str(error), "Fetch the file again."))
            continue
        for twice in sorted(found.keys() & header.keys()):
            message = f"{twice} is in {found[twice].file} and in {name}"
            faults.append(HeadFault("index", "error", message))
        found |= header
    return found


def read_header(folder: Folder, name: str) -> dict[str, Tensor]:
    """Read one safetensors file's header.

    Raises:
        HeaderFault: the file is not whole, or is something else.
        OSError: it cannot be read.
    """
    size = folder.sizes[name]
    first = folder.read(name, 0, min(size, _FIRST_BYTES))
    length = header_length(first, size, name)
    text = first[LENGTH_BYTES : LENGTH_BYTES + length]
    if len(text) < length:
        text += folder.read(name, LENGTH_BYTES + len(text), length - len(text))
    if len(text) < length:
        raise HeaderFault(f"{name} is cut short within its header")
    return parse_header(text, size, name)


def _is_map(tensor: Tensor | None) -> bool:
    return tensor is not None and tensor.dtype in _ARRAYS and tensor.end - tensor.start <= MAX_MAP_BYTES


def _values(folder: Folder, tensor: Tensor) -> Sequence[int]:
    found = array(_ARRAYS[tensor.dtype])
    found.frombytes(folder.read(tensor.file, tensor.start, tensor.end - tensor.start))
    if sys.byteorder == "big":
        found.byteswap()
    return found
