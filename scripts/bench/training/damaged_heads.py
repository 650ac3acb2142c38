"""Damaged draft heads, made by seed from a whole one: what a training that went wrong may leave behind."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Tensors = dict[str, tuple[str, list[int], bytes]]
KINDS = ("truncated", "shuffled", "wrong layers", "untrained", "another target", "over-trained")
#: What the files alone show; of the others only the measured acceptance does.
STATIC = ("truncated", "wrong layers", "another target")


def read(path: Path) -> Tensors:
    """Read a safetensors file."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    return {
        name: (each["dtype"], each["shape"], data[slice(*each["data_offsets"])])
        for name, each in header.items()
        if name != "__metadata__"
    }


def write(path: Path, tensors: Tensors) -> None:
    """Write a safetensors file."""
    header, parts, at = dict[str, Any](), list[bytes](), 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        parts.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(parts))


def as_floats(data: bytes) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return bfloat16 values as float32."""
    return (np.frombuffer(data, dtype="<u2").astype(np.uint32) << 16).view(np.float32)


def as_bytes(values: np.ndarray[Any, Any]) -> bytes:
    """Return float32 values as bfloat16, cut."""
    return (values.astype(np.float32).view(np.uint32) >> 16).astype("<u2").tobytes()


def changed(tensors: Tensors, change: Callable[[str, Any], Any]) -> Tensors:
    """Change the values of every matrix."""
    return {
        name: (dtype, shape, as_bytes(change(name, as_floats(data))))
        if len(shape) > 1
        else (dtype, shape, data)
        for name, (dtype, shape, data) in tensors.items()
    }


def noisy(tensors: Tensors, share: float, seed: int) -> Tensors:
    """Add noise of a share of each matrix's deviation: a head that a training can repair."""
    rng = np.random.default_rng(seed)
    return changed(tensors, lambda _, values: values + rng.normal(0, share * values.std(), values.shape))


def damage(
    kind: str, seed: int, config: dict[str, Any], tensors: Tensors
) -> tuple[dict[str, Any], Tensors, int]:
    """Damage a head in one way; return its config and tensors, and how many bytes to cut from its file."""
    chance, rng = random.Random(f"{kind}/{seed}"), np.random.default_rng(seed)
    if kind == "truncated":
        return config, tensors, chance.randint(1, 9_000_000)
    if kind == "shuffled":
        return config, changed(tensors, lambda _, values: rng.permutation(values)), 0
    if kind == "untrained":
        return config, changed(tensors, lambda _, values: rng.normal(0, 0.02, values.shape)), 0
    if kind == "over-trained":
        # Weights that ran away: one output wins whatever the input is.
        return config, changed(tensors, lambda _, values: values * chance.uniform(20, 200)), 0
    if kind == "wrong layers":
        how = chance.randrange(4)
        if how == 0:
            gone = chance.choice([name for name in tensors if name.startswith(("layers.1.", "midlayer."))])
            return config, {name: each for name, each in tensors.items() if name != gone}, 0
        if how == 1:
            return {**config, "num_hidden_layers": chance.choice([1, 3, 4])}, tensors, 0
        if how == 2:
            ids = [chance.randint(7, 40), *chance.sample(range(1, 6), 2)]
            eagle = {**config["eagle_config"], "eagle_aux_hidden_state_layer_ids": ids}
            return {**config, "eagle_aux_hidden_state_layer_ids": ids, "eagle_config": eagle}, tensors, 0
        renamed = {
            name.replace("layers.1.", f"layers.{chance.randint(2, 9)}."): each
            for name, each in tensors.items()
        }
        return config, renamed, 0
    assert kind == "another target"
    how = chance.randrange(3)
    if how == 0:
        return {**config, "target_hidden_size": chance.choice([128, 512, 1024])}, tensors, 0
    if how == 1:
        size = chance.choice([4096, 32_000, 151_936])
        return {**config, "vocab_size": size, "draft_vocab_size": size}, tensors, 0
    wide = {**tensors, "fc.weight": ("BF16", [256, 1536], bytes(256 * 1536 * 2))}
    return {**config, "target_hidden_size": 512}, wide, 0


def make(folder: Path, kind: str, seed: int, config: dict[str, Any], tensors: Tensors) -> Path:
    """Write a damaged head."""
    folder.mkdir(parents=True, exist_ok=True)
    told, values, cut = damage(kind, seed, config, tensors)
    (folder / "config.json").write_text(json.dumps(told))
    path = folder / "model.safetensors"
    write(path, values)
    if cut:
        content = path.read_bytes()
        path.write_bytes(content[:-cut])
    return folder
