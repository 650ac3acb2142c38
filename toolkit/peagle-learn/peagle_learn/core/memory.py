"""Memory of one GPU, or of a host without one, while a head is trained: a sum with its lines. Pure.

Counted from the trainer's code (NeMo AutoModel 0.7.0, `components/speculative/eagle/peagle_trainer.py`, and
`container/peagle_train`) and compared with points of 2,048 tokens measured on a CPU (a test allows 13%). On
a GPU nothing was measured for these models, so a tenth of its memory stays free.

A sequence of N tokens becomes rows: each token once at depth 0, and at depth d a share of r^d, but at least
the floor. A partition takes its part of the rows, and all further rows of depth 0 up to its end as context:
the last one has N + deeper / S rows. Each row costs the layers' activations. A partition's own rows, which
have a loss, also cost the loss's values over the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from peagle_learn.core.recipes import HeadSizes, TargetSizes
from peagle_sm.core.catalog import InstanceEntry

# The values of one row over the vocabulary, in bytes, at the loss's peak: logits of draft and target, in the
# computing type; log_p, target_p and three steps of kl_div in float32. Counted by the sizes of the tensors
# alive in torch 2.13 while the trainer's loss is computed, on a CPU, 2026-11-26. The backward pass needs 16.
_LOSS_BYTES = {2: 2 * 2 + 5 * 4, 4: 2 * 4 + 5 * 4}
# What a layer keeps of a row for its backward pass, counted in the library's forward_peagle: norms, the
# concatenation and residuals; queries, repeated keys and values, and the attention's result twice; the MLP's
# four.
_HIDDEN_VALUES, _ATTENTION_VALUES, _MLP_VALUES = 10, 5, 4
# In float32: weights, gradients and AdamW's two moments. On a GPU also DistributedDataParallel's copy of the
# gradients, and the weights once more in bfloat16 (container/peagle_train/masters.py).
_STATE_BYTES = {2: 5 * 4 + 2, 4: 4 * 4}
# Gradients of one layer in its backward pass, in values of the attention's width. Fitted to the points of
# 2,048 tokens with 1, 4 and 8 partitions, measured on a CPU on 2026-11-26, and assumed of a GPU.
_GRADIENT_VALUES = 8
# flex_attention builds the mask of all rows squared, with about four bytes a pair (assumed, not measured).
_MASK_BYTES = 4
_GATHERED_GB = 3.3
"""What stays gathered of a sharded target: NVIDIA's note on Gemma-4-31B says 11 GiB a GPU of 62 on 8 GPUs.
At least its embedding and lm_head: FSDP2 does not free the outermost module's weights after a pass."""
GPU_SHARE = 0.9
HOST_BASE_GB = 0.6
"""The trainer's process on a CPU before training, with the small stand-in: 0.55 GiB, measured."""
PARTITIONS = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class TrainingMemory:
    """Need of one GPU (or host) and what it has, in GB of 10^9 bytes; ``lines`` shows the sum."""

    needed_gb: float
    available_gb: float
    lines: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """True if the sum is not above what is available."""
        return self.needed_gb <= self.available_gb


@dataclass(frozen=True)
class TrainingLoad:
    """What goes through the head at once."""

    sequence_length: int
    partitions: int
    down_sample_ratio: float
    down_sample_ratio_min: float
    micro_batch_size: int = 1
    checkpointing: bool = False

    @classmethod
    def of(cls, values: Mapping[str, Any], partitions: int | None = None) -> TrainingLoad:
        """Read it from hyperparameters."""
        return cls(
            sequence_length=int(values["sequence_length"]),
            partitions=partitions or int(values.get("sequence_partitions") or 1),
            down_sample_ratio=float(values["down_sample_ratio"]),
            down_sample_ratio_min=float(values["down_sample_ratio_min"]),
            micro_batch_size=int(values["micro_batch_size"]),
            checkpointing=bool(values.get("gradient_checkpointing")),
        )


@dataclass(frozen=True)
class TrainingMachine:
    """GPUs of one instance, with the memory of each; 0 GPUs: a host."""

    gpus: int
    memory_gb: float
    name: str = ""

    @classmethod
    def of(cls, entry: InstanceEntry, name: str = "") -> TrainingMachine:
        """Read it from the catalogue's instance."""
        if entry.gpu_count == 0:
            return cls(0, entry.host_memory_gb or 0.0, name)
        return cls(entry.gpu_count, entry.gpu_memory_gb, f"{entry.gpu} of {name}")


def rows_per_token(depths: int, ratio: float, floor: float) -> float:
    """Return the rows of one token in all depths; depth 0 keeps every token."""
    return sum(max(ratio**depth, floor) for depth in range(1, depths)) + 1.0


