"""Cost of a month by the token and on own instances, and the rate at which they are equal. Pure.

Calling costs the same for each token. Hosting costs the same for each instance, whatever it serves. With n
instances the two are equal at n times the rate of one instance; a higher rate is cheaper on them. So hosting
wins above that rate, up to what n instances can serve: one more instance may lose again.

A month has 730 hours, as AWS counts it. ``otps`` is the mean rate of output tokens over all hours of the
month, also the idle ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from peagle_bench.report.costs import USED
from peagle_bench.report.fleet import HEADROOM, SECONDS_PER_HOUR
from peagle_bench.results.records import Interval

HOURS_PER_MONTH = 730.0
SECONDS_PER_MONTH = HOURS_PER_MONTH * SECONDS_PER_HOUR
_ROUNDING = 1e-9  #: a division's own rounding must not buy another instance


def exactly(value: float) -> Interval:
    """Return a value that is known, as an interval."""
    return Interval(value, value, value)


@dataclass(frozen=True)
class Traffic:
    """What a month brings, and how uneven it is.

    ``input_per_output`` are input tokens for each output token; ``cached_per_output`` those of them that were
    found in a prompt cache. ``busiest`` is the busiest hour's rate over the mean, None if it is not known.
    Then ``used`` is the share of the instances' capacity that the mean takes while they are on.
    """

    otps: float
    input_per_output: float
    cached_per_output: float = 0.0
    busiest: float | None = None
    used: float = USED

    def peak(self, on: float) -> float:
        """Return the rate to be able to serve over the mean rate; instances are on for a share of the time.

        A share of `HEADROOM` stays free in the busiest hour, as for the fleet of `peagle-sm cost`. All
        traffic is assumed to come while the instances are on, so its mean over that time is the least.
        """
        if self.busiest is not None:
            return max(self.busiest, 1 / on) / (1 - HEADROOM)
        return 1 / (self.used * on)


@dataclass(frozen=True)
class TokenCosts:
    """USD per million tokens; ``cached`` None: cached input costs as much as other input."""

    input: float
    output: float
    cached: float | None = None

    def usd(self, input_tokens: float, output_tokens: float, cached_tokens: float = 0.0) -> float:
        """Return what these tokens cost; ``cached_tokens`` are part of ``input_tokens``."""
        cached = self.input if self.cached is None else self.cached
        fresh = input_tokens - cached_tokens
        return (fresh * self.input + cached_tokens * cached + output_tokens * self.output) / 1e6

    def of(self, traffic: Traffic) -> float:
        """Return USD for each output token of the traffic, with its input."""
        return self.usd(traffic.input_per_output, 1.0, traffic.cached_per_output)


@dataclass(frozen=True)
class Hosting:
    """One way to host: an instance type and a mode of speculation.

    ``usd_per_hour`` is the price of one instance. It has bounds if only EC2's price is known. ``serves`` are
    the output tokens/s of one instance at full load, with its interval; None if that is not known. ``fewest``
    instances run in any case, for the share ``on`` of the week. ``misses`` are latency goals that it misses,
    ``faults`` are reasons why no measured load counts.
    """

    instance_type: str
    mode: str
    usd_per_hour: Interval
    price_source: str
    serves: Interval | None = None
    serves_source: str = ""
    fewest: int = 1
    on: float = 1.0
    misses: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    label: str = ""  #: the mode's name for a reader

    @property
    def counts(self) -> bool:
        """Whether what it serves was measured well, and within the goals; also if it is not known."""
        return not (self.misses or self.faults)

    def usd_per_month(self, instances: int) -> Interval:
        """Return what ``instances`` cost in a month."""
        return scaled(self.usd_per_hour, instances * HOURS_PER_MONTH * self.on)

    def carries(self, traffic: Traffic) -> Interval | None:
        """Return the mean rate that one instance carries, which is below what it serves at full load."""
        return None if self.serves is None else scaled(self.serves, 1 / traffic.peak(self.on))

    def instances(self, traffic: Traffic) -> tuple[int, int, int] | None:
        """Return the instances for this traffic: the number, the fewest and the most; None if not known."""
        carries = self.carries(traffic)
        if carries is None:
            return None
        value, low, high = (
            max(self.fewest, math.ceil(traffic.otps / rate - _ROUNDING))
            for rate in (carries.value, carries.high, carries.low)
        )
        return value, low, high

    def usd_at(self, traffic: Traffic) -> Interval:
        """Return what the instances for this traffic cost in a month: the fewest, if they are not known."""
        count, fewest, most = self.instances(traffic) or (self.fewest,) * 3
        usd, least, greatest = (self.usd_per_month(each) for each in (count, fewest, most))
        return Interval(usd.value, least.low, greatest.high)


def usd_per_month(otps: float, usd_per_token: Interval) -> Interval:
    """Return what calling costs in a month at a rate."""
    return scaled(usd_per_token, otps * SECONDS_PER_MONTH)


def equal_at(hosting: Hosting, instances: int, usd_per_token: Interval) -> Interval:
    """Return the rate at which ``instances`` cost as much as calling, as a mean over the month."""
    usd = hosting.usd_per_month(instances)
    return Interval(
        usd.value / usd_per_token.value / SECONDS_PER_MONTH,
        usd.low / usd_per_token.high / SECONDS_PER_MONTH,
        usd.high / usd_per_token.low / SECONDS_PER_MONTH,
    )


def wins_above(hosting: Hosting, traffic: Traffic, usd_per_token: Interval) -> Interval | None:
    """Return the rate nearest to the traffic's at which the cheaper side changes; hosting wins above it.

    Above the traffic's rate if calling is cheaper there, else below it. None: hosting wins at no rate,
    because one instance carries less than it must. Without a known capacity it is the rate of the fewest
    instances, above which hosting *can* win.
    """
    break_even = equal_at(hosting, 1, usd_per_token)
    carries = hosting.carries(traffic)
    known = hosting.instances(traffic)
    if carries is None or known is None:
        return equal_at(hosting, hosting.fewest, usd_per_token)
    if break_even.value >= carries.value:
        return None
    count = known[0]
    if traffic.otps > count * break_even.value:  # hosting is cheaper: go down to the next loss
        # n instances lose at rates just above what n - 1 carry if n * break_even > (n - 1) * carries.
        losing = math.ceil(carries.value / (carries.value - break_even.value) - _ROUNDING) - 1
        count = min(count, losing)
    return equal_at(hosting, max(hosting.fewest, count), usd_per_token)


@dataclass(frozen=True)
class Gap:
    """Rates at which one more instance loses: above what ``instances`` carry, until it is used enough."""

    instances: int
    low: float
    high: float


def gap_of(hosting: Hosting, traffic: Traffic, usd_per_token: Interval) -> Gap | None:
    """Return the gap that the traffic's rate is in, or the one at the end of what its instances carry.

    None: one more instance always pays, or hosting wins at no rate, or what an instance serves is not known.
    """
    carries, known = hosting.carries(traffic), hosting.instances(traffic)
    break_even = equal_at(hosting, 1, usd_per_token).value
    if carries is None or known is None or break_even >= carries.value:
        return None
    count = known[0] - 1 if traffic.otps <= known[0] * break_even else known[0]
    gap = Gap(count, count * carries.value, (count + 1) * break_even)
    return gap if count >= hosting.fewest and gap.low < gap.high else None


def must_serve(hosting: Hosting, traffic: Traffic, usd_per_token: Interval) -> float | None:
    """Return what one instance must serve at full load for hosting to win at the traffic's rate.

    None if hosting loses there whatever an instance serves.
    """
    break_even = equal_at(hosting, 1, usd_per_token).value
    # More instances than these cost as much as calling, or more.
    most = math.ceil(traffic.otps / break_even - _ROUNDING) - 1
    return traffic.otps / most * traffic.peak(hosting.on) if most >= hosting.fewest else None


def scaled(interval: Interval, factor: float) -> Interval:
    """Return an interval times a factor."""
    return Interval(interval.value * factor, interval.low * factor, interval.high * factor)
