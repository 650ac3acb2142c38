"""Machines that each check catches, and one that all let pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from peagle_sm.core.checks.base import Machine
from tests.core.checks.cases import Case

_GOOD = Machine(
    disk_free_bytes=10**11,
    disk_path="/cache",
    memory_free_bytes=10**10,
    engine="ready",
)


def _bad(check: str, severity: str, message: str, **facts: Any) -> Case:
    return Case(check, fact=replace(_GOOD, **facts), severity=severity, text=message)


CASES = [
    _bad(
        "local-packages", "warning", "missing packages: aiohttp, moto", missing_packages=("aiohttp", "moto")
    ),
    _bad("engine-environment", "warning", "a build was interrupted", engine="incomplete"),
    _bad("engine-environment", "info", "is not built", engine="not built"),
    _bad("local-disk", "warning", "/cache has 1.0 GB free", engine="not built", disk_free_bytes=10**9),
    _bad("local-memory", "warning", "1.0 GB of memory are free", memory_free_bytes=10**9),
    _bad("platform", "warning", "this is darwin", platform="darwin"),
    *(
        Case(check, fact=_GOOD)
        for check in (
            "local-packages",
            "engine-environment",
            "local-disk",
            "local-memory",
            "platform",
        )
    ),
    Case("local-disk", fact=replace(_GOOD, disk_free_bytes=0)),  # nothing is left to build
    Case("local-memory", fact=replace(_GOOD, memory_free_bytes=None)),
]