def rows_of(load: TrainingLoad, depths: int) -> float:
    """Return the rows of the largest partition."""
    every = rows_per_token(depths, load.down_sample_ratio, load.down_sample_ratio_min)
    return load.sequence_length * (1.0 + (every - 1.0) / load.partitions)


#: Rows with a loss of the largest partition, by the mean: 1.00 to 1.046 in the recipes of the four models
#: (`tests/training/test_four_models.py`, with the trainer's own partitions).
_LARGEST_PARTITION = 1.05


def charged_rows_of(load: TrainingLoad, depths: int) -> float:
    """Return the rows with a loss of one partition, at most; the others of `rows_of` are context."""
    every = rows_per_token(depths, load.down_sample_ratio, load.down_sample_ratio_min)
    largest = _LARGEST_PARTITION if load.partitions > 1 else 1.0
    return load.sequence_length * every * largest / load.partitions


@dataclass(frozen=True)
class _Sum:
    parts: list[tuple[str, float, str]] = field(default_factory=list)

    def add(self, name: str, size: float, why: str) -> None:
        if size > 0:
            self.parts.append((name, size / 1e9, why))


def memory_of(
    target: TargetSizes, head: HeadSizes, load: TrainingLoad, machine: TrainingMachine, shards: int = 1
) -> TrainingMemory:
    """Return the sum for one GPU, or for a host; ``shards`` GPUs share the target, and none the head."""
    total = _Sum()
    size, hidden, vocabulary = head.bytes_per_value, target.hidden_size, target.vocabulary
    rows = rows_of(load, head.depths)
    on_gpu = machine.gpus > 0
    tables = 2 * vocabulary * hidden * target.bytes_per_parameter
    gathered = max(_GATHERED_GB * 1e9, tables) if shards > 1 else 0.0
    total.add(
        "target",
        target.weights_bytes / shards + gathered,
        f"{target.parameters_billions:.3g} billion parameters of {target.bytes_per_parameter} bytes"
        + (f" over {shards} GPUs, and gathered weights" if shards > 1 else ""),
    )
    state = _STATE_BYTES[size]
    total.add(
        "head",
        head.parameters(target) * state,
        f"weights, gradients and AdamW's states: {state} bytes a parameter",
    )
    tokens = load.sequence_length * load.micro_batch_size
    total.add(
        "target's values",
        tokens * (vocabulary + 6 * hidden) * size,
        f"logits and hidden states of {tokens:,} tokens",
    )
    charged = charged_rows_of(load, head.depths)
    total.add(
        "loss", charged * vocabulary * _LOSS_BYTES[size], f"{charged:,.0f} rows x {vocabulary:,} tokens"
    )
    inner = head.attention_heads * head.head_dim
    layer = _HIDDEN_VALUES * hidden + _ATTENTION_VALUES * inner + _MLP_VALUES * head.intermediate_size
    kept = layer + 2 * hidden * (head.layers - 1) if load.checkpointing else layer * head.layers
    how = "one layer at a time, computed again" if load.checkpointing else f"{head.layers} layers"
    total.add("activations", rows * kept * size, f"{rows:,.0f} rows, {how}")
    total.add("gradients", rows * _GRADIENT_VALUES * inner * size, f"{rows:,.0f} rows, of one layer")
    if on_gpu:
        total.add("attention mask", rows * rows * _MASK_BYTES, f"{rows:,.0f} rows squared (assumed)")
    else:
        total.add("process", HOST_BASE_GB * 1e9, "the trainer before it trains, measured")
    available = machine.memory_gb * (GPU_SHARE if on_gpu else 1.0)
    needed = sum(part for _, part, _ in total.parts)
    return TrainingMemory(
        round(needed, 3), round(available, 3), tuple(_lines(total, needed, available, machine))
    )


def _lines(total: _Sum, needed: float, available: float, machine: TrainingMachine) -> Iterator[str]:
    for name, size, why in total.parts:
        yield f"{name:<15} {size:9.2f} GB  {why}"
    each = f"{GPU_SHARE:.0%} of one {machine.name}" if machine.gpus else f"memory of {machine.name}"
    yield f"{'needed':<15} {needed:9.2f} GB"
    yield f"{'available':<15} {available:9.2f} GB  {each}"
    left = available - needed
    yield f"{'left':<15} {left:9.2f} GB  {'fits' if left >= 0 else 'DOES NOT FIT'}"


def least_partitions(
    target: TargetSizes, head: HeadSizes, load: TrainingLoad, machine: TrainingMachine, shards: int = 1
) -> int | None:
    """Return the fewest partitions with which the sum fits; None if none do."""
    for partitions in PARTITIONS:
        tried = replace(load, partitions=partitions)
        if memory_of(target, head, tried, machine, shards).fits:
            return partitions
    return None
