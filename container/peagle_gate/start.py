"""The arguments that the gate adds to the server's. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from peagle_gate.settings import PREFIX, Settings, speculation

MIDDLEWARE = "peagle_gate.asgi.Gate"
REQUEST_METRICS = "--per-request-spec-decode-metrics"
#: The first vLLM that has it; it refuses to start with it where nothing drafts.
_REQUEST_METRICS_FROM = (0, 32)


def is_on(environ: Mapping[str, str]) -> bool:
    """Whether the gate stands; ``PEAGLE_GATE=off`` removes it."""
    return environ.get(PREFIX, "on").strip().lower() != "off"


def gate_arguments(args: Sequence[str], settings: Settings, engine_version: str) -> list[str]:
    """Return what follows ``args``: the middleware last, so that it stands before all others."""
    added = []
    if not _has(args, "--shutdown-timeout"):
        added += ["--shutdown-timeout", str(settings.drain_s)]
    drafting = speculation(args) is not None
    if drafting and _at_least(engine_version, _REQUEST_METRICS_FROM) and not _has(args, REQUEST_METRICS):
        added += [REQUEST_METRICS, "summary"]
    return [*added, "--middleware", MIDDLEWARE]


def _has(args: Sequence[str], flag: str) -> bool:
    return any(arg.partition("=")[0] == flag for arg in args)


def _at_least(version: str, floor: tuple[int, ...]) -> bool:
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    return numbers >= floor
