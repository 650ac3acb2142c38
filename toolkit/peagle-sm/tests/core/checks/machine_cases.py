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


def _case(message: str = "", **facts: Any) -> Case:
    severity = "warning" if message else None
    return Case("local-machine", fact=replace(_GOOD, **facts), severity=severity, text=message)


CASES = [
    _case(),
    _case("missing packages: aiohttp, moto", missing_packages=("aiohttp", "moto")),
    _case("/cache has 1.0 GB free", engine="not built", disk_free_bytes=10**9),
    _case(disk_free_bytes=0),  # nothing is left to build
    _case("1.0 GB of memory are free", memory_free_bytes=10**9),
    _case(memory_free_bytes=None),
    _case("this is darwin", platform="darwin"),
]
