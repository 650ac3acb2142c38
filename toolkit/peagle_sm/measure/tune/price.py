"""What a tuning will cost, and what it has cost. Pure."""

from __future__ import annotations

from dataclasses import dataclass

#: Minutes from CreateEndpoint to the first answer: hundreds of gigabytes are read on AWS (assumed), a few
#: megabytes here (measured, docs/explanation/engine.md).
STARTUP_MINUTES_AWS = 15.0
STARTUP_MINUTES_LOCAL = 0.5
#: A step of an engine without speculation, for how long a window lasts at most: large models take less.
SLOW_STEP_S = 0.02


@dataclass(frozen=True)
class Estimate:
    """``usd`` and ``most_usd`` are None where no price is known; ``most_usd`` is what the lifetimes allow.

    ``windows`` is never exceeded. ``minutes`` and ``usd`` are of as many as there usually are.
    """

    deployments: int
    windows: int
    minutes: float
    usd_per_hour: float | None
    usd: float | None
    most_usd: float | None

    def words(self) -> str:
        """One sentence."""
        plural = "" if self.deployments == 1 else "s"
        minutes = max(1.0, self.minutes)
        what = (
            f"{self.deployments} deployment{plural}, at most {self.windows} windows, about {minutes:.0f} min"
        )
        if self.usd is None:
            return f"{what}; cost unknown: no price is known"
        if self.usd == 0:
            return f"{what}; nothing is billed"
        return f"{what}: about {self.usd:.2f} USD, and never more than {self.most_usd:.2f} USD"


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
    """The most that a tuning takes; ``usd_per_hour`` is one endpoint's.

    The baseline stays up throughout, beside one endpoint at a time (all modes at once where K changes in
    the engine). With ``components`` so many arms, the baseline among them, share one endpoint, and each is
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
    """How many windows a tuning measures at each concurrency: as a rule, and at most."""

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
    """How many windows a tuning measures at each concurrency."""
    if components:
        return Windows(components * rounds, components * rounds)
    if runtime:
        first, sweep = max_k + 1, sweep_rounds * max_k  # every K, and the baseline
        later = max_k // 2 + 1  # about half of the K are still in question
        return Windows(
            usual=modes * (first + (rounds - 1) * later + sweep), most=modes * (rounds * first + sweep)
        )
    ks = min(most_deployments, max_k)
    baselines = ks if local else 1  # locally one beside each K
    return Windows(modes * (ks + baselines), modes * (ks + baselines))


@dataclass
class Bill:
    """Adds up what endpoints have cost while they were up."""

    usd: float = 0.0
    unknown: bool = False
    seconds: float = 0.0

    def add(self, seconds: float, usd_per_hour: float | None) -> None:
        """An endpoint was there for ``seconds``, from CreateEndpoint until it was gone."""
        self.seconds += seconds
        if usd_per_hour is None:
            self.unknown = True
        else:
            self.usd += seconds / 3600 * usd_per_hour

    @property
    def total(self) -> float | None:
        """USD, None where a price is not known."""
        return None if self.unknown else round(self.usd, 4)
