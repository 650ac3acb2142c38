"""From data points to traffic, quiet or unknown. Pure.

``Invocations`` is sparse: its absence proves nothing by itself. Quiet is proven only where the utilisation of
every variant and component shows that metrics are flowing, over the whole window, while Invocations and the
concurrent requests are absent or 0. Traffic anywhere is traffic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import median

from peagle_guard.records import Evidence, Kind, Lifecycle, Record

_MINUTE = timedelta(minutes=1)
# CloudWatch shows a minute's data points up to five minutes after its end; counted from its start, and with
# the minute in which the sweep reads it, that is seven. What is older is stale.
LAG = timedelta(minutes=7)
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

    ``utilisation`` counts samples; it is None for a variant whose components carry the proof.
    """

    name: str
    invocations: Series
    concurrency: Series
    utilisation: Series | None


def idle_start(lifecycle: Lifecycle, now: datetime) -> datetime:
    """Return the first whole minute of the idle time that ends now."""
    start = now - lifecycle.idle
    return _floor(start) if start == _floor(start) else _floor(start) + _MINUTE


def window_start(lifecycle: Lifecycle, record: Record, now: datetime) -> datetime:
    """Return from when on to look at the metrics: the idle time, and all of the quiet that led to a mark.

    Not from the mark on: what CloudWatch had not yet shown as the mark was set lies before it.
    """
    whole = idle_start(lifecycle, now)
    if record.quiet_since is None:
        return whole
    return max(min(whole, record.quiet_since), whole - _LONGEST_LOOK_BACK)


def judge(subjects: Sequence[Subject], start: datetime, now: datetime, idle_from: datetime) -> Evidence:
    """Judge the window from ``start`` (a whole minute) to ``now``.

    Traffic before ``idle_from`` was shown late and is an idle time ago: the quiet begins after it, so that
    the endpoint is marked again at once, and not a sweep later.
    """
    for subject in subjects:
        for what, series in (
            ("Invocations", subject.invocations),
            ("concurrent requests", subject.concurrency),
        ):
            busy = [at for at, value in series.points.items() if value > 0 and at >= start]
            if not busy:
                continue
            last = max(busy)
            if last >= idle_from:
                detail = f"{what} of {subject.name} at {last.isoformat(timespec='minutes')}"
                return Evidence(Kind.TRAFFIC, detail=detail)
            start = last + _MINUTE
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
    lost = _first_lost(start, subject.utilisation.points, inside[-1])
    return None if lost is None else f"utilisation is missing at {lost.isoformat(timespec='minutes')}"


def _first_lost(start: datetime, counts: Mapping[datetime, float], last: datetime) -> datetime | None:
    """Return the first minute of which nothing is known: with its utilisation a request may be lost.

    Publishers jitter: a minute's samples may stand in the minute beside it, which then has twice as many.
    """
    window = (start + n * _MINUTE for n in range((last - start) // _MINUTE))
    lost = [at for at in window if at not in counts]
    if not lost:
        return None
    usual = median(counts.values())
    spare = {at for at, count in counts.items() if usual > 0 and count >= 2 * usual}
    for at in lost:
        beside = next((near for near in (at - _MINUTE, at + _MINUTE) if near in spare), None)
        if beside is None:
            return at
        spare.remove(beside)
    return None


def _floor(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)
