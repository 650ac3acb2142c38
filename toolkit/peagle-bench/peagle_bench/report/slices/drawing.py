"""The page's section on slices: intervals drawn, and below them a table with every figure. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from peagle_bench.report import formatting
from peagle_bench.report.section import Section, folded, table
from peagle_bench.report.slices.columns import (
    alike,
    complete_columns,
    is_verified,
    number,
    shares,
    span,
    survival,
    verdict,
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
from peagle_bench.report.speed_up import IntervalAxis
from peagle_bench.report.view import View
from peagle_bench.results.records import SliceRecord
from peagle_sm.core.display import Content, Safe, join, tag

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
    said = [_summary(view, each) for each in sorted_groups]
    drawn = [_group(view, each) for each in sorted_groups]
    rest = folded("Other arms and loads", *drawn[1:]) if len(drawn) > 1 else None
    body = join(_where(view, sorted_groups[0]), drawn[0], rest, tag("p", HOW, class_="note"))
    return Section("slices", "By slice of the traffic", said[0], body)


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
_MARKS = {
    "good": ("pass", "✓"),
    "bad": ("fail", "✗"),
    "open": ("open", "?"),
}


def _where(view: View, records: Sequence[SliceRecord]) -> Safe | None:
    """List where speculation helps and where it costs, most extreme first; None without a speed-up."""
    first = records[0]
    if first.baseline is None or is_verified(records):
        return None
    plain = view.arm(first.baseline).mode == "none"
    boxes = []
    for word, tone, title in (
        ("faster", "good", "Speculation helps" if plain else "Faster"),
        ("slower", "bad", "Speculation costs money" if plain else "Slower"),
    ):
        found = [one for one in records if verdict(one) == word and one.speed_up is not None]
        found.sort(key=lambda one: one.speed_up.value if one.speed_up else 1, reverse=word == "faster")
        names = [_named(one) for one in found[:MOST_NAMED]]
        names += [tag("li", f"and {len(found) - MOST_NAMED} more")] if len(found) > MOST_NAMED else []
        names = names or [tag("li", "in no slice, as far as this run shows")]
        heading = tag("h3", f"{_MARKS[tone][1]} {title}")
        boxes.append(tag("div", heading, tag("ul", *names), class_=f"t-{tone}"))
    return tag("div", *boxes, class_="where")


def _named(one: SliceRecord) -> Safe:
    ratio = formatting.ratio(one.speed_up.value) if one.speed_up else formatting.DASH
    return tag("li", tag("span", name_of(one)), tag("strong", ratio))


_VERDICT_WORDS = {"faster": "helps", "slower": "costs money"}


def _group(view: View, records: Sequence[SliceRecord]) -> Safe:
    """Draw one pair (or arm) under one load; below the picture all figures, folded."""
    first = records[0]
    names = view.label(first.arm)
    if first.baseline is not None:
        names += f" over {view.label(first.baseline)}"
    caption = f"{names} at {first.load.label}, by slice"
    verified = is_verified(records)
    draw = _of_answers if verified else _of_pair if first.baseline else _of_arm
    without = tag("p", NO_SPEED_UP, class_="note") if verified else None
    return join(draw(view, records, caption), _all_figures(records, caption), without)


def _all_figures(records: Sequence[SliceRecord], caption: str) -> Safe:
    columns = complete_columns(records)
    heads = ["slice", *(column.head for column in columns)]
    words = [0, *(at for at, column in enumerate(columns, start=1) if column.words)]

    def row(one: SliceRecord) -> list[Content]:
        return [column.cell(one) for column in columns]

    figures = _table(heads, records, row, f"{caption}: all figures", words)
    note = [tag("p", HOW_SURVIVAL, class_="note")] if any(one.survival for one in records) else []
    return folded("All figures by slice, with their intervals", figures, *note)


def _table(
    heads: Sequence[Content],
    records: Sequence[SliceRecord],
    row: Callable[[SliceRecord], list[Content]],
    caption: str,
    words: Sequence[int],
) -> Safe:
    body: list[list[Content]] = []
    for dimension, rows in by_dimension(records):
        body.append([dimension])
        body += [[one.value, *row(one)] for one in rows]
    return table(heads, body, caption=caption, words=words)


def _mark(one: SliceRecord, words: dict[str, str]) -> Safe:
    word = verdict(one)
    kind, sign = _MARKS[_TONES.get(word, "open")]
    return tag("span", f"{sign} {words.get(word, word)}", class_=f"mark {kind}")


def _of_pair(view: View, records: Sequence[SliceRecord], caption: str) -> Safe:
    plain = view.arm(records[0].baseline or "").mode == "none"
    words = _VERDICT_WORDS if plain else {}
    axis = IntervalAxis.over(one.speed_up for one in records if one.speed_up is not None)
    lengths = any(one.acceptance_length for one in records)
    compared = any(one.compared_outputs for one in records)
    heads: list[Content] = [
        "slice",
        axis.head("speed-up", ("slower", "faster")),
        "result",
        "speed-up",
        "interval",
        "prompts",
    ]
    heads += ["accepted"] if lengths else []
    heads += ["identical answers"] if compared else []

    def row(one: SliceRecord) -> list[Content]:
        found, tone = one.speed_up, _TONES.get(verdict(one), "open")
        doubtful = one.doubt is not None
        drawn = (
            axis.empty() if found is None else axis.cell(found, view.look(one.arm), tone, doubtful=doubtful)
        )
        value = formatting.DASH if found is None else formatting.ratio(found.value)
        cells: list[Content] = [drawn, _mark(one, words)]
        sure = found is not None and found.shown and not doubtful
        cells += [tag("strong", value) if sure else value, span(found)]
        cells += [f"{one.prompts:,}"]
        cells += [number(one.acceptance_length)] if lengths else []
        return cells + ([alike(one)] if compared else [])

    return _table(heads, records, row, caption, (0, 1, 2))


def _of_answers(view: View, records: Sequence[SliceRecord], caption: str) -> Safe:
    axis = IntervalAxis.of_shares(one.identity for one in records if one.identity is not None)
    lengths = any(one.acceptance_length for one in records)
    heads: list[Content] = [
        "slice",
        axis.head("identical answers"),
        "result",
        "identical answers",
        "interval",
        "prompts",
    ]
    heads += ["accepted", "interval"] if lengths else []

    def row(one: SliceRecord) -> list[Content]:
        look = view.look(one.arm)
        drawn: Content = "" if one.identity is None else axis.cell(one.identity, look)
        cells: list[Content] = [drawn, _mark(one, {}), alike(one), shares(one.identity), f"{one.prompts:,}"]
        return cells + ([number(one.acceptance_length), span(one.acceptance_length)] if lengths else [])

    return _table(heads, records, row, f"{caption}: greedy answers", (0, 1, 2))


def _of_arm(view: View, records: Sequence[SliceRecord], caption: str) -> Safe:
    axis = IntervalAxis.over(one.acceptance_length for one in records if one.acceptance_length is not None)
    heads: list[Content] = [
        "slice",
        axis.head("tokens per pass"),
        "acceptance length",
        "interval",
        "prompts",
    ]
    heads += ["survival by position"]

    def row(one: SliceRecord) -> list[Content]:
        length = one.acceptance_length
        drawn: Content = "" if length is None else axis.cell(length, view.look(one.arm))
        return [drawn, number(length), span(length), f"{one.prompts:,}", survival(one)]

    return _table(heads, records, row, caption, (0, 1))
