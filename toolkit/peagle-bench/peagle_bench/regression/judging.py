"""Judge a run against its record: is a mode slower, did acceptance fall, did answers change. Pure.

The two runs are of different days and machines, so rates are not compared. Compared is the speed-up over no
speculation, which each run measures in turns. Both runs sent the same prompts, so the change is computed
prompt by prompt (or block by block): the large spread of speed-ups over prompts cancels.

Each check of a ratio has a margin m and three results:

* fail: the ratio fell by more than m, and its interval excludes "no change";
* pass: it did not, and its interval excludes a fall of 2 m;
* undecided: the interval is too wide for either.

The interval covers 99.8%. So whatever the noise, an unchanged run fails, and a fall of 2 m passes, in at most
1 of 1,000 runs each. If the interval reaches no further than m, every run is decided.

Endpoints of one kind differ in speed, and one deployment does not show by how much. So the interval assumes
a standard deviation of at least `Rules.endpoint_spread` for each endpoint. If several deployments show more,
that counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from peagle_bench.compare.analysis import add
from peagle_bench.compare.confidence_intervals import Spread, log_value, widths
from peagle_bench.regression.answers import judge_answers
from peagle_bench.regression.checks import Name, RecordCheck, Rules, percents, share
from peagle_bench.regression.record import BASELINE
from peagle_bench.regression.sums import (
    ACCEPTED,
    CONFIDENCE,
    RATE,
    SPEED_UP,
    Cells,
    Change,
    MeasuredRun,
    change_of,
    columns,
    merged,
)
from peagle_bench.results.records import Interval, Load
from peagle_bench.results.result_file import Results


def judge(record: Results, run: Results, rules: Rules | None = None) -> list[RecordCheck]:
    """Judge every mode under every load of the record.

    Raises:
        SpecError: the arms of one of the two cannot be told by their modes.
    """
    rules = rules or Rules()
    before, now = MeasuredRun(record), MeasuredRun(run)
    modes = [mode for mode in now.sides if mode in before.sides]
    loads = list(dict.fromkeys(point.load for point in record.points))
    checks: list[RecordCheck] = []
    for mode in modes:
        for load in loads:
            pair = _Pair(before, now, mode, load, rules)
            if mode != BASELINE:
                checks += [pair.speed(), pair.acceptance()]
            if rules.rates:
                checks.append(pair.rate())
        checks.append(judge_answers(before, now, mode, loads))
    return checks


def unusable(results: Results) -> str | None:
    """Return why a run cannot be a record; None if every check has what it needs."""
    run = MeasuredRun(results)
    for mode in run.sides:
        for load in dict.fromkeys(point.load for point in results.points):
            if (doubt := run.doubt(mode, load)) is not None:
                return f"{mode} at {load.label}: {doubt}"
    return None if results.points else "no load was finished"


@dataclass(frozen=True)
class _Pair:
    """One mode under one load in both runs."""

    before: MeasuredRun
    now: MeasuredRun
    mode: str
    load: Load
    rules: Rules

    def doubt(self, *, times: bool) -> str | None:
        """Return why one of the runs cannot be judged."""
        for name, run in (("this run", self.now), ("the record", self.before)):
            if (doubt := run.doubt(self.mode, self.load, times=times)) is not None:
                return f"{name}: {doubt}"
        return None

    def speed(self) -> RecordCheck:
        """Judge the speed-up over no speculation."""
        runs = [
            [run.cells(mode, self.load) for mode in (self.mode, BASELINE)] for run in (self.now, self.before)
        ]
        per_deployment = _deployment_variance(runs, RATE, 2 * self.rules.endpoint_spread**2)
        return self._ratio("speed", runs, SPEED_UP, self.rules.margin, per_deployment)

    def rate(self) -> RecordCheck:
        """Judge tokens per second of the requests in flight."""
        runs = [[run.cells(self.mode, self.load)] for run in (self.now, self.before)]
        per_deployment = _deployment_variance(runs, RATE[:1], self.rules.endpoint_spread**2)
        return self._ratio("rate", runs, RATE, self.rules.margin, per_deployment)

    def acceptance(self) -> RecordCheck:
        """Judge the accepted draft tokens of a verification step; no machine changes them."""
        empty = RecordCheck("acceptance", self.mode, self.load, None)
        if "k" in self.rules.changed:
            return replace(empty, applicable=False, reason="K is not that of the record")
        runs = [[run.cells(self.mode, self.load)] for run in (self.now, self.before)]
        reports = [
            all(cell.drafts is not None for table in run[0] for cell in table.values()) for run in runs
        ]
        if not reports[1]:
            return replace(empty, applicable=False, reason="the answers of the record do not report drafts")
        if not reports[0]:
            return replace(
                empty, reason="the answers of this run do not report drafts, those of the record do"
            )
        if not sum(columns(cell)[2] for cell in merged(runs[1][0]).values()):
            return replace(empty, applicable=False, reason="the record has no accepted draft tokens")
        return self._ratio("acceptance", runs, ACCEPTED, self.rules.acceptance_margin, 0.0)

    def _ratio(
        self,
        name: Name,
        runs: Sequence[Sequence[Sequence[Cells]]],
        signs: Sequence[Sequence[int]],
        margin: float,
        per_deployment: float,
    ) -> RecordCheck:
        deployments = [len(run[0]) for run in runs]
        extra = per_deployment * math.fsum(1 / count for count in deployments)
        tables = [merged(tables) for run in runs for tables in run]
        half = len(tables) // 2
        figures = [
            _figure(part, part_signs)
            for part, part_signs in ((tables[:half], signs[:half]), (tables[half:], signs[:half]))
        ]
        check = RecordCheck(name, self.mode, self.load, None, record=figures[1], run=figures[0])
        doubt = self.doubt(times=name != "acceptance")
        change = change_of(tables, signs, extra=extra)
        if change is None and figures[0] == 0 and figures[1]:
            return replace(check, passed=False, reason="nothing is accepted any more")
        if change is None:
            return replace(check, reason=doubt or "too few prompts were answered in both runs")
        check = replace(check, change=change.interval)
        if doubt is not None:
            return replace(check, reason=doubt)
        passed = _decide(change.interval, margin)
        if passed is None:
            needed = _needed(change, extra, per_deployment, margin, deployments)
            reason = (
                f"{percents(change.interval)} is too wide for a margin of {share(margin)}: it needs {needed}"
            )
            return replace(check, reason=reason, needed=needed)
        fell = f"fell by more than {share(margin)}: {percents(change.interval)}"
        return replace(check, passed=passed, reason="" if passed else fell)


def _decide(change: Interval, margin: float) -> bool | None:
    """Apply the rule of the module; None is undecided."""
    if change.value < 1 - margin:
        return False if change.high < 1 else None
    return True if change.low > 1 - 2 * margin else None


def _figure(tables: Sequence[Cells], signs: Sequence[Sequence[int]]) -> float | None:
    """Compute a figure of one run over all its prompts; 0 if its first sum is 0, None if undefined."""
    sums = [value for table in tables for value in columns(add(table.values()))]
    flat = [sign for table in signs for sign in table]
    over = [value for value, sign in zip(sums, flat, strict=True) if sign > 0]
    under = [value for value, sign in zip(sums, flat, strict=True) if sign < 0]
    return math.prod(over) / math.prod(under) if under and all(under) else None


def _deployment_variance(
    runs: Sequence[Sequence[Sequence[Cells]]],
    signs: Sequence[Sequence[int]],
    assumed: float,
) -> float:
    """Return a deployment's variance of the log ratio: the assumed one, or a larger one that several show."""
    flat = [sign for table in signs for sign in table]
    squares, freedom = 0.0, 0
    for run in runs:
        values = [
            log_value([[value for cell in cells for value in columns(cell)]], flat)
            for tables in zip(*run, strict=True)
            if (cells := [add(table.values()) for table in tables]) and all(cell.tokens for cell in cells)
        ]
        mean = math.fsum(values) / len(values) if values else 0.0
        squares += math.fsum((value - mean) ** 2 for value in values)
        freedom += max(0, len(values) - 1)
    return max(assumed, squares / freedom if freedom else 0.0)


def _needed(
    change: Change, extra: float, per_deployment: float, margin: float, deployments: Sequence[int]
) -> str:
    """Say what would make the interval as narrow as the margin: more prompts, or more deployments."""
    reach, parts = -math.log1p(-margin), []
    of_units = max(widths([change.over], CONFIDENCE))
    of_deployments = max(widths([Spread(extra, math.inf)], CONFIDENCE))
    room = reach**2 - of_deployments**2
    if room < reach**2 / 4:
        each = max(widths([Spread(2 * per_deployment, math.inf)], CONFIDENCE))  # of one in each run
        count = max(min(deployments) + 1, math.ceil((each / reach) ** 2 * 4 / 3))
        parts.append(
            f"about {count} deployments in both runs (now {deployments[0]}, record {deployments[1]})"
        )
        room = reach**2 - each**2 / count
    if of_units**2 > room:
        parts.append(f"about {math.ceil(change.units * of_units**2 / room):,} prompts (now {change.units:,})")
    return " and ".join(parts)
