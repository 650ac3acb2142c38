"""What is written beside the K in a spec file. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from peagle_sm.measure.records import FitRecord
from peagle_sm.measure.tune.outcome import ModeResult, common_against_none


def evidence(
    result: ModeResult,
    fits: Sequence[FitRecord],
    *,
    workload: str,
    date: str,
    stand_in: bool,
    file: str,
) -> list[str]:
    """Comment lines for the spec file, without their marks; ``fits`` are the mode's records."""
    plural = "" if result.deployments == 1 else "s"
    lines = [
        f"K={result.common.k} for {result.mode} on {date}, {workload}, "
        f"from {result.deployments} deployment{plural} of it"
    ]
    pays = common_against_none(result)
    for record in fits:
        point = next(point for point in record.points if point.k == result.common.k)
        lines.append(
            f"{record.load.label}: {point.otps:.0f} tokens/s [{point.low or 0:.0f}, {point.high or 0:.0f}], "
            f"acceptance length {point.acceptance_length:.2f}, step {point.step_ms:.2f} ms; "
            f"best K for this load alone (a guess): {record.best_k}"
        )
        if (against := pays.get(record.load.concurrency or 0)) is not None:
            lines.append(f"{record.load.label}: {against.words}")
    if stand_in:
        lines.append("measured on the small stand-in weights: says nothing of the real model")
    return [*lines, f"results: {file}"]
