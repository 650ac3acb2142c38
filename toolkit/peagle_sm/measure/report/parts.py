"""Which files share a part of the report: each run has its own charts and headline. Pure.

Two runs differ in their prompts, in the hour, or in the machine's load, so a difference between them shows
nothing (docs/how-to/measure.md). What a run of `tune` or `verify` found about the same endpoints joins the
run that measured them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from peagle_sm.measure.report.merging import refuse_mixed, view_of
from peagle_sm.measure.report.runs import names_of
from peagle_sm.measure.report.unfinished import holds_nothing
from peagle_sm.measure.report.verdict import name_of_workload
from peagle_sm.measure.report.view import View
from peagle_sm.measure.result_file import Results


@dataclass(frozen=True)
class Part:
    """One run with what belongs to it; ``title`` is its file's name and its prompts'."""

    name: str
    title: str
    files: tuple[Results, ...]
    view: View


def parts_of(files: Sequence[Results]) -> tuple[Part, ...]:
    """Split files into parts, in their order.

    Raises:
        SpecError: no file, or stand-in weights beside real ones.
    """
    refuse_mixed(files)
    filled = [each for each in files if not holds_nothing(each)]
    groups = [[each] for each in filled if each.points or each.comparisons]
    runs = tuple(groups)
    for each in filled:
        if not (each.points or each.comparisons):
            home = next((group for group in runs if _belongs(each, group[0])), None)
            groups.append([each]) if home is None else home.append(each)
    if groups:  # files without figures are named in the first part's notes
        groups[0] += [each for each in files if holds_nothing(each)]
    names = {id(each): name for name, each in zip(names_of(files), files, strict=True)}
    found = []
    for group in groups or [list(files)]:
        name = names[id(group[0])].removesuffix(".jsonl")
        workload = name_of_workload(group[0].header.config.get("workload"))
        title = " · ".join(word for word in (name, workload) if word)
        found.append(Part(name, title, tuple(group), view_of(group)))
    return tuple(found)


def _belongs(each: Results, run: Results) -> bool:
    """Whether a run without loads is of the same endpoints, or of the same prompts where it names none."""
    here = {arm.name for arm in run.arms}
    there = {arm.name for arm in each.arms} | {
        name for check in each.checks for name in (check.arm, check.baseline) if name
    }
    if there:
        return bool(here & there)
    return each.header.config.get("workload") == run.header.config.get("workload")
