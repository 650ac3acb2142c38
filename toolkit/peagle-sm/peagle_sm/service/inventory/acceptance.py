"""Acceptance of an endpoint's traffic by slice, and where it fell, from its log or from recorded traffic.

The gate in this project's image writes what it counted into the log, in lines of CloudWatch's embedded metric
format: the metrics have no more than the listed slices, the lines have every stratum. Endpoints without the
gate are recorded at the client (`peagle-sm serve --record`). Both go through the detector that the gate runs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from peagle_sm.aws.control.cloudwatch import matching_lines
from peagle_sm.aws.session.session import Session
from peagle_sm.core.drift import ALL_REQUESTS, HORIZON_S, AcceptanceFall, Detector, Stratum, Sums, read_counts
from peagle_sm.core.errors import NotFound, SpecError
from peagle_sm.core.request_slices import frequent_values
from peagle_sm.core.slice_values import LABEL, MOST_CHOSEN, MOST_VALUES, NONE, OTHER

if TYPE_CHECKING:
    from peagle_sm.traffic.records import TrafficRecord

_MINUTE_S = 60.0
_LONGEST_S = 20 * 365 * 86_400.0  #: older than any endpoint; a date has its limits
#: Of recorded traffic, unless they are chosen: the user's own labels, then these.
_USUAL = ("format", "script", "temperature", "tools", "prompt tokens", "reasoning effort", "api")
_FEWEST_REQUESTS = 8  #: for an interval
_CONFIDENCE = 0.95

#: Matches the gate's lines with counts by slice: CloudWatch compares a member of a line that is JSON.
_COUNTED = "{ $.DriftingSlices >= 0 }"


@dataclass(frozen=True)
class SliceAcceptance:
    """Acceptance length of one slice; the interval is None with too few requests.

    All intervals of a report hold together in 95% of reports. ``by_k`` has the acceptance length at each K.
    """

    slice: str
    requests: int
    drafts: int
    accepted: int
    acceptance_length: float
    low: float | None
    high: float | None
    by_k: Mapping[int, float]


@dataclass(frozen=True)
class AcceptanceReport:
    """Acceptance by slice since a time, and the falls that last.

    ``compared_since`` is the oldest request that a fall is compared with. ``uncounted`` are requests whose
    answer had no report: cancelled, or with several sequences.
    """

    source: str
    since: datetime
    compared_since: datetime
    dimensions: tuple[str, ...]
    slices: tuple[SliceAcceptance, ...]
    changes: tuple[AcceptanceFall, ...]
    uncounted: int
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types; times in ISO 8601."""
        return {
            "source": self.source,
            "since": self.since.isoformat(),
            "compared_since": self.compared_since.isoformat(),
            "dimensions": list(self.dimensions),
            "slices": [asdict(row) for row in self.slices],
            "changes": [
                {**asdict(fall), "since": datetime.fromtimestamp(fall.since, UTC).isoformat()}
                for fall in self.changes
            ],
            "uncounted_requests": self.uncounted,
            "notes": list(self.notes),
        }


@dataclass
class _Interval:
    """What was counted from a time on, until the next one."""

    at: float
    counts: dict[Stratum, Sums] = field(default_factory=dict)
    uncounted: int = 0


def acceptance_from_log(
    session: Session, name: str, seconds: float, component: str | None = None
) -> AcceptanceReport:
    """Read the gate's lines of an endpoint.

    Args:
        session: the account and region.
        name: of the endpoint.
        seconds: how far back the figures go; the falls are looked for in the week before, too.
        component: inference component, which has a log group of its own.

    Raises:
        NotFound: the log has no such line in this time.
    """
    now = session.now()
    since = now - timedelta(seconds=min(seconds, _LONGEST_S))
    begin = since - timedelta(seconds=HORIZON_S)
    dimensions: tuple[str, ...] | None = None
    intervals: list[_Interval] = []
    damaged = 0
    others: set[tuple[str, ...]] = set()
    for line in matching_lines(session, name, begin, component, _COUNTED):
        if '"peagle_gate"' not in line or '"counts"' not in line:
            continue
        record = _read_line(line)
        if record is None:
            damaged += 1
            continue
        names, interval = record
        if names != dimensions:  # the slices were chosen anew: what was counted by others is not comparable
            others |= {dimensions} if dimensions else set()
            dimensions, intervals = names, []
        intervals.append(interval)
    if dimensions is None:
        raise NotFound(
            f"endpoint {name!r}: its log has no counts by slice since {begin:%Y-%m-%d %H:%M} UTC",
            next_step="set metrics.slices in the spec (it needs an image with this project's gate) and run "
            "`peagle-sm update`; or record at the client: `peagle-sm serve --record`, then --records FILE",
        )
    left = "1 damaged line was" if damaged == 1 else f"{damaged:,} damaged lines were"
    notes = [f"{left} left out"] if damaged else []
    notes += [f"before, the endpoint counted by {', '.join(names)}; that is left out" for names in others]
    return _report(f"log of {name}", dimensions, intervals, since, begin, notes)


