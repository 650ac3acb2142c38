"""The target model's folder, in Hugging Face's layout: what a head for it must fit, read without torch."""

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from peagle_train import Mistake
from peagle_train.rules import TargetShape, target_shape

# transformers has no other attention for these: gpt-oss has sinks.
_EAGER = ("GptOssForCausalLM",)
_MOST_HEADER = 100 << 20
_SAMPLED = 1 << 20


@dataclass(frozen=True)
class Target(TargetShape):
    """A target with its folder."""

    folder: Path
    dtype: str | None = None
    """What the config says that the weights are stored in."""

    @property
    def attention(self) -> str:
        """The attention that transformers runs the target with."""
        return "eager" if self.architecture in _EAGER else "sdpa"


def read_target(folder: Path) -> Target:
    """Read the channel ``target``.

    Raises:
        Mistake: no head can be trained for the model in it.
    """
    config = read_config(folder, "the target")
    files = [path.name for path in folder.iterdir()]
    try:
        sizes = target_shape(config, files)
    except ValueError as error:
        raise Mistake(str(error)) from error
    return Target(**asdict(sizes), folder=folder, dtype=config.get("dtype") or config.get("torch_dtype"))


def read_config(folder: Path, whose: str) -> dict[str, Any]:
    """Read a folder's ``config.json``.

    Raises:
        Mistake: it does not exist, or is not a JSON object.
    """
    file = folder / "config.json"
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise Mistake(f"{whose} has no config.json; the folder has {_listing(folder)}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise Mistake(f"{whose}: config.json cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise Mistake(f"{whose}: config.json is not a JSON object")
    return document


def _listing(folder: Path) -> str:
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    return ", ".join(names[:5]) + (" and more" if len(names) > 5 else "") if names else "no files"


def tensors_of(file: Path) -> Mapping[str, Mapping[str, Any]]:
    """Return the header of a safetensors file: dtype and shape by tensor.

    Raises:
        Mistake: the file is cut short, or not a safetensors file.
    """
    size = file.stat().st_size
    try:
        with file.open("rb") as opened:
            length = struct.unpack("<Q", opened.read(8))[0]
            if length > min(_MOST_HEADER, size):
                raise ValueError("the header is longer than the file")
            header = json.loads(opened.read(length))
        tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
        ends = [entry["data_offsets"][1] for entry in tensors.values()]
    except (OSError, ValueError, TypeError, KeyError, AttributeError, struct.error, RecursionError) as error:
        raise Mistake(f"{file.name} cannot be read as safetensors: {error}") from error
    whole = max(ends, default=0) + 8 + length
    if whole != size:
        raise Mistake(f"{file.name} is cut short or too long: found {size} bytes, expected {whole}")
    return tensors


def fingerprint(folder: Path) -> str:
    """Return a hash that identifies a target without reading all of its files.

    Of each JSON and safetensors file: the name, the size, and the first and last MiB.
    """
    digest = hashlib.sha256()
    for file in sorted((*folder.glob("*.json"), *folder.glob("*.safetensors"))):
        size = file.stat().st_size
        digest.update(f"{file.name} {size}\n".encode())
        with file.open("rb") as opened:
            digest.update(opened.read(_SAMPLED))
            if size > _SAMPLED:
                opened.seek(max(_SAMPLED, size - _SAMPLED))
                digest.update(opened.read(_SAMPLED))
    return digest.hexdigest()
