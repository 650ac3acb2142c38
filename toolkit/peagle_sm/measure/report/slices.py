"""Figures by slice of the traffic, as rows for all outputs and as a section of the page. Pure.

`compare` writes its slices into the results file. Those of `bench`, which has one arm, are computed from its
requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from peagle_sm.core.display import Content, Safe, join, tag
from peagle_sm.measure.compare.slices import slices_of_arm
from peagle_sm.measure.load.points import separate_withheld
from peagle_sm.measure.report import formatting
from peagle_sm.measure.report.section import Section, folded, table
from peagle_sm.measure.report.speed_up import IntervalAxis
from peagle_sm.measure.report.view import View, load_value
from peagle_sm.measure.results.records import ArmRecord, SliceRecord
from peagle_sm.measure.results.result_file import Results

HOW = (
    "The intervals are wider than usual, so that all of them hold together with 95% confidence (Bonferroni)."
)


def slices_in(results: Results) -> list[SliceRecord]:
    """Return the slices of a results file, without those of withheld loads."""
    found = list(results.slices)
    if not found and results.header.command == "bench":
        for arm in results.arms:
            found += slices_of_arm([one for one in results.requests if one.arm == arm.name])
    shown = separate_withheld(results.points, ())
    lost = {(one.arm, one.load) for one in shown.withheld_points}
    return [one for one in found if not {(one.arm, one.load), (one.baseline or "", one.load)} & lost]


def verdict(one: SliceRecord) -> str:
    """Return the result of a slice in a word or two."""
    if one.speed_up is None:
        return "too few prompts" if one.baseline else ""
    if not one.speed_up.shown:
        return "not significant"
    return "faster" if one.speed_up.value > 1 else "slower"


DASH = formatting.DASH
HEADS = ("slice", "prompts", "x", "interval", "accepted", "identical", "")
FIGURES = ("prompts", "x", "accepted", "identical")


def row(one: SliceRecord) -> tuple[str, ...]:
    """Return the cells of `HEADS` for a slice."""
    length, ratio = one.acceptance_length, one.speed_up
    return (
        name_of(one),
        f"{one.prompts:,}",
        formatting.DASH if ratio is None else formatting.ratio(ratio.value),
        formatting.DASH if ratio is None else formatting.span(ratio),
        formatting.DASH if length is None else formatting.number(length.value),
        _identical(one),
        verdict(one),
    )


def name_of(one: SliceRecord) -> str:
    """Return ``prompt tokens: 1k to 4k``; for a label ``team: search``."""
    return f"{one.dimension.removeprefix('label:')}: {one.value}"


def _identical(one: SliceRecord) -> str:
    return f"{one.identical_outputs} of {one.compared_outputs}" if one.compared_outputs else formatting.DASH


def groups(records: Sequence[SliceRecord], arms: Iterable[ArmRecord]) -> list[list[SliceRecord]]:
    """Sort slices into a group for each pair and load; first those over mode none at the lowest load."""
    modes = {arm.name: arm.mode for arm in arms}
    order = {name: place for place, name in enumerate(modes)}

    def key(one: SliceRecord) -> tuple[object, ...]:
        plain = one.baseline is not None and modes.get(one.baseline) == "none"
        return (
            not plain,
            -order.get(one.arm, 0),
            order.get(one.baseline or "", 0),
            one.load.kind,
            load_value(one.load),
        )

    ordered = sorted(records, key=key)
    return [list(each) for _, each in groupby(ordered, key=lambda one: (one.arm, one.baseline, one.load))]


def costs(records: Iterable[SliceRecord], arms: Iterable[ArmRecord]) -> list[SliceRecord]:
    """Return the slices in which speculation costs money: an arm is slower than one without speculation.

    All arms run on the same kind of instance, so a slower arm's tokens cost more.
    """
    plain = {arm.name for arm in arms if arm.mode == "none"}
    return [one for one in records if one.baseline in plain and one.costs_money]


def costs_lines(records: Sequence[SliceRecord], arms: Sequence[ArmRecord]) -> list[str]:
    """Name the slices in which speculation costs money, for each arm; or say that there is none."""
    plain = {arm.name for arm in arms if arm.mode == "none"}
    judged = [one for one in records if one.baseline in plain and one.speed_up is not None]
    if not judged:
        return []
    found = costs(records, arms)
    if not found:
        return [f"speculation is significantly slower in none of {len(judged)} slices"]
    return [
        f"speculation costs money in {name_of(one)} at {one.load.label}: the speed-up of {one.arm} is"
        f" {formatting.with_span(one.speed_up)}"
        for one in found
    ]


def by_slice(view: View) -> Section | None:
    """Make the section on slices: for each pair and load a row per slice, with its interval drawn."""
    records = [one for _, each in view.files for one in slices_in(each)]
    if not records:
        return None
    tables = [_group(view, each) for each in groups(records, view.arms)]
    rest = folded("Other arms and loads", *tables[1:]) if len(tables) > 1 else None
    said = costs_lines(records, view.arms)
    lead = ". ".join(line[0].upper() + line[1:] for line in said) + "." if said else ""
    return Section(
        "slices", "By slice of the traffic", lead, join(tables[0], rest, tag("p", HOW, class_="note"))
    )


def _group(view: View, records: Sequence[SliceRecord]) -> Safe:
    first = records[0]
    paired = first.baseline is not None
    names = (
        f"{view.label(first.arm)} over {view.label(first.baseline or '')}"
        if paired
        else view.label(first.arm)
    )
    caption = f"{names} at {first.load.label}, by slice"
    lengths = any(one.acceptance_length for one in records)
    intervals = [one.speed_up if paired else one.acceptance_length for one in records]
    axis = IntervalAxis.over(one for one in intervals if one is not None)
    alike = any(one.compared_outputs for one in records)
    heads: list[Content] = [
        "slice",
        "prompts",
        "speed-up" if paired else "acceptance length",
        "interval",
        axis.head(),
    ]
    heads += ["accepted"] if paired and lengths else []
    heads += ["identical answers"] if alike else []
    body: list[list[Content]] = []
    for one, shown in zip(records, intervals, strict=True):
        cells: list[Content] = [name_of(one), f"{one.prompts:,}"]
        if shown is None:
            cells += [formatting.DASH, tag("small", "too few prompts"), ""]
        else:
            text = formatting.ratio(shown.value) if paired else formatting.number(shown.value)
            cells += [
                tag("strong", text) if shown.shown else text,
                formatting.span(shown),
                axis.cell(shown, view.look(first.arm)),
            ]
        if paired and lengths:
            cells.append(formatting.number(one.acceptance_length.value if one.acceptance_length else None))
        if alike:
            cells.append(_identical(one))
        body.append(cells)
    return table(heads, body, caption=caption)
