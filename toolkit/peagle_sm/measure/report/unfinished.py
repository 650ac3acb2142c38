"""Runs that ended early: what they were asked for, what is there, and files without a finished load. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from peagle_sm.core.errors import SpecError
from peagle_sm.measure.records import ComparisonRecord
from peagle_sm.measure.report import words
from peagle_sm.measure.report.runs import names_of
from peagle_sm.measure.result_file import Results

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
            return f"{found} of {words.plural(asked, what)}"
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
    return f"{said} ({words.plural(len(results.requests), 'request')} of a load that was cut short)"


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
