"""What a check reads of a head's folder: configs, headers, manifest. Pure.

Weights are never read. The caller brings a function that reads a piece of a file. So a check of a head on the
hub or in S3 reads only some hundred kilobytes. ``manifest.json`` of a staged prefix lists its files, their
origin, and facts of its head. Here are also the checks on the files beside the weights: nothing that runs
code, every shard that the index names, a licence.
"""

from __future__ import annotations

import json
import re
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from peagle_sm.core.heads.layout import FileRecord, HeadFault, depth_faults
from peagle_sm.core.heads.weights import (
    LENGTH_BYTES,
    TO_DRAFT,
    TO_TARGET,
    HeaderFault,
    Tensor,
    header_length,
    parse_header,
)

REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
COMMIT = re.compile(r"[0-9a-f]{40}")
"""The one name of a revision that does not move."""


CONFIG, INDEX, CARD = "config.json", "model.safetensors.index.json", "README.md"
MAX_TEXT_BYTES = 50_000_000
"""A config, an index or a card beyond this is none."""
PICKLES = frozenset(
    {".bin", ".ckpt", ".h5", ".joblib", ".msgpack", ".npy", ".npz", ".pickle", ".pkl", ".pt", ".pth"}
)
CODE = frozenset({".dll", ".exe", ".py", ".pyc", ".pyd", ".sh", ".so"})
CONFIGS_WITH_CODE = (CONFIG, "tokenizer_config.json", "generation_config.json", "processor_config.json")
_LICENCE_FILE = re.compile(r"(licen[cs]e|copying)(\..*)?$", re.IGNORECASE)
_LICENCE_LINE = re.compile(r"^licen[cs]e:\s*[\"']?([^\s\"'#]+)", re.MULTILINE)


def file_faults(sizes: Mapping[str, int]) -> Iterator[HeadFault]:
    """Files that must not be there, and weights that are not."""
    for name in sorted(sizes):
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            yield HeadFault("files", "error", f"{name!r} would be written outside of the head's folder")
        elif path.suffix.lower() in CODE:
            yield HeadFault(
                "remote-code", "error", f"{name} is code; a head is weights and configs", _TAKE_OUT
            )
        elif path.suffix.lower() in PICKLES:
            yield HeadFault(
                "pickle", "error", f"{name} can run code when it is loaded; only safetensors", _TAKE_OUT
            )
    if not shards(sizes):
        yield HeadFault("weights-missing", "error", "there is no .safetensors file in it")


_TAKE_OUT = "Take the file out, or another head."


def shards(sizes: Mapping[str, int]) -> list[str]:
    """The safetensors files of the folder itself; vLLM reads no others."""
    return sorted(name for name in sizes if name.endswith(".safetensors") and "/" not in name)


def code_faults(name: str, config: Any) -> Iterator[HeadFault]:
    """An ``auto_map`` in a config: a class that would be loaded from the repository's own code."""
    if isinstance(config, Mapping) and config.get("auto_map"):
        yield HeadFault(
            "remote-code",
            "error",
            f"{name} has an auto_map: it loads code from its repository",
            "Take another head.",
        )


def index_faults(index: Any, tensors: Mapping[str, str], sizes: Mapping[str, int]) -> Iterator[HeadFault]:
    """Hold the index against the files; ``tensors`` is name -> file, as the headers say."""
    table = index.get("weight_map") if isinstance(index, Mapping) else None
    if not isinstance(table, Mapping):
        yield HeadFault("index", "error", f"{INDEX} has no weight_map")
        return
    for file in sorted({str(each) for each in table.values()}):
        if file not in sizes:
            yield HeadFault(
                "index", "error", f"{INDEX} names {file}, which is not there", "Fetch the head again."
            )
    for name, file in table.items():
        if str(file) in sizes and tensors.get(name) != file:
            yield HeadFault("index", "error", f"{INDEX} looks for {name} in {file}, which does not hold it")
            return
    unlisted = sorted(set(tensors) - set(table))
    if unlisted:
        yield HeadFault(
            "index", "error", f"{INDEX} does not name {unlisted[0]}: vLLM may leave it out in silence"
        )


def licence_of(sizes: Mapping[str, int], card: str | None) -> str | None:
    """The licence that the card's metadata names, else the file that has it; None when neither does."""
    if card and card.startswith("---"):
        found = _LICENCE_LINE.search(card.split("\n---", 1)[0])
        if found:
            return found[1].lower()
    return next((name for name in sorted(sizes) if _LICENCE_FILE.fullmatch(name)), None)


def read_json(text: bytes, name: str) -> Any:
    """Parse a JSON file of the head.

    Raises:
        ValueError: it is none; the message names it.
    """
    try:
        return json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} is no JSON: {error}") from error


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


