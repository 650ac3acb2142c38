"""Inputs of the engine's settings: the target's config, and the CPU's dtypes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

_CPU_INFO = Path("/proc/cpuinfo")
#: The flag of processors that multiply bfloat16 by themselves and were seen to give every mode the same
#: greedy answers: AMD's without AMX, and Intel's with it (docs/explanation/engine.md). Arm's ``bf16`` has not
#: been tried.
_NATIVE_BFLOAT16 = "avx512_bf16"


@dataclass(frozen=True)
class ModelFacts:
    """``context``: tokens that the target was made for, if its config says; ``dtype`` to compute it in."""

    context: int | None
    dtype: str


def read_model(model: Path, cpu_info: Path = _CPU_INFO) -> ModelFacts:
    """Read the target's config; a missing or unreadable config gives no facts.

    A target stored in bfloat16 is computed in it where the processor can, which takes a quarter less time a
    step; anything else in float32, which every CPU supports.
    """
    try:
        config = json.loads((model / "config.json").read_text())
    except (OSError, ValueError):
        config = None
    if not isinstance(config, dict):
        return ModelFacts(None, "float32")
    context = config.get("max_position_embeddings")
    stored = config.get("dtype") or config.get("torch_dtype")
    short = stored == "bfloat16" and _computes_bfloat16(cpu_info)
    return ModelFacts(context if isinstance(context, int) else None, "bfloat16" if short else "float32")


def _computes_bfloat16(cpu_info: Path) -> bool:
    try:
        lines = cpu_info.read_text().splitlines()
    except OSError:
        return False
    for line in lines:
        name, _, values = line.partition(":")
        if name.strip().lower() in ("flags", "features"):
            return _NATIVE_BFLOAT16 in values.split()
    return False
