"""One row for each mode under each load: rate, TTFT, acceptance, ratios, identity and cost. Pure.

The ratios are those of the comparison, over no speculation and over the fastest other mode. Several
deployments of a mode are one row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from peagle_bench.report import formatting
from peagle_bench.report.costs import cost_rows
from peagle_bench.report.view import View
from peagle_bench.results.records import ArmRecord, ComparisonRecord, Interval, Load, PointRecord
from peagle_sm.core.display import Table


@dataclass(frozen=True)
class ModeRow:
    """A mode under a load; ``best_other`` is the name of the fastest other arm. Unknown figures are None.

    ``doubt`` is why one of the two comparisons has no verdict. ``identical`` are prompts with the answers of
    the arm without speculation, of ``compared`` ones.
    """

    arm: str
    mode: str
    k: int | None
    load: Load
    otps: float
    ttft_ms: float | None
    acceptance_length: float | None
    over_none: Interval | None
    best_other: str | None
    over_best_other: Interval | None
    identical: int | None
    compared: int | None
    usd_per_million: float | None
    doubt: str | None = None

    @property
    def name(self) -> str:
        """``p-eagle=7``: the mode with its K; the arm's name if its mode is unknown."""
        if self.mode == "unknown":
            return self.arm
        return f"{self.mode}={self.k}" if self.k else self.mode


@dataclass(frozen=True)
class _Side:
    """An arm in all its deployments under one load."""

    arm: ArmRecord
    points: tuple[PointRecord, ...]

    @property
    def otps(self) -> float:
        """Tokens per second of all windows together."""
        seconds = math.fsum(point.seconds for point in self.points)
        return math.fsum(point.otps * point.seconds for point in self.points) / seconds if seconds else 0.0


def mode_rows(view: View) -> list[ModeRow]:
    """Make the rows by load, in the order of the modes; none without comparisons."""
    names = {name for row in view.comparisons for name in (row.faster, row.slower) if not row.control}
    arms = [arm for arm in view.arms if arm.name in names]
    costs = {(row.arm.name, row.load): row.usd_per_million for row in cost_rows(view.arms, view.points)}
    rows = []
    for load in view.loads():
        sides = [side for arm in arms if (side := _Side(arm, _points(view, arms, arm, load))).points]
        if len(sides) > 1:
            rows += [_row(view, side, sides, load, costs) for side in sides]
    return rows


def _points(view: View, sides: Sequence[ArmRecord], arm: ArmRecord, load: Load) -> tuple[PointRecord, ...]:
    """Return an arm's points, with those of its other deployments if its mode and K find them."""
    key = arm.mode, arm.num_speculative_tokens
    alone = sum((each.mode, each.num_speculative_tokens) == key for each in sides) == 1
    own = [
        each.name
        for each in view.arms
        if each.name == arm.name
        or (
            alone
            and not each.control
            and arm.mode != "unknown"
            and (each.mode, each.num_speculative_tokens) == key
        )
    ]
    return tuple(point for name in own for point in view.measured(name, load))


def _row(
    view: View,
    side: _Side,
    sides: Sequence[_Side],
    load: Load,
    costs: dict[tuple[str, Load], float | None],
) -> ModeRow:
    others = [each for each in sides if each is not side]
    plain = next((each for each in others if each.arm.mode == "none"), None)
    best = max(others, key=lambda each: each.otps)
    over_none, to_none = (None, None) if plain is None else _ratio(view, side, plain, load)
    over_best, to_best = _ratio(view, side, best, load)
    ttft = [point.ttft_ms.p50 for point in side.points if point.ttft_ms is not None]
    lengths = [
        (point.acceptance.per_step, point.acceptance.drafts)
        for point in side.points
        if point.acceptance is not None and point.acceptance.per_step is not None
    ]
    drafts = sum(count for _, count in lengths)
    tokens = sum(point.output_tokens for point in side.points)
    usd = [(costs.get((point.arm, load)), point.output_tokens) for point in side.points]
    known = [price * count for price, count in usd if price is not None]
    return ModeRow(
        arm=side.arm.name,
        mode=side.arm.mode,
        k=side.arm.num_speculative_tokens,
        load=load,
        otps=side.otps,
        ttft_ms=math.fsum(ttft) / len(ttft) if ttft else None,
        acceptance_length=math.fsum(length * count for length, count in lengths) / drafts if drafts else None,
        over_none=over_none,
        best_other=best.arm.name,
        over_best_other=over_best,
        identical=to_none.identical_outputs if to_none else None,
        compared=to_none.compared_outputs if to_none else None,
        usd_per_million=math.fsum(known) / tokens if tokens and len(known) == len(usd) else None,
        doubt=next((row.doubt for row in (to_none, to_best) if row is not None and row.doubt), None),
    )


