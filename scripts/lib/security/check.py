"""`scripts/security-check`: every rule over everything that ships, offline, as a table."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from scripts.lib.security.explained import EXPLAINED, Explained, sorted_out
from scripts.lib.security.rules import RULES, Rule
from scripts.lib.security.subjects import Subjects, SynthFailed, collect, synthesised


@dataclass(frozen=True)
class Outcome:
    """Findings of one rule: violations, and explained exceptions."""

    rule: Rule
    broken: list[str]
    allowed: list[tuple[str, Explained]]


def outcomes(subjects: Subjects) -> list[Outcome]:
    """Apply every rule."""
    return [Outcome(rule, *sorted_out(rule.id, rule.look(subjects))) for rule in RULES]


def idle(found: Sequence[Outcome]) -> list[Explained]:
    """Return unused explanations."""
    used = {why for outcome in found for _, why in outcome.allowed}
    return [each for each in EXPLAINED if each not in used]


def table(found: Sequence[Outcome], subjects: Subjects) -> str:
    """Return the text output: a line per rule, then violations, then explained exceptions."""
    lines = [f"{'rule':<20}{'broken':>7}{'explained':>11}  would be wrong"]
    for outcome in found:
        lines.append(
            f"{outcome.rule.id:<20}{len(outcome.broken):>7}{len(outcome.allowed):>11}  {outcome.rule.what}"
        )
    lines += ["", *(f"BROKEN {one.rule.id}: {each}" for one in found for each in one.broken)]
    for each in EXPLAINED:
        count = sum(why == each for one in found for _, why in one.allowed)
        lines.append(f"explained {each.rule} ({count}): {each.why}")
    lines += [
        "",
        f"{len(RULES)} rules over {len(subjects.templates)} templates, "
        f"{len(subjects.dockerfiles)} Dockerfiles, {len(subjects.unhashed)} lock files, "
        f"{len(subjects.weights)} folders of weights, {len(subjects.texts)} text files",
    ]
    return "\n".join(lines)


def as_json(found: Sequence[Outcome]) -> str:
    """Return the result as JSON."""
    rows = [
        {
            "rule": one.rule.id,
            "what": one.rule.what,
            "broken": one.broken,
            "explained": [{"finding": finding, "why": why.why} for finding, why in one.allowed],
        }
        for one in found
    ]
    return json.dumps(rows, indent=2)


def main(arguments: Sequence[str]) -> int:
    """Print the table; return 1 for a violation or an unused explanation, 2 without templates."""
    parser = argparse.ArgumentParser(prog="scripts/security-check", description=__doc__)
    parser.add_argument("--format", choices=("table", "json"), default="table")
    options = parser.parse_args(arguments)
    try:
        subjects = collect(synthesised())
    except SynthFailed as error:
        print(f"security-check: no templates: {error}", file=sys.stderr)
        return 2
    found = outcomes(subjects)
    print(as_json(found) if options.format == "json" else table(found, subjects))
    unused = idle(found)
    for each in unused:
        print(f"idle explanation: {each.rule} {each.where}: nothing needs it; take it out", file=sys.stderr)
    return 1 if unused or any(one.broken for one in found) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
