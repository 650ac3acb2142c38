"""From data points to traffic, quiet or unknown. Pure.

``Invocations`` is sparse: its absence proves nothing by itself. Quiet is proven only where the utilisation of
every variant and component shows that metrics are flowing, over the whole window, while Invocations and the
concurrent requests are absent or 0. Traffic anywhere is traffic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from peagle_guard.records import Evidence, Kind, Lifecycle, Record

_MINUTE = timedelta(minutes=1)
# CloudWatch shows a minute's data points one to three minutes later; older than this is stale.
LAG = timedelta(minutes=5)
# Publishers jitter: a minute may have no point and the next one two.
MOST_BETWEEN_POINTS = timedelta(minutes=3)
# A mark older than this is set again, with a new notice, instead of looking back ever further.
_LONGEST_LOOK_BACK = timedelta(hours=6)


@dataclass(frozen=True)
class Series:
    """One metric by minute; ``whole`` is False when CloudWatch failed or gave a part."""

    points: Mapping[datetime, float] = field(default_factory=dict)
    whole: bool = True


@dataclass(frozen=True)
class Subject:
    """One variant or inference component: what it serves, and the utilisation that shows its metrics flow.

    ``utilisation`` is None for a variant whose components carry the proof.
    """

    name: str
    invocations: Series
    concurrency: Series
    utilisation: Series | None


def window_start(lifecycle: Lifecycle, record: Record, now: datetime) -> datetime:
    """From when on the metrics are to be looked at: the idle time, and all of it since the mark."""
    start = now - lifecycle.idle
    whole = _floor(start) if start == _floor(start) else _floor(start) + _MINUTE
    if record.marked_at is None:
        return whole
    return max(min(whole, _floor(record.marked_at)), whole - _LONGEST_LOOK_BACK)


def judge(subjects: Sequence[Subject], start: datetime, now: datetime) -> Evidence:
    """Judge the window from ``start`` (a whole minute) to ``now``."""
    for subject in subjects:
        for what, series in (
            ("Invocations", subject.invocations),
            ("concurrent requests", subject.concurrency),
        ):
            busy = [at for at, value in series.points.items() if value > 0 and at >= start]
            if busy:
                last = max(busy).isoformat(timespec="minutes")
                return Evidence(Kind.TRAFFIC, detail=f"{what} of {subject.name} at {last}")
    proofs = [subject for subject in subjects if subject.utilisation is not None]
    if not proofs:
        return Evidence(Kind.UNKNOWN, detail="no variant or component is known")
    for subject in subjects:
        doubt = _doubt(subject, start, now)
        if doubt:
            return Evidence(Kind.UNKNOWN, detail=f"{subject.name}: {doubt}")
    until = min(max(subject.utilisation.points) for subject in proofs if subject.utilisation) + _MINUTE
    return Evidence(Kind.QUIET, since=start, until=until)


def _doubt(subject: Subject, start: datetime, now: datetime) -> str | None:
    """Say why this subject's quiet is not proven; None where it is."""
    if not (subject.invocations.whole and subject.concurrency.whole):
        return "CloudWatch gave no whole answer"
    if subject.utilisation is None:
        return None
    if not subject.utilisation.whole:
        return "CloudWatch gave no whole answer"
    inside = sorted(at for at in subject.utilisation.points if start <= at <= now)
    if not inside:
        return "no utilisation in the window"
    if now - inside[-1] > LAG:
        return f"utilisation is stale: the last is of {inside[-1].isoformat(timespec='minutes')}"
    gap = _first_gap(start - _MINUTE, inside)
    return None if gap is None else f"utilisation is missing after {gap.isoformat(timespec='minutes')}"


def _first_gap(before: datetime, points: Iterable[datetime]) -> datetime | None:
    last = before
    for at in points:
        if at - last > MOST_BETWEEN_POINTS:
            return last
        last = at
    return None


def _floor(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)
