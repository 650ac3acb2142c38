"""Acceptance of draft tokens: from the answers themselves, the engine's counters, or its log.

Three sources, best first; ``Acceptance.source`` names the one that was used:

- ``per-request``: vLLM's histogram in each answer (0.29 and later, ``--per-request-spec-decode-metrics``);
  exactly the requests that were measured.
- ``metrics``: the counters of ``/metrics``, as the difference of two scrapes; everything that the engine did
  in between, warm-up and other clients included.
- ``cloudwatch``: the lines that vLLM logs every ten seconds while it drafts; as ``metrics``, and cut at the
  ten seconds.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import add
from typing import Protocol

from peagle_bench.benchmark.endpoint_arm import read_url
from peagle_bench.results.records import Acceptance, AcceptanceSource, ArmRecord
from peagle_sm.aws.control.cloudwatch import since
from peagle_sm.aws.session.session import Session
from peagle_sm.core import ineffective
from peagle_sm.core.errors import PeagleError
from peagle_sm.service import Endpoint

_PREFIX = "vllm:spec_decode_num_"
_SAMPLE = re.compile(r"^vllm:spec_decode_num_(\w+?)(?:\{(.*)\})?\s+([0-9.eE+-]+)\s*(?:\d+)?$")
_POSITION = re.compile(r'position="(\d+)"')
_ACCEPTED = re.compile(r"Accepted: (\d+) tokens, Drafted: (\d+) tokens")
_LENGTH_ERROR = 0.006  #: vLLM prints the mean acceptance length with two decimals
_LENGTH = re.compile(r"Mean acceptance length: ([0-9.]+)")
_RATES = re.compile(r"Per-position acceptance rate: ([0-9., ]+?)(?:, Avg|$)")


@dataclass(frozen=True)
class Counters:
    """Drafts and accepted draft tokens (also by position) that an engine counted since its start."""

    drafts: int
    accepted: int
    by_position: tuple[int, ...] = ()

    def __add__(self, other: Counters) -> Counters:
        """Add the counters of another engine."""
        return Counters(
            self.drafts + other.drafts,
            self.accepted + other.accepted,
            _added(self.by_position, other.by_position, 1),
        )

    def __sub__(self, earlier: Counters) -> Counters:
        """Subtract an earlier reading of the same engine."""
        return Counters(
            self.drafts - earlier.drafts,
            self.accepted - earlier.accepted,
            _added(self.by_position, earlier.by_position, -1),
        )


class Drafted(Protocol):
    """Draft statistics of one answer: a `RequestRecord`, or a quickstart's `Output`."""

    @property
    def drafts(self) -> int | None:
        """Verification steps."""

    @property
    def accepted(self) -> int | None:
        """Draft tokens accepted in them."""

    @property
    def histogram(self) -> tuple[int, ...]:
        """Number of verification steps that accepted exactly j draft tokens, by j."""


def from_requests(requests: Iterable[Drafted]) -> Acceptance | None:
    """Compute the acceptance of the requests that report it; None when none does.

    ``per_step`` weighs every verification step alike, ``per_request`` every request.
    """
    reporting = [request for request in requests if request.drafts]
    drafts = sum(request.drafts or 0 for request in reporting)
    if not drafts:
        return None
    accepted = sum(request.accepted or 0 for request in reporting)
    lengths = [1 + (request.accepted or 0) / (request.drafts or 1) for request in reporting]
    per_request = sum(lengths) / len(lengths)
    return Acceptance(
        source="per-request",
        per_step=1 + accepted / drafts,
        per_request=per_request,
        survival=_survival([request.histogram for request in reporting]),
        drafts=drafts,
        accepted=accepted,
    )


def _survival(histograms: Sequence[tuple[int, ...]]) -> tuple[float, ...]:
    """Compute the share of steps that accepted at least 1, 2, … tokens; empty if a histogram is missing."""
    if not all(histograms):
        return ()
    length = max(map(len, histograms))
    total = [sum(each[j] for each in histograms if j < len(each)) for j in range(length)]
    steps = sum(total)
    return tuple(sum(total[i:]) / steps for i in range(1, length)) if steps else ()


