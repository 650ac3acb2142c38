"""The target model's folder, in Hugging Face's layout: what a head for it must fit, read without torch."""

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peagle_train import Mistake

ARCHITECTURES = (
    "LlamaForCausalLM",
    "Phi3ForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
    "GptOssForCausalLM",
    "Gemma4ForConditionalGeneration",
)
"""The targets whose heads the library trains and vLLM's Llama head can serve."""
# transformers has no other attention for these: gpt-oss has sinks.
_EAGER = ("GptOssForCausalLM",)
_MOST_HEADER = 100 << 20
_SAMPLED = 1 << 20


@dataclass(frozen=True)
class Target:
    """What is known of a target from its ``config.json``; of a multimodal one, its text part."""

    folder: Path
    architecture: str
    hidden: int
    layers: int
    vocab: int
    longest: int
    heads: int

    @property
    def attention(self) -> str:
        """The attention that transformers runs the target with."""
        return "eager" if self.architecture in _EAGER else "sdpa"


def read_target(folder: Path) -> Target:
    """Read the channel ``target``.

    Raises:
        Mistake: it holds no model that a head can be trained for.
    """
    config = read_config(folder, "the target")
    architecture = next(iter(config.get("architectures") or ["none"]))
    if architecture not in ARCHITECTURES:
        raise Mistake(f"the target's architecture is {architecture}; allowed: {', '.join(ARCHITECTURES)}")
    inner = config.get("text_config")
    text = inner if isinstance(inner, dict) else config
    names = (
        "hidden_size",
        "num_hidden_layers",
        "vocab_size",
        "max_position_embeddings",
        "num_attention_heads",
    )
    sizes = [text.get(name) for name in names]
    for name, value in zip(names, sizes, strict=True):
        if type(value) is not int or value < 1:
            raise Mistake(f"the target's config.json: {name} is {value!r}; allowed: a whole number above 0")
    if not any(folder.glob("*.safetensors")):
        raise Mistake("the channel target has no *.safetensors; give the folder of the model's weights")
    if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json")):
        raise Mistake("the channel target has no tokenizer.json; give the model's whole folder")
    return Target(folder, architecture, *sizes)  # type: ignore[arg-type]


def read_config(folder: Path, whose: str) -> dict[str, Any]:
    """Read a folder's ``config.json``.

    Raises:
        Mistake: there is none, or it is no JSON object.
    """
    file = folder / "config.json"
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise Mistake(f"{whose} has no config.json; the folder has {_listing(folder)}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise Mistake(f"{whose}: config.json cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise Mistake(f"{whose}: config.json is no JSON object")
    return document


def _listing(folder: Path) -> str:
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    return ", ".join(names[:5]) + (" and more" if len(names) > 5 else "") if names else "no files"


def tensors_of(file: Path) -> Mapping[str, Mapping[str, Any]]:
    """Return the header of a safetensors file: dtype and shape by tensor.

    Raises:
        Mistake: the file is cut short or no safetensors file.
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
    """Return a hash that tells one target from another without reading all of it.

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
