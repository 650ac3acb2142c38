"""Measurement of one deployment after another, the comparison, and the cost estimate before it.

The estimate includes an upper bound of the cost. An arm's turns or windows under one load also become one
point, for the report.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from peagle_bench.benchmark import acceptance
from peagle_bench.compare.alternating import (
    Contender,
    TurnContext,
    by_block,
    by_prompt,
    requests_per_window,
    warming,
)
from peagle_bench.compare.analysis import ArmDeployments, Measured, Pair, compare, pairs_of
from peagle_bench.compare.slices import slices_of_pairs
from peagle_bench.load import ClientUsage, LoadRun, LoadStopped, Target, Window, WorkItem
from peagle_bench.load.points import make_point
from peagle_bench.load.run import run_quietly
from peagle_bench.load.work import check_load
from peagle_bench.results.records import ArmRecord, ComparisonRecord, Load, PointRecord, Record
from peagle_bench.results.result_file import ResultWriter
from peagle_bench.workloads import MAX_TOKENS, Workload, limit_of
from peagle_sm.core.errors import SpecError
from peagle_sm.core.planning import Plan


def point_of(
    arm: ArmRecord, measured: Measured, *, temperature: float | None, machine_load: float | None
) -> PointRecord | None:
    """Summarise one arm under one load; None if it had no turn. Seconds count only its own turns.

    The client's health is judged over all turns of all arms at one request in flight, since a single turn is
    too short; else over all windows of this arm.
    """
    runs = measured.runs.get(arm.name, [])
    if not runs:
        return None
    start, judged = runs[0].window.start_s, runs
    if measured.one_at_a_time:
        runs = [_asked_only(run) for run in runs]
        judged = [run for others in measured.runs.values() for run in others]
    single = [make_point(run) for run in runs]
    seconds = math.fsum(point.seconds for point in single)
    end = runs[-1].window.end_s if measured.one_at_a_time else start + seconds
    records = tuple(record for run in runs for record in run.records)
    accepted = acceptance.from_requests([record for record in records if record.phase == "measured"])
    # Latencies come from the requests; tokens and requests per second from the arm's own windows.
    whole = make_point(
        LoadRun(arm.name, measured.load, 0, records, Window(start, end, seconds), together(judged)),
        temperature=temperature,
        acceptance=accepted,
        usd_per_hour=arm.usd_per_hour,
        machine_load=machine_load,
    )
    chunks = sum(record.chunks for run in judged for record in run.records)
    cpu_s = math.fsum(run.usage.cpu_s for run in judged)
    return replace(
        whole,
        output_tokens=sum(point.output_tokens for point in single),
        otps=_by_seconds(single, [point.otps for point in single]),
        requests_per_s=_by_seconds(single, [point.requests_per_s for point in single]),
        client=replace(whole.client, cpu_us_per_chunk=cpu_s / chunks * 1e6 if chunks else None),
    )


def _by_seconds(points: Sequence[PointRecord], rates: Sequence[float]) -> float:
    seconds = math.fsum(point.seconds for point in points)
    counted = math.fsum(rate * point.seconds for rate, point in zip(rates, points, strict=True))
    return counted / seconds if seconds > 0 else 0.0


def _asked_only(run: LoadRun) -> LoadRun:
    """Narrow a turn's window: from the sending of its first request to the end of its last."""
    measured = [record for record in run.records if record.phase == "measured"]
    if not measured:
        return replace(run, window=replace(run.window, end_s=run.window.start_s, seconds=0.0))
    start, end = measured[0].sent_s, max(record.done_s for record in measured)
    return replace(run, window=Window(start, end, end - start))


def together(runs: Sequence[LoadRun]) -> ClientUsage:
    """Sum the client usage of several runs."""
    return ClientUsage(
        tuple(lag for run in runs for lag in run.usage.lags_ms),
        math.fsum(run.usage.cpu_s for run in runs),
        any(run.usage.connections_full for run in runs),
    )


WARM_UP = 2  #: warm-up prompts for each arm before a load of one request at a time
FEWEST = 2  #: prompts or blocks that an interval needs


