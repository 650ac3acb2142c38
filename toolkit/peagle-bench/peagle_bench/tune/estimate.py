"""Settings of a tuning, and its estimated time, windows and cost before it begins. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from peagle_bench.tune.choice import FIRST_KS, LATER_KS, MOST_DEPLOYED, ROUNDS
from peagle_bench.tune.windows import requests_of
from peagle_sm.core.errors import SpecError
from peagle_sm.core.planning import Plan
from peagle_sm.core.spec.modes import Mode, facts_of

#: Minutes from CreateEndpoint to the first answer: on AWS hundreds of gigabytes are loaded (assumed), locally
#: a few megabytes (measured, docs/explanation/engine.md).
STARTUP_MINUTES_AWS = 15.0
STARTUP_MINUTES_LOCAL = 0.5
MAX_TOKENS = 128  #: of an answer: enough for a rate, and half of what `bench` sends
#: Assumed step time without speculation, for the longest window; large models are faster.
SLOW_STEP_S = 0.02


@dataclass(frozen=True)
class Settings:
    """Settings of a tuning."""

    modes: tuple[Mode, ...]
    concurrencies: tuple[int, ...]
    max_k: int
    runtime: bool  #: K changes inside one engine; else one deployment for each K
    requests: int  #: the least number of a window
    unguarded: bool = False

    def windows(self, *, local: bool) -> tuple[int, int]:
        """Compute the usual and the largest number of windows at each concurrency."""
        modes, max_k = len(self.modes), self.max_k
        if self.runtime:  # with the baseline in every round
            usual = modes * (min(FIRST_KS, max_k) + 1 + (ROUNDS - 1) * (min(LATER_KS, max_k) + 1))
            # At most one more round: K that are the best at another load.
            return usual, usual + modes * (max_k + 1)
        ks = min(MOST_DEPLOYED, max_k)
        baselines = ks if local else 1  # locally one with each K
        return modes * (ks + baselines), modes * (ks + baselines)


def is_runtime(by: str, local: bool, modes: Sequence[Mode]) -> bool:
    """Decide whether K changes inside one engine: ``by`` "auto" means so on the local SageMaker.

    Raises:
        SpecError: "runtime" with a mode whose K an engine fixes at the start.
    """
    fixed = [mode for mode in modes if not facts_of(mode).changes_k]
    if by == "runtime" and fixed:
        raise SpecError(
            f"--by: found runtime with mode {', '.join(fixed)}; the engine fixes its K at the start; "
            "allowed: deployments.",
            next_step="Give --by deployments, or leave --by out.",
        )
    return by == "runtime" or (by == "auto" and local and not fixed)


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


def highest_price(plans: Iterable[Plan]) -> float | None:
    """Return the highest price of the plans in USD per hour; None if one is unknown."""
    prices = [plan.usd_per_hour for plan in plans]
    known = [price for price in prices if price is not None]
    return max(known) if len(known) == len(prices) else None


def spent(usd: float | None) -> str:
    """Render ``cost 3.20 USD``, or why the cost is unknown."""
    if usd is None:
        return "cost unknown: no price found"
    return f"cost {usd:.2f} USD" if usd else "nothing was billed"


def estimate(
    settings: Settings,
    *,
    max_tokens: int,
    usd_per_hour: float | None,
    max_lifetime_hours: float,
    local: bool,
) -> Estimate:
    """Estimate time and cost of a tuning; ``usd_per_hour`` is the price of one endpoint.

    The baseline exists throughout, with one other endpoint at a time, or all modes at once if K changes in
    the engine.
    """
    startup = STARTUP_MINUTES_LOCAL if local else STARTUP_MINUTES_AWS
    usual, largest = settings.windows(local=local)
    modes, loads = len(settings.modes), settings.concurrencies
    each_s = SLOW_STEP_S * max_tokens
    sent = {c: requests_of(settings.requests, c) + c for c in loads}
    measuring = sum(usual * count * each_s / c for c, count in sent.items()) / 60
    if settings.runtime:
        deployments, at_once, starts = 1 + modes, 1 + modes, 1
    else:
        deployments = starts = 1 + modes * MOST_DEPLOYED
        at_once = 2
    minutes = starts * startup + measuring
    usd = None if usd_per_hour is None else round(at_once * minutes / 60 * usd_per_hour, 2)
    most = None if usd_per_hour is None else round(deployments * usd_per_hour * max_lifetime_hours, 2)
    return Estimate(deployments, largest * len(loads), minutes, usd_per_hour, usd, most)
