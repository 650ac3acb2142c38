"""What `verify` prints: one line a check, then what each could have found."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from peagle_sm.cli.table import render_table

if TYPE_CHECKING:
    from peagle_sm.measure.records import CheckRecord

_WORDS = {True: "pass", False: "FAIL", None: "undecided"}
STAND_IN = "small stand-in weights: this says nothing of a large model on a GPU"


def render_checks(records: Sequence[CheckRecord], stand_in: bool) -> str:
    """The table, the examples of what failed, and the power of what was tested."""
    rows = [(each.name, _WORDS[each.passed]) for each in records]
    width = max((len(name) for name, _ in rows), default=0) + 13
    lines = render_table(("check", "result"), rows).splitlines()
    parts = [lines[0]]
    for line, record in zip(lines[1:], records, strict=True):
        parts += _wrapped(f"{line.ljust(width)}{record.summary}", width)
        parts += [f"{' ' * width}- {example}" for example in record.examples if record.passed is False]
    tested = [each for each in records if each.passed is not None]
    if tested:
        parts += ["", "What these checks can find:"]
        name_width = max(len(each.name) for each in tested) + 2
        for each in tested:
            parts += _wrapped(f"{each.name.ljust(name_width)}{each.power}", name_width)
    parts += ["", conclusion(records)]
    if stand_in:
        parts.append(STAND_IN)
    return "\n".join(parts)


def _wrapped(text: str, indent: int) -> list[str]:
    return textwrap.wrap(
        text,
        110,
        subsequent_indent=" " * indent,
        drop_whitespace=True,
        break_long_words=False,
        replace_whitespace=False,
        break_on_hyphens=False,
    )


def conclusion(records: Sequence[CheckRecord]) -> str:
    """One sentence for all checks."""
    by = {word: [r.name for r in records if _WORDS[r.passed] == word] for word in _WORDS.values()}
    if by["FAIL"]:
        return f"The answers are not the target's own: {', '.join(by['FAIL'])} failed."
    if by["undecided"]:
        return (
            f"No fault found in {len(by['pass'])} of {len(records)} checks; "
            f"could not be decided: {', '.join(by['undecided'])}."
        )
    return f"The answers are the target's own, as far as these {len(records)} checks can see."


def checks_data(
    records: Sequence[CheckRecord], endpoint: str, baseline: str, stand_in: bool
) -> dict[str, Any]:
    """For --format json; ``passed`` is null when nothing failed and something could not be decided."""
    failed = any(each.passed is False for each in records)
    undecided = any(each.passed is None for each in records)
    return {
        "endpoint": endpoint,
        "baseline": baseline,
        "passed": False if failed else None if undecided else True,
        "checks": [asdict(each) for each in records],
        "stand_in_weights": stand_in,
    }
