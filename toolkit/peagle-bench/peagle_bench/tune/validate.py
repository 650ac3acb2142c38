"""Validation of a table of K: its own endpoint against that of the best fixed K, in turns.

The windows of a tuning set K by request. They do not show what a table costs in its own engine: with a table
vLLM leaves out full CUDA graphs (0.32, ``config/vllm.py``), and a change to K=0 has stalled an engine
(vllm#49548: from 232 to 24 tokens/s). So both endpoints are deployed as they would be written into the spec,
and `peagle_bench.compare` alternates between them, at every measured load and over steps between the
lowest and the highest one.

A table is accepted only if under every load and over the steps it is not significantly slower, and the
interval excludes that it is more than `MOST_SLOWER` slower. What is not decided is measured again, at most
`LOOKS` times.

Each look, and each load, is a further chance of a wrong decision. The error of 5% is divided by their number
(Bonferroni), so that it holds for the whole validation:

* acceptance: over the looks. Every load must pass, so one load that is too slow is enough to refuse the
  table, and more loads do not make a false acceptance more likely (intersection-union test).
* refusal as slower: over the looks and the loads, since any of them can refuse the table.

A group-sequential boundary (Pocock) gives intervals 5% narrower with three looks. It assumes that the looks
are equally large and normally distributed; Bonferroni assumes nothing. ``tests/bench/tune/test_errors.py``
has both error rates on simulated endpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from peagle_bench.compare.alternating import OnRun, TurnContext
from peagle_bench.compare.analysis import (
    ArmDeployments,
    Measured,
    Pair,
    identical_outputs,
    ratios_of,
)
from peagle_bench.compare.measurement import Contest, Setup
from peagle_bench.load import Target, WorkItem
from peagle_bench.load.points import is_withheld
from peagle_bench.load.run import run_quietly
from peagle_bench.results.records import (
    ArmRecord,
    Interval,
    Load,
    Record,
    RequestRecord,
    TableCheck,
    Verdict,
)
from peagle_bench.workloads import rounds

MOST_SLOWER = 0.02  #: a table may be slower by this share, if at all
LOOKS = 3  #: how often a load is measured until it is decided
ERROR = 0.05  #: share of false decisions, two-sided, over all looks; half of it towards each side
BLOCKS = 8  #: blocks of a look at a load with several requests in flight, with two windows of each arm
PROMPTS = 48  #: prompts of a look at one request in flight


def validated_loads(concurrencies: Sequence[int]) -> tuple[Load, ...]:
    """Return the loads of a validation: the measured ones, and steps from the lowest to the highest and back.

    The steps come first: there an engine that cannot change K shows it soonest.
    """
    low, high = min(concurrencies), max(concurrencies)
    constant = tuple(Load("closed", concurrency=each) for each in sorted(concurrencies))
    if low == high:
        return constant
    return (Load("closed", concurrency=high, steps=(low, high, low)), *constant)


RatioOf = Callable[[float], Interval]
"""Ratio of the table's rate to that of the fixed K, with an interval of the given confidence."""


def verdict_of(ratio_of: RatioOf, loads: int) -> Verdict:
    """Decide after one look at one of ``loads`` loads.

    Raises:
        ValueError: there are too few units for an interval.
    """
    if ratio_of(1 - ERROR / (LOOKS * loads)).high < 1:
        return "slower"
    return "as fast" if ratio_of(1 - ERROR / LOOKS).low >= 1 - MOST_SLOWER else "not decided"


def looked_at(look: Callable[[int], RatioOf], loads: int) -> tuple[Interval, Verdict, int]:
    """Look at one of ``loads`` loads until it is decided, at most `LOOKS` times.

    ``look`` measures once more and returns the ratio of everything measured so far. Returns the ratio, whose
    interval holds with 95% for all looks together, the verdict, and the number of looks.
    """
    for number in range(LOOKS):
        ratio_of = look(number)
        verdict = verdict_of(ratio_of, loads)
        if verdict != "not decided":
            break
    return ratio_of(1 - ERROR / LOOKS), verdict, number + 1


def is_accepted(checks: Sequence[TableCheck]) -> bool:
    """Decide whether a table may be written: as fast as the fixed K under every load."""
    return bool(checks) and all(check.verdict == "as fast" for check in checks)


