"""Which figures are withheld or shown with a doubt: the one rule. Pure.

* A client that was the bottleneck itself (its CPU, its connections, its late sends) put less load on the
  endpoint than was asked for: nothing of that point is shown, and no comparison that stands on it.
* A client whose event loop merely came late, as it does where engines share its cores, counted every token
  in its time: rates, acceptance and comparisons hold. Its latencies may read too long by as much as it was
  late, so they are shown with that said beside them.
* A window of few requests or of less than a second counts right, but what happens at its two ends weighs so
  much that its rates may be higher than the endpoint can give. They are shown, marked, with the reason:
  the requests themselves and their latencies hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from peagle_sm.measure.records import ClientHealth, ComparisonRecord, Load, PointRecord

FEWEST_REQUESTS = 8  #: a window of fewer is too short for a rate
SHORTEST_S = 1.0


def is_withheld(client: ClientHealth) -> bool:
    """Whether nothing of the point may be shown.

    A file from before the bottleneck was told apart says only that the client is not to be trusted.
    """
    return not client.trusted if client.bottleneck is None else client.bottleneck


def is_late(client: ClientHealth) -> bool:
    """Whether the point's rates hold and its latencies may be too long."""
    return not client.trusted and not is_withheld(client)


def is_short(point: PointRecord) -> bool:
    """Whether the point's latencies hold and its rates are in doubt."""
    return point.requests < FEWEST_REQUESTS or point.seconds < SHORTEST_S


@dataclass(frozen=True)
class Sorted:
    """Points and comparisons, each either shown or withheld; ``late`` are those shown whose client was."""

    points: tuple[PointRecord, ...]
    comparisons: tuple[ComparisonRecord, ...]
    withheld_points: tuple[PointRecord, ...]
    withheld_comparisons: tuple[ComparisonRecord, ...]

    @property
    def late(self) -> tuple[PointRecord, ...]:
        """Points whose latencies need a word beside them."""
        return tuple(point for point in self.points if is_late(point.client))


def sort(points: Sequence[PointRecord], comparisons: Iterable[ComparisonRecord]) -> Sorted:
    """Apply the rule. A comparison falls when a side of it was measured only by a client in the way."""
    rows = tuple(comparisons)
    shown = tuple(point for point in points if not is_withheld(point.client))
    hidden = tuple(point for point in points if is_withheld(point.client))
    fallen = {(point.arm, point.load) for point in hidden} - {(point.arm, point.load) for point in shown}
    return Sorted(
        points=shown,
        comparisons=tuple(row for row in rows if not _stands_on(row, fallen)),
        withheld_points=hidden,
        withheld_comparisons=tuple(row for row in rows if _stands_on(row, fallen)),
    )


def _stands_on(row: ComparisonRecord, fallen: set[tuple[str, Load]]) -> bool:
    return (row.faster, row.load) in fallen or (row.slower, row.load) in fallen


def late_lines(points: Iterable[PointRecord]) -> list[str]:
    """What to say beside the latencies of each load at which a client was late."""
    late = [point for point in points if is_late(point.client)]
    return _lines(late, "latencies may read too long, while rates and ratios hold", _client)


def short_lines(points: Iterable[PointRecord]) -> list[str]:
    """What to say beside the rates of each load whose window was too short."""
    short = [point for point in points if is_short(point) and not is_withheld(point.client)]
    return _lines(short, "rates may read too high", _window)


def doubt_lines(points: Sequence[PointRecord]) -> list[str]:
    """What to say beside figures that are shown."""
    return [*short_lines(points), *late_lines(points)]


def withheld_lines(points: Iterable[PointRecord]) -> list[str]:
    """What to say in place of the figures of each load at which they are withheld."""
    return _lines([point for point in points if is_withheld(point.client)], "withheld", _client)


def _client(point: PointRecord) -> str:
    return point.client.reason or "the client was the bottleneck"


def _window(point: PointRecord) -> str:
    plural = "" if point.requests == 1 else "s"
    return f"the window is too short: {point.requests} request{plural}, {point.seconds:.1f} seconds"


def _lines(points: Iterable[PointRecord], what: str, reason_of: Callable[[PointRecord], str]) -> list[str]:
    """``c=8: WHAT: the client came 9.1 ms late … (none, p-eagle)``."""
    by_load: dict[Load, dict[str, list[str]]] = {}
    for point in points:
        reason = reason_of(point)
        by_load.setdefault(point.load, {}).setdefault(reason, []).append(point.arm)
    return [
        f"{load.label}: {what}: "
        + "; ".join(f"{reason} ({', '.join(dict.fromkeys(arms))})" for reason, arms in reasons.items())
        for load, reasons in by_load.items()
    ]