def _read_line(message: str) -> tuple[tuple[str, ...], _Interval] | None:
    try:
        line = json.loads(message)
        names = tuple(str(name) for name in line["dimensions"])
        counts = read_counts(line["counts"])
        interval = _Interval(float(line["since"]), counts, int(line["UncountedRequests"]))
    except (KeyError, TypeError, ValueError):
        return None
    if any(len(values) != len(names) for values, _ in counts):
        return None
    return names, interval


def acceptance_from_records(
    records: Sequence[TrafficRecord],
    now: datetime,
    seconds: float | None = None,
    dimensions: Sequence[str] | None = None,
    source: str = "recorded traffic",
    notes: Iterable[str] = (),
) -> AcceptanceReport:
    """Compute the same from recorded traffic.

    Args:
        records: recorded requests, in any order.
        now: the time.
        seconds: how far back the figures go; None: as far as the records.
        dimensions: slices to look at, at most 4; None: labels, then the usual ones with several values.
        source: of the records, for people.
        notes: about the records.

    Raises:
        SpecError: too many or unknown dimensions, or no record reports its drafts.
    """
    reporting = sorted((record for record in records if record.drafts), key=lambda record: record.time)
    if not reporting:
        raise SpecError(
            f"{source}: no answer reports its drafts ({len(records):,} requests)",
            next_step="record an endpoint with speculation whose vLLM is 0.29 or later, with "
            "per_request_spec_decode_metrics: summary",
        )
    names = _dimensions(reporting, dimensions)
    kept, bounded = _frequent(reporting, names)
    seconds = None if seconds is None else min(seconds, _LONGEST_S)
    # Counts are by the minute, so the first one begins at its minute.
    first = reporting[0].time // _MINUTE_S * _MINUTE_S
    begin = first if seconds is None else now.timestamp() - seconds - HORIZON_S
    intervals: list[_Interval] = []
    for record in reporting:
        if record.time < begin:
            continue
        minute = record.time // _MINUTE_S * _MINUTE_S
        if not intervals or intervals[-1].at != minute:
            intervals.append(_Interval(minute))
        values = tuple(
            value if (value := record.slices.get(name, NONE)) in kept[name] else OTHER for name in names
        )
        drafts, accepted = record.drafts or 0, record.accepted or 0
        k = round(record.drafted / drafts) if record.drafted else record.num_speculative_tokens or 0
        counts = intervals[-1].counts.setdefault((values, k), Sums())
        counts.add(Sums.of_request(drafts, accepted))
    if not intervals:
        raise SpecError(
            f"{source}: no request in this time; the newest is of "
            f"{datetime.fromtimestamp(reporting[-1].time, UTC):%Y-%m-%d %H:%M} UTC",
            next_step="give a longer --since, or leave it out",
        )
    since = datetime.fromtimestamp(begin if seconds is None else now.timestamp() - seconds, UTC)
    intervals[-1].uncounted = sum(
        1
        for record in records
        if record.drafts is None and record.outcome != "failed" and record.time >= begin
    )
    return _report(source, names, intervals, since, datetime.fromtimestamp(begin, UTC), [*notes, *bounded])