def reason_of(checks: Sequence[TableCheck]) -> str:
    """Write why a table was accepted or refused, with the loads that decided it."""
    slower = [check for check in checks if check.verdict == "slower"]
    unclear = [check for check in checks if check.verdict == "not decided"]
    if not checks:
        return "the table was not validated"
    if slower:
        return f"the table's own endpoint is slower than that of the fixed K at {_listed(slower)}"
    if unclear:
        return (
            f"not decided at {_listed(unclear)}: the interval does not exclude that the table is more than "
            f"{MOST_SLOWER:.0%} slower"
        )
    return (
        "the table's own endpoint is not slower than that of the fixed K at any load or over the steps "
        f"(95% interval over all looks: at most {MOST_SLOWER:.0%} slower)"
    )


def _listed(checks: Sequence[TableCheck]) -> str:
    return ", ".join(
        f"{check.load.label} ({check.ratio.value:.3f} [{check.ratio.low:.3f}, {check.ratio.high:.3f}])"
        for check in checks
    )


@dataclass
class _Kept:
    """Writer that passes on the arms and the requests; the validation's figures are in its checks."""

    sink: Callable[[Record], None]

    def append(self, record: Record) -> None:
        if isinstance(record, ArmRecord | RequestRecord):
            self.sink(record)


@dataclass
class Validation:
    """One validation. ``requests`` is the number of requests in a window with several in flight.

    ``on_load`` is called before each look with the load and its requests over both arms, ``on_end`` after it.
    ``on_check`` gets each load as soon as it is decided. ``untrusted`` collects the looks in which the client
    was the bottleneck.
    """

    table: ArmRecord
    fixed: ArmRecord
    target_of: Callable[[ArmRecord], Target]
    items: Sequence[WorkItem]
    requests: int
    sink: Callable[[Record], None]
    salt: str
    context_of: Callable[[OnRun], TurnContext]
    on_load: Callable[[Load, int], None] = lambda load, prompts: None
    on_end: Callable[[], None] = lambda: None
    on_check: Callable[[TableCheck], None] = lambda check: None
    run: Callable[..., None] = run_quietly
    untrusted: list[str] = field(default_factory=list)

    def checks(self, loads: Sequence[Load], known: Sequence[TableCheck] = ()) -> tuple[TableCheck, ...]:
        """Measure each load until it is decided; stop at the first one that refuses the table.

        ``known`` are the loads that an earlier run has decided.

        Raises:
            LoadStopped: an endpoint fails all its requests.
        """
        found = list(known)
        decided = {check.load for check in known}
        for load in (load for load in loads if load not in decided):
            if found and found[-1].verdict != "as fast":
                break
            found.append(self._check(load, len(loads)))
            self.on_check(found[-1])
        return tuple(found)

    def _check(self, load: Load, loads: int) -> TableCheck:
        measured = Measured(load)

        def look(number: int) -> RatioOf:
            self._look(load, number, measured)
            return lambda confidence: ratios_of(self._pair, [measured], confidence).rate

        ratio, verdict, count = looked_at(look, loads)
        same, both = identical_outputs(self._pair, [measured]) or (None, None)
        return TableCheck(load, ratio, verdict, same, both, count)

    @property
    def _pair(self) -> Pair:
        return Pair(ArmDeployments((self.table,)), ArmDeployments((self.fixed,)))

    def _look(self, load: Load, look: int, measured: Measured) -> None:
        """Measure a load once more, with other prompts as far as there are any; blocks are numbered on."""
        count = PROMPTS if load.concurrency == 1 else 2 * BLOCKS * self._window(load)
        contest = Contest(
            Setup(self._items(look, count), (load,), BLOCKS, repeat=True),
            _Kept(self.sink),
            f"{self.salt}/{look}",
            self.context_of,
            run=self.run,
            on_load=self.on_load,
            on_end=self.on_end,
        )
        contest.measure(0, (self.fixed, self.table), self.target_of)
        for one in contest.measured:
            for run in (run for runs in one.runs.values() for run in runs):
                by = look * (PROMPTS if one.one_at_a_time else BLOCKS)
                records = tuple(replace(record, block=record.block + by) for record in run.records)
                measured.take(replace(run, block=run.block + by, records=records))
        self.untrusted += [
            f"{point.arm} {load.label}: {point.client.reason}"
            for point in contest.points
            if is_withheld(point.client)
        ]

    def _window(self, load: Load) -> int:
        return max(self.requests, 3 * (load.concurrency or 1), 2 * sum(load.steps))

    def _items(self, look: int, count: int) -> tuple[WorkItem, ...]:
        items = [replace(item, then=None) for item in self.items]
        return tuple(islice(rounds(items, repeat=True), look * count, (look + 1) * count))
