"""Figures of `compare` by slice of the traffic: a table, a section of the page, and sentences. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from peagle_bench.load.points import separate_withheld
from peagle_bench.report import formatting
from peagle_bench.report.blocks import (
    Badge,
    Cell,
    Folded,
    Notes,
    PageTable,
    Ratio,
    Section,
    page_tables,
)
from peagle_bench.report.charts import AxisHead, IntervalAxis, IntervalCell
from peagle_bench.report.formatting import DASH
from peagle_bench.report.view import View, load_value
from peagle_bench.results.records import ArmRecord, Interval, SliceRecord
from peagle_bench.results.result_file import Results, encode
from peagle_sm.core.display import Table

HOW = (
    "The intervals are wider than usual, so that all of them hold together with 95% confidence (Bonferroni)."
)


def slices_in(results: Results) -> list[SliceRecord]:
    """Return the slices of a results file, without those of withheld loads.

    A slice has the doubt of the comparison of its two arms.
    """
    separated = separate_withheld(results.points, results.comparisons)
    doubts = {(row.faster, row.slower, row.load): row.doubt for row in separated.comparisons}
    lost = {(point.arm, point.load) for point in separated.withheld_points}
    withheld = {(row.faster, row.slower, row.load) for row in separated.withheld_comparisons}
    return [
        replace(each, doubt=doubts.get((each.arm, each.baseline, each.load)))
        for each in results.slices
        if not {(each.arm, each.load), (each.baseline, each.load)} & lost
        and (each.arm, each.baseline, each.load) not in withheld
    ]


def groups(records: Sequence[SliceRecord], arms: Iterable[ArmRecord]) -> list[list[SliceRecord]]:
    """Sort slices into a group for each pair and load; first those over mode none at the lowest load."""
    modes = {arm.name: arm.mode for arm in arms}
    order = {name: place for place, name in enumerate(modes)}

    def key(record: SliceRecord) -> tuple[object, ...]:
        return (
            modes.get(record.baseline) != "none",
            -order.get(record.arm, 0),
            order.get(record.baseline, 0),
            record.load.kind,
            load_value(record.load),
        )

    return [list(group) for _, group in groupby(sorted(records, key=key), key=key)]


def name_of(record: SliceRecord) -> str:
    """Return ``prompt tokens: 1k to 4k``; for a label ``team: search``."""
    return f"{_dimension(record)}: {record.value}"


def _dimension(record: SliceRecord) -> str:
    return record.dimension.removeprefix("label:")


def verdict(record: SliceRecord) -> str:
    """Return a slice's result in a word or two."""
    if record.speed_up is None:
        return "too few"
    if record.doubt is not None:
        return "no verdict"
    if not record.speed_up.shown:
        return "undecided"
    return "faster" if record.speed_up.value > 1 else "slower"


def data(results: Results) -> list[dict[str, Any]]:
    """Return the figures by slice for --format json."""
    return [
        {**encode(each), "verdict": verdict(each), "costs_money": each.costs_money}
        for each in slices_in(results)
    ]


def _span(interval: Interval | None) -> str:
    return DASH if interval is None else formatting.span(interval)


def _share_span(interval: Interval | None) -> str:
    return DASH if interval is None else f"[{100 * interval.low:.0f}%, {100 * interval.high:.0f}%]"


def _alike(record: SliceRecord) -> str:
    if not record.compared_outputs:
        return DASH
    return f"{record.identical_outputs} of {record.compared_outputs}"


@dataclass(frozen=True)
class _Column:
    """Column of a table of slices; ``words`` are aligned to the left."""

    head: str
    cell: Callable[[SliceRecord], str]
    words: bool = False


_PROMPTS = _Column("prompts", lambda each: f"{each.prompts:,}")
_SPEED_UP = _Column("x", lambda each: formatting.ratio(each.speed_up.value) if each.speed_up else DASH)
_SPEED_UP_SPAN = _Column("interval", lambda each: _span(each.speed_up), words=True)
_ACCEPTED = _Column(
    "accepted",
    lambda each: formatting.number(each.acceptance_length.value) if each.acceptance_length else DASH,
)
_ACCEPTED_SPAN = _Column("interval", lambda each: _span(each.acceptance_length), words=True)
_IDENTICAL = _Column("identical", _alike)
_IDENTICAL_SPAN = _Column("interval", lambda each: _share_span(each.identity), words=True)
_RESULT = _Column("result", verdict, words=True)
_EVERY = (_PROMPTS, _SPEED_UP, _SPEED_UP_SPAN, _ACCEPTED, _ACCEPTED_SPAN, _IDENTICAL, _IDENTICAL_SPAN)


