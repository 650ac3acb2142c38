"""What `verify` prints: one line a check, then what each could have found."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from peagle_sm.cli.table import render_table

if TYPE_CHECKING:
    from pathlib import Path

    from peagle_sm.measure.records import CheckRecord

_WORDS = {True: "pass", False: "FAIL", None: "undecided"}
_NOT_APPLICABLE = "not applicable"
STAND_IN = "small stand-in weights: this says nothing of a large model on a GPU"


def render_checks(
    records: Sequence[CheckRecord], stand_in: bool, out: Path | None = None, *, concluded: bool = False
) -> str:
    """The table, the examples of what failed, the power of what was tested, and where the results are.

    ``concluded``: an error message with the conclusion follows, so it is left out here.
    """
    rows = [(each.name, _result(each)) for each in records]
    width = max((len(name) for name, _ in rows), default=0) + 4
    width += max((len(result) for _, result in rows), default=0)
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
    ending = [] if concluded else [conclusion(records)]
    ending += [STAND_IN] if stand_in else []
    ending += [] if out is None else [f"results: {out}"]
    parts += ["", *ending] if ending else []
    return "\n".join(parts)


def _result(record: CheckRecord) -> str:
    return _WORDS[record.passed] if record.applicable else _NOT_APPLICABLE


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
    by = {
        word: [r.name for r in records if _result(r) == word] for word in (*_WORDS.values(), _NOT_APPLICABLE)
    }
    applicable = [each for each in records if each.applicable]
    besides = f" Not applicable: {', '.join(by[_NOT_APPLICABLE])}." if by[_NOT_APPLICABLE] else ""
    if by["FAIL"]:
        return f"The answers are not the target's own: {', '.join(by['FAIL'])} failed."
    if by["undecided"]:
        return (
            f"No fault found in {len(by['pass'])} of {len(applicable)} checks; "
            f"could not be decided: {', '.join(by['undecided'])}.{besides}"
        )
    if not applicable:
        return f"Nothing was checked.{besides}"
    counted = f"these {len(applicable)} checks" if len(applicable) > 1 else "this check"
    return f"The answers are the target's own, as far as {counted} can see.{besides}"


def passed(records: Sequence[CheckRecord]) -> bool | None:
    """Whether all checks that apply passed; None where one could not be decided, or none applies."""
    found = [each.passed for each in records if each.applicable]
    return False if False in found else None if None in found or not found else True


def checks_data(
    records: Sequence[CheckRecord], endpoint: str, baseline: str, stand_in: bool, out: Path
) -> dict[str, Any]:
    """For --format json."""
    return {
        "endpoint": endpoint,
        "baseline": baseline,
        "passed": passed(records),
        "checks": [asdict(each) for each in records],
        "stand_in_weights": stand_in,
        "results": str(out),
    }
