"""One check of a run against its record, its result, and the margins. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from peagle_bench.results.records import Interval, Judged, Load

MARGIN = 0.05  #: default: a speed-up may be 5% lower
ACCEPTANCE_MARGIN = 0.10  #: accepted draft tokens of a verification step may be 10% fewer
#: Default standard deviation of the log speed of one endpoint among others of its kind. Deployments of one
#: kind differ by 1 to 3%; docs/how-to/pipeline.md shows what follows if it is more than assumed.
ENDPOINT_SPREAD = 0.01

Name = Literal["speed", "rate", "acceptance", "answers"]


@dataclass(frozen=True)
class RecordCheck(Judged):
    """One check of one mode; ``passed`` None: not decided; ``reason`` explains the result.

    ``record`` and ``run`` are the figures of both runs, and ``change`` the ratio of the second to the first.
    ``applicable`` False: there is nothing to compare. ``needed`` is what would decide it.
    """

    name: Name
    mode: str
    load: Load
    passed: bool | None
    reason: str = ""
    record: float | None = None
    run: float | None = None
    change: Interval | None = None
    applicable: bool = True
    needed: str | None = None


@dataclass(frozen=True)
class Rules:
    """Margins and the least spread of endpoints, as shares.

    ``rates``: also judge tokens/s. ``changed``: differences that the run tests.
    """

    margin: float = MARGIN
    acceptance_margin: float = ACCEPTANCE_MARGIN
    endpoint_spread: float = ENDPOINT_SPREAD
    rates: bool = False
    changed: tuple[str, ...] = ()


def share(value: float) -> str:
    """Format ``5%`` or ``2.5%``."""
    return f"{100 * value:.3g}%"


def percents(interval: Interval) -> str:
    """Format ``-10.1% [-12.0%, -8.1%]``."""
    value, low, high = (f"{each - 1:+.1%}" for each in (interval.value, interval.low, interval.high))
    return f"{value} [{low}, {high}]"


def figure(check: RecordCheck, value: float | None) -> str:
    """Format a figure of a check with its unit; empty if it is unknown."""
    if value is None:
        return ""
    if check.name == "answers":
        return f"{value:.0f}"
    return {"speed": f"{value:.2f}x", "rate": f"{value:,.1f}/s", "acceptance": f"{value:.2f}"}[check.name]


def figures_text(check: RecordCheck) -> str:
    """Format ``record 1.38x, this run 1.24x, change -10.1% [-12.0%, -8.1%]``; empty without figures."""
    if check.record is None or check.run is None:
        return ""
    old, new = figure(check, check.record), figure(check, check.run)
    if check.name == "answers":
        return f"{new} of {old} answers are those of the record"
    change = "" if check.change is None else f", change {percents(check.change)}"
    return f"record {old}, this run {new}{change}"
