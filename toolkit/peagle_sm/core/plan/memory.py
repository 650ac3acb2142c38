"""Whether one replica fits its accelerators: weights, head and KV cache against memory, as a sum."""

from __future__ import annotations

from dataclasses import dataclass

from peagle_sm.core.catalog.catalog import AttentionGroup, InstanceEntry
from peagle_sm.core.plan.records import MemoryFit
from peagle_sm.core.plan.resolve import Draft

GPU_SHARE = 0.9
GPU_OVERHEAD_GB = 2.0
HOST_OVERHEAD_GB = 1.5
"""What a local engine's processes take; measured 1.35 with a stand-in's cache: docs/explanation/engine.md."""
_SHARE_VARIABLE = "SM_VLLM_GPU_MEMORY_UTILIZATION"


@dataclass(frozen=True)
class _Room:
    available_gb: float
    overhead_gb: float
    lines: tuple[str, ...]


def kv_cache_gb(groups: tuple[AttentionGroup, ...], tokens: int) -> float:
    """Return the GB that the keys and values of one sequence of ``tokens`` take."""
    return (
        sum(
            group.layers
            * 2
            * group.kv_heads
            * group.head_dim
            * group.bytes_per_value
            * min(tokens, group.window or tokens)
            for group in groups
        )
        / 1e9
    )


def _size(gb: float) -> str:
    """Two decimals, and what is small in MB: 0.00 GB would say that it is not there."""
    return f"{gb * 1000:8.2f} MB" if 0 < gb < 0.1 else f"{gb:8.2f} GB"


def unknown_facts(draft: Draft) -> tuple[str, ...]:
    """Name the facts without which no sum can be made."""
    missing = []
    if draft.model.weights_gb is None:
        missing.append(f"weight size of {draft.spec.model}")
    if draft.model.attention is None:
        missing.append(f"attention layout of {draft.spec.model}")
    if draft.max_model_len is None:
        missing.append("max_model_len")
    missing += [f"memory of {name}" for name in draft.instance_types if draft.instance(name) is None]
    return tuple(missing)


def _gpu_share(draft: Draft) -> float:
    try:
        share = float(draft.spec.serving.env.get(_SHARE_VARIABLE, GPU_SHARE))
    except ValueError:
        return GPU_SHARE
    return share if 0 < share <= 1 else GPU_SHARE


def _room(draft: Draft, name: str, entry: InstanceEntry) -> _Room:
    if entry.gpu_count == 0:
        memory = entry.host_memory_gb or 0.0
        return _Room(
            memory,
            HOST_OVERHEAD_GB,
            (
                f"overhead     {HOST_OVERHEAD_GB:8.2f} GB  engine processes on a CPU, measured",
                f"available    {memory:8.2f} GB  host memory of {name}",
            ),
        )
    gpus = draft.spec.serving.tensor_parallel_size
    total = gpus * entry.gpu_memory_gb
    share = _gpu_share(draft)
    overhead = gpus * GPU_OVERHEAD_GB + (1 - share) * total
    return _Room(
        total,
        overhead,
        (
            f"overhead     {overhead:8.2f} GB  {1 - share:.0%} that vLLM leaves free + "
            f"{GPU_OVERHEAD_GB:g} GB a GPU for activations (assumed)",
            f"available    {total:8.2f} GB  {gpus} x {entry.gpu_memory_gb:g} GB ({entry.gpu}) of {name}",
        ),
    )


def _fit_on(draft: Draft, name: str, entry: InstanceEntry) -> MemoryFit:
    model = draft.model
    tokens = draft.max_model_len or 0
    weights = model.weights_gb or 0.0
    cache = kv_cache_gb(model.attention or (), tokens)
    head = (draft.head.weights_gb or 0.0) if draft.head else 0.0
    known_head = not draft.speculating or (draft.head is not None and draft.head.weights_gb is not None)
    room = _room(draft, name, entry)
    spare = room.available_gb - room.overhead_gb - weights - head
    fits = spare >= cache
    sequences = f"{spare / cache:.0f}" if fits and cache > 0 else "0"
    aside = " (the head's own cache is not counted)" if draft.speculating else ""
    lines = (
        f"weights      {_size(weights)}  {model.title}",
        f"draft head   {_size(head)}  "
        + (
            draft.head_id or "none"
            if known_head
            else f"{draft.head_id or 'head'}: size not known, counted as 0"
        ),
        f"KV cache     {_size(cache)}  one sequence of {tokens} tokens{aside}",
        *room.lines,
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
    )


def memory_fit(draft: Draft) -> MemoryFit | None:
    """Return the sum on the tightest of the instance types; None where a fact is missing."""
    if unknown_facts(draft):
        return None
    fits = [_fit_on(draft, name, entry) for name in draft.instance_types if (entry := draft.instance(name))]
    return min(fits, key=lambda fit: fit.available_gb - fit.overhead_gb, default=None)
