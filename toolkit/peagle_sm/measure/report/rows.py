"""The report's figures as plain rows, for a terminal and for Markdown. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from peagle_sm.measure.costs import cost_rows
from peagle_sm.measure.records import Percentiles, PointRecord
from peagle_sm.measure.report import words
from peagle_sm.measure.report.over_load import KINDS
from peagle_sm.measure.report.speed_up import ordered
from peagle_sm.measure.report.view import View


@dataclass(frozen=True)
class Rows:
    """A table without its looks; ``figures`` are the heads of columns that go to the right."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    figures: tuple[str, ...]


def points(view: View) -> Rows | None:
    """Each arm under each load: rate, latencies, acceptance, cost."""
    found = list(_points(view))
    if not found:
        return None
    usd = {
        (row.arm.name, row.load, row.otps): row.usd_per_million for row in cost_rows(view.arms, view.points)
    }
    heads = ("load", "arm", "OTPS", "TTFT p95 ms", "TPOT p50 ms", "accepted", "USD/1M tokens")
    rows = tuple(
        (
            point.load.label,
            view.label(point.arm),
            words.number(point.otps),
            _part(point.ttft_ms, "p95"),
            _part(point.tpot_ms, "p50"),
            words.number(point.acceptance.per_step if point.acceptance else None),
            words.usd(usd.get((point.arm, point.load, point.otps))),
        )
        for point in found
    )
    return _used(Rows(heads, rows, heads[2:]))


def _points(view: View) -> Iterator[PointRecord]:
    for load in (load for kind in KINDS for load in view.loads(kind)):
        for arm in view.arms:
            yield from view.measured(arm.name, load)


def _part(found: Percentiles | None, name: str) -> str:
    return words.number(getattr(found, name) if found else None)


def _used(table: Rows) -> Rows:
    """Without the columns in which nothing stands."""
    kept = [
        at
        for at, head in enumerate(table.heads)
        if head not in table.figures or any(row[at] != words.DASH for row in table.rows)
    ]
    return Rows(
        tuple(table.heads[at] for at in kept),
        tuple(tuple(row[at] for at in kept) for row in table.rows),
        table.figures,
    )


def ratios(view: View) -> Rows | None:
    """Every comparison with its interval."""
    if not view.comparisons:
        return None
    heads = ("arm", "over", "load", "speed-up", "95% interval", "told from 1", "units", "deployments")
    rows = tuple(
        (
            view.label(row.faster),
            view.label(row.slower),
            row.load.label,
            words.ratio(row.ratio.value),
            words.span(row.ratio),
            "yes" if row.ratio.shown else "no",
            f"{row.units} {row.over}",
            str(row.deployments),
        )
        for row in ordered(view)
    )
    return Rows(heads, rows, ("speed-up", "deployments"))


def best_k(view: View) -> Rows | None:
    """What the tuner chose."""
    if not view.fits:
        return None
    rows = tuple(
        (words.MODE_NAMES[fit.mode], fit.load.label, str(fit.best_k), fit.reason) for fit in view.fits
    )
    return Rows(("mode", "load", "best K", "why"), rows, ("best K",))


def checks(view: View, *, power: bool = True) -> Rows | None:
    """What verify found; ``power`` adds what each check would have caught, which is long."""
    if not view.checks:
        return None
    said = {True: "passed", False: "FAILED", None: "not decided"}
    heads = ("check", "result", "found", "would be caught")
    rows = [(check.name, said[check.passed], check.summary, check.power) for check in view.checks]
    kept = len(heads) if power else len(heads) - 1
    return Rows(heads[:kept], tuple(row[:kept] for row in rows), ())
