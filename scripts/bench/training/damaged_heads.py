"""Damaged draft heads, made by seed from a whole one: what a training that went wrong may leave behind.

Each of the six kinds has several variants, and each variant a strength that the seed draws. Two are really
trained, by the trainer's own program: for another target, and on two documents until it knows them by heart.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sagemaker_local.engine.trainer_env import train_command, train_environ

Tensors = dict[str, tuple[str, list[int], bytes]]
VARIANTS: Mapping[str, tuple[str, ...]] = {
    "truncated": ("cut",),
    "shuffled": ("all values", "half of them", "a fifth"),
    "wrong layers": ("gone", "swapped", "another number", "other outputs", "beyond the target", "renamed"),
    "untrained": ("all", "one layer", "fc"),
    "another target": ("hidden size", "trained", "vocabulary", "trained", "fc", "trained"),
    "over-trained": ("ran away", "by heart"),
}
KINDS = tuple(VARIANTS)
#: Variants that the files alone show; of the others only the measured acceptance does.
STATIC = {"cut", "gone", "another number", "beyond the target", "renamed", "hidden size", "vocabulary"}
#: Variants that need the trainer.
TRAINED = {"trained", "by heart"}


@dataclass(frozen=True)
class Damage:
    """One damaged head of a campaign."""

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
        return self.variant in STATIC or (self.kind, self.variant) == ("another target", "fc")


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
    """Write a damaged head of a variant that needs no training."""
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


def train(
    folder: Path, what: Damage, python: Path, target: Path, whole: Path, rows: Sequence[str]
) -> tuple[Path, dict[str, Any]]:
    """Train a damaged head with the trainer's program; return its folder, and how it was trained.

    ``rows`` are training rows of the real target. Another target is a copy with noise in each matrix; the
    whole head is trained for it, on its hidden states and its outputs.
    """
    chance, root = random.Random(f"{what.variant}/{what.seed}"), folder / "ml"
    data, told = root / "input" / "data", dict[str, Any]()
    hyper: dict[str, Any] = {
        "num_depths": 8,
        "sequence_length": 128,
        "micro_batch_size": 2,
        "grad_accumulation_steps": 1,
        "epochs": 1000,
        "log_every_steps": 10,
        "checkpoint_every_steps": 1000,
        "seed": what.seed,
    }
    shutil.copytree(whole, data / "head")
    shutil.copytree(target, data / "target")
    if what.variant == "trained":
        told["noise"] = chance.choice([0.1, 0.2, 0.4])
        weights = data / "target" / "model.safetensors"
        write(weights, noisy(read(weights), told["noise"], what.seed))
        told |= {"steps": chance.choice([20, 40]), "learning_rate": 1e-3, "rows": len(rows)}
    else:
        first = chance.randrange(len(rows) - 2)
        rows = rows[first : first + 2]
        told |= {"steps": chance.choice([20, 40]), "learning_rate": chance.choice([3e-3, 1e-2]), "rows": 2}
    hyper |= {"max_steps": told["steps"], "learning_rate": told["learning_rate"]}
    (data / "training").mkdir()
    (data / "training" / "part.tokens.jsonl").write_text("".join(f"{row}\n" for row in rows))
    config = root / "input" / "config"
    config.mkdir()
    (config / "hyperparameters.json").write_text(json.dumps({k: str(v) for k, v in hyper.items()}))
    # More threads than cores that are free take many times longer a step.
    given = {"PATH": os.environ["PATH"], "HOME": str(root), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        train_command(python), env=train_environ(given, root), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(
            f"the trainer ended with {done.returncode}: {done.stdout[-500:]} {done.stderr[-500:]}"
        )
    (root / "model" / "training.json").unlink()  # a head of other data than the newest set is refused before
    lines = [line for line in done.stdout.splitlines() if " step=" in line and "loss=" in line]
    return root / "model", {**told, "first": lines[0], "last": lines[-1]}
