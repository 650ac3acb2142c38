"""The engine's own counters of drafts, read from an endpoint's metrics."""

from __future__ import annotations

import re
from collections import defaultdict

from peagle_sm.service import Endpoint

_COUNTER = re.compile(
    r"^vllm:spec_decode_num_(drafts|draft_tokens)_total(?:\{[^}]*\})?\s+([0-9.eE+-]+)", re.MULTILINE
)


def draft_counts(endpoint: Endpoint) -> dict[str, float]:
    """Read the engine's verification steps (``drafts``) and drafted tokens since its start."""
    counts: dict[str, float] = defaultdict(float)
    for name, value in _COUNTER.findall(endpoint.metrics()):
        counts[name] += float(value)
    return dict(counts)
