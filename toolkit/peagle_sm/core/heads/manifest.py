"""The ``manifest.json`` of a staged prefix: what is there, where it came from, and what its head is. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from peagle_sm.core.heads.drafting import depth_faults
from peagle_sm.core.heads.fault import FileRecord, HeadFault

NAME = "manifest.json"
FORMAT = "peagle-sm/1"
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
        document = {"format": FORMAT, **asdict(self)}
        return json.dumps(document, indent=1, sort_keys=True) + "\n"


def parse_manifest(text: bytes | str) -> Manifest:
    """Read a manifest.

    Raises:
        ValueError: it is none of ours; the message says why.
    """
    try:
        data = json.loads(text)
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise ValueError(f"its format is not {FORMAT}")
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
