"""Verdict of host or call: which side costs less at a rate, and the sentence that says it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from peagle_bench.decide.costs import (
    Hosting,
    TokenCosts,
    Traffic,
    equal_at,
    exactly,
    must_serve,
    scaled,
    usd_per_month,
    wins_above,
)
from peagle_bench.report.formatting import number, share
from peagle_bench.results.records import Interval

Verdict = Literal["call", "host", "tie", "measure"]
TIE = 0.01
"""Costs that differ by no more than this share are equal."""
_USUAL_HOURS = ("Mon-Fri 08:00-19:00", 55 / 168)
_DISCOUNT = 0.25  #: an example of what a reservation may save
_BETTER_HEAD = 1.2  #: an example of a faster head


@dataclass(frozen=True)
class Option:
    """One way to host beside calling, at the traffic's rate.

    ``instances`` is None if what one instance serves is not known; ``usd``, by month, is then that of the
    fewest, so the least. ``ratio`` is hosting's cost over calling's. ``verdict`` "measure" means that hosting
    wins if one instance serves ``must_serve``. ``utilisation`` is the share of its full load that one
    instance must serve while it is on to cost as much as calling. ``wins_above``: see `costs.wins_above`.
    """

    hosting: Hosting
    instances: int | None
    usd: Interval
    ratio: Interval
    verdict: Verdict
    wins_above: Interval | None
    utilisation: float | None
    must_serve: float | None


@dataclass(frozen=True)
class Decision:
    """Host or call at the traffic's rate; ``usd_calling`` is by month, ``chosen`` the verdict's option.

    ``seller`` is who sells the tokens, as the tables name it.
    """

    verdict: Verdict
    traffic: Traffic
    tokens: TokenCosts
    usd_per_token: Interval
    usd_calling: Interval
    options: tuple[Option, ...]
    chosen: Option
    seller: str = "Amazon Bedrock"


def decide(
    traffic: Traffic, tokens: TokenCosts, hostings: Sequence[Hosting], usd_per_token: Interval | None = None
) -> Decision:
    """Compare calling with every way to host.

    Args:
        traffic: what a month brings.
        tokens: prices of calling.
        hostings: at least one way to host.
        usd_per_token: USD for each output token with its input, with its interval over requests; None:
            exactly as in the traffic.
    """
    each = usd_per_token or exactly(tokens.of(traffic))
    options = tuple(weigh(hosting, traffic, each) for hosting in hostings)
    chosen = min(options, key=_rank)
    calling = usd_per_month(traffic.otps, each)
    return Decision(chosen.verdict, traffic, tokens, each, calling, options, chosen)


_ORDER: tuple[Verdict, ...] = ("host", "tie", "measure", "call")


def _rank(option: Option) -> tuple[bool, int, float, float]:
    """Order options: one that meets the goals, what speaks for hosting, the lowest cost, the fastest."""
    serves = option.hosting.serves.value if option.hosting.serves else 0.0
    return not option.hosting.counts, _ORDER.index(option.verdict), option.usd.value, -serves


def weigh(hosting: Hosting, traffic: Traffic, usd_per_token: Interval) -> Option:
    """Compare one way to host with calling, at the traffic's rate."""
    calling = usd_per_month(traffic.otps, usd_per_token)
    known = hosting.instances(traffic)
    usd = hosting.usd_at(traffic)
    ratio = Interval(usd.value / calling.value, usd.low / calling.high, usd.high / calling.low)
    verdict = _verdict(ratio)
    if not hosting.counts or (verdict == "host" and known is None):
        verdict = "measure"
    break_even = equal_at(hosting, 1, usd_per_token).value
    return Option(
        hosting=hosting,
        instances=None if known is None else known[0],
        usd=usd,
        ratio=ratio,
        verdict=verdict,
        wins_above=wins_above(hosting, traffic, usd_per_token),
        utilisation=None if hosting.serves is None else break_even / hosting.serves.value / hosting.on,
        must_serve=must_serve(hosting, traffic, usd_per_token) if verdict == "measure" else None,
    )


def _verdict(ratio: Interval) -> Verdict:
    if ratio.low > 1 + TIE:
        return "call"
    return "host" if ratio.high < 1 / (1 + TIE) else "tie"


