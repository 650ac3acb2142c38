"""An arm's turns or windows under one load as one point, for the report. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from peagle_sm.measure import acceptance
from peagle_sm.measure.compare.analysis import Measured
from peagle_sm.measure.load import ClientUsage, LoadRun, Window
from peagle_sm.measure.load.points import make_point
from peagle_sm.measure.records import ArmRecord, PointRecord


def point_of(
    arm: ArmRecord, measured: Measured, *, temperature: float | None, machine_load: float | None
) -> PointRecord | None:
    """Sum up what one arm did; None where it had no turn. Seconds are those in which this arm was asked.

    The client is judged over all turns of all arms at one request in flight, since a turn is too short for
    it; else over all windows of this arm together.
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
    # Latencies come from the requests; what is counted by the clock, from each window of its own.
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
    """A turn's window is from its first request's sending to its last one's end."""
    measured = [record for record in run.records if record.phase == "measured"]
    if not measured:
        return replace(run, window=replace(run.window, end_s=run.window.start_s, seconds=0.0))
    start, end = measured[0].sent_s, max(record.done_s for record in measured)
    return replace(run, window=Window(start, end, end - start))


def together(runs: Sequence[LoadRun]) -> ClientUsage:
    """What the client took over all of them."""
    return ClientUsage(
        tuple(lag for run in runs for lag in run.usage.lags_ms),
        math.fsum(run.usage.cpu_s for run in runs),
        any(run.usage.connections_full for run in runs),
    )