@dataclass(frozen=True)
class Setup:
    """Prompts, loads and options that all deployments share."""

    items: tuple[WorkItem, ...]
    loads: tuple[Load, ...]
    blocks: int = 6
    repeat: bool = False
    temperature: float | None = 0.0
    #: of one request in flight: asked after each prompt, True ends the load
    ended: Callable[[Measured], bool] = lambda measured: False

    def prompts_of(self, load: Load) -> int:
        """Return the number of measured prompts of each arm under a load."""
        if load.concurrency == 1:
            return len(self.items)
        places = load.concurrency or 1
        each = requests_per_window(len(self.items), places, self.blocks, repeat=self.repeat, load=load)
        return each * 2 * self.blocks

    def check(self) -> None:
        """Refuse a setup that cannot give an interval, before anything is deployed or sent.

        Raises:
            SpecError: too few prompts or blocks for one of the loads, or a load that cannot be made.
        """
        for load in self.loads:
            check_load(load)
        if len(self.items) < FEWEST or self.blocks < FEWEST:
            raise SpecError(
                f"found {len(self.items)} prompts and {self.blocks} blocks; a confidence interval needs at"
                f" least {FEWEST} of each.",
                next_step="Give more prompts.",
            )
        for load in self.loads:
            self.prompts_of(load)


def setup_of(workload: Workload, concurrencies: Sequence[int]) -> Setup:
    """Return the setup of a workload's prompts under closed loops.

    Raises:
        SpecError: too few prompts for one of the loads.
    """
    loads = tuple(Load("closed", concurrency=number) for number in concurrencies)
    places = max(concurrencies, default=1)
    setup = Setup(workload.items, loads, temperature=workload.temperature)
    setup = replace(setup, repeat=places > 1 and len(setup.items) < 2 * setup.blocks * places)
    setup.check()
    return setup


@dataclass
class Contest:
    """Load on the arms in turns, records of every request, and the comparison at the end.

    ``context_of`` builds the context of a run from the callback that gets each turn.
    ``on_load`` is called with each load and the number of prompts it measures over all arms; ``on_end`` at
    its end.
    """

    setup: Setup
    writer: ResultWriter
    salt: str
    context_of: Callable[[Callable[[LoadRun], None]], TurnContext]
    run: Callable[[Callable[[], Coroutine[Any, Any, None]]], None] = run_quietly
    load_average: Callable[[], float] = lambda: os.getloadavg()[0]
    on_load: Callable[[Load, int], None] = lambda load, prompts: None
    on_end: Callable[[], None] = lambda: None
    measured: list[Measured] = field(default_factory=list)
    points: list[PointRecord] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def measure(
        self, deployment: int, arms: Sequence[ArmRecord], target_of: Callable[[ArmRecord], Target]
    ) -> None:
        """Run every load on all arms of one deployment, in turns.

        Raises:
            LoadStopped: an arm fails all its requests.
            KeyboardInterrupt: Ctrl-C. In either case complete turns and blocks are kept.
        """
        for arm in arms:
            self.writer.append(arm)
        targets = {arm.name: target_of(arm) for arm in arms}
        for load in self.setup.loads:
            # Each load has its own salt too, since the same prompts are sent again.
            contenders = [
                Contender(target, f"{self.salt}/{name}/{load.label}/") for name, target in targets.items()
            ]
            self.on_load(load, self.setup.prompts_of(load) * len(arms))
            measured = Measured(load, deployment)
            self.measured.append(measured)
            try:
                self.run(partial(self._put, load, contenders, measured))
            except LoadStopped as stopped:
                for record in stopped.records:
                    self.writer.append(record)
                raise
            finally:
                self._sum_up(arms, measured)
            self.on_end()

    async def _put(self, load: Load, contenders: Sequence[Contender], measured: Measured) -> None:
        def on_run(run: LoadRun) -> None:
            for record in run.records:
                self.writer.append(record)
            measured.take(run)

        context, setup = self.context_of(on_run), self.setup
        if measured.one_at_a_time:
            warm_up = [warming(item) for item in setup.items[-WARM_UP:]]
            await by_prompt(contenders, load, setup.items, warm_up, context, lambda: setup.ended(measured))
        else:
            await by_block(
                contenders, load, setup.items, blocks=setup.blocks, repeat=setup.repeat, context=context
            )

    def _sum_up(self, arms: Sequence[ArmRecord], measured: Measured) -> None:
        for arm in arms:
            point = point_of(
                arm, measured, temperature=self.setup.temperature, machine_load=self.load_average()
            )
            if point is not None:
                self.points.append(point)
                self.writer.append(point)

    def conclude(self, sides: Sequence[ArmDeployments]) -> list[ComparisonRecord]:
        """Compare and write every pair under every load, over the deployments that measured both."""
        comparisons = []
        parts = list(self._parts(sides))
        for pair, measured in parts:
            try:
                comparisons.append(compare(pair, measured, temperature=self.setup.temperature))
            except ValueError as error:
                names = f"{pair.faster.name} over {pair.slower.name}"
                self.notes.append(f"{names}, {measured[0].load.label}: {error}")
        slices = slices_of_pairs(parts, temperature=self.setup.temperature)
        records: list[Record] = [*comparisons, *slices]
        for record in records:
            self.writer.append(record)
        return comparisons

    def _parts(self, sides: Sequence[ArmDeployments]) -> Iterator[tuple[Pair, list[Measured]]]:
        """Yield every pair under every load with the deployments that measured both of its arms."""
        for load in self.setup.loads:
            every = [each.whole() for each in self.measured if each.load == load]
            for pair in pairs_of(sides):
                both = [
                    each
                    for each in every
                    if all(
                        each.runs.get(side.arms[each.deployment].name) for side in (pair.faster, pair.slower)
                    )
                ]
                if both:
                    yield pair, both