def _dimensions(records: Sequence[TrafficRecord], chosen: Sequence[str] | None) -> tuple[str, ...]:
    values: dict[str, set[str]] = {}
    for record in records:
        for name, value in record.slices.items():
            values.setdefault(name, set()).add(value)
    if chosen is None:
        labels = sorted(name for name in values if name.startswith(LABEL))
        several = [name for name in (*labels, *_USUAL) if len(values.get(name, ())) > 1]
        return tuple(several[:MOST_CHOSEN])
    if unknown := [name for name in chosen if name not in values]:
        raise SpecError(
            f"--slices: found {unknown[0]!r}; allowed: {', '.join(sorted(values))}",
            next_step=f"give at most {MOST_CHOSEN} of them, separated by commas",
        )
    if len(chosen) > MOST_CHOSEN:
        raise SpecError(
            f"--slices: found {len(chosen)} dimensions; allowed: {MOST_CHOSEN}, since requests are compared "
            "only with those of equal slices",
            next_step="look at some of them at a time",
        )
    return tuple(dict.fromkeys(chosen))


def _frequent(
    records: Sequence[TrafficRecord], names: Sequence[str]
) -> tuple[dict[str, set[str]], list[str]]:
    """Return the values of each dimension that are shown, and notes about those that have more."""
    kept, notes = {}, []
    for name in names:
        counts = Counter(record.slices.get(name, NONE) for record in records)
        kept[name] = frequent_values(counts, MOST_VALUES)
        if len(counts) > MOST_VALUES:
            notes.append(
                f"{name} has {len(counts):,} values; the {MOST_VALUES} with the most requests are shown, the "
                f"others together as {OTHER!r}. Use a coarser label, for example a team in place of a user"
            )
    return kept, notes


def _report(
    source: str,
    dimensions: tuple[str, ...],
    intervals: Sequence[_Interval],
    since: datetime,
    compared_since: datetime,
    notes: Sequence[str],
) -> AcceptanceReport:
    detector = Detector(dimensions)
    shown: dict[Stratum, Sums] = {}
    uncounted = 0
    for interval in sorted(intervals, key=lambda interval: interval.at):
        detector.add(interval.at, interval.counts)
        if interval.at >= since.timestamp():
            uncounted += interval.uncounted
            for stratum, sums in interval.counts.items():
                shown.setdefault(stratum, Sums()).add(sums)
    return AcceptanceReport(
        source,
        since,
        max(compared_since, datetime.fromtimestamp(min(interval.at for interval in intervals), UTC)),
        dimensions,
        _slices(dimensions, shown),
        detector.changes(),
        uncounted,
        tuple(notes),
    )


def _slices(dimensions: tuple[str, ...], counts: Mapping[Stratum, Sums]) -> tuple[SliceAcceptance, ...]:
    """Return all requests, then each dimension's values, those with the most drafts first."""
    groups: dict[tuple[int, str], dict[int, Sums]] = {}
    for (values, k), sums in counts.items():
        for key in ((-1, ALL_REQUESTS), *enumerate(values)):
            groups.setdefault(key, {}).setdefault(k, Sums()).add(sums)
    totals = {key: _sum(by_k.values()) for key, by_k in groups.items()}
    tested = sum(1 for total in totals.values() if total.requests >= _FEWEST_REQUESTS)
    z = NormalDist().inv_cdf(1 - (1 - _CONFIDENCE) / (2 * max(1, tested)))
    return tuple(
        _slice(
            ALL_REQUESTS if place < 0 else f"{dimensions[place]}: {value}",
            totals[place, value],
            {k: 1 + sums.rate for k, sums in sorted(groups[place, value].items())},
            z,
        )
        for place, value in sorted(totals, key=lambda key: (key[0], -totals[key].drafts, key[1]))
    )


def _slice(name: str, total: Sums, by_k: Mapping[int, float], z: float) -> SliceAcceptance:
    length = 1 + total.rate
    low = high = None
    if total.requests >= _FEWEST_REQUESTS:
        half = z * (total.residual2 * total.requests / (total.requests - 1)) ** 0.5 / total.drafts
        low, high = max(1.0, length - half), length + half
    return SliceAcceptance(
        name, round(total.requests), round(total.drafts), round(total.accepted), length, low, high, by_k
    )


def _sum(parts: Iterable[Sums]) -> Sums:
    total = Sums()
    for part in parts:
        total.add(part)
    return total
