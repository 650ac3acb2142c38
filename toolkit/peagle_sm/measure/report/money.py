"""What it costs: USD per million output tokens at each point, and where the prices come from. Pure."""

from __future__ import annotations

from peagle_sm.core.display.markup import Safe, join, tag
from peagle_sm.measure.costs import CostRow, cheapest, cost_rows
from peagle_sm.measure.records import PointRecord
from peagle_sm.measure.report import words
from peagle_sm.measure.report.over_load import Figure, charts, pivot
from peagle_sm.measure.report.section import Section, pair
from peagle_sm.measure.report.view import View


def money(view: View) -> Section | None:
    """USD per million tokens by load; None where nothing was billed."""
    rows = cost_rows(view.arms, view.points)
    if not any(row.usd_per_million for row in rows):
        return None
    rates = {(row.arm.name, row.load, row.otps): row.usd_per_million for row in rows}

    def value(point: PointRecord) -> float | None:
        return rates.get((point.arm, point.load, point.otps))

    figure = Figure("usd", "USD per million output tokens", value, log=True)
    drawn = charts(view, figure)
    if drawn is None:
        return None
    beside = pivot(view, figure, "USD per million output tokens, at full use", words.usd)
    return Section("cost", "Cost", cost_words(view, rows), join(pair(drawn, beside), _sources(rows)))


def cost_words(view: View, rows: tuple[CostRow, ...]) -> str:
    """The cheapest point, in words, and what the figure leaves out."""
    best = cheapest(rows)
    if best is None:
        return ""
    said = (
        f"Least: {words.usd(best.usd_per_million)} USD per million output tokens, {view.label(best.arm.name)}"
    )
    return (
        f"{said} at {best.load.label}. At {words.share(best.used)} use, as of a day with quiet hours, it is"
        f" {words.usd(best.usd_used)}; input tokens are not charged apart."
    )


def _sources(rows: tuple[CostRow, ...]) -> Safe:
    told = sorted({f"{words.usd(row.usd_per_hour)} USD an hour: {row.price_source}" for row in rows})
    return tag("ul", *(tag("li", text) for text in told), class_="note")
