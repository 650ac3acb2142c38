"""Figures by slice as rows and sentences for all outputs. Pure.

`compare` and `verify` write their slices into the results file. Those of `bench`, which has one arm, are
computed from its requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby

from peagle_bench.compare.slices import slices_of_arm
from peagle_bench.load.points import separate_withheld
from peagle_bench.report import formatting
from peagle_bench.report.slices.columns import alike, is_verified
from peagle_bench.report.view import load_value
from peagle_bench.results.records import ArmRecord, SliceRecord
from peagle_bench.results.result_file import Results

HOW = (
    "The intervals are wider than usual, so that all of them hold together with 95% confidence (Bonferroni)."
)
NO_SPEED_UP = "No speed-up: verify does not time its answers. peagle-sm compare has it."
MOST_NAMED = 6  #: slices in a list


def slices_in(results: Results) -> list[SliceRecord]:
    """Return the slices of a results file, without those of withheld loads.

    A slice has the doubt of the comparison of its two arms.
    """
    slices = list(results.slices)
    if not slices and results.header.command == "bench":
        for arm in results.arms:
            slices += slices_of_arm([one for one in results.requests if one.arm == arm.name])
    separated = separate_withheld(results.points, results.comparisons)
    doubts = {(row.faster, row.slower, row.load): row.doubt for row in separated.comparisons}
    lost = {(one.arm, one.load) for one in separated.withheld_points}
    slices = [
        replace(record, doubt=doubts.get((record.arm, record.baseline or "", record.load)))
        for record in slices
    ]
    return [one for one in slices if not {(one.arm, one.load), (one.baseline or "", one.load)} & lost]


def name_of(one: SliceRecord) -> str:
    """Return ``prompt tokens: 1k to 4k``; for a label ``team: search``."""
    return f"{dimension_of(one)}: {one.value}"


def dimension_of(one: SliceRecord) -> str:
    """Return the dimension's name; for a label ``team``."""
    return one.dimension.removeprefix("label:")


def by_dimension(records: Sequence[SliceRecord]) -> list[tuple[str, list[SliceRecord]]]:
    """Group slices by their dimension, in their order."""
    return [(name, list(rows)) for name, rows in groupby(records, key=dimension_of)]


def groups(records: Sequence[SliceRecord], arms: Iterable[ArmRecord]) -> list[list[SliceRecord]]:
    """Sort slices into a group for each pair and load; first those over mode none at the lowest load."""
    modes = {arm.name: arm.mode for arm in arms}
    order = {name: place for place, name in enumerate(modes)}

    def key(one: SliceRecord) -> tuple[object, ...]:
        plain = one.baseline is not None and modes.get(one.baseline) == "none"
        return (
            one.wrong_outputs is not None,
            not plain,
            -order.get(one.arm, 0),
            order.get(one.baseline or "", 0),
            one.load.kind,
            load_value(one.load),
        )

    ordered = sorted(records, key=key)
    return [list(each) for _, each in groupby(ordered, key=key)]


def costs(records: Iterable[SliceRecord], arms: Iterable[ArmRecord]) -> list[SliceRecord]:
    """Return the slices in which speculation costs money: an arm is slower than one without speculation.

    All arms run on the same kind of instance, so a slower arm's tokens cost more.
    """
    plain = {arm.name for arm in arms if arm.mode == "none"}
    return [one for one in records if one.baseline in plain and one.costs_money]


def notes(records: Sequence[SliceRecord]) -> list[str]:
    """Say how the intervals of a group are made, and what its short table lacks."""
    elsewhere = _elsewhere(records)
    found = [f"({HOW})", *([f"({elsewhere}: peagle-sm report FILE --html PAGE)"] if elsewhere else [])]
    return [*found, f"({NO_SPEED_UP})"] if is_verified(records) else found


def _elsewhere(records: Sequence[SliceRecord]) -> str:
    """Name what only the page's complete table has; empty if the short table has all."""
    if any(one.survival for one in records):
        return "Survival by position and all intervals"
    if records[0].baseline is None or is_verified(records):
        return ""
    return "All intervals" if any(one.acceptance_length or one.identity for one in records) else ""


def result_lines(records: Sequence[SliceRecord], arms: Sequence[ArmRecord]) -> list[str]:
    """Name the slices in which speculation costs money, and those with other answers; or say none."""
    return [*_costs_lines(records, arms), *answers_lines(records)]


def _costs_lines(records: Sequence[SliceRecord], arms: Sequence[ArmRecord]) -> list[str]:
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


def answers_lines(records: Sequence[SliceRecord]) -> list[str]:
    """Name the slices of `verify` with faults or other answers; or say that there are none."""
    checked = [one for one in records if one.wrong_outputs is not None]
    if not checked:
        return []
    lines = []
    faulty = [one for one in checked if one.wrong_outputs]
    if faulty:
        lines.append(
            "faults in "
            + _listed([f"{name_of(one)} ({one.wrong_outputs} of {one.compared_outputs})" for one in faulty])
            + f": prompts to which the answers of {faulty[0].arm} are not the target's"
        )
    lines += [
        f"answers of {one.arm} differ in {name_of(one)}: {alike(one)} are identical; of the baseline's own"
        f" two runs {one.baseline_identical_outputs}"
        for one in checked
        if one.differs
    ]
    return lines or [f"no slice of {len(checked)} has answers that differ more than the baseline's own"]


def _listed(names: Sequence[str]) -> str:
    """List names, at most `MOST_NAMED` of them."""
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
