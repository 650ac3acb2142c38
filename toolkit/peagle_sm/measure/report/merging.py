"""Several results files put together: one view of each run, with the runs that ended early. Pure.

Two runs differ in their prompts, in the hour, or in the machine's load, so a difference between them shows
nothing (docs/how-to/measure.md). Each run therefore has its own charts and headline. What a run of `tune` or
`verify` found about the same endpoints joins the run that measured them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from peagle_sm.core.errors import SpecError
from peagle_sm.measure.load.points import separate_withheld
from peagle_sm.measure.report import formatting
from peagle_sm.measure.report.formatting import MODE_NAMES, looks_of
from peagle_sm.measure.report.verdict import name_of_workload
from peagle_sm.measure.report.view import View
from peagle_sm.measure.results.records import ArmRecord, ComparisonRecord
from peagle_sm.measure.results.result_file import Results


def names_of(files: Sequence[Results]) -> tuple[str, ...]:
    """What to call each file: its name, else its run's; the whole path where two names are alike."""
    short = [PurePath(each.source).name if each.source else each.header.run_id for each in files]
    long = [each.source or each.header.run_id for each in files]
    seen = Counter(short)
    named = [short[at] if seen[short[at]] == 1 else long[at] for at in range(len(files))]
    again = Counter(named)
    return tuple(
        name if again[name] == 1 else f"{name} ({number})" for number, name in enumerate(named, start=1)
    )


def are_alike(keys: Iterable[Hashable]) -> bool:
    """Whether two of the rows with these keys would read alike."""
    found = list(keys)
    return len(set(found)) < len(found)


_COMPARING = ("compare", "quickstart")


def holds_nothing(results: Results) -> bool:
    """Whether there is no point, comparison, fit or check in it."""
    return not (results.points or results.comparisons or results.fits or results.checks)


def missing(results: Results) -> str | None:
    """``3 of 40 prompts``: the first thing the run was asked for and has not got; None for a whole one."""
    if holds_nothing(results):
        return None  # told as such
    config = results.header.config
    for found, asked, what in (
        _loads(results, config),
        _checks(results, config),
        *_of_comparisons(results, config),
    ):
        if found < asked:
            return f"{found} of {formatting.plural(asked, what)}"
    return None


Count = tuple[int, int, str]


def _loads(results: Results, config: dict[str, Any]) -> Count:
    asked = config.get("loads")
    labels = {point.load.label for point in results.points}
    if results.header.command not in ("bench", "compare") or not isinstance(asked, list):
        return 0, 0, "load"
    return sum(label in labels for label in asked), len(asked), "load"


def _checks(results: Results, config: dict[str, Any]) -> Count:
    asked = config.get("checks")
    if results.header.command != "verify" or not isinstance(asked, list):
        return 0, 0, "check"
    return len({check.name for check in results.checks} & set(asked)), len(asked), "check"


def _of_comparisons(results: Results, config: dict[str, Any]) -> list[Count]:
    if results.header.command not in _COMPARING:
        return []
    rows = results.comparisons
    counts = [(row.deployments, _number(config.get("deployments")), "deployment") for row in rows]
    workload = config.get("workload")
    prompts = _number(workload.get("prompts")) if isinstance(workload, dict) else 0
    for row in rows:
        if row.over == "prompts":
            counts.append((_prompts(results, row), prompts, "prompt"))
        elif row.over == "blocks":
            counts.append((row.units, _number(config.get("blocks")), "block"))
    return counts


def _number(told: object) -> int:
    return told if isinstance(told, int) else 0


def _prompts(results: Results, row: ComparisonRecord) -> int:
    """Prompts that both arms were asked; one that failed was asked too."""
    asked: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for each in results.requests:
        if each.load == row.load and each.phase == "measured":
            asked[each.arm].add((each.prompt_id, each.turn))
    return max(row.units, len(asked[row.faster] & asked[row.slower]))


def interruptions(files: Sequence[Results]) -> tuple[str, ...]:
    """``interrupted: 3 of 40 prompts``, with the file's name where there are several."""
    found = []
    for name, results in zip(names_of(files), files, strict=True):
        if told := missing(results):
            found.append(f"interrupted: {told}" + (f" in {name}" if len(files) > 1 else ""))
    return tuple(found)


def empty_notes(files: Sequence[Results]) -> tuple[str, ...]:
    """Each file of which nothing is in the report."""
    named = zip(names_of(files), files, strict=True)
    return tuple(_nothing(name, results) for name, results in named if holds_nothing(results))


def _nothing(name: str, results: Results) -> str:
    said = f"{name}: no finished load is in it, so nothing of it is shown"
    if not results.requests:
        return said
    return f"{said} ({formatting.plural(len(results.requests), 'request')} of a load that was cut short)"


def demand_figures(files: Sequence[Results]) -> None:
    """Refuse files of which none holds a finished load.

    Raises:
        SpecError: there is nothing to show.
    """
    if files and all(holds_nothing(results) for results in files):
        raise SpecError("; ".join(empty_notes(files)), next_step=_next_step(files[0]))


def _next_step(results: Results) -> str:
    command = results.header.command
    if command == "bench" and results.source:
        endpoint = results.header.config.get("endpoint") or "ENDPOINT"
        return (
            f"go on with the run: `peagle-sm bench {endpoint} --resume {results.source}`,"
            " with the options that it was begun with"
        )
    return f"run `peagle-sm {command}` again"


def demand_loads(files: Sequence[Results]) -> None:
    """Refuse files that hold results and none that a price can be put on.

    Raises:
        SpecError: nothing is there, or none of it is a measured load.
    """
    demand_figures(files)
    if any(results.points for results in files):
        return
    named = zip(names_of(files), files, strict=True)
    told = "; ".join(f"{name} is a file of `peagle-sm {each.header.command}`" for name, each in named)
    raise SpecError(
        f"{told}: it has no measured load to cost",
        next_step="measure the endpoint with `peagle-sm bench` or `peagle-sm compare`, and cost that file;"
        " `peagle-sm report` shows what this one holds",
    )


def uncosted_notes(files: Sequence[Results]) -> tuple[str, ...]:
    """Each file beside others that has results and no measured load."""
    named = zip(names_of(files), files, strict=True)
    return tuple(
        f"{name}: a file of `peagle-sm {each.header.command}`, without a measured load to cost"
        for name, each in named
        if not each.points and not holds_nothing(each)
    )


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
    shown = separate_withheld(points, rows)
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
