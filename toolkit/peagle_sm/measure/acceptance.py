"""How drafts fared, from whatever tells it: the requests themselves, the engine's counters, or its log. Pure.

Three sources, best first; ``Acceptance.source`` says which it was:

- ``per-request``: vLLM's histogram in each answer (0.32 and later, ``--per-request-spec-decode-metrics``);
  exactly the requests that were measured.
- ``metrics``: the counters of ``/metrics``, as a difference of two scrapes; everything that the engine did
  in between, warm-up and other clients included.
- ``cloudwatch``: the lines that vLLM logs every ten seconds while it drafts; as ``metrics``, and cut at the
  ten seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from peagle_sm.core.catalog import parallel_drafting
from peagle_sm.measure.records import Acceptance, AcceptanceSource

_PREFIX = "vllm:spec_decode_num_"
_SAMPLE = re.compile(r"^vllm:spec_decode_num_(\w+?)(?:\{(.*)\})?\s+([0-9.eE+-]+)\s*(?:\d+)?$")
_POSITION = re.compile(r'position="(\d+)"')
_ACCEPTED = re.compile(r"Accepted: (\d+) tokens, Drafted: (\d+) tokens")
_RATES = re.compile(r"Per-position acceptance rate: ([0-9., ]+?)(?:, Avg|$)")


@dataclass(frozen=True)
class Counters:
    """What an engine has counted since it started: drafts, accepted draft tokens, and these by position."""

    drafts: int
    accepted: int
    by_position: tuple[int, ...] = ()

    def __add__(self, other: Counters) -> Counters:
        """Both together, as of two engines."""
        return Counters(
            self.drafts + other.drafts,
            self.accepted + other.accepted,
            _added(self.by_position, other.by_position, 1),
        )

    def __sub__(self, earlier: Counters) -> Counters:
        """What came since ``earlier``."""
        return Counters(
            self.drafts - earlier.drafts,
            self.accepted - earlier.accepted,
            _added(self.by_position, earlier.by_position, -1),
        )


class Drafted(Protocol):
    """What an answer tells of its drafts: a `RequestRecord` does, and a quickstart's `Output`."""

    @property
    def drafts(self) -> int | None:
        """Verification steps."""

    @property
    def accepted(self) -> int | None:
        """Draft tokens accepted in them."""

    @property
    def histogram(self) -> tuple[int, ...]:
        """How many steps accepted exactly j draft tokens, by j."""


def from_requests(requests: Iterable[Drafted]) -> Acceptance | None:
    """Of the requests that report it; None when none does.

    ``per_step`` weighs every verification step alike, ``per_request`` every request.
    """
    told = [one for one in requests if one.drafts]
    drafts = sum(one.drafts or 0 for one in told)
    if not drafts:
        return None
    accepted = sum(one.accepted or 0 for one in told)
    per_request = sum(1 + (one.accepted or 0) / (one.drafts or 1) for one in told) / len(told)
    return Acceptance(
        source="per-request",
        per_step=1 + accepted / drafts,
        per_request=per_request,
        survival=_survival([one.histogram for one in told]),
        drafts=drafts,
        accepted=accepted,
    )


def _survival(histograms: Sequence[tuple[int, ...]]) -> tuple[float, ...]:
    """Share of steps that accepted at least 1, 2, … tokens; empty where a request brought no histogram."""
    if not all(histograms):
        return ()
    length = max(map(len, histograms))
    total = [sum(each[j] for each in histograms if j < len(each)) for j in range(length)]
    steps = sum(total)
    return tuple(sum(total[i:]) / steps for i in range(1, length)) if steps else ()


def read_counters(text: str) -> Counters | None:
    """The spec-decode counters in Prometheus text, all engines of it together; None without speculation."""
    sums: dict[str, float] = {}
    positions: dict[int, float] = {}
    for line in text.splitlines():
        found = _SAMPLE.match(line) if line.startswith(_PREFIX) else None
        if found is None or found[1].endswith("_created"):  # the moment a counter began, not a count
            continue
        name, labels, value = found[1].removesuffix("_total"), found[2] or "", float(found[3])
        position = _POSITION.search(labels)
        if position is None:
            sums[name] = sums.get(name, 0.0) + value
        else:
            at = int(position[1])
            positions[at] = positions.get(at, 0.0) + value
    if "drafts" not in sums:
        return None
    by_position = tuple(round(positions.get(at, 0.0)) for at in range(max(positions, default=-1) + 1))
    return Counters(round(sums["drafts"]), round(sums.get("accepted_tokens", 0.0)), by_position)


def read_log_line(message: str, num_speculative_tokens: int) -> Counters | None:
    """The counts in one of vLLM's ``SpecDecoding metrics`` lines; None for any other line.

    The line gives drafted tokens and rates by position; ``num_speculative_tokens`` turns them into drafts.
    """
    counts = _ACCEPTED.search(message)
    if counts is None or "SpecDecoding metrics" not in message:
        return None
    drafts = int(counts[2]) // num_speculative_tokens
    rates = _RATES.search(message)
    words = rates[1].split(",") if rates else []
    return Counters(drafts, int(counts[1]), tuple(round(float(word) * drafts) for word in words))


def from_counters(counted: Counters | None, source: AcceptanceSource) -> Acceptance | None:
    """Of what was counted between two looks; None when nothing was drafted (or an engine started anew)."""
    if counted is None or counted.drafts <= 0 or counted.accepted < 0:
        return None
    return Acceptance(
        source=source,
        per_step=1 + counted.accepted / counted.drafts,
        per_request=None,
        survival=tuple(count / counted.drafts for count in counted.by_position),
        drafts=counted.drafts,
        accepted=counted.accepted,
    )


def _added(left: Sequence[int], right: Sequence[int], sign: int) -> tuple[int, ...]:
    length = max(len(left), len(right))
    return tuple(
        (left[at] if at < len(left) else 0) + sign * (right[at] if at < len(right) else 0)
        for at in range(length)
    )


def is_ineffective(found: Acceptance) -> bool:
    """Whether parallel drafting shows no effect, by the rule of `core.catalog.parallel_drafting`."""
    if len(found.survival) < 2:
        return False
    first, second = (round(rate * found.drafts) for rate in found.survival[:2])
    return parallel_drafting.is_ineffective(found.drafts, first, second)
