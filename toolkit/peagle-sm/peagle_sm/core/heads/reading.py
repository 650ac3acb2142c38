"""Reading of a head's folder: configs, headers, manifest. Pure.

The caller's function reads byte ranges of files: of a head on the hub or in S3 only some hundred kilobytes,
of one on this machine also its weights. ``manifest.json`` of a staged prefix lists its files, their origin,
and facts about its head. This module also checks the files: no code, all shards of the index, a licence.
"""

from __future__ import annotations

import json
import re
import sys
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from pydantic import TypeAdapter

from peagle_sm.core.heads.layout import FileRecord, depth_faults
from peagle_sm.core.heads.weights import (
    LENGTH_BYTES,
    TO_DRAFT,
    TO_TARGET,
    HeaderFault,
    Tensor,
    header_length,
    parse_header,
)
from peagle_sm.core.spec.modes import Mode, facts_of
from peagle_sm.core.words import Finding, error_finding

REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
COMMIT = re.compile(r"[0-9a-f]{40}")
"""A commit hash, the only revision name that does not move."""


CONFIG, INDEX, CARD = "config.json", "model.safetensors.index.json", "README.md"
MAX_TEXT_BYTES = 50_000_000
"""Maximum bytes of a config, an index or a model card."""
PICKLES = frozenset(
    {".bin", ".ckpt", ".h5", ".joblib", ".msgpack", ".npy", ".npz", ".pickle", ".pkl", ".pt", ".pth"}
)
CODE = frozenset({".dll", ".exe", ".py", ".pyc", ".pyd", ".sh", ".so"})
CONFIGS_WITH_CODE = (CONFIG, "tokenizer_config.json", "generation_config.json", "processor_config.json")
_LICENCE_FILE = re.compile(r"(licen[cs]e|copying)(\..*)?$", re.IGNORECASE)
_LICENCE_LINE = re.compile(r"^licen[cs]e:\s*[\"']?([^\s\"'#]+)", re.MULTILINE)


def file_faults(sizes: Mapping[str, int]) -> Iterator[Finding]:
    """Yield faults of forbidden files and missing weights."""
    for name in sorted(sizes):
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            yield error_finding("files", f"the path of {name!r} is outside the head's folder")
        elif path.suffix.lower() in CODE:
            yield error_finding("remote-code", f"{name} is code; allowed: weights and configs", _TAKE_OUT)
        elif path.suffix.lower() in PICKLES:
            yield error_finding(
                "pickle", f"{name} can run code when it is loaded; allowed: safetensors", _TAKE_OUT
            )
    if not shards(sizes):
        yield error_finding("weights-missing", "it has no .safetensors file")


_TAKE_OUT = "Remove the file, or use another head."


def shards(sizes: Mapping[str, int]) -> list[str]:
    """Return the folder's own safetensors files; vLLM reads no others."""
    return sorted(name for name in sizes if name.endswith(".safetensors") and "/" not in name)


def code_faults(name: str, config: Any, files: Collection[str] = ()) -> Iterator[Finding]:
    """Yield a fault for an ``auto_map`` that names code: a file of the folder, or another repository.

    The `speculators` library writes an auto_map with an empty key and no file into each head. Transformers
    has nothing to load for it.
    """
    table = config.get("auto_map") if isinstance(config, Mapping) else None
    if not table:
        return
    values = table.values() if isinstance(table, Mapping) else [table]
    classes = [
        reference
        for value in values
        for reference in (value if isinstance(value, list) else [value])
        if reference
    ]
    for value in classes:
        module = str(value).rpartition(".")[0].replace(".", "/")
        if not isinstance(value, str) or "--" in value or f"{module}.py" in files:
            yield error_finding(
                "remote-code", f"{name} has an auto_map that names code: {value}", "Use another head."
            )


def index_faults(index: Any, tensors: Mapping[str, str], sizes: Mapping[str, int]) -> Iterator[Finding]:
    """Compare the index with the files; ``tensors`` maps names to files."""
    table = index.get("weight_map") if isinstance(index, Mapping) else None
    if not isinstance(table, Mapping):
        yield error_finding("index", f"{INDEX} has no weight_map")
        return
    for file in sorted({str(each) for each in table.values()}):
        if file not in sizes:
            yield error_finding(
                "index", f"{INDEX} lists {file}, which does not exist", "Download the head again."
            )
    for name, file in table.items():
        if str(file) in sizes and tensors.get(name) != file:
            yield error_finding("index", f"{INDEX} lists {name} in {file}, which does not contain it")
            return
    unlisted = sorted(set(tensors) - set(table))
    if unlisted:
        yield error_finding("index", f"{INDEX} does not list {unlisted[0]}: vLLM may silently leave it out")


