"""The arguments that the gate adds to the server's. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from peagle_gate.settings import PREFIX, Settings, last_value, speculation

MIDDLEWARE = "peagle_gate.asgi.Gate"
GENERATION_CONFIG = "--override-generation-config"
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
    added += _output_limit(args, settings.limits.max_tokens)
    drafting = speculation(args) is not None
    if drafting and _at_least(engine_version, _REQUEST_METRICS_FROM) and not _has(args, REQUEST_METRICS):
        added += [REQUEST_METRICS, "summary"]
    return [*added, "--middleware", MIDDLEWARE]


def _output_limit(args: Sequence[str], max_tokens: int) -> list[str]:
    """Return the flag that limits a request without ``max_tokens`` too, merged with the operator's own value.

    Without it vLLM gives a chat the rest of the context. The gate does not write the field into the body:
    vLLM refuses a ``max_tokens`` above the context length, and here it takes the smaller of both.
    """
    try:
        config = json.loads(last_value(args, GENERATION_CONFIG) or "{}")
    except ValueError:
        return []  # vLLM refuses it at start
    if not isinstance(config, dict):
        return []
    own = config.get("max_new_tokens")
    limit = min(own, max_tokens) if type(own) is int else max_tokens
    return [GENERATION_CONFIG, json.dumps({**config, "max_new_tokens": limit})]


def _has(args: Sequence[str], flag: str) -> bool:
    return any(arg.partition("=")[0] == flag for arg in args)


def _at_least(version: str, floor: tuple[int, ...]) -> bool:
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    return numbers >= floor
