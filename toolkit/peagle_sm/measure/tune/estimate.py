"""Estimated time, windows and cost of a tuning, before it begins. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from peagle_sm.measure.tune.loads import FIRST_KS, LATER_KS
from peagle_sm.measure.tune.validate import BLOCKS, PROMPTS, validated_loads

#: Minutes from CreateEndpoint to the first answer: on AWS hundreds of gigabytes are loaded (assumed), locally
#: a few megabytes (measured, docs/explanation/engine.md).
STARTUP_MINUTES_AWS = 15.0
STARTUP_MINUTES_LOCAL = 0.5
#: Assumed step time without speculation, for the longest window; large models are faster.
SLOW_STEP_S = 0.02


@dataclass(frozen=True)
class Estimate:
    """Estimated time and cost of a tuning; ``usd`` and ``most_usd`` are None if the price is unknown.

    ``most_usd`` assumes that all endpoints exist until their lifetime limit. ``windows`` is an upper bound;
    ``minutes`` and ``usd`` are for the usual number.
    """

    deployments: int
    windows: int
    minutes: float
    usd_per_hour: float | None
    usd: float | None
    most_usd: float | None

    def words(self) -> str:
        """Describe the estimate in one sentence."""
        plural = "" if self.deployments == 1 else "s"
        minutes = max(1.0, self.minutes)
        what = (
            f"{self.deployments} deployment{plural}, at most {self.windows} windows, about {minutes:.0f} min"
        )
        if self.usd is None:
            return f"{what}; cost unknown: no price found"
        if self.usd == 0:
            return f"{what}; nothing is billed"
        return f"{what}: about {self.usd:.2f} USD, at most {self.most_usd:.2f} USD"


def estimate(
    *,
    modes: int,
    concurrencies: tuple[int, ...],
    max_k: int,
    runtime: bool,
    most_deployments: int,
    rounds: int,
    requests: int,
    max_tokens: int,
    usd_per_hour: float | None,
    max_lifetime_hours: float,
    local: bool,
    sweep_rounds: int = 0,
    components: int = 0,
) -> Estimate:
    """Estimate time and cost of a tuning; ``usd_per_hour`` is the price of one endpoint.

    The baseline exists throughout, with one other endpoint at a time (all modes at once if K changes in the
    engine). With ``components`` > 0 that many arms, including the baseline, share one endpoint, and each is
    measured in every round.
    """
    startup = STARTUP_MINUTES_LOCAL if local else STARTUP_MINUTES_AWS
    windows = windows_of(
        modes=modes,
        max_k=max_k,
        runtime=runtime,
        most_deployments=most_deployments,
        rounds=rounds,
        local=local,
        sweep_rounds=sweep_rounds,
        components=components,
    )
    if components:
        deployments = starts = at_once = 1
    elif runtime:
        deployments = at_once = 1 + modes
        starts = 1
    else:
        deployments = starts = 1 + modes * most_deployments
        at_once = 2
    seconds = sum(
        windows.usual * (max(requests, 3 * c) + c) * max_tokens * SLOW_STEP_S / c for c in concurrencies
    )
    minutes = starts * startup + seconds / 60
    usd = None if usd_per_hour is None else round(at_once * usd_per_hour * minutes / 60, 2)
    most = None if usd_per_hour is None else round(deployments * usd_per_hour * max_lifetime_hours, 2)
    return Estimate(deployments, windows.most * len(concurrencies), minutes, usd_per_hour, usd, most)


@dataclass(frozen=True)
class Windows:
    """Number of windows of a tuning at each concurrency: usual and maximum."""

    usual: int
    most: int


def windows_of(
    *,
    modes: int,
    max_k: int,
    runtime: bool,
    most_deployments: int,
    rounds: int,
    local: bool,
    sweep_rounds: int = 0,
    components: int = 0,
) -> Windows:
    """Compute the number of windows of a tuning at each concurrency."""
    if components:
        return Windows(components * rounds, components * rounds)
    if runtime:
        first, sweep = max_k + 1, sweep_rounds * max_k  # every K, and the baseline
        later = max_k // 2 + 1  # about half of the K are undecided
        return Windows(
            usual=modes * (first + (rounds - 1) * later + sweep), most=modes * (rounds * first + sweep)
        )
    ks = min(most_deployments, max_k)
    baselines = ks if local else 1  # locally one with each K
    return Windows(modes * (ks + baselines), modes * (ks + baselines))


def windows_by_load(modes: int, max_k: int, rounds: int) -> Windows:
    """Compute the number of windows at each load if K is tuned by load; the validation has its own."""
    first = min(FIRST_KS, max_k) + 2  # K=0 and the baseline
    later = min(LATER_KS, max_k) + 2
    # At most one more round: K that are the best at another load.
    return Windows(usual=modes * (first + later), most=modes * (first + (rounds - 1) * later + max_k + 2))


def estimate_by_load(
    *,
    modes: int,
    loads: tuple[int, ...],
    max_k: int,
    rounds: int,
    requests: int,
    max_tokens: int,
    usd_per_hour: float | None,
    max_lifetime_hours: float,
    local: bool,
) -> Estimate:
    """Estimate time and cost of tuning K by load, and of the validation of each mode's table.

    First the baseline and one endpoint for each mode exist together, then for each mode the table's endpoint
    and that of the best fixed K.
    """
    startup = STARTUP_MINUTES_LOCAL if local else STARTUP_MINUTES_AWS
    windows = windows_by_load(modes, max_k, rounds)
    each = SLOW_STEP_S * max_tokens
    tuning = sum(windows.usual * (max(requests, 3 * c) + c) * each / c for c in loads)
    validation = 0.0
    for load in validated_loads(loads):
        places = load.concurrency or 1
        measured = PROMPTS if places == 1 else 2 * BLOCKS * (max(requests, 3 * places) + places)
        validation += modes * 2 * measured * each / places
    starts = 1 + modes
    hours = (startup * (1 + modes) + tuning / 60) * (1 + modes) / 60
    hours += (startup * 2 * modes + 2 * validation / 60) / 60
    minutes = starts * startup + (tuning + validation) / 60
    deployments = 1 + 3 * modes
    usd = None if usd_per_hour is None else round(hours * usd_per_hour, 2)
    most = None if usd_per_hour is None else round(deployments * usd_per_hour * max_lifetime_hours, 2)
    return Estimate(deployments, windows.most * len(loads), minutes, usd_per_hour, usd, most)
