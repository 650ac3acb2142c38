"""What must be read before any figure: it is made up, a small model's, or of wrong answers. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from peagle_sm.measure.report import words
from peagle_sm.measure.report.view import View

STAND_IN = (
    "These figures compare the modes on the machine that ran them; they say nothing about a large model on a"
    " GPU."
)


@dataclass(frozen=True)
class Caution:
    """``kind`` chooses the colour; ``name`` is stressed."""

    kind: Literal["wrong", "not-real"]
    name: str
    text: str


def cautions(view: View) -> tuple[Caution, ...]:
    """All that hold, the gravest first."""
    found = []
    failed = list(dict.fromkeys(check.name for check in view.checks if check.passed is False))
    if failed:
        text = f"{', '.join(failed)} failed. A speed-up with other answers is none."
        found.append(Caution("wrong", "Answers are not the target's own", text))
    for row in view.comparisons:
        if row.control and row.ratio.shown:
            text = (
                f"{view.label(row.slower)} beside itself came out as {words.with_span(row.ratio)} at"
                f" {row.load.label}, which leaves out 1. By chance that happens in 1 run of 20; measure again"
                " before the other ratios are believed."
            )
            found.append(Caution("wrong", "The control failed", text))
    if view.synthetic:
        found.append(Caution("not-real", "Synthetic data", f"{view.synthetic}."))
    if view.stand_in:
        found.append(Caution("not-real", "Small stand-in weights", STAND_IN))
    return tuple(found)
