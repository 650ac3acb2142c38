"""The results of checks as people read them."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peagle_sm.core.checks.preflight import Result

_HEADS = {
    "error": "Errors",
    "warning": "Warnings",
    "unknown": "Could not be looked at",
    "skipped": "Skipped",
}


# What a reader asked for; the cause behind it may be that of other readers too.
_OPERATION = re.compile(r"^[A-Z][A-Za-z0-9]+: ")
# A command that goes somewhere, and does not say where.
_COMMAND = re.compile(
    r"`(peagle-sm (?!local |models|checks|init|schema)(?:(?!--local|--region|--profile)[^`])*)`"
)


def render_results(results: Sequence[Result], flags: str = "", *, verbose: bool = False) -> str:
    """What is not well, worst first, with what to do; ``verbose`` adds reasons, sources and what is well.

    ``flags`` are the options that make a command reach the place that was looked at.
    """
    return _COMMAND.sub(rf"`\1{flags}`", _rendered(results, verbose))


def _rendered(results: Sequence[Result], verbose: bool) -> str:
    blocks = []
    for status, title in _HEADS.items():
        chosen = [each for each in results if each.status == status]
        if not chosen:
            continue
        if status in ("unknown", "skipped") and not verbose:
            blocks.append("\n".join([title, *_by_cause(chosen)]))
        else:
            blocks.append("\n".join([title, *(line for each in chosen for line in _lines(each, verbose))]))
    told = [each for each in results if each.status == "ok" and each.message]
    if told:
        blocks.append("\n".join(["Good to know", *(f"  {each.check}: {each.message}" for each in told)]))
    good = list(dict.fromkeys(each.check for each in results if each.status == "ok" and not each.message))
    if good and verbose:
        blocks.append("In order\n" + _wrapped(good))
    said = summary(results)
    return "\n\n".join([*blocks, said if verbose else f"{said}\n(--verbose: all of them, with sources)"])


def _by_cause(results: Sequence[Result]) -> list[str]:
    """One line for each cause: many checks fail to look for the same reason."""
    causes: dict[str, list[str]] = {}
    for each in results:
        causes.setdefault(_OPERATION.sub("", each.message), []).append(each.check)
    return [
        f"  {', '.join(dict.fromkeys(checks))}: {cause}"
        if len(checks) < 4
        else f"  {len(set(checks))} checks: {cause}"
        for cause, checks in causes.items()
    ]


def _lines(result: Result, verbose: bool) -> list[str]:
    lines = [f"  {result.check}: {result.message}"]
    if verbose and result.status in ("error", "warning"):
        lines.append(f"    why: {result.why}")
    if result.next_step:
        lines.append(f"    next: {result.next_step}")
    if result.fix:
        lines.append(f"    --fix: {result.fix}")
    if verbose and result.source:
        lines.append(f"    source: {result.source}" + (f" <{result.url}>" if result.url else ""))
    return lines


def _wrapped(names: Sequence[str]) -> str:
    return textwrap.fill(
        " ".join(names), 100, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
    )


def summary(results: Sequence[Result]) -> str:
    """One line with the number of checks of each kind; a check counts once, by its worst."""
    worst: dict[str, str] = {}
    for each in results:
        worst.setdefault(each.check, each.status)
    counts = Counter(worst.values())
    words = {"error": "in error", "warning": "with warnings", "unknown": "unknown", "skipped": "skipped"}
    parts = [f"{counts[key]} {text}" for key, text in words.items() if counts[key]]
    return f"{len(worst)} checks: " + ", ".join([*parts, f"{counts['ok']} in order"])


def render_deploy_notes(results: Sequence[Result]) -> str:
    """What a deploy goes on in spite of; the findings of the plan itself stand in the plan."""
    lines = [f"  {each.status.ljust(7)}  {each.check}: {each.message}" for each in results]
    return "\n".join(["Preflight", *lines, "  all of it, with what to do: peagle-sm doctor"])
