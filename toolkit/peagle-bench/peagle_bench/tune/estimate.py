"""Settings of a tuning, and its estimated time, windows and cost before it begins. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from peagle_bench.tune.choice import FIRST_KS, LATER_KS, MOST_DEPLOYED, ROUNDS
from peagle_bench.tune.validate import BLOCKS, PROMPTS, validated_loads
from peagle_bench.tune.windows import WindowSize
from peagle_sm.core.spec.endpoint_spec import Mode

#: Minutes from CreateEndpoint to the first answer: on AWS hundreds of gigabytes are loaded (assumed), locally
#: a few megabytes (measured, docs/explanation/engine.md).
STARTUP_MINUTES_AWS = 15.0
STARTUP_MINUTES_LOCAL = 0.5
#: Assumed step time without speculation, for the longest window; large models are faster.
SLOW_STEP_S = 0.02


@dataclass(frozen=True)
class Windows:
    """Number of windows of a tuning at each concurrency: usual and maximum."""

    usual: int
    most: int


@dataclass(frozen=True)
class Settings:
    """Settings of a tuning."""

    modes: tuple[Mode, ...]
    concurrencies: tuple[int, ...]
    max_k: int
    runtime: bool  #: K changes inside one engine; else one deployment for each K
    most_deployments: int
    rounds: int
    size: WindowSize
    heads: Mapping[str, str] = field(default_factory=dict)
    unguarded: bool = False
    by_load: bool = False  #: also make and validate a table of K by batch size

    @classmethod
    def of(
        cls,
        *,
        modes: tuple[Mode, ...],
        local: bool,
        concurrency: Sequence[int],
        loads: Sequence[int],
        max_k: int,
        by: str,
        max_deployments: int | None,
        rounds: int | None,
        requests: int,
        heads: Mapping[str, str],
        unguarded: bool,
        components: int = 0,
    ) -> Settings:
        """Take the options of `tune`; None and ``by`` "auto" become their defaults."""
        runtime = by == "runtime" or (by == "auto" and (local or bool(loads)))
        return cls(
            modes=modes,
            concurrencies=tuple(dict.fromkeys(sorted(loads) if loads else concurrency)),
            max_k=max_k,
            runtime=runtime and not components,
            most_deployments=max_deployments or MOST_DEPLOYED,
            rounds=rounds or ROUNDS,
            size=WindowSize(requests),
            heads=heads,
            unguarded=unguarded,
            by_load=bool(loads),
        )

    def windows(self, *, local: bool, components: int = 0) -> Windows:
        """Compute the number of windows at each concurrency; the validation of a table has its own.

        With ``components`` > 0 that many arms, including the baseline, are measured in every round.
        """
        modes, max_k, rounds = len(self.modes), self.max_k, self.rounds
        if components:
            return Windows(components * rounds, components * rounds)
        if self.runtime:
            others = 2 if self.by_load else 1  # the baseline, and K=0 of the engine
            first, later = min(FIRST_KS, max_k) + others, min(LATER_KS, max_k) + others
            usual = modes * (first + (rounds - 1) * later)
            # At most one more round: K that are the best at another load.
            return Windows(usual, usual + modes * (max_k + others))
        ks = min(self.most_deployments, max_k)
        baselines = ks if local else 1  # locally one with each K
        return Windows(modes * (ks + baselines), modes * (ks + baselines))


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
    settings: Settings,
    *,
    max_tokens: int,
    usd_per_hour: float | None,
    max_lifetime_hours: float,
    local: bool,
    components: int = 0,
) -> Estimate:
    """Estimate time and cost of a tuning; ``usd_per_hour`` is the price of one endpoint.

    The baseline exists throughout, with one other endpoint at a time (all modes at once if K changes in the
    engine). With ``components`` > 0 that many arms, including the baseline, share one endpoint. If K is tuned
    by load, the table's endpoint and that of the best fixed K exist together afterwards, for each mode.
    """
    startup = STARTUP_MINUTES_LOCAL if local else STARTUP_MINUTES_AWS
    windows = settings.windows(local=local, components=components)
    modes, size, loads = len(settings.modes), settings.size, settings.concurrencies
    each_s = SLOW_STEP_S * max_tokens
    measuring = sum(windows.usual * (size.of(c) + c) * each_s / c for c in loads) / 60
    validation = 0.0
    if components:
        deployments = starts = at_once = 1
    elif settings.runtime:
        deployments = at_once = starts = 1 + modes
        if settings.by_load:
            deployments += 2 * modes
            for load in validated_loads(loads):
                places = load.concurrency or 1
                requests = PROMPTS if places == 1 else 2 * BLOCKS * (size.of(places) + places)
                validation += modes * 2 * requests * each_s / places / 60
        else:
            starts = 1
    else:
        deployments = starts = 1 + modes * settings.most_deployments
        at_once = 2
    minutes = starts * startup + measuring + validation
    hours = at_once * (starts * startup + measuring) / 60
    if settings.by_load:
        hours += (startup * 2 * modes + 2 * validation) / 60
    usd = None if usd_per_hour is None else round(hours * usd_per_hour, 2)
    most = None if usd_per_hour is None else round(deployments * usd_per_hour * max_lifetime_hours, 2)
    return Estimate(deployments, windows.most * len(loads), minutes, usd_per_hour, usd, most)
