"""Merging of several results files into one view for each run. Pure.

Two runs differ in their prompts, in time, or in the machine's load, so they must not be compared
(docs/how-to/measure.md). Each run therefore has its own charts and headline. Results of `tune` or `verify`
for the same endpoints are added to the run that measured them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from peagle_bench.load.points import separate_withheld, with_doubts
from peagle_bench.report import formatting
from peagle_bench.report.formatting import looks_of
from peagle_bench.report.verdict import name_of_workload
from peagle_bench.report.view import View
from peagle_bench.results.records import ArmRecord, ComparisonRecord
from peagle_bench.results.result_file import Results
from peagle_bench.step_times import finished
from peagle_sm.core.errors import SpecError
from peagle_sm.core.spec.modes import MODES, title_of


def names_of(files: Sequence[Results]) -> tuple[str, ...]:
    """Name each file: its file name, else its run's id; the whole path if two names are equal."""
    short = [PurePath(each.source).name if each.source else each.header.run_id for each in files]
    long = [each.source or each.header.run_id for each in files]
    seen = Counter(short)
    named = [short[at] if seen[short[at]] == 1 else long[at] for at in range(len(files))]
    again = Counter(named)
    return tuple(
        name if again[name] == 1 else f"{name} ({number})" for number, name in enumerate(named, start=1)
    )


_COMPARING = ("compare", "quickstart")


def holds_nothing(results: Results) -> bool:
    """Decide whether a file has no point, comparison, fit, check, pack or step time."""
    figures = results.points, results.comparisons, results.fits, results.checks, results.packs
    return not any(figures) and finished(results) is None


def missing(results: Results) -> str | None:
    """Describe what an incomplete run lacks, such as ``3 of 40 prompts``; None for a complete one."""
    if holds_nothing(results):
        return None  # reported by `empty_notes`
    loads = {point.load.label for point in results.points}
    for done, wanted, what in (
        *_of_list(results, "bench", "load", loads),
        *_of_list(results, "compare", "load", loads),
        *_of_list(results, "verify", "check", (check.name for check in results.checks)),
        *_of_list(results, "packs", "pack", (pack.pack for pack in results.packs)),
        *_of_comparisons(results, results.header.config),
    ):
        if done < wanted:
            return f"{done} of {formatting.plural(wanted, what)}"
    return None


Count = tuple[int, int, str]  #: done, wanted, and what


def _of_list(results: Results, command: str, what: str, done: Iterable[str]) -> list[Count]:
    """Count what a command lists in its settings: bench and compare loads, verify checks, packs."""
    wanted = results.header.config.get(f"{what}s")
    if results.header.command != command or not isinstance(wanted, list):
        return []
    return [(len(set(done) & set(wanted)), len(wanted), what)]


def _of_comparisons(results: Results, config: dict[str, Any]) -> list[Count]:
    if results.header.command not in _COMPARING:
        return []
    rows = results.comparisons
    counts = [(row.deployments, _number(config.get("deployments")), "deployment") for row in rows]
    workload = config.get("workload")
    prompts = _number(workload.get("prompts")) if isinstance(workload, dict) else 0
    for row in rows:
        if row.over == "prompts" or (row.over != "blocks" and row.load.concurrency == 1):
            counts.append((_prompts(results, row), prompts, "prompt"))
        elif row.over == "blocks":
            counts.append((row.units, _number(config.get("blocks")), "block"))
    return counts


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _prompts(results: Results, row: ComparisonRecord) -> int:
    """Count the prompts sent to both arms in every deployment, failed ones included."""
    sent: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for each in results.requests:
        if each.load == row.load and each.phase == "measured":
            sent[each.arm].add((each.prompt_id, each.turn))
    both = set.intersection(*(sent[arm] for arm in row.measured_arms))
    return max(row.units, len(both)) if row.over == "prompts" else len(both)


def interruptions(files: Sequence[Results]) -> tuple[str, ...]:
    """List interrupted runs: ``interrupted: 3 of 40 prompts``, with the file's name if several."""
    lines = []
    for name, results in zip(names_of(files), files, strict=True):
        if share := missing(results):
            lines.append(f"interrupted: {share}" + (f" in {name}" if len(files) > 1 else ""))
    return tuple(lines)


def empty_notes(files: Sequence[Results]) -> tuple[str, ...]:
    """List the files that add nothing to the report."""
    named = zip(names_of(files), files, strict=True)
    return tuple(_nothing(name, results) for name, results in named if holds_nothing(results))


def _nothing(name: str, results: Results) -> str:
    line = f"{name}: no finished load, so nothing is shown"
    if not results.requests:
        return line
    return f"{line} ({formatting.plural(len(results.requests), 'request')} of an interrupted load)"


def demand_figures(files: Sequence[Results]) -> None:
    """Refuse files without any finished load.

    Raises:
        SpecError: no file has a finished load.
    """
    if files and all(holds_nothing(results) for results in files):
        raise SpecError("; ".join(empty_notes(files)), next_step=_next_step(files[0]))


