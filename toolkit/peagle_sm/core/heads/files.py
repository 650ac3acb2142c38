"""The files beside the weights: nothing that runs code, every shard that the index names, a licence. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from peagle_sm.core.heads.fault import HeadFault

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
