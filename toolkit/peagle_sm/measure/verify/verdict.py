"""What a check says; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from peagle_sm.measure.records import CheckRecord

MOST_EXAMPLES = 5


@dataclass(frozen=True)
class Verdict:
    """``passed`` None: not decided, or not ``applicable``; ``summary`` says why."""

    passed: bool | None
    summary: str
    power: str
    figures: Mapping[str, float] = field(default_factory=dict)
    examples: Sequence[str] = ()
    applicable: bool = True

    def record(self, name: str, arm: str, baseline: str) -> CheckRecord:
        """As a line of the results file, with at most `MOST_EXAMPLES` examples."""
        return CheckRecord(
            name=name,
            arm=arm,
            baseline=baseline,
            passed=self.passed,
            summary=self.summary,
            power=self.power,
            figures={key: float(value) for key, value in self.figures.items()},
            examples=tuple(self.examples[:MOST_EXAMPLES]),
            applicable=self.applicable,
        )


def undecided(reason: str, figures: Mapping[str, float] | None = None) -> Verdict:
    """The verdict of a check that cannot tell; it is never a pass."""
    return Verdict(None, f"could not be decided: {reason}", "none: nothing was tested", figures or {})


def not_applicable(reason: str) -> Verdict:
    """The verdict of a check for which neither side is set up; it is neither a pass nor a failure."""
    return Verdict(None, reason, "none: nothing was tested", applicable=False)


def percent(share: float) -> str:
    """``0.3%``, ``12%``: two significant digits."""
    return f"{100 * share:.2g}%" if share < 0.995 else "100%"


def counted(number: int, one: str, many: str | None = None) -> str:
    """``1 prompt``, ``164 prompts``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
