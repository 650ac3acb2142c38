"""Machines that each check catches, and one that all let pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from peagle_sm.core.checks.base import Machine
from tests.core.checks.cases import Case

_GOOD = Machine(
    python=(3, 12, 1),
    boto3="1.44.5",
    disk_free_bytes=10**11,
    disk_path="/cache",
    memory_free_bytes=10**10,
    engine="ready",
    node="v22.1.0",
    cdk="/bin/cdk",
)


def _bad(check: str, severity: str, said: str, **facts: Any) -> Case:
    return Case(check, fact=replace(_GOOD, **facts), severity=severity, said=said)


CASES = [
    _bad("python-version", "error", "this Python is 3.10.4", python=(3, 10, 4)),
    _bad(
        "boto3-members",
        "error",
        "boto3 1.30.0 lacks AdditionalModelDataSources",
        boto3="1.30.0",
        missing_members=("AdditionalModelDataSources",),
    ),
    _bad(
        "local-packages", "warning", "missing packages: aiohttp, moto", missing_packages=("aiohttp", "moto")
    ),
    _bad("engine-environment", "warning", "a build was interrupted", engine="incomplete"),
    _bad("engine-environment", "info", "is not built", engine="not built"),
    _bad("local-disk", "warning", "/cache has 1.0 GB free", engine="not built", disk_free_bytes=10**9),
    _bad("local-memory", "warning", "1.0 GB of memory are free", memory_free_bytes=10**9),
    _bad("platform", "warning", "this is darwin", platform="darwin"),
    _bad(
        "cdk",
        "info",
        "missing parts: node, the cdk command, aws-cdk-lib",
        node=None,
        cdk=None,
        cdk_library=False,
    ),
    _bad("cdk", "info", "node 22 or newer (found v20.20.2)", node="v20.20.2"),
    *(
        Case(check, fact=_GOOD)
        for check in (
            "python-version",
            "boto3-members",
            "local-packages",
            "engine-environment",
            "local-disk",
            "local-memory",
            "platform",
            "cdk",
        )
    ),
    Case("local-disk", fact=replace(_GOOD, disk_free_bytes=0)),  # nothing is left to build
    Case("local-memory", fact=replace(_GOOD, memory_free_bytes=None)),
]