START_UP_MINUTES = 15.0  #: until an endpoint on AWS is in service, plus its deletion
LOCAL_START_UP_MINUTES = 0.5
#: Assumed seconds per token: 10 ms for a single request, twice that under load.
SECONDS_A_TOKEN = 0.010
UNDER_LOAD = 2.0


@dataclass(frozen=True)
class Estimate:
    """Time and cost of a comparison; USD None if the price is unknown, 0 if nothing is billed.

    ``minutes`` is the sum over all deployments; ``most_usd`` assumes that every endpoint exists until its
    lifetime limit.
    """

    deployments: int
    minutes: float
    usd_per_hour: float | None
    usd: float | None
    most_usd: float | None
    price_sources: tuple[str, ...]


def minutes_of(setup: Setup, arms: int) -> float:
    """Estimate the minutes of measuring one deployment; ``arms`` includes the control."""
    tokens = sum(limit_of(item) or MAX_TOKENS for item in setup.items) / max(1, len(setup.items))
    seconds = 0.0
    for load in setup.loads:
        places = load.concurrency or 1
        if places == 1:
            seconds += (len(setup.items) + WARM_UP) * arms * tokens * SECONDS_A_TOKEN
            continue
        requests = setup.prompts_of(load) + 2 * setup.blocks * places
        seconds += requests * arms / places * tokens * SECONDS_A_TOKEN * UNDER_LOAD
    return seconds / 60


def estimate(plans: Sequence[Plan], setup: Setup, *, arms: int, deployments: int) -> Estimate:
    """Estimate time and cost of ``deployments`` rounds of ``plans``, one plan per mode."""
    local = all(plan.context.local for plan in plans)
    start_up = LOCAL_START_UP_MINUTES if local else START_UP_MINUTES
    minutes = deployments * (start_up + minutes_of(setup, arms))
    prices = [plan.usd_per_hour for plan in plans]
    known = [price for price in prices if price is not None]
    hourly = sum(known) if len(known) == len(prices) else None
    most = [plan.max_usd for plan in plans]
    known_most = [value for value in most if value is not None]
    return Estimate(
        deployments=deployments,
        minutes=minutes,
        usd_per_hour=hourly,
        usd=None if hourly is None else hourly * minutes / 60,
        most_usd=deployments * sum(known_most) if len(known_most) == len(most) else None,
        price_sources=tuple(dict.fromkeys(plan.price_source for plan in plans)),
    )
