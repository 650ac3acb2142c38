"""Options that the measuring commands share, and the workload that they select.

The options are decorators. Each command places them in the order of its help page.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from peagle_sm.cli.terminal import show

if TYPE_CHECKING:
    from peagle_bench.load.points import Objective
    from peagle_bench.results.result_file import Results

    _Type = click.ParamType[Any]  # generic since click 8.2; we run with 8.1 too
else:
    _Type = click.ParamType


class Finite(click.FloatRange):
    """Range of numbers without ``inf`` and ``nan``, which a range alone lets pass."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r}: give a number, such as 40 or 2.5", param, ctx)
        return number


class Figure(Finite):
    """Rate, price or share of a plausible size: any other is a typing error, and has hundreds of digits."""

    LEAST, MOST = 1e-6, 1e9

    def __init__(self, most: float | None = None) -> None:
        super().__init__(min=0, max=most, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        number = super().convert(value, param, ctx)
        if not self.LEAST <= number <= self.MOST:
            self.fail(f"{value!r}: allowed: {self.LEAST:f} to {self.MOST:,.0f}", param, ctx)
        return number


FILE = click.Path(path_type=Path, dir_okay=False)
COUNT = click.IntRange(min=1)
POSITIVE = Finite(min=0, min_open=True)
GOALS = ("ttft_ms", "tpot_ms", "e2e_ms")
step_times_option = click.option(
    "--step-times",
    type=FILE,
    help="File of `tune --synthetic`: predict rates for --acceptance-length.",
)
k_option = click.option("--k", type=COUNT, help="K of the prediction.  [default: the only one measured]")


workload_option = click.option(
    "--workload",
    "-w",
    metavar="NAME|PATH",
    default="humaneval",
    help="humaneval, mt-bench, synthetic:IN/OUT, or a file (or directory) of requests.",
)
max_tokens_option = click.option(
    "--max-tokens", type=COUNT, help="Maximum output tokens per answer.  [default: 256]"
)
temperature_option = click.option(
    "--temperature",
    type=click.FloatRange(0, 2),
    help="Sampling temperature.  [default: 0, or the value in your request body]",
)
goal_option = click.option(
    "--goal",
    "goals",
    metavar="NAME=MS",
    multiple=True,
    help="Latency goal in ms: ttft_ms=500, tpot_ms=20 or e2e_ms=5000. May be repeated.",
)


def objective_of(goals: Sequence[str]) -> Objective:
    """Return the latency goals of --goal.

    Raises:
        SpecError: an unknown goal, one that is given twice, or a value that is not a number above 0.
    """
    from peagle_bench.load.points import Objective
    from peagle_sm.core.errors import SpecError

    limits: dict[str, float] = {}
    for goal in goals:
        name, _, text = goal.partition("=")
        try:
            limit = float(text)
        except ValueError:
            limit = 0.0
        if name not in GOALS or name in limits or not 0 < limit < math.inf:
            raise SpecError(
                f"--goal: found {goal!r}; allowed: {', '.join(GOALS)}, each once, with milliseconds above 0.",
                next_step="For example --goal ttft_ms=500 --goal tpot_ms=20",
            )
        limits[name] = limit
    return Objective(**limits)


class Numbers(_Type):
    """Type of a list such as ``1,8,32``: positive numbers without duplicates."""

    def __init__(self, *, whole: bool) -> None:
        """Take whether only whole numbers are allowed."""
        self.name = "list"
        self._whole = whole

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a tuple of int or float; return a tuple unchanged."""
        if isinstance(value, tuple):
            return value
        kind = int if self._whole else float
        try:
            numbers = tuple(kind(word) for word in str(value).split(",") if word.strip())
        except ValueError:
            numbers = ()
        if not numbers or len(set(numbers)) < len(numbers) or not all(0 < each < 1e6 for each in numbers):
            what = "whole numbers" if self._whole else "numbers"
            self.fail(
                f"{value!r}: give {what} above 0, separated by commas, without duplicates: 1,8,32", param, ctx
            )
        return numbers


def render_slices(results: Results) -> str:
    """Render the first pair and load by slice, and the slices in which speculation costs money."""
    from peagle_bench.report import slices

    records = slices.slices_in(results)
    if not records:
        return ""
    shown = slices.groups(records, results.arms)[0]
    first = shown[0]
    lines = [f"{first.arm} over {first.baseline} at {first.load.label}, by slice:", show(slices.table(shown))]
    for note in (f"({slices.HOW})", *slices.sentences(shown, results.arms)):
        lines += textwrap.wrap(note, 80, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)
