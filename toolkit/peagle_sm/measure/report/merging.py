"""Several results files put together as one view. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from peagle_sm.core.errors import SpecError
from peagle_sm.measure import withholding
from peagle_sm.measure.records import ArmRecord
from peagle_sm.measure.report.looks import looks_of
from peagle_sm.measure.report.runs import names_of
from peagle_sm.measure.report.unfinished import empty_notes, holds_nothing, interruptions
from peagle_sm.measure.report.view import View
from peagle_sm.measure.report.words import MODE_NAMES
from peagle_sm.measure.result_file import Results

_ORDER = {"none": 0, "eagle3": 1, "p-eagle": 2, "unknown": 3}


def refuse_mixed(files: Sequence[Results]) -> None:
    """Refuse files that one report must not hold.

    Raises:
        SpecError: no file, or stand-in weights beside real ones.
    """
    if not files:
        raise SpecError("there is no results file to report on", next_step="name at least one")
    if len({each.header.stand_in_weights for each in files}) > 1:
        raise SpecError(
            "some of the files were measured on the small stand-in weights and some were not;"
            " one report must not put them side by side",
            next_step="make a report for each",
        )


def view_of(files: Sequence[Results]) -> View:
    """Put files together; an arm that means something else in another file gets a name of its own.

    Raises:
        SpecError: no file, or stand-in weights beside real ones.
    """
    refuse_mixed(files)
    merged = _with_own_names(files)
    arms = sorted(
        _first_of_each(arm for each in _with_figures(merged) for arm in each.arms),
        key=lambda arm: (arm.control, _ORDER[arm.mode], arm.num_speculative_tokens or 0, arm.name),
    )
    points = [point for each in merged for point in each.points]
    rows = [row for each in merged for row in each.comparisons]
    shown = withholding.sort(points, rows)
    return View(
        headers=tuple(each.header for each in merged),
        arms=tuple(arms),
        labels=_labels(arms),
        looks=looks_of(arms),
        points=shown.points,
        withheld=shown.withheld_points,
        comparisons=shown.comparisons,
        withheld_comparisons=shown.withheld_comparisons,
        fits=tuple(fit for each in merged for fit in each.fits),
        checks=tuple(check for each in merged for check in each.checks),
        requests=sum(len(each.requests) for each in merged),
        warnings=tuple(text for each in merged for text in each.warnings),
        files=tuple(zip(names_of(merged), merged, strict=True)),
        interrupted=interruptions(merged),
        empty=empty_notes(merged),
    )


def _with_figures(files: Sequence[Results]) -> Sequence[Results]:
    """Those with something to show: the arms of a file without would only make the others' names longer."""
    return [each for each in files if not holds_nothing(each)] or files


def _meaning(arm: ArmRecord) -> tuple[object, ...]:
    return arm.mode, arm.num_speculative_tokens, arm.instance_type, arm.control


def _with_own_names(files: Sequence[Results]) -> list[Results]:
    known: dict[str, tuple[object, ...]] = {}
    merged = []
    for number, each in enumerate(files, start=1):
        renamed = {arm.name: f"{arm.name} ({number})" for arm in each.arms if _clashes(arm, known)}
        known.update({renamed.get(arm.name, arm.name): _meaning(arm) for arm in each.arms})
        merged.append(_renamed(each, renamed) if renamed else each)
    return merged


def _clashes(arm: ArmRecord, known: Mapping[str, tuple[object, ...]]) -> bool:
    return arm.name in known and known[arm.name] != _meaning(arm)


def _renamed(each: Results, names: Mapping[str, str]) -> Results:
    def of(name: str) -> str:
        return names.get(name, name)

    return replace(
        each,
        arms=tuple(replace(arm, name=of(arm.name)) for arm in each.arms),
        points=tuple(replace(point, arm=of(point.arm)) for point in each.points),
        requests=tuple(replace(request, arm=of(request.arm)) for request in each.requests),
        comparisons=tuple(
            replace(row, faster=of(row.faster), slower=of(row.slower)) for row in each.comparisons
        ),
        checks=tuple(replace(row, arm=of(row.arm), baseline=of(row.baseline)) for row in each.checks),
    )


def _first_of_each(arms: Iterable[ArmRecord]) -> list[ArmRecord]:
    found: dict[str, ArmRecord] = {}
    for arm in arms:
        found.setdefault(arm.name, arm)
    return list(found.values())


def _labels(arms: Sequence[ArmRecord]) -> dict[str, str]:
    """``P-EAGLE`` where one arm has the mode, with its K where K tells them apart, else its name too."""
    groups: dict[tuple[str, bool], list[ArmRecord]] = defaultdict(list)
    for arm in arms:
        groups[arm.mode, arm.control].append(arm)
    labels = {}
    for (mode, control), group in groups.items():
        depths = {arm.num_speculative_tokens for arm in group}
        for arm in group:
            if mode == "unknown":
                label = arm.name
            elif len(group) == 1:
                label = MODE_NAMES[mode]
            elif len(depths) == len(group):
                label = f"{MODE_NAMES[mode]} K={arm.num_speculative_tokens}"
            else:
                label = f"{MODE_NAMES[mode]} {arm.name}"
            labels[arm.name] = label + (" again (A/A)" if control else "")
    return labels
