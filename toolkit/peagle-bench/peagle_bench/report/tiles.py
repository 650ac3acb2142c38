"""The key figures at the top of a report. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from peagle_bench.report import formatting
from peagle_bench.report.costs import cheapest, cost_rows
from peagle_bench.report.verdict import checked, chief, first_point
from peagle_bench.report.view import View


@dataclass(frozen=True)
class Tile:
    """Key figure with its name and context; ``tone`` "bad" is a warning."""

    name: str
    figure: str
    detail: str
    tone: str = ""


def tiles(view: View) -> tuple[Tile, ...]:
    """Choose at most four key figures; the result of the checks is always included."""
    checks = _checks(view)
    if chief(view) is None and view.points:
        chosen = (*_of_point(view), _cost(view))
    else:
        alike = _alike(view) if checks is None else None
        chosen = (_over_none(view), _acceptance(view), alike, _cost(view))
    shown = [tile for tile in chosen if tile is not None][: 4 if checks is None else 3]
    return (*shown, checks) if checks else tuple(shown)


def _of_point(view: View) -> tuple[Tile | None, ...]:
    """Make the key figures of one point: latencies and acceptance, at the headline's load."""
    point = first_point(view)
    at = f"{view.label(point.arm)} at {point.load.label}"
    length = point.acceptance.per_step if point.acceptance else None
    figures = (
        ("ms to the first token, p95", point.ttft_ms.p95 if point.ttft_ms else None),
        ("ms per output token, p50", point.tpot_ms.p50 if point.tpot_ms else None),
        ("tokens per pass of the target", length),
    )
    return tuple(Tile(name, formatting.number(figure), at) for name, figure in figures if figure is not None)


def _over_none(view: View) -> Tile | None:
    first = chief(view)
    if first is None or view.arm(first.slower).mode == "none":
        return None
    for row in view.comparisons:
        if row.faster == first.faster and view.arm(row.slower).mode == "none" and row.load == first.load:
            detail = f"{view.label(row.faster)}, {formatting.span(row.ratio)} at {row.load.label}"
            detail += "" if row.doubt is None else f"; no verdict: {row.doubt}"
            return Tile("speed-up over no speculation", formatting.ratio(row.ratio.value), detail)
    return None


def _acceptance(view: View) -> Tile | None:
    first = chief(view)
    if first is None:
        return None
    lengths = [
        next((p.acceptance.per_step for p in view.measured(name, first.load) if p.acceptance), None)
        for name in (first.faster, first.slower)
    ]
    if lengths[0] is None:
        return None
    against = f"; {view.label(first.slower)} {formatting.number(lengths[1])}" if lengths[1] else ""
    return Tile(
        "tokens per pass of the target", formatting.number(lengths[0]), view.label(first.faster) + against
    )


def _alike(view: View) -> Tile | None:
    """Make the key figure of identical greedy answers, if they were compared."""
    first = chief(view)
    if first is None:
        return None
    rows = [row for row in view.comparisons if row.faster == first.faster and row.load == first.load]
    plain = [row for row in rows if view.arm(row.slower).mode == "none"]
    row = (plain or [first])[0]
    if not row.compared_outputs:
        return None
    figure = f"{row.identical_outputs} of {row.compared_outputs}"
    return Tile("identical answers", figure, f"{view.label(row.faster)}; {view.label(row.slower)}")


def _cost(view: View) -> Tile | None:
    best = cheapest(cost_rows(view.arms, view.points))
    if best is None or best.usd_per_million is None:
        return None
    detail = f"{view.label(best.arm.name)} at {best.load.label}"
    return Tile("USD per million output tokens", formatting.usd(best.usd_per_million), detail)


def _checks(view: View) -> Tile | None:
    if not view.checks:
        return None
    passed = sum(check.passed is True for check in view.checks)
    failed = any(check.passed is False for check in view.checks)
    figure = f"{passed} of {sum(check.applicable for check in view.checks)}"
    return Tile("checks of the answers passed", figure, checked(view.checks), "bad" if failed else "")