def _ratio(
    view: View, side: _Side, other: _Side, load: Load
) -> tuple[Interval | None, ComparisonRecord | None]:
    """Return the ratio of two arms and its comparison, whichever of them is its first."""
    for row in view.comparisons:
        if row.load == load and not row.control:
            if (row.faster, row.slower) == (side.arm.name, other.arm.name):
                return row.ratio, row
            if (row.faster, row.slower) == (other.arm.name, side.arm.name):
                ratio = row.ratio
                return Interval(1 / ratio.value, 1 / ratio.high, 1 / ratio.low), row
    return None, None


def modes(view: View) -> Table | None:
    """Make the table of modes; None with fewer than two of them. Empty columns are left out."""
    rows = mode_rows(view)
    if not rows:
        return None
    columns: dict[str, Callable[[ModeRow], str]] = {
        "load": lambda row: row.load.label,
        "mode": lambda row: row.name,
        "OTPS": lambda row: formatting.number(row.otps),
        "TTFT ms": lambda row: formatting.number(row.ttft_ms),
        "accepted": lambda row: formatting.number(row.acceptance_length),
        "over none": lambda row: _ratio_text(row, row.over_none),
        "over best other": lambda row: _ratio_text(row, row.over_best_other),
        "same": lambda row: f"{row.identical}/{row.compared}" if row.compared else formatting.DASH,
        "USD/1M": lambda row: formatting.usd(row.usd_per_million),
    }
    used = [head for head, cell in columns.items() if {cell(row) for row in rows} != {formatting.DASH}]
    if len({row.load for row in rows}) == 1:
        used.remove("load")
    lines = tuple(tuple(columns[head](row) for head in used) for row in rows)
    right = tuple(head for head in used if head not in ("load", "mode", "over none", "over best other"))
    return Table(_title(rows), tuple(used), lines, right)


def _ratio_text(row: ModeRow, ratio: Interval | None) -> str:
    return formatting.with_span(ratio) + ("?" if ratio is not None and row.doubt else "")


def _title(rows: Sequence[ModeRow]) -> str:
    """Name the fastest mode of each load and the next one, or both if their interval includes 1."""
    parts = []
    for load in dict.fromkeys(row.load for row in rows):
        first, second, *_ = sorted((row for row in rows if row.load == load), key=lambda row: -row.otps)
        ratio = first.over_best_other
        decided = ratio is not None and ratio.low > 1 and not first.doubt
        second_place = f", then {second.name}" if decided else f" or {second.name}, undecided"
        parts.append(f"{load.label}: {first.name}{second_place}")
    doubt = " (?: no verdict)" if any(row.doubt for row in rows) else ""
    return f"Fastest at {'; '.join(parts)}{doubt}"


def data(view: View) -> list[dict[str, Any]]:
    """Return the rows as plain JSON types."""
    return [
        {
            "arm": row.arm,
            "mode": row.mode,
            "num_speculative_tokens": row.k,
            "load": row.load.label,
            "otps": row.otps,
            "ttft_p50_ms": row.ttft_ms,
            "acceptance_length": row.acceptance_length,
            "over_none": row.over_none and asdict(row.over_none),
            "best_other": row.best_other,
            "over_best_other": row.over_best_other and asdict(row.over_best_other),
            "identical_outputs": row.identical,
            "compared_outputs": row.compared,
            "usd_per_million_tokens": row.usd_per_million,
            "doubt": row.doubt,
        }
        for row in mode_rows(view)
    ]