def _next_step(results: Results) -> str:
    command = results.header.command
    if command == "packs":
        config = results.header.config
        words = [*(config.get("arms") or ["PLAIN", "ENDPOINT"]), "--packs", ",".join(config["packs"])]
        sizes = (("--prompts", "units"), ("--context", "context"))
        words += [f"{option} {config[name]}" for option, name in sizes if config.get(name)]
        return f"run `peagle-sm compare {' '.join(words)}` again"
    return f"run `peagle-sm {command}` again"


def demand_loads(files: Sequence[Results]) -> None:
    """Refuse files without a measured load: they cannot be priced.

    Raises:
        SpecError: no file has a measured load.
    """
    demand_figures(files)
    if any(results.points for results in files):
        return
    named = zip(names_of(files), files, strict=True)
    sources = "; ".join(f"{name} is a file of `peagle-sm {each.header.command}`" for name, each in named)
    raise SpecError(
        f"{sources} and has no measured load, so its cost cannot be computed",
        next_step="run `peagle-sm bench` or `peagle-sm compare` and use that file; `peagle-sm report` shows"
        " this one",
    )


def uncosted_notes(files: Sequence[Results]) -> tuple[str, ...]:
    """List the files with results but without a measured load."""
    named = zip(names_of(files), files, strict=True)
    return tuple(
        f"{name}: a file of `peagle-sm {each.header.command}` without a measured load, so it has no cost"
        for name, each in named
        if not each.points and not holds_nothing(each)
    )


_ORDER = {mode: place for place, mode in enumerate((*MODES, "unknown"))}


def refuse_mixed(files: Sequence[Results]) -> None:
    """Refuse files that must not be in one report.

    Raises:
        SpecError: no file, or figures of different targets.
    """
    if not files:
        raise SpecError("no results file was given", next_step="give at least one")
    targets = sorted({each.header.label or "a model on GPUs" for each in files})
    if len(targets) > 1:
        raise SpecError(
            f"the files have figures of {' and of '.join(targets)}; one report must not mix them",
            next_step="create separate reports",
        )


def view_of(files: Sequence[Results]) -> View:
    """Merge the files of one run into one view; `parts_of` finds which files belong to a run.

    Raises:
        SpecError: no file, or figures of different targets.
    """
    refuse_mixed(files)
    # Arms of files without figures would only make the labels longer.
    filled = [each for each in files if not holds_nothing(each)] or files
    first = {arm.name: arm for each in reversed(filled) for arm in reversed(each.arms)}
    arms = sorted(
        first.values(),
        key=lambda arm: (arm.control, _ORDER[arm.mode], arm.num_speculative_tokens or 0, arm.name),
    )
    merged = [
        replace(results, comparisons=with_doubts(results.points, results.comparisons)) for results in files
    ]
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
        packs=tuple(pack for each in merged for pack in each.packs),
        step_times=tuple(times for each in merged if (times := finished(each)) is not None),
        warnings=tuple(text for each in merged for text in each.warnings),
        files=tuple(zip(names_of(merged), merged, strict=True)),
        interrupted=interruptions(merged),
        empty=empty_notes(merged),
    )


def _labels(arms: Sequence[ArmRecord]) -> dict[str, str]:
    """Label arms: ``P-EAGLE`` if one arm has the mode, else with its K if K differs, or its name."""
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
                label = title_of(mode)
            elif len(depths) == len(group):
                label = f"{title_of(mode)} K={arm.num_speculative_tokens}"
            else:
                label = f"{title_of(mode)} {arm.name}"
            labels[arm.name] = label + (" again (A/A)" if control else "")
    return labels


@dataclass(frozen=True)
class Part:
    """One run and the files that belong to it; ``title`` names its file and its prompts."""

    name: str
    title: str
    files: tuple[Results, ...]
    view: View


def parts_of(files: Sequence[Results]) -> tuple[Part, ...]:
    """Split files into one part for each run, in order.

    Raises:
        SpecError: no file, or figures of different targets.
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
    parts = []
    for group in groups or [list(files)]:
        name = names[id(group[0])].removesuffix(".jsonl")
        workload = name_of_workload(group[0].header.config.get("workload"))
        title = " · ".join(word for word in (name, workload) if word)
        parts.append(Part(name, title, tuple(group), view_of(group)))
    return tuple(parts)


def _belongs(each: Results, run: Results) -> bool:
    """Decide whether a file without loads has the run's endpoints (or prompts, if it names none)."""
    here = {arm.name for arm in run.arms}
    others = {arm.name for arm in each.arms} | {
        name for check in each.checks for name in (check.arm, check.baseline) if name
    }
    if others:
        return bool(here & others)
    return each.header.config.get("workload") == run.header.config.get("workload")
