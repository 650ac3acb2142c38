"""Damaged draft heads, made from a whole one: what a training that went wrong may leave behind."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Tensors = dict[str, tuple[str, list[int], bytes]]
WEIGHTS = "model.safetensors"


def read(path: Path) -> Tensors:
    """Read a safetensors file."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    return {
        name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])])
        for name, entry in header.items()
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


def changed(tensors: Tensors, change: Callable[[Any], Any]) -> Tensors:
    """Change the values of every matrix, which are bfloat16, as float32."""

    def change_bytes(data: bytes) -> bytes:
        values = (np.frombuffer(data, dtype="<u2").astype(np.uint32) << 16).view(np.float32)
        return bytes((change(values).astype(np.float32).view(np.uint32) >> 16).astype("<u2").tobytes())

    return {
        name: (dtype, shape, change_bytes(data) if len(shape) > 1 else data)
        for name, (dtype, shape, data) in tensors.items()
    }


def noisy(tensors: Tensors, share: float, seed: int) -> Tensors:
    """Add noise of a share of each matrix's deviation: a head that a training can repair."""
    rng = np.random.default_rng(seed)
    return changed(tensors, lambda values: values + rng.normal(0, share * values.std(), values.shape))


def store_truncated(folder: Path, whole: Path) -> Path:
    """Copy a head whose weights are cut short, which its files show."""
    shutil.copytree(whole, folder)
    content = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(content[:-1_000_000])
    return folder


def store_overtrained(folder: Path, whole: Path) -> Path:
    """Copy a head whose weights ran away: one output wins for any input, which only a measurement shows."""
    shutil.copytree(whole, folder)
    write(folder / WEIGHTS, changed(read(folder / WEIGHTS), lambda values: values * 100))
    return folder
