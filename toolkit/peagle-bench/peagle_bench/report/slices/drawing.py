"""The page's section on slices: intervals drawn, and below them a table with every figure. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from peagle_bench.report import formatting
from peagle_bench.report.charts import AxisHead, IntervalAxis, IntervalCell
from peagle_bench.report.section import Badge, Cell, PageTable, Ratio, Section
from peagle_bench.report.slices.columns import (
    ACCEPTED,
    ACCEPTED_SPAN,
    IDENTICAL,
    PROMPTS,
    Column,
    alike,
    complete_columns,
    is_verified,
    number,
    shares,
    span,
    survival,
    verdict,
    with_content,
)
from peagle_bench.report.slices.rows import (
    HOW,
    MOST_NAMED,
    NO_SPEED_UP,
    answers_lines,
    by_dimension,
    groups,
    name_of,
    slices_in,
)
from peagle_bench.report.view import View
from peagle_bench.results.records import SliceRecord

HOW_SURVIVAL = (
    "Position 2: the share of drafts accepted up to and at position 2. These intervals hold together over all"
    " slices at one position."
)


def by_slice(view: View) -> Section | None:
    """Make the section on slices: for each pair and load a row per slice, with its interval drawn."""
    records = [one for _, each in view.files for one in slices_in(each)]
    if not records:
        return None
    sorted_groups = groups(records, view.arms)
    content = {
        "where": _where(view, sorted_groups[0]),
        "groups": [_group(view, each) for each in sorted_groups],
        "how": HOW,
        "how_survival": HOW_SURVIVAL,
        "no_speed_up": NO_SPEED_UP,
    }
    return Section("slices", "By slice of the traffic", _summary(view, sorted_groups[0]), content)


def _summary(view: View, records: Sequence[SliceRecord]) -> str:
    """Write the result of a group in a sentence."""
    first = records[0]
    if is_verified(records):
        return ". ".join(line[0].upper() + line[1:] for line in answers_lines(records)) + "."
    if first.baseline is None:
        return f"Acceptance length of {view.label(first.arm)} at {first.load.label}."
    counts = {
        word: sum(verdict(one) == word for one in records) for word in ("faster", "slower", "undecided")
    }
    judged = sum(counts.values())
    if not judged:
        return "Too few prompts in every slice: an interval needs 8."
    return (
        f"{view.label(first.arm)} at {first.load.label} is faster than {view.label(first.baseline)} in"
        f" {counts['faster']} of {formatting.plural(judged, 'slice')}, slower in {counts['slower']}, and"
        f" undecided in {counts['undecided']}."
    )


_TONES = {"faster": "good", "slower": "bad", "faults": "bad", "differs": "bad", "alike": "good"}
_BADGES = {"good": ("pass", "✓"), "bad": ("fail", "✗"), "open": ("open", "?")}


@dataclass(frozen=True)
class Extremes:
    """Slices in which speculation helps, or costs; the most extreme first, ``more`` are not listed."""

    tone: str
    title: str
    slices: list[tuple[str, str]]  #: name and speed-up
    more: int


def _where(view: View, records: Sequence[SliceRecord]) -> list[Extremes]:
    """List where speculation helps and where it costs; none without a speed-up."""
    first = records[0]
    if first.baseline is None or is_verified(records):
        return []
    plain = view.arm(first.baseline).mode == "none"
    return [
        _extremes(records, "faster", "Speculation helps" if plain else "Faster"),
        _extremes(records, "slower", "Speculation costs money" if plain else "Slower"),
    ]


def _extremes(records: Sequence[SliceRecord], word: str, title: str) -> Extremes:
    ratios = [
        (one.speed_up.value, name_of(one))
        for one in records
        if verdict(one) == word and one.speed_up is not None
    ]
    ratios.sort(key=lambda pair: pair[0], reverse=word == "faster")
    named = [(name, formatting.ratio(value)) for value, name in ratios[:MOST_NAMED]]
    tone = _TONES[word]
    return Extremes(tone, f"{_BADGES[tone][1]} {title}", named, len(ratios) - len(named))


@dataclass(frozen=True)
class Group:
    """One pair (or arm) under one load: the picture, and all figures, folded."""

    picture: PageTable
    figures: PageTable
    survival: bool
    verified: bool


def _group(view: View, records: Sequence[SliceRecord]) -> Group:
    first = records[0]
    names = view.label(first.arm)
    if first.baseline is not None:
        names += f" over {view.label(first.baseline)}"
    caption = f"{names} at {first.load.label}, by slice"
    if is_verified(records):
        picture = _table(records, _of_answers(view, records), f"{caption}: greedy answers", (0, 1, 2))
    elif first.baseline:
        picture = _table(records, _of_pair(view, records), caption, (0, 1, 2))
    else:
        picture = _table(records, _of_arm(view, records), caption, (0, 1))
    every = complete_columns(records)
    words = [0, *(at for at, column in enumerate(every, start=1) if column.words)]
    figures = _table(records, _page_columns(every), f"{caption}: all figures", words)
    return Group(picture, figures, any(one.survival for one in records), is_verified(records))


PageColumn = tuple[Cell, Callable[[SliceRecord], Cell]]  #: a head, and its cell for a slice


def _page_columns(columns: Iterable[Column]) -> list[PageColumn]:
    return [(column.head, column.cell) for column in columns]


def _table(
    records: Sequence[SliceRecord], columns: Sequence[PageColumn], caption: str, words: Sequence[int]
) -> PageTable:
    rows: list[list[Cell]] = []
    for dimension, slices in by_dimension(records):
        rows.append([dimension])
        rows += [[one.value, *(cell(one) for _, cell in columns)] for one in slices]
    return PageTable(["slice", *(head for head, _ in columns)], rows, caption, words)


def _of_pair(view: View, records: Sequence[SliceRecord]) -> list[PageColumn]:
    axis = IntervalAxis.over(one.speed_up for one in records if one.speed_up is not None)
    plain = view.arm(records[0].baseline or "").mode == "none"

    def drawn(one: SliceRecord) -> Cell:
        tone = _TONES.get(verdict(one), "open")
        return IntervalCell(axis, one.speed_up, view.look(one.arm), tone, doubtful=one.doubt is not None)

    return [
        (AxisHead(axis, "speed-up", ("slower", "faster")), drawn),
        ("result", lambda one: _badge(one, plain=plain)),
        ("speed-up", _ratio),
        ("interval", lambda one: span(one.speed_up)),
        *_page_columns(
            with_content((PROMPTS, ACCEPTED, replace(IDENTICAL, head="identical answers")), records)
        ),
    ]


def _badge(one: SliceRecord, *, plain: bool = False) -> Badge:
    word = verdict(one)
    kind, sign = _BADGES[_TONES.get(word, "open")]
    words = {"faster": "helps", "slower": "costs money"} if plain else {}
    return Badge(kind, f"{sign} {words.get(word, word)}")


def _ratio(one: SliceRecord) -> Cell:
    if one.speed_up is None:
        return formatting.DASH
    return Ratio(formatting.ratio(one.speed_up.value), one.speed_up.shown and one.doubt is None)


def _of_answers(view: View, records: Sequence[SliceRecord]) -> list[PageColumn]:
    axis = IntervalAxis.of_shares(one.identity for one in records if one.identity is not None)
    return [
        (
            AxisHead(axis, "identical answers"),
            lambda one: "" if one.identity is None else IntervalCell(axis, one.identity, view.look(one.arm)),
        ),
        ("result", _badge),
        ("identical answers", alike),
        ("interval", lambda one: shares(one.identity)),
        *_page_columns(with_content((PROMPTS, ACCEPTED, ACCEPTED_SPAN), records)),
    ]


def _of_arm(view: View, records: Sequence[SliceRecord]) -> list[PageColumn]:
    axis = IntervalAxis.over(one.acceptance_length for one in records if one.acceptance_length is not None)

    def drawn(one: SliceRecord) -> Cell:
        length = one.acceptance_length
        return "" if length is None else IntervalCell(axis, length, view.look(one.arm))

    return [
        (AxisHead(axis, "tokens per pass"), drawn),
        ("acceptance length", lambda one: number(one.acceptance_length)),
        ("interval", lambda one: span(one.acceptance_length)),
        (PROMPTS.head, PROMPTS.cell),
        ("survival by position", survival),
    ]
