"""The few figures beside the headline. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from peagle_sm.measure.costs import CostRow, cheapest, cost_rows
from peagle_sm.measure.report import words
from peagle_sm.measure.report.verdict import checked, chief, first_point
from peagle_sm.measure.report.view import View


@dataclass(frozen=True)
class Tile:
    """A figure, what it is, and what to read it against; ``tone`` is "bad" where it warns."""

    name: str
    figure: str
    detail: str
    tone: str = ""


def tiles(view: View) -> tuple[Tile, ...]:
    """At most four; whether the answers are the same is never the one left out."""
    checks = _checks(view)
    if chief(view) is None and view.points:
        found = (*_of_point(view), _cost(view))
    else:
        alike = _alike(view) if checks is None else None
        found = (_over_none(view), _acceptance(view), alike, _cost(view), _best_k(view))
    shown = [tile for tile in found if tile is not None][: 4 if checks is None else 3]
    return (*shown, checks) if checks else tuple(shown)


def _of_point(view: View) -> tuple[Tile | None, ...]:
    """What one user of the endpoint sees, at the headline's load."""
    point = first_point(view)
    at = f"{view.label(point.arm)} at {point.load.label}"
    length = point.acceptance.per_step if point.acceptance else None
    figures = (
        ("ms to the first token, p95", point.ttft_ms.p95 if point.ttft_ms else None),
        ("ms per output token, p50", point.tpot_ms.p50 if point.tpot_ms else None),
        ("tokens per pass of the target", length),
    )
    return tuple(Tile(name, words.number(figure), at) for name, figure in figures if figure is not None)


def _over_none(view: View) -> Tile | None:
    first = chief(view)
    if first is None or view.arm(first.slower).mode == "none":
        return None
    for row in view.comparisons:
        if row.faster == first.faster and view.arm(row.slower).mode == "none" and row.load == first.load:
            detail = f"{view.label(row.faster)}, {words.span(row.ratio)} at {row.load.label}"
            return Tile("over plain decoding", words.ratio(row.ratio.value), detail)
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
    against = f"; {view.label(first.slower)} {words.number(lengths[1])}" if lengths[1] else ""
    return Tile("tokens per pass of the target", words.number(lengths[0]), view.label(first.faster) + against)


def _alike(view: View) -> Tile | None:
    """Whether greedy answers were those of plain decoding, where the comparison tells."""
    first = chief(view)
    if first is None:
        return None
    rows = [row for row in view.comparisons if row.faster == first.faster and row.load == first.load]
    plain = [row for row in rows if view.arm(row.slower).mode == "none"]
    row = (plain or [first])[0]
    if not row.compared_outputs:
        return None
    figure = f"{row.identical_outputs} of {row.compared_outputs}"
    return Tile("prompts answered alike", figure, f"{view.label(row.faster)}; {view.label(row.slower)}")


def _cost(view: View) -> Tile | None:
    rows = cost_rows(view.arms, view.points)
    best = cheapest(rows)
    if best is None or best.usd_per_million is None:
        return None
    detail = f"{view.label(best.arm.name)} at {best.load.label}"
    other = _rival(view, rows, best)
    if other is not None and other.usd_per_million:
        less = 1 - best.usd_per_million / other.usd_per_million
        detail += f", {words.share(less)} less than {view.label(other.arm.name)}"
    return Tile("USD per million output tokens", words.usd(best.usd_per_million), detail)


def _rival(view: View, rows: tuple[CostRow, ...], best: CostRow) -> CostRow | None:
    """The other side of the headline, at its own cheapest point."""
    first = chief(view)
    if first is None or best.arm.name not in (first.faster, first.slower):
        return None
    shown = [
        row.ratio.shown
        for row in view.comparisons
        if (row.faster, row.slower, row.load) == (first.faster, first.slower, best.load)
    ]
    if not any(shown):  # without a difference shown, none may be claimed in money either
        return None
    name = first.slower if best.arm.name == first.faster else first.faster
    return cheapest([row for row in rows if row.arm.name == name])


def _best_k(view: View) -> Tile | None:
    fits = [fit for fit in view.fits if fit.mode == "p-eagle"] or list(view.fits)
    if not fits:
        return None
    found = sorted({fit.best_k for fit in fits})
    figure = str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}"
    detail = ", ".join(f"{fit.best_k} at {fit.load.label}" for fit in fits)
    return Tile(f"best K, {words.MODE_NAMES[fits[0].mode]}", figure, detail)


def _checks(view: View) -> Tile | None:
    if not view.checks:
        return None
    passed = sum(check.passed is True for check in view.checks)
    failed = any(check.passed is False for check in view.checks)
    figure = f"{passed} of {sum(check.applicable for check in view.checks)}"
    return Tile("checks of the answers passed", figure, checked(view.checks), "bad" if failed else "")
