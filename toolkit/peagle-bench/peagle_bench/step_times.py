"""Step times of a target with a drafter, and the rate that they predict for an acceptance length. Pure.

`tune --synthetic` measures two ends: no draft token is accepted (acceptance length 1), and all are (K + 1).
Between them the time of an answer is

    milliseconds for each output token of a request = fixed_ms + step_ms / AL

because an answer needs a number of steps that falls with AL, and beside them a time that does not: its
prefill, and the prefills of other requests, which every answer brings whatever its AL. So

    rate(AL, K, c) = 1000 c / (fixed_ms + step_ms / AL)

The drafter takes part in each step. Its weights do not matter here, its size does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peagle_bench.results.records import ArmRecord, Header, Reading
from peagle_bench.results.result_file import Results, read
from peagle_sm.core.errors import PeagleError, ServiceFault, SpecError
from peagle_sm.core.spec.modes import title_of

COMMAND = "tune --synthetic"  #: in the header of a file with step times
REASON = (
    "Synthetic acceptance: the engine accepted draft tokens at a given rate and its answers were wrong. The "
    "figures are step times; a rate follows only from an acceptance length that you state"
)
REAL_ERROR = 0.05
"""Assumed error of a predicted rate, as a share of a real head's with the same acceptance length.

`scripts/step-times` holds predictions against real heads: docs/reference/step-times.md.
"""
ROUNDS = 2  #: windows of each K, load and acceptance length; the second round goes in reverse order
_SERVED = 0.05  #: by how much the acceptance that the engine counted may differ from the one that was set


@dataclass(frozen=True)
class StepTime:
    """Time of a request's output token at one K and concurrency, by acceptance length."""

    k: int
    concurrency: int
    fixed_ms: float  #: of an output token, whatever the acceptance length
    step_ms: float  #: of a verification step

    def rate(self, acceptance_length: float) -> float:
        """Return the output tokens/s of all requests in flight.

        Raises:
            ValueError: the acceptance length is not from 1 to K + 1.
        """
        if not 1 <= acceptance_length <= self.k + 1:
            raise ValueError(f"acceptance length {acceptance_length}: allowed 1 to {self.k + 1}")
        return 1000 * self.concurrency / (self.fixed_ms + self.step_ms / acceptance_length)


def step_time(rejected: Sequence[Reading], accepted: Sequence[Reading]) -> StepTime:
    """Compute the step time from windows of one K and concurrency: no drafts accepted, and all of them.

    Raises:
        ServiceFault: the engine did not serve these acceptance lengths.
    """
    k, concurrency = rejected[0].k, rejected[0].concurrency
    for readings, length in ((rejected, 1.0), (accepted, k + 1.0)):
        for reading in readings:
            demand_served(reading, length)
    low, high = (
        math.fsum(each.acceptance_length for each in all_) / len(all_) for all_ in (rejected, accepted)
    )
    slow, fast = (_token_ms(readings) for readings in (rejected, accepted))
    step_ms = (slow - fast) / (1 / low - 1 / high)
    return StepTime(k, concurrency, slow - step_ms / low, step_ms)


def _token_ms(readings: Sequence[Reading]) -> float:
    """Return the milliseconds for each output token of a request: the geometric mean of the windows."""
    rate = math.exp(math.fsum(math.log(reading.otps) for reading in readings) / len(readings))
    return 1000 * readings[0].concurrency / rate


def demand_served(reading: Reading, length: float) -> None:
    """Check that the engine counted the acceptance length that was set.

    Raises:
        ServiceFault: it did not.
    """
    if abs(reading.acceptance_length / length - 1) > _SERVED:
        raise ServiceFault(
            f"the engine did not serve synthetic acceptance: at K={reading.k} an acceptance length of "
            f"{length:g} was set, and {reading.acceptance_length:.2f} was counted",
            operation=COMMAND,
            next_step="use an image with vLLM 0.29 or later, which reports what it accepted",
        )