def table(records: Sequence[SliceRecord], *, every: bool = False) -> Table:
    """Make the table of a group of slices: narrow enough for a terminal, or with ``every`` figure."""
    chosen = _EVERY if every else (_PROMPTS, _SPEED_UP, _SPEED_UP_SPAN, _ACCEPTED, _RESULT)
    columns = [column for column in chosen if any(column.cell(each) not in ("", DASH) for each in records)]
    return Table(
        "By slice of the traffic",
        ("slice", *(column.head for column in columns)),
        tuple((name_of(each), *(column.cell(each) for column in columns)) for each in records),
        tuple(column.head for column in columns if not column.words),
        folded=True,
    )


def sentences(records: Sequence[SliceRecord], arms: Sequence[ArmRecord]) -> list[str]:
    """Name the slices in which speculation costs money, or say that there are none.

    All arms run on the same kind of instance, so the tokens of a slower arm cost more.
    """
    plain = {arm.name for arm in arms if arm.mode == "none"}
    judged = [each for each in records if each.baseline in plain and each.speed_up is not None]
    if not judged:
        return []
    costly = [each for each in judged if each.costs_money]
    if not costly:
        return [f"speculation is significantly slower in none of {len(judged)} slices"]
    return [
        f"speculation costs money in {name_of(each)} at {each.load.label}: the speed-up of {each.arm} is"
        f" {formatting.with_span(each.speed_up)}"
        for each in costly
    ]


def by_slice(view: View) -> Section | None:
    """Make the page's section: for each pair and load a row for each slice, with its interval drawn."""
    records = [each for _, results in view.files for each in slices_in(results)]
    if not records:
        return None
    first, *others = groups(records, view.arms)
    blocks = [
        _drawn(view, first),
        Folded("All figures by slice, with their intervals", page_tables(table(first, every=True))),
        *([Folded("Other arms and loads", [_drawn(view, group) for group in others])] if others else []),
        Notes([HOW]),
    ]
    return Section("slices", "By slice of the traffic", _summary(view, first), blocks)


def _summary(view: View, records: Sequence[SliceRecord]) -> str:
    """Write the result of a group in a sentence."""
    first = records[0]
    counts = {word: [verdict(each) for each in records].count(word) for word in _JUDGED}
    judged = sum(counts.values())
    if not judged:
        return "Too few prompts in every slice: an interval needs 8."
    return (
        f"{view.label(first.arm)} at {first.load.label} is faster than {view.label(first.baseline)} in"
        f" {counts['faster']} of {formatting.plural(judged, 'slice')}, slower in {counts['slower']}, and"
        f" undecided in {counts['undecided']}."
    )


_JUDGED = ("faster", "slower", "undecided")
_TONES = {"faster": "good", "slower": "bad"}
_BADGES = {"good": ("pass", "✓"), "bad": ("fail", "✗"), "open": ("open", "?")}


def _drawn(view: View, records: Sequence[SliceRecord]) -> PageTable:
    """Make a group's table: the interval of each slice drawn, its result and its main figures."""
    first = records[0]
    plain = view.arm(first.baseline).mode == "none"
    axis = IntervalAxis.over(each.speed_up for each in records if each.speed_up is not None)

    def drawn(each: SliceRecord) -> Cell:
        tone = _TONES.get(verdict(each), "open")
        return IntervalCell(axis, each.speed_up, view.look(each.arm), tone, doubtful=each.doubt is not None)

    columns: list[tuple[Cell, Callable[[SliceRecord], Cell]]] = [
        (AxisHead(axis, "speed-up", ("slower", "faster")), drawn),
        ("result", lambda each: _badge(each, plain=plain)),
        ("speed-up", _ratio),
    ]
    figures = (_SPEED_UP_SPAN, _PROMPTS, _ACCEPTED, _IDENTICAL)
    columns += [(column.head, column.cell) for column in figures]
    rows: list[list[Cell]] = []
    for dimension, group in groupby(records, key=_dimension):
        rows.append([dimension])
        rows += [[each.value, *(cell(each) for _, cell in columns)] for each in group]
    names = f"{view.label(first.arm)} over {view.label(first.baseline)}"
    heads = ["slice", *(head for head, _ in columns)]
    return PageTable(heads, rows, f"{names} at {first.load.label}, by slice", (0, 1, 2))


def _badge(record: SliceRecord, *, plain: bool) -> Badge:
    word = verdict(record)
    kind, sign = _BADGES[_TONES.get(word, "open")]
    words = {"faster": "helps", "slower": "costs money"} if plain else {}
    return Badge(kind, f"{sign} {words.get(word, word)}")


def _ratio(record: SliceRecord) -> Cell:
    if record.speed_up is None:
        return DASH
    sure = record.speed_up.shown and record.doubt is None
    return Ratio(formatting.ratio(record.speed_up.value), sure)