def sentence(decision: Decision) -> str:
    """Say the verdict in one sentence."""
    option, rate = decision.chosen, plain(decision.traffic.otps)
    instance = option.hosting.instance_type
    if option.hosting.faults:
        return f"Measure: no measured load on {instance} counts: {option.hosting.faults[0]}."
    if option.hosting.misses:
        return f"Measure: no measured mode meets your goal on {instance}, and calling's latency is not known."
    if decision.verdict == "measure":
        return (
            f"Measure: at your {rate} tokens/s hosting wins if one {instance} serves"
            f" {number(option.must_serve)} tokens/s at full load; if not, calling wins."
        )
    above, known = option.wins_above, option.instances is not None
    if decision.verdict == "tie":
        low, high = option.ratio.low, option.ratio.high
        if high - low > TIE:
            times = f"{'' if known else 'at least '}{low:.2f} to {high:.2f} times"
            return f"Tie: at your {rate} tokens/s hosting costs {times} as much as calling."
        if known:
            return f"Tie: hosting and calling cost the same at your {rate} tokens/s."
        return f"Tie at best: hosting costs at least as much as calling at your {rate} tokens/s."
    if decision.verdict == "host":
        below = "" if above is None else f"; it wins below {number(above.value)} tokens/s"
        return f"Host: calling costs {_times(1 / option.ratio.value)} as much at your {rate} tokens/s{below}."
    times = _times(option.ratio.value) if known else f"at least {_times(option.ratio.low)}"
    if above is not None:
        end = f"{'wins' if known else 'can win'} above {number(above.value)} tokens/s"
    elif (option.utilisation or 0.0) > 1:
        end = "wins at no rate"
    else:
        used = share(1 / (decision.traffic.peak(option.hosting.on) * option.hosting.on))
        end = f"wins only above {share(option.utilisation)} use of its instances (yours: {used})"
    return f"Call: hosting costs {times} as much at your {rate} tokens/s; it {end}."


def _times(ratio: float) -> str:
    return f"{ratio:.2f} times" if ratio < 1.95 else f"{number(ratio, 2)} times"


def rate_text(rate: Interval) -> str:
    """Format a rate with its interval: ``2,288`` or ``2,288 [2,100, 2,500]``."""
    if rate.high - rate.low < 0.005 * rate.value:
        return number(rate.value)
    return f"{number(rate.value)} [{number(rate.low)}, {number(rate.high)}]"


def plain(rate: float) -> str:
    """Format a rate that the user gave: ``40`` and ``2.5``."""
    return f"{rate:,.0f}" if rate == int(rate) else number(rate)


def changes(decision: Decision, hours: str | None) -> list[str]:
    """Say what moves the rate above which hosting wins; ``hours`` is the spec's timetable."""
    option, hosting = decision.chosen, decision.chosen.hosting
    if not hosting.counts:
        return ["a measured load that counts: give its file with --measured"]
    if option.wins_above is None:
        return _of_a_head(decision)
    if hours:
        text, other = f"without the hours {hours}", replace(hosting, on=1.0)
    else:
        name, on = _USUAL_HOURS
        text, other = f"with hours such as {name}, if no request comes outside them", replace(hosting, on=on)
    cheaper = replace(hosting, usd_per_hour=scaled(hosting.usd_per_hour, 1 - _DISCOUNT))
    return [
        f"{text}: {_wins(decision, other)}",
        f"at a price {share(_DISCOUNT)} lower, such as a reservation's (--usd-per-hour): "
        f"{_wins(decision, cheaper)}",
        *_of_a_head(decision),
    ]


def _of_a_head(decision: Decision) -> list[str]:
    """Say what a faster head changes: what an instance serves, and not what an instance costs."""
    hosting = decision.chosen.hosting
    carries = hosting.carries(decision.traffic)
    if hosting.serves is None or carries is None:
        return ["with a better head: an instance serves more tokens/s, and costs the same"]
    faster = replace(hosting, serves=scaled(hosting.serves, _BETTER_HEAD))
    more = faster.carries(decision.traffic)
    now, then = number(carries.value), number(more.value if more else None)
    return [
        f"with a head that is {share(_BETTER_HEAD - 1)} faster: {_wins(decision, faster)}; an instance"
        f" carries {then} tokens/s instead of {now}"
    ]


def _wins(decision: Decision, hosting: Hosting) -> str:
    above = wins_above(hosting, decision.traffic, decision.usd_per_token)
    wins = "wins" if hosting.serves is not None else "can win"
    if above is None:
        return "hosting wins at no rate"
    return f"hosting {wins} above {number(above.value)} tokens/s"


REASONS = (
    "to host: your own weights, adapter or head; data that must stay in your account; the latency of each"
    " user; a fixed price at high use; the precision of the weights (Bedrock does not state its own)",
    "to call: no idle cost; no quota for instances; nothing to operate; new models on the day they appear",
)
"""Reasons other than cost."""
