"""What a comparison will cost before it starts: an estimate, and a bound that holds in any case. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from peagle_sm.core.plan.plan import Plan
from peagle_sm.measure.compare.contest import WARM_UP, Setup
from peagle_sm.measure.workloads import MAX_TOKENS, limit_of

START_UP_MINUTES = 15.0  #: until an endpoint on AWS serves; with what deleting it takes
LOCAL_START_UP_MINUTES = 0.5
#: Seconds a token of one request: 10 ms alone, twice as long under load. To be replaced by what comes out.
SECONDS_A_TOKEN = 0.010
UNDER_LOAD = 2.0


@dataclass(frozen=True)
class Estimate:
    """``minutes`` of all deployments together; USD None where no price is known, 0 where nothing is billed.

    ``most_usd`` is reached if every endpoint lived to the end of its lifetime limit.
    """

    deployments: int
    minutes: float
    usd_per_hour: float | None
    usd: float | None
    most_usd: float | None
    price_sources: tuple[str, ...]


def minutes_of(setup: Setup, arms: int) -> float:
    """How long one deployment is likely to be measured, the control included in ``arms``."""
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
    """Price ``deployments`` rounds of ``plans``, one plan a mode."""
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