def read_counters(text: str) -> Counters | None:
    """Sum the spec-decode counters of all engines in Prometheus text; None without speculation."""
    sums: dict[str, float] = {}
    positions: dict[int, float] = {}
    for line in text.splitlines():
        sample = _SAMPLE.match(line) if line.startswith(_PREFIX) else None
        if sample is None or sample[1].endswith("_created"):  # the moment a counter began, not a count
            continue
        name, labels, value = sample[1].removesuffix("_total"), sample[2] or "", float(sample[3])
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
    """Read the counts in one of vLLM's ``SpecDecoding metrics`` lines; None for any other line.

    The line gives drafted tokens and rates by position; ``num_speculative_tokens`` turns them into drafts.
    With a table of K a draft has fewer tokens, and the mean acceptance length gives the number of drafts.
    """
    counts = _ACCEPTED.search(message)
    if counts is None or "SpecDecoding metrics" not in message:
        return None
    accepted, drafts = int(counts[1]), int(counts[2]) // num_speculative_tokens
    length = _LENGTH.search(message)
    beyond = float(length[1]) - 1 if length else 0.0
    if beyond > 0 and abs(accepted / beyond - drafts) > 1 + drafts * _LENGTH_ERROR / beyond:
        drafts = round(accepted / beyond)
    rates = _RATES.search(message)
    words = rates[1].split(",") if rates else []
    return Counters(drafts, accepted, tuple(round(float(word) * drafts) for word in words))


def from_counters(counted: Counters | None, source: AcceptanceSource) -> Acceptance | None:
    """Compute acceptance from a difference of counters; None without drafts, or after an engine restart."""
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


def is_ineffective(acceptance: Acceptance) -> bool:
    """Decide whether parallel drafting has no effect, by the rule of `core.ineffective`."""
    if len(acceptance.survival) < 2:
        return False
    first, second = (round(rate * acceptance.drafts) for rate in acceptance.survival[:2])
    return ineffective.is_ineffective(acceptance.drafts, first, second)


#: vLLM logs every 10 s, and CloudWatch shows a line some seconds later.
LOG_DELAY_S = 20.0


class EngineSource(Protocol):
    """Source of the acceptance of all that an engine did during a load."""

    @property
    def drafts(self) -> bool | None:
        """Whether the engine speculates; None if unknown before a measurement."""

    def begin(self) -> None:
        """Note that a load is about to start."""

    def end(self) -> Acceptance | None:
        """Return the acceptance of the load that has ended, warm-up included; None if unknown."""


class Scraped:
    """Acceptance from the counters of ``/metrics``; ``read`` returns the page."""

    def __init__(self, read: Callable[[], str]) -> None:
        self._read = read
        self._before: Counters | None = None

    @property
    def drafts(self) -> bool | None:
        """Whether the engine has counters of speculation; None while they are 0."""
        try:
            counters = read_counters(self._read())
        except PeagleError:
            return None
        return False if counters is None else True if counters.drafts else None

    def begin(self) -> None:
        """Read the counters before the load."""
        self._before = self._counters()

    def end(self) -> Acceptance | None:
        """Read them again and subtract."""
        after = self._counters()
        if after is None or self._before is None:
            return None
        return from_counters(after - self._before, "metrics")

    def _counters(self) -> Counters | None:
        try:
            return read_counters(self._read())
        except PeagleError:  # without the page the acceptance is unknown; the measurement goes on
            return None


class Logged:
    """Acceptance from the engine's lines in CloudWatch Logs; `end` waits until they have arrived."""

    drafts: bool | None = None

    def __init__(
        self, session: Session, endpoint: str, tokens: int, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._session = session
        self._endpoint = endpoint
        self._tokens = tokens
        self._sleep = sleep
        self._began: datetime | None = None

    def begin(self) -> None:
        """Record when the load began."""
        self._began = self._session.now()

    def end(self) -> Acceptance | None:
        """Sum the lines since then."""
        if self._began is None:
            return None
        self._sleep(LOG_DELAY_S)
        try:
            lines = [line.message for _, line in since(self._session, self._endpoint, self._began)]
        except PeagleError:
            return None
        counts = [count for line in lines if (count := read_log_line(line, self._tokens)) is not None]
        return from_counters(reduce(add, counts), "cloudwatch") if counts else None


def metrics_page(session: Session | None, arm: ArmRecord) -> Callable[[], str] | None:
    """Return a function that reads an arm's metrics route; None where it cannot be reached, as on AWS."""
    if arm.transport == "http":
        return lambda: read_url(f"{arm.endpoint}/metrics")
    if session is None or not session.is_local:
        return None
    return lambda: Endpoint(arm.endpoint, session).metrics(arm.component)


def engine_source(
    session: Session | None, arm: ArmRecord, sleep: Callable[[float], None] = time.sleep
) -> EngineSource | None:
    """Choose the best source for an arm whose answers carry no acceptance; None if there is none."""
    if (page := metrics_page(session, arm)) is not None:
        return Scraped(page)
    if session is None:
        return None
    if arm.mode == "none" or not arm.num_speculative_tokens or arm.component is not None:
        return None  # a component logs to a group of its own, which `since` does not read
    return Logged(session, arm.endpoint, arm.num_speculative_tokens, sleep)