def licence_of(sizes: Mapping[str, int], card: str | None) -> str | None:
    """Return the licence in the model card, else the licence file's name, else None."""
    if card and card.startswith("---"):
        match = _LICENCE_LINE.search(card.split("\n---", 1)[0])
        if match:
            return match[1].lower()
    return next((name for name in sorted(sizes) if _LICENCE_FILE.fullmatch(name)), None)


def read_json(text: bytes, name: str) -> Any:
    """Parse a JSON file of the head.

    Raises:
        ValueError: it is not JSON; the message has the file's name.
    """
    try:
        return json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} is not JSON: {error}") from error


Read = Callable[[str, int, int], bytes]
"""Reader of a file's byte range: name, start, length."""
MAX_MAP_BYTES = 64_000_000
_ARRAYS = {"I64": "q", "I32": "i", "U8": "B", "I8": "b", "BOOL": "B"}
_FIRST_BYTES = 64 * 1024  # most headers fit, so one read finds them


@dataclass(frozen=True)
class Folder:
    """A folder anywhere: file sizes, a reader of byte ranges, sha256 if known.

    ``near`` is True on this machine, where all bytes can be read at no cost.
    """

    place: str
    sizes: Mapping[str, int]
    read: Read
    sha256: Mapping[str, str] = field(default_factory=dict)
    revision: str | None = None
    licence: str | None = None
    near: bool = False

    def text(self, name: str) -> bytes | None:
        """Return a small file's content; None if it does not exist.

        Raises:
            ValueError: the file is too large.
        """
        size = self.sizes.get(name)
        if size is None:
            return None
        if size > MAX_TEXT_BYTES:
            raise ValueError(f"{name} is too large: {size} bytes")
        return self.read(name, 0, size)

    def only(self, names: Iterable[str]) -> Folder:
        """Return the same folder with only these files."""
        return replace(self, sizes={name: self.sizes[name] for name in names})

    def records(self) -> tuple[FileRecord, ...]:
        """Return its files, sorted by name."""
        return tuple(FileRecord(n, size, self.sha256.get(n)) for n, size in sorted(self.sizes.items()))


@dataclass(frozen=True)
class Contents:
    """Content that was read: config (or None), tensors by name, vocabulary maps."""

    config: Mapping[str, Any] | None
    tensors: Mapping[str, Tensor]
    values: Mapping[str, Sequence[int]]
    licence: str | None
    faults: tuple[Finding, ...]


def read_contents(folder: Folder) -> Contents:
    """Read a folder; the result includes the faults of its files.

    Raises:
        OSError: whatever the folder's ``read`` raises.
    """
    faults = list(file_faults(folder.sizes))
    texts = {name: _json(folder, name, faults) for name in (*CONFIGS_WITH_CODE, INDEX)}
    for name in CONFIGS_WITH_CODE:
        faults += code_faults(name, texts[name], folder.sizes)
    config = texts[CONFIG]
    if CONFIG not in folder.sizes:
        faults.append(error_finding("config", "it has no config.json"))
    elif not isinstance(config, Mapping):
        faults.append(error_finding("config", "config.json is not a JSON object"))
    tensors = _tensors(folder, faults)
    if texts[INDEX] is not None:
        faults += index_faults(texts[INDEX], {n: each.file for n, each in tensors.items()}, folder.sizes)
    values = {n: _values(folder, tensors[n]) for n in (TO_TARGET, TO_DRAFT) if _is_map(tensors.get(n))}
    licence = folder.licence or licence_of(folder.sizes, _card(folder))
    if licence is None:
        faults.append(Finding("warning", "neither its model card nor a file has a licence", check="licence"))
    return Contents(config if isinstance(config, Mapping) else None, tensors, values, licence, tuple(faults))


def _json(folder: Folder, name: str, faults: list[Finding]) -> Any:
    try:
        text = folder.text(name)
        return None if text is None else read_json(text, name)
    except ValueError as error:
        faults.append(error_finding("config", str(error)))
        return None


def _card(folder: Folder) -> str | None:
    try:
        text = folder.text(CARD)
    except ValueError:
        return None
    return None if text is None else text.decode("utf-8", errors="replace")


def _tensors(folder: Folder, faults: list[Finding]) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for name in shards(folder.sizes):
        try:
            header = read_header(folder, name)
        except HeaderFault as error:
            faults.append(error_finding("header", str(error), "Download the file again."))
            continue
        for twice in sorted(tensors.keys() & header.keys()):
            message = f"{twice} is in {tensors[twice].file} and in {name}"
            faults.append(error_finding("index", message))
        tensors |= header
    return tensors


