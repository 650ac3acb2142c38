"""Limits that engine arguments set on the KV cache, and weights that they move to the host. Pure.

Source: vLLM 0.32.0, ``config/cache.py``, ``config/offload.py`` and ``v1/core/kv_cache_utils.py``. A cache
that cannot hold one sequence of max_model_len ends the engine at its start.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from peagle_sm.core.catalog import InstanceEntry
from peagle_sm.core.plan.resolve import Draft

_BLOCK = 16
_UNITS = {
    **{"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12},
    **{"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40},
}
_GIB = 2**30 / 1e9


@dataclass(frozen=True)
class CacheLimit:
    """KV cache of a replica that the spec allows, in GB of 10^9 bytes, and the field that limits it.

    ``reserved``: the engine allocates all of it, whatever gpu_memory_utilization is.
    """

    field: str
    given_gb: float
    reserved: bool = False


def human_integer(text: str) -> int | None:
    """Return the whole number of vLLM's "2k" (2,000) or "2K" (2,048); None if it is not one."""
    found = re.fullmatch(r"(\d+)(\.\d+)?([kKmMgGtT])?", text.strip())
    if found is None:
        return None
    whole, fraction, unit = found.groups()
    if fraction and (unit is None or unit.isupper()):
        return None
    return (
        int(float(whole + (fraction or "")) * _UNITS[unit]) if fraction else int(whole) * _UNITS.get(unit, 1)
    )


def _given(draft: Draft, name: str) -> tuple[str, Any] | None:
    serving, variable = draft.spec.serving, f"SM_VLLM_{name.upper()}"
    if name in serving.extra_args:
        return f"serving.extra_args.{name}", serving.extra_args[name]
    return (f"serving.env.{variable}", serving.env[variable]) if variable in serving.env else None


def cache_limit(draft: Draft, tokens: int, needed_gb: float) -> CacheLimit | None:
    """Return the limit that the spec sets on the KV cache; None without one.

    Args:
        draft: the resolved spec.
        tokens: max_model_len.
        needed_gb: KV cache of one sequence of that length.
    """
    given = _given(draft, "kv_cache_memory_bytes")
    size = human_integer(str(given[1])) if given else None
    limits = []
    if given and size is not None:
        limits.append(CacheLimit(given[0], size * draft.gpus_per_replica / 1e9, reserved=True))
    given = _given(draft, "num_gpu_blocks_override")
    blocks = human_integer(str(given[1])) if given else None
    if given and blocks is not None and draft.model.attention:
        _, block = _given(draft, "block_size") or ("", _BLOCK)
        size = human_integer(str(block)) or _BLOCK
        groups = [min(tokens, group.window or tokens) for group in draft.model.attention]
        needed = sum(math.ceil(length / size) for length in groups)
        limits.append(CacheLimit(given[0], needed_gb * blocks / needed))
    return min(limits, key=lambda limit: limit.given_gb, default=None)


def offloaded_gb(draft: Draft, entry: InstanceEntry) -> float:
    """Return the weights of a replica that `cpu_offload_gb` keeps in host memory, in GB of 10^9 bytes."""
    given = _given(draft, "cpu_offload_gb")
    try:
        size = float(str(given[1])) if given and entry.gpu_count else 0.0
    except ValueError:
        return 0.0
    return max(0.0, size) * _GIB * draft.gpus_per_replica if math.isfinite(size) else 0.0
