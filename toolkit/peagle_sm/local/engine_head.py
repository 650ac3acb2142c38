"""Looks at the draft head that an engine is about to load: a bad one would draft nonsense in silence."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from peagle_sm.core.environment import SPECULATIVE_CONFIG
from peagle_sm.core.head_check import Shape, head_faults

_LENGTH_BYTES = 8


def refused_head(environment: Mapping[str, str], root: Path) -> str | None:
    """Say why the engine must not start with its draft head; None when nothing is wrong with it.

    Args:
        environment: the container's, as CreateModel has it.
        root: the directory in which ``/opt/ml`` lies as ``opt/ml``.
    """
    try:
        wanted = json.loads(environment.get(SPECULATIVE_CONFIG, "{}"))
        head = root / str(wanted["model"]).lstrip("/")
        config = json.loads((head / "config.json").read_text())
    except (ValueError, KeyError, TypeError, OSError):
        # Not a head in a directory of ours: vLLM says what it thinks of the rest itself.
        return None
    try:
        tensors = tensor_shapes(head)
    except (OSError, ValueError) as error:
        return f"the draft head at {wanted['model']} cannot be read: {error}"
    if not tensors:
        return f"the draft head at {wanted['model']} has no weights: there is no .safetensors file in it"
    faults = head_faults(config, tensors, parallel=wanted.get("parallel_drafting") is True)
    if not faults:
        return None
    more = f" (and {len(faults) - 5} more)" if len(faults) > 5 else ""
    return f"the draft head at {wanted['model']} is not whole: {'; '.join(faults[:5])}{more}"


def tensor_shapes(directory: Path) -> dict[str, Shape]:
    """Name -> shape of every tensor in the directory's safetensors files, from their headers alone.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file is not in the safetensors format.
    """
    shapes: dict[str, Shape] = {}
    for path in sorted(directory.glob("*.safetensors")):
        for name, entry in _header(path).items():
            if name != "__metadata__":
                shapes[name] = tuple(entry["shape"])
    return shapes


def _header(path: Path) -> dict[str, Any]:
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        if not 0 < length <= size - _LENGTH_BYTES:
            raise ValueError(f"{path.name} is cut short or is no safetensors file ({size} bytes)")
        header = json.loads(file.read(length))
    if not isinstance(header, dict):
        raise ValueError(f"{path.name} has no safetensors header")
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    if size - _LENGTH_BYTES - length < max(ends, default=0):
        raise ValueError(f"{path.name} is cut short: {size} bytes")
    return header
