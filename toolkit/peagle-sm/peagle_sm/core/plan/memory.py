"""Memory fit of a model on an instance, and component requirements.

One replica needs memory for weights, draft head and KV cache; `memory_fit` computes the sum. An endpoint
that may scale to zero hosts its model as an inference component, which has compute requirements.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from peagle_sm.core.catalog import FLOAT32, GPU_OVERHEAD_GB, GPU_SHARE, InstanceEntry, kv_cache_gb
from peagle_sm.core.plan.resolve import Draft

HOST_OVERHEAD_GB = 1.5
"""Memory of a local engine's processes; measured 1.35 with a stand-in's cache: docs/explanation/engine.md."""
_SHARE_VARIABLE = "SM_VLLM_GPU_MEMORY_UTILIZATION"


@dataclass(frozen=True)
class MemoryFit:
    """Memory fit of one replica in GB of 10^9 bytes; ``lines`` shows the sum, ``place`` where it runs."""

    weights_gb: float
    head_gb: float
    kv_cache_gb: float
    overhead_gb: float
    available_gb: float
    fits: bool
    lines: tuple[str, ...]
    limit: CacheLimit | None = None
    head_estimated: bool = False
    place: str = ""

    @property
    def free_gb(self) -> float:
        """Memory beside weights and head."""
        return self.available_gb - self.weights_gb - self.head_gb


@dataclass(frozen=True)
class _Room:
    available_gb: float
    overhead_gb: float
    place: str
    lines: tuple[str, ...]


def _size(gb: float) -> str:
    """Format a size with two decimals; small sizes in MB, to avoid 0.00 GB."""
    return f"{gb * 1000:8.2f} MB" if 0 < gb < 0.1 else f"{gb:8.2f} GB"


def unknown_facts(draft: Draft) -> tuple[str, ...]:
    """Return the names of missing facts that the sum needs."""
    missing = []
    if draft.model.weights_gb is None:
        missing.append(f"weight size of {draft.spec.model_name}")
    if draft.model.attention is None:
        missing.append(f"attention layout of {draft.spec.model_name}")
    if draft.max_model_len is None:
        missing.append("max_model_len")
    missing += [f"memory of {name}" for name in draft.instance_types if draft.instance(name) is None]
    return tuple(missing)


def _gpu_share(draft: Draft) -> float:
    serving = draft.spec.serving
    given = serving.env.get(_SHARE_VARIABLE, serving.extra_args.get("gpu_memory_utilization", GPU_SHARE))
    try:
        share = float(str(given))
    except ValueError:
        return GPU_SHARE
    return share if 0 < share <= 1 else GPU_SHARE


def _room(draft: Draft, name: str, entry: InstanceEntry) -> _Room:
    if entry.gpu_count == 0:
        memory = entry.host_memory_gb or 0.0
        return _Room(
            memory,
            HOST_OVERHEAD_GB,
            f"{memory:g} GB, host memory of {name}",
            (
                f"overhead     {HOST_OVERHEAD_GB:8.2f} GB  engine processes on a CPU, measured",
                f"available    {memory:8.2f} GB  host memory of {name}",
            ),
        )
    gpus = draft.gpus_per_replica
    total = gpus * entry.gpu_memory_gb
    share = _gpu_share(draft)
    overhead = gpus * GPU_OVERHEAD_GB + (1 - share) * total
    place = f"{gpus} x {entry.gpu_memory_gb:g} GB ({entry.gpu}) of {name}"
    return _Room(
        total,
        overhead,
        place,
        (
            f"overhead     {overhead:8.2f} GB  {1 - share:.0%} that vLLM keeps free + "
            f"{GPU_OVERHEAD_GB:g} GB a GPU for activations (assumed)",
            f"available    {total:8.2f} GB  {place}",
        ),
    )


def _fit_on(draft: Draft, name: str, entry: InstanceEntry) -> MemoryFit:
    model = draft.model
    tokens = draft.max_model_len or 0
    offloaded = offloaded_gb(draft, entry)
    weights = max(0.0, (model.weights_gb or 0.0) - offloaded)
    # the local engine, on a CPU, ignores the setting
    dtype = draft.spec.serving.kv_cache_dtype if entry.gpu_count else None
    cache = kv_cache_gb(model.attention or (), tokens, dtype, draft.spec.serving.tensor_parallel_size)
    if _computes_in_float32(draft, entry):
        weights *= 2
        cache *= 2 if dtype in (None, "auto") else 1
    head = draft.head_size.gb
    room = _room(draft, name, entry)
    spare = room.available_gb - room.overhead_gb - weights - head
    limit = cache_limit(draft, tokens, cache)
    if limit is not None:
        spare = min(spare, limit.given_gb)
    reserved = limit.given_gb if limit and limit.reserved else 0.0
    fits = spare >= cache and reserved <= room.available_gb - weights - head
    sequences = f"{spare / cache:.0f}" if fits and cache > 0 else "0"
    aside = " (the drafter's own cache is not counted)" if draft.mode_facts.has_weights else ""
    lines = (
        f"weights      {_size(weights)}  {model.title}"
        + (f"; {offloaded:g} GB more in host memory" if offloaded else ""),
        f"draft head   {_size(head)}  "
        + (
            f"{draft.head_id or 'head'}: {draft.head_size.how}"
            if draft.head_size.how
            else draft.head_id or ("inside the target" if draft.drafts_inside_target else "none")
        ),
        f"KV cache     {_size(cache)}  one sequence of {tokens} tokens{aside}",
        *room.lines,
        *([f"cache limit  {_size(limit.given_gb)}  {limit.field}"] if limit else []),
        f"left         {_size(spare - cache)}  "
        + (f"fits: room for {sequences} sequences of full length" if fits else "does not fit"),
    )
    return MemoryFit(
        weights_gb=weights,
        head_gb=head,
        kv_cache_gb=round(cache, 4),
        overhead_gb=round(room.overhead_gb, 4),
        available_gb=room.available_gb,
        fits=fits,
        lines=lines,
        place=room.place,
        limit=limit,
        head_estimated=head > 0 and bool(draft.head_size.how),
    )


def _computes_in_float32(draft: Draft, entry: InstanceEntry) -> bool:
    """Return whether the engine holds 4 bytes a number where the model's entry counts 2.

    On a GPU vLLM does so only if the spec's dtype says it: with auto it loads float32 files with 16 bits
    (vLLM 0.32.0: config/model.py, _resolve_auto_dtype). The local engine, on a CPU, keeps float32.
    """
    if draft.model.number_type is None:
        return False
    if entry.gpu_count == 0:
        return draft.model.number_type in FLOAT32
    dtype = draft.argument("dtype")
    return dtype is not None and dtype[1] in FLOAT32


def memory_fit(draft: Draft) -> MemoryFit | None:
    """Return the memory fit on the smallest instance type; None without all facts."""
    if unknown_facts(draft):
        return None
    fits = [_fit_on(draft, name, entry) for name in draft.instance_types if (entry := draft.instance(name))]
    return min(fits, key=lambda fit: fit.available_gb - fit.overhead_gb, default=None)


_HOST_SHARE = 0.6
_GPU_HOST_MB = 8192
_MB_PER_GB = 1000


def compute_requirements(draft: Draft) -> dict[str, Any]:
    """Return one copy's compute requirements: GPUs, or else most of the memory.

    SageMaker places as many copies on an instance as fit, so on a host without GPUs a copy requests more than
    half of its memory. MinMemoryRequiredInMb is host memory; the API always requires it.
    """
    serving = draft.spec.serving
    facts = draft.instance(draft.instance_types[0])
    if facts is not None and facts.gpu_count == 0:
        memory_mb = int((facts.host_memory_gb or 0) * _MB_PER_GB * _HOST_SHARE)
        return {"NumberOfCpuCoresRequired": 1.0, "MinMemoryRequiredInMb": max(128, memory_mb)}
    return {
        "NumberOfAcceleratorDevicesRequired": float(draft.gpus_per_replica * serving.data_parallel_size),
        "MinMemoryRequiredInMb": _GPU_HOST_MB,
    }


def copies_per_instance(draft: Draft) -> int:
    """Return how many copies share one instance, so that it uses all GPUs."""
    facts = draft.instance(draft.instance_types[0])
    serving = draft.spec.serving
    gpus = draft.gpus_per_replica * serving.data_parallel_size
    return max(1, facts.gpu_count // gpus) if facts is not None else 1


# Limits of the KV cache by arguments. Source: vLLM 0.32.0, config/cache.py, config/offload.py and
# v1/core/kv_cache_utils.py. A cache too small for one sequence of max_model_len ends the engine at its start.
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
    match = re.fullmatch(r"(\d+)(\.\d+)?([kKmMgGtT])?", text.strip())
    if match is None:
        return None
    digits, fraction, unit = match.groups()
    if fraction and (unit is None or unit.isupper()):
        return None
    return (
        int(float(digits + (fraction or "")) * _UNITS[unit])
        if fraction
        else int(digits) * _UNITS.get(unit, 1)
    )


def cache_limit(draft: Draft, tokens: int, needed_gb: float) -> CacheLimit | None:
    """Return the limit that the spec sets on the KV cache; None without one.

    Args:
        draft: the resolved spec.
        tokens: max_model_len.
        needed_gb: KV cache of one sequence of that length.
    """
    setting = draft.argument("kv_cache_memory_bytes")
    size = human_integer(str(setting[1])) if setting else None
    limits = []
    if setting and size is not None:
        limits.append(CacheLimit(setting[0], size * draft.gpus_per_replica / 1e9, reserved=True))
    setting = draft.argument("num_gpu_blocks_override")
    blocks = human_integer(str(setting[1])) if setting else None
    if setting and blocks is not None and draft.model.attention:
        _, block = draft.argument("block_size") or ("", _BLOCK)
        size = human_integer(str(block)) or _BLOCK
        groups = [min(tokens, group.window or tokens) for group in draft.model.attention]
        needed = sum(math.ceil(length / size) for length in groups)
        limits.append(CacheLimit(setting[0], needed_gb * blocks / needed))
    return min(limits, key=lambda limit: limit.given_gb, default=None)


def offloaded_gb(draft: Draft, entry: InstanceEntry) -> float:
    """Return the weights of a replica that `cpu_offload_gb` keeps in host memory, in GB of 10^9 bytes."""
    setting = draft.argument("cpu_offload_gb")
    try:
        size = float(str(setting[1])) if setting and entry.gpu_count else 0.0
    except ValueError:
        return 0.0
    return max(0.0, size) * _GIB * draft.gpus_per_replica if math.isfinite(size) else 0.0