@dataclass(frozen=True)
class StepTimes:
    """Content of a file of `tune --synthetic`.

    ``plain`` is the rate without speculation by concurrency. ``arm`` has the instance type and its price,
    ``target`` is the catalogue id or the name of the model. ``doubts`` are windows in which the client was
    the bottleneck.
    """

    source: str
    header: Header
    arm: ArmRecord
    target: str
    mode: str
    cells: Mapping[tuple[int, int], StepTime]
    plain: Mapping[int, float]
    doubts: tuple[str, ...] = ()

    @property
    def notes(self) -> list[str]:
        """Notes that belong to every figure from this file."""
        return [*(f"do not publish: {doubt}" for doubt in self.doubts), *self.header.notes]

    @property
    def ks(self) -> tuple[int, ...]:
        """The measured K."""
        return tuple(sorted({k for k, _ in self.cells}))

    @property
    def concurrencies(self) -> tuple[int, ...]:
        """The measured concurrencies."""
        return tuple(sorted({concurrency for _, concurrency in self.cells}))

    @property
    def title(self) -> str:
        """The mode's name for a reader."""
        return title_of(self.mode)

    def rates(self, acceptance_length: float, k: int) -> dict[int, float]:
        """Return the predicted output tokens/s by concurrency."""
        return {c: self.cells[k, c].rate(acceptance_length) for c in self.concurrencies}

    def choose_k(self, given: int | None, planned: int | None) -> int:
        """Choose the K of a prediction: the given one, else the only one, else the spec's.

        Raises:
            SpecError: it was not measured, or several were and none was given.
        """
        if given is None and len(self.ks) == 1:
            return self.ks[0]
        k = planned if given is None else given
        if k in self.ks:
            return k
        allowed = ", ".join(map(str, self.ks))
        number = "nothing" if k is None else f"K={k}"
        raise SpecError(
            f"--k: found {number}; {self.source} has step times of K={allowed}",
            next_step=f"Give one of these, or measure K={k or 'K'} with `peagle-sm {COMMAND} --k K`.",
            details={"found": k, "allowed": list(self.ks)},
        )

    def demand_length(self, acceptance_length: float, k: int, option: str = "--acceptance-length") -> None:
        """Refuse an acceptance length that no head has at this K.

        Raises:
            SpecError: it is below 1 or above K + 1.
        """
        if not 1 <= acceptance_length <= k + 1:
            raise SpecError(
                f"{option}: found {acceptance_length:g}; allowed at K={k}: 1 (no draft token is accepted) to "
                f"{k + 1} (all are)",
                next_step="Give the tokens of a step with the target's own: `peagle-sm bench` and `peagle-sm "
                "acceptance` show it as the acceptance length.",
                details={"found": acceptance_length, "allowed": [1, k + 1]},
            )


def read_step_times(path: Path) -> StepTimes:
    """Read a file of `tune --synthetic`.

    Raises:
        SpecError: it cannot be read, another command wrote it, or its run did not finish.
    """
    return step_times_of(read(path), str(path))


def step_times_of(results: Results, source: str) -> StepTimes:
    """Return the step times in a results file.

    Raises:
        SpecError: another command wrote it, or its run did not finish.
        ServiceFault: the engine did not serve the acceptance that was set.
    """
    command, config = results.header.command, results.header.config
    if command != COMMAND:
        raise SpecError(
            f"--step-times: {source} is a results file of {command}; allowed: one of {COMMAND}",
            next_step=f"Measure step times with `peagle-sm {COMMAND}`; a file of bench or compare has "
            "measured rates: give it to `peagle-sm decide --measured`.",
            details={"command": command},
        )
    ks, loads = (_numbers(config.get(name)) for name in ("ks", "concurrencies"))
    ends: dict[tuple[int, int, bool], list[Reading]] = {}
    for window in results.windows:
        # Half way between the ends: below it no draft was to be accepted.
        accepts = window.acceptance_length > 1 + window.k / 2
        ends.setdefault((window.k, window.concurrency, accepts), []).append(window)
    wanted = [(k, c, accepts) for c in loads for k in ks for accepts in (False, True)]
    wanted += [(0, c, False) for c in loads]
    # The rounds have opposite orders, so that a steady drift cancels: one of them alone is no measurement.
    rounds = config["rounds"] if isinstance(config.get("rounds"), int) else ROUNDS
    windows = [min(len(ends.get(each, ())), rounds) for each in wanted]
    if sum(windows) < rounds * len(wanted) or not wanted or not results.arms:
        raise SpecError(
            f"--step-times: the run of {source} did not finish: {sum(windows)} of "
            f"{rounds * len(wanted)} windows",
            next_step=f"Run `peagle-sm {COMMAND}` again.",
        )
    return StepTimes(
        source,
        results.header,
        results.arms[0],
        str(config.get("target")),
        str(config.get("mode")),
        {(k, c): step_time(ends[k, c, False], ends[k, c, True]) for c in loads for k in ks},
        {c: 1000 * c / _token_ms(ends[0, c, False]) for c in loads},
        tuple(dict.fromkeys(window.untrusted for window in results.windows if window.untrusted)),
    )


def finished(results: Results) -> StepTimes | None:
    """Return the step times in a results file; None if it is another command's, or of no use."""
    if results.header.command != COMMAND:
        return None
    try:
        return step_times_of(results, results.source or results.header.run_id)
    except PeagleError:
        return None


def _numbers(value: Any) -> tuple[int, ...]:
    return tuple(each for each in value if isinstance(each, int)) if isinstance(value, list) else ()


def demand_target(times: StepTimes, model: str) -> None:
    """Refuse step times of another model.

    Raises:
        SpecError: the file's target is not ``model``.
    """
    if times.target != model:
        raise SpecError(
            f"--step-times: {times.source} has step times of {times.target}; they say nothing about {model}",
            next_step=f"Measure {model} with `peagle-sm {COMMAND}` and its own spec.",
            details={"found": times.target, "model": model},
        )
