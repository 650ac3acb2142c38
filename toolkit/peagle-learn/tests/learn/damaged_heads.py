"""Damaged draft heads, made by seed from a whole one: what a training that went wrong may leave behind.

Each of the six kinds has variants, and the seed draws the strength of each. The recorded campaign
(docs/reference/learn-safety.md) had two more, which were really trained.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Tensors = dict[str, tuple[str, list[int], bytes]]
VARIANTS: Mapping[str, tuple[str, ...]] = {
    "truncated": ("cut",),
    "shuffled": ("all values", "half of them", "a fifth"),
    "wrong layers": ("gone", "swapped", "another number", "other outputs", "beyond the target", "renamed"),
    "untrained": ("all", "one layer", "fc"),
    "another target": ("hidden size", "vocabulary", "wide fc"),
    "over-trained": ("ran away",),
}
KINDS = tuple(VARIANTS)
#: Variants that the files alone show; the others show in the measured acceptance only.
STATIC = {
    "cut",
    "gone",
    "another number",
    "beyond the target",
    "renamed",
    "hidden size",
    "vocabulary",
    "wide fc",
}


@dataclass(frozen=True)
class Damage:
    """How one head is damaged."""

    seed: int
    kind: str
    variant: str

    @classmethod
    def of(cls, seed: int) -> Damage:
        """Return the damage of a seed: the kinds in turn, and their variants in turn."""
        kind = KINDS[seed % len(KINDS)]
        variants = VARIANTS[kind]
        return cls(seed, kind, variants[seed // len(KINDS) % len(variants)])

    @property
    def is_static(self) -> bool:
        """Whether the head's files show it."""
        return self.variant in STATIC


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


def damage(what: Damage, config: dict[str, Any], tensors: Tensors) -> tuple[dict[str, Any], Tensors, int]:
    """Damage a head; return its config and tensors, and how many bytes to cut from its file."""
    chance = random.Random(f"{what.kind}/{what.seed}")
    rng = np.random.default_rng(what.seed)
    match what.kind:
        case "truncated":
            return config, tensors, chance.randint(1, 9_000_000)
        case "shuffled":
            share = {"all values": 1.0, "half of them": 0.5, "a fifth": 0.2}[what.variant]
            return config, changed(tensors, lambda _, values: _shuffled(values, share, rng)), 0
        case "untrained":
            part = {"all": "", "one layer": chance.choice(["layers.1.", "midlayer."]), "fc": "fc."}
            begin = part[what.variant]

            def fresh(name: str, values: Any) -> Any:
                return rng.normal(0, 0.02, values.shape) if name.startswith(begin) else values

            return config, changed(tensors, fresh), 0
        case "over-trained":
            # Weights that ran away: one output wins whatever the input is.
            return config, changed(tensors, lambda _, values: values * chance.uniform(20, 200)), 0
        case "wrong layers":
            return (*_wrong_layers(what.variant, chance, config, tensors), 0)
        case _:
            return (*_another_target(what.variant, chance, config, tensors), 0)


def _shuffled(values: Any, share: float, rng: np.random.Generator) -> Any:
    places = rng.permutation(values.size)[: int(share * values.size)]
    mixed = values.copy()
    mixed[places] = values[rng.permutation(places)]
    return mixed


def _wrong_layers(
    how: str, chance: random.Random, config: dict[str, Any], tensors: Tensors
) -> tuple[dict[str, Any], Tensors]:
    second = {name for name in tensors if name.startswith("layers.1.")}
    if how == "gone":
        gone = chance.choice(sorted(name for name in tensors if name.startswith(("layers.1.", "midlayer."))))
        return config, {name: each for name, each in tensors.items() if name != gone}
    if how == "another number":
        return {**config, "num_hidden_layers": chance.choice([1, 3, 4])}, tensors
    if how == "renamed":
        other = f"layers.{chance.randint(2, 9)}."
        return config, {name.replace("layers.1.", other): each for name, each in tensors.items()}
    if how == "swapped":  # of the two layers, what has the same shape in both
        pairs = {name: name.replace("layers.1.", "midlayer.") for name in second}
        same = {one: two for one, two in pairs.items() if tensors[one][1] == tensors[two][1]}
        chosen = chance.sample(sorted(same), chance.randint(4, len(same)))
        same = {one: same[one] for one in chosen}
        both = same | {two: one for one, two in same.items()}
        return config, {name: tensors[both.get(name, name)] for name in tensors}
    true = config["eagle_aux_hidden_state_layer_ids"]
    ids = [chance.randint(7, 40), *chance.sample(range(1, 6), 2)]
    while how == "other outputs":
        ids = sorted(chance.sample(range(1, 7), 3))
        if len(set(ids) & set(true)) < 2:
            break
    eagle = {**config["eagle_config"], "eagle_aux_hidden_state_layer_ids": ids}
    return {**config, "eagle_aux_hidden_state_layer_ids": ids, "eagle_config": eagle}, tensors


def _another_target(
    how: str, chance: random.Random, config: dict[str, Any], tensors: Tensors
) -> tuple[dict[str, Any], Tensors]:
    if how == "hidden size":
        return {**config, "target_hidden_size": chance.choice([128, 512, 1024])}, tensors
    if how == "vocabulary":
        size = chance.choice([4096, 32_000, 151_936])
        return {**config, "vocab_size": size, "draft_vocab_size": size}, tensors
    wide = {**tensors, "fc.weight": ("BF16", [256, 1536], bytes(256 * 1536 * 2))}
    return {**config, "target_hidden_size": 512}, wide


def make(folder: Path, what: Damage, whole: Path) -> Path:
    """Write a damaged head."""
    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads((whole / "config.json").read_text())
    told, values, cut = damage(what, config, read(whole / "model.safetensors"))
    (folder / "config.json").write_text(json.dumps(told))
    path = folder / "model.safetensors"
    write(path, values)
    if cut:
        content = path.read_bytes()
        path.write_bytes(content[:-cut])
    return folder