MANIFEST = "manifest.json"
MANIFEST_FORMAT = "peagle-sm/1"
HEAD_FOLDER = "p-eagle/"
"""Where the head lies below its target's prefix; the engine sees it as /opt/ml/model/p-eagle."""


@dataclass(frozen=True)
class Part:
    """A target or a head: the hub's repository or a path, its commit, its licence, its folder below."""

    source: str
    revision: str | None
    licence: str | None
    folder: str = ""


@dataclass(frozen=True)
class HeadFacts:
    """What the check found before the head was staged; it had no error, or it would not be there."""

    format: str
    method: str
    trained_k: int | None
    vocab_size: int
    target_hidden_size: int


@dataclass(frozen=True)
class Manifest:
    """A staged prefix; ``files`` are relative to it, each with its sha256. ``model`` is a catalogue id."""

    tool_version: str
    files: tuple[FileRecord, ...]
    model: str | None = None
    target: Part | None = None
    head: Part | None = None
    head_facts: HeadFacts | None = None

    def to_json(self) -> str:
        """The file's text; the same staging writes the same bytes."""
        document = {"format": MANIFEST_FORMAT, **asdict(self)}
        return json.dumps(document, indent=1, sort_keys=True) + "\n"


def parse_manifest(text: bytes | str) -> Manifest:
    """Read a manifest.

    Raises:
        ValueError: it is none of ours; the message says why.
    """
    try:
        data = json.loads(text)
        if not isinstance(data, dict) or data.get("format") != MANIFEST_FORMAT:
            raise ValueError(f"its format is not {MANIFEST_FORMAT}")
        files = tuple(FileRecord(str(f["name"]), int(f["size"]), f["sha256"]) for f in data["files"])
        return Manifest(
            tool_version=str(data["tool_version"]),
            files=files,
            model=data.get("model"),
            target=_part(data.get("target")),
            head=_part(data.get("head")),
            head_facts=_facts(data.get("head_facts")),
        )
    except (KeyError, TypeError, RecursionError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"it is no manifest of peagle-sm: {error!r}") from error


def _part(data: Any) -> Part | None:
    return (
        None
        if data is None
        else Part(**{key: data[key] for key in ("source", "revision", "licence", "folder")})
    )


def _facts(data: Any) -> HeadFacts | None:
    keys = ("format", "method", "trained_k", "vocab_size", "target_hidden_size")
    return None if data is None else HeadFacts(**{key: data[key] for key in keys})


def manifest_faults(
    manifest: Manifest,
    sizes: Mapping[str, int],
    *,
    model: str,
    mode: str,
    num_speculative_tokens: int | None,
) -> Iterator[HeadFault]:
    """Hold a spec against what was staged, and what was staged against what is there (``sizes``)."""
    for file in manifest.files:
        if file.name not in sizes:
            yield HeadFault("files", "error", f"{file.name} of the manifest is not there", _AGAIN)
        elif sizes[file.name] != file.size:
            found = sizes[file.name]
            message = f"{file.name} has {found} bytes, and {file.size} in the manifest"
            yield HeadFault("files", "error", message, _AGAIN)
    if manifest.model is not None and manifest.model != model:
        yield HeadFault(
            "target-size",
            "error",
            f"it was staged for model {manifest.model}, and the spec's is {model}",
            _OTHER,
        )
    facts = manifest.head_facts
    if facts is None:
        yield HeadFault("files", "error", "there is no head in what was staged there", _OTHER)
        return
    if facts.method != mode:
        yield HeadFault(
            "method", "error", f"it is a {facts.method} head, and the spec's mode is {mode}", _OTHER
        )
    elif num_speculative_tokens is not None:
        yield from depth_faults(num_speculative_tokens, facts.trained_k, parallel=mode == "p-eagle")


_AGAIN = "Stage it again: `peagle-sm heads stage`."
_OTHER = "Name the prefix of the right head as head_uri."


_WANTED = re.compile(
    r"[^/]+\.(safetensors|json|jinja|txt|model|tiktoken|md)|(LICENSE|NOTICE|USAGE_POLICY)[^/]*"
)


def selected(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Split a target's files into those that an engine needs, and those left out.

    Left out: folders (other formats of the same weights), weights that are no safetensors, code, pictures.
    """
    every = sorted(names)
    kept = [name for name in every if _WANTED.fullmatch(name) and not name.startswith(".")]
    return kept, [name for name in every if name not in kept]


USD_PER_GB_MONTH = 0.023
SOURCE = (
    "list price of S3 Standard in us-east-1, first 50 TB, November 2026; other regions differ by some percent"
)
_GB = 2**30  # S3 bills binary gigabytes


def usd_per_month(size: int) -> float:
    """USD a month for ``size`` bytes in S3 Standard; incomplete uploads cost the same."""
    return size / _GB * USD_PER_GB_MONTH