def read_header(folder: Folder, name: str) -> dict[str, Tensor]:
    """Read one safetensors file's header.

    Raises:
        HeaderFault: the file is incomplete, or not a safetensors file.
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
    values = array(_ARRAYS[tensor.dtype])
    values.frombytes(folder.read(tensor.file, tensor.start, tensor.end - tensor.start))
    if sys.byteorder == "big":
        values.byteswap()
    return values


MANIFEST = "manifest.json"
MANIFEST_FORMAT = "peagle-sm/1"
HEAD_FOLDER = "p-eagle/"
"""Folder of the head below its target's prefix; in the engine: /opt/ml/model/p-eagle."""


@dataclass(frozen=True)
class ManifestPart:
    """A staged target or head: repository or path, commit, licence and folder."""

    source: str
    revision: str | None
    licence: str | None
    folder: str = ""


@dataclass(frozen=True)
class HeadFacts:
    """Facts about a staged head, from its check before the staging."""

    format: str
    method: str
    trained_k: int | None
    vocab_size: int
    target_hidden_size: int
    context: int | None = None
    vllm: str | None = None


@dataclass(frozen=True)
class Manifest:
    """Manifest of a staged prefix; ``files`` are relative to it."""

    tool_version: str
    files: tuple[FileRecord, ...]
    model: str | None = None
    target: ManifestPart | None = None
    head: ManifestPart | None = None
    head_facts: HeadFacts | None = None
    #: Of a head that `peagle-sm learn` trained: data, target, recipe, job, proof, promotion.
    lineage: Mapping[str, Any] | None = None

    def to_json(self) -> str:
        """Return the file's text; the same staging gives the same bytes."""
        document = {"format": MANIFEST_FORMAT, **asdict(self)}
        if self.lineage is None:
            del document["lineage"]
        return json.dumps(document, indent=1, sort_keys=True) + "\n"


def parse_manifest(text: bytes | str) -> Manifest:
    """Parse a manifest.

    Raises:
        ValueError: it is not a manifest of peagle-sm; the message has the reason.
    """
    try:
        data = json.loads(text)
        if not isinstance(data, dict) or data.get("format") != MANIFEST_FORMAT:
            raise ValueError(f"expected format {MANIFEST_FORMAT}")
        return TypeAdapter(Manifest).validate_python(data)
    except (ValueError, RecursionError) as error:  # pydantic's and json's are ValueErrors
        raise ValueError(f"it is not a manifest of peagle-sm: {error!r}") from error


def manifest_faults(
    manifest: Manifest,
    sizes: Mapping[str, int],
    *,
    model: str,
    mode: Mode,
    num_speculative_tokens: int | None,
) -> Iterator[Finding]:
    """Compare a spec with a manifest, and the manifest with the files (``sizes``)."""
    for file in manifest.files:
        if file.name not in sizes:
            yield error_finding("files", f"{file.name} of the manifest does not exist", _AGAIN)
        elif sizes[file.name] != file.size:
            size = sizes[file.name]
            message = f"{file.name} has {size} bytes; the manifest has {file.size}"
            yield error_finding("files", message, _AGAIN)
    if manifest.model is not None and manifest.model != model:
        yield error_finding(
            "target-size", f"it was staged for model {manifest.model}; the spec has {model}", _OTHER
        )
    facts = manifest.head_facts
    if facts is None:
        yield error_finding("files", "the staged files do not include a head", _OTHER)
        return
    if facts.method != mode:
        yield error_finding("method", f"it is a {facts.method} head; the spec has mode {mode}", _OTHER)
    elif num_speculative_tokens is not None:
        parallel = facts_of(mode).one_pass
        yield from depth_faults(num_speculative_tokens, facts.trained_k, parallel=parallel)


_AGAIN = "Stage it again: `peagle-sm heads stage`."
_OTHER = "Set head_uri to the prefix of the right head."


_WANTED = re.compile(
    r"[^/]+\.(safetensors|json|jinja|txt|model|tiktoken|md)|(LICENSE|NOTICE|USAGE_POLICY)[^/]*"
)


def selected(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Split a target's files into needed files and files to leave out.

    Left out: folders (other formats of the same weights), weights other than safetensors, code, pictures.
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
    """Return USD per month for ``size`` bytes in S3, also of incomplete uploads."""
    return size / _GB * USD_PER_GB_MONTH
