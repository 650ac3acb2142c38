"""Checks on the environment that CreateModel takes."""

from __future__ import annotations

from collections.abc import Iterator

from peagle_sm.core.checks.base import Check, Note, check
from peagle_sm.core.plan.environment import OWNED, environment
from peagle_sm.core.plan.resolve import Draft

MAX_ENTRIES = 100
MAX_VALUE_BYTES = 1024
MAX_TOTAL_BYTES = 32 * 1024


@check(
    "environment-limits",
    why="CreateModel refuses the whole request.",
    source="SageMaker API: ContainerDefinition.Environment (100 entries, 1,024 bytes each, 32 KB in all)",
    remedy="Shorten the value. With AWS's image, SM_VLLM_CONFIG may name a file beside the model.",
    url="https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_ContainerDefinition.html",
)
def environment_limits(draft: Draft) -> Iterator[Note]:
    """Too many entries, or too many bytes."""
    values = environment(draft)
    if len(values) > MAX_ENTRIES:
        yield Note("error", f"serving.env: {len(values)} entries in all; allowed: at most {MAX_ENTRIES}")
    total = 0
    for name, value in values.items():
        size = len(value.encode())
        total += size + len(name.encode())
        if size > MAX_VALUE_BYTES:
            yield Note(
                "error",
                f"serving.env.{name}: found {size} bytes; allowed: at most {MAX_VALUE_BYTES} bytes a value",
            )
    if total > MAX_TOTAL_BYTES:
        yield Note("error", f"serving.env: {total} bytes in all; allowed: at most {MAX_TOTAL_BYTES}")


@check(
    "environment-owned",
    why="Two places for one setting contradict each other sooner or later.",
    source="this project",
    remedy="Use the field of the spec instead.",
)
def environment_owned(draft: Draft) -> Iterator[Note]:
    """Variables that a field of the spec decides."""
    for name in draft.spec.serving.env:
        if name in OWNED:
            yield Note(
                "error",
                f"serving.env.{name}: not allowed here; the field {OWNED[name]} decides it",
                f"Remove it and set {OWNED[name]}.",
            )


@check(
    "environment-port",
    why="SageMaker asks port 8080 for /ping; on another port the endpoint never comes up.",
    source="aws/deep-learning-containers: sagemaker_args.py appends SM_VLLM_PORT after --port 8080",
    remedy="Remove it from serving.env.",
    url="https://github.com/aws/deep-learning-containers",
)
def environment_port(draft: Draft) -> Iterator[Note]:
    """A port or host of one's own."""
    for name in ("SM_VLLM_PORT", "SM_VLLM_HOST"):
        if name in draft.spec.serving.env:
            yield Note("error", f"serving.env.{name}: not allowed; SageMaker expects the server on port 8080")


@check(
    "environment-empty",
    why="An empty value becomes a bare flag, which swallows the next argument or stops the engine.",
    source="aws/deep-learning-containers: sagemaker_args.py",
    remedy="Write true for a bare flag, false to drop it, or a value.",
    url="https://github.com/aws/deep-learning-containers",
)
def environment_empty(draft: Draft) -> Iterator[Note]:
    """An SM_VLLM_* variable without a value."""
    for name, value in draft.spec.serving.env.items():
        if name.startswith("SM_VLLM_") and not value:
            yield Note("error", f"serving.env.{name}: found an empty value")


CHECKS: tuple[Check, ...] = (environment_limits, environment_owned, environment_port, environment_empty)
