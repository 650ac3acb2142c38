"""Report section of host or call: the costs of a month by rate, and what they are made of. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from peagle_bench.decide.costs import HOURS_PER_MONTH, usd_per_month
from peagle_bench.decide.decision import REASONS, Decision, Option, plain, rate_text
from peagle_bench.report.blocks import Notes, Section, page_tables
from peagle_bench.report.charts import ChartFigure, LineChart, Mark, Series, decade_ticks
from peagle_bench.report.formatting import DASH, Look, number, share, usd
from peagle_bench.results.records import Interval
from peagle_sm.core.display import Table

MOST_STEPS = 40
"""Steps of a chart; more of them look like a straight line."""
_CALL, _HOST = Look("grey", "diamond"), Look("blue", "circle")


def section(
    decision: Decision, moves: list[str], sources: list[str], watermark: str | None = None
) -> Section:
    """Make the section; ``moves`` say what moves the crossing, ``sources`` where prices come from."""
    lead = (
        f"A month has {HOURS_PER_MONTH:g} hours. Calling costs the same for each token, an instance the same"
        " for each hour."
    )
    blocks = [
        ChartFigure(chart(decision, watermark)),
        *page_tables(options_table(decision, intervals=True)),
        Notes(moves),
        Notes(REASONS),
        Notes(sources),
    ]
    return Section("host-or-call", "Host or call", lead, blocks)


def chart(decision: Decision, watermark: str | None = None) -> LineChart:
    """Make the chart of the month's cost by rate, with the rate at which it is equal, and its interval."""
    option = decision.chosen
    ends = [decision.traffic.otps]
    guides = [(decision.traffic.otps, f"yours: {plain(decision.traffic.otps)}", _CALL)]
    if option.wins_above is not None:
        above = option.wins_above
        ends += [above.low, above.high]
        guides.append((above.value, f"equal: {number(above.value)}", _HOST))
        bounds = ((above.low, f"from {number(above.low)}"), (above.high, f"to {number(above.high)}"))
        guides += [(at, text, _HOST) for at, text in bounds if abs(at - above.value) > 0.005 * above.value]
    ticks = decade_ticks(min(ends) / 3, max(ends) * 3)
    hosting, least = option.hosting, "" if option.instances is not None else ", at least"
    return LineChart(
        title="USD by month, by output tokens per second",
        series=(
            Series("calling", _CALL, tuple(_called(decision, rate) for rate in ticks), computed=True),
            Series(
                f"{hosting.instance_type}{least}",
                _HOST,
                tuple(_hosted(option, decision, rate) for rate in _with_steps(option, decision, ticks)),
                computed=True,
            ),
        ),
        x_title="output tokens per second, mean of the month",
        y_title="USD by month",
        x_ticks=tuple(ticks),
        x_log=True,
        y_log=True,
        guides=tuple(guides),
        watermark=watermark,
    )


def _with_steps(option: Option, decision: Decision, ticks: Sequence[float]) -> list[float]:
    """Add the rates on both sides of each further instance, where the cost of hosting steps up."""
    carries = option.hosting.carries(decision.traffic)
    if carries is None:
        return list(ticks)
    first, last = (math.floor(rate / carries.value) for rate in (ticks[0], ticks[-1]))
    counts = range(max(1, first), last + 1)
    if len(counts) > MOST_STEPS:
        return list(ticks)
    edges = [count * carries.value * side for count in counts for side in (1, 1 + 1e-6)]
    return sorted({*ticks, *(edge for edge in edges if ticks[0] < edge < ticks[-1])})


def _called(decision: Decision, rate: float) -> Mark:
    cost = usd_per_month(rate, decision.usd_per_token)
    return _mark(rate, cost)


def _hosted(option: Option, decision: Decision, rate: float) -> Mark:
    return _mark(rate, option.hosting.usd_at(replace(decision.traffic, otps=rate)))


def _mark(rate: float, cost: Interval) -> Mark:
    return Mark(rate, cost.value, cost.low, cost.high)


def options_table(decision: Decision, *, intervals: bool) -> Table:
    """Make the table of calling and all ways to host, at the traffic's rate.

    ``intervals``: with the intervals of the rates, for which a terminal has no room.
    """
    rows = [(decision.seller, "call", DASH, usd(decision.usd_calling.value), DASH, DASH)]
    for option in decision.options:
        hosting, known, above = option.hosting, option.instances is not None, option.wins_above
        wins = "at no rate" if above is None else rate_text(above) if intervals else number(above.value)
        rows.append(
            (
                hosting.instance_type,
                hosting.label or hosting.mode,
                str(option.instances) if known else f"{hosting.fewest}+",
                usd(option.usd.value) if known else f"{usd(option.usd.low)}+",
                wins,
                share(option.utilisation),
            )
        )
    title = f"A month at {plain(decision.traffic.otps)} output tokens/s"
    heads = ("where", "mode", "instances", "USD/month", "wins above", "equal at")
    return Table(title, heads, tuple(rows), heads[2:])


def calling_text(decision: Decision) -> str:
    """Say what calling costs, input and output apart."""
    traffic, tokens = decision.traffic, decision.tokens
    parts = {
        "input": (tokens.usd(traffic.input_per_output - traffic.cached_per_output, 0.0)),
        "output": tokens.usd(0.0, 1.0),
    }
    if traffic.cached_per_output:
        parts["cached input"] = tokens.usd(traffic.cached_per_output, 0.0, traffic.cached_per_output)
    by_part = [
        f"{usd(usd_per_month(traffic.otps, Interval(each, each, each)).value)} USD for {name}"
        for name, each in parts.items()
    ]
    return f"calling, by month: {', '.join(by_part)}"
