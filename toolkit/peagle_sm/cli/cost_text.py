"""A cost sheet as a terminal shows it, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from peagle_sm.cli.report_text import caution_lines, render_rows

if TYPE_CHECKING:
    from peagle_sm.core.plan.unit_cost import Demand
    from peagle_sm.measure.costs import CostRow, HeadValue
    from peagle_sm.measure.report.view import View


def render_cost(
    view: View, rows: Sequence[CostRow], demand: Demand | None, values: Sequence[HeadValue]
) -> str:
    """Cautions, the sheet, what to run for the demand, the break-even, and where prices come from."""
    blocks = [*caution_lines(view), _sheet(view, rows, demand)]
    if demand is not None:
        blocks.append(_answer(view, rows, demand))
    if values:
        blocks.append("\n".join([_training(view, values), *(_value(each) for each in values)]))
    blocks.append("\n".join(_sources(rows)))
    return "\n\n".join(block for block in blocks if block)


def _sheet(view: View, rows: Sequence[CostRow], demand: Demand | None) -> str:
    from peagle_sm.measure.report import words
    from peagle_sm.measure.report.rows import Rows
    from peagle_sm.measure.report.runs import are_alike

    runs = are_alike((row.load, row.arm.name) for row in rows)
    heads = ["load", "arm", *(["run"] if runs else []), "OTPS", "USD/hour", "USD/1M tokens", "95%"]
    heads.append(f"at {words.share(rows[0].used)} use" if rows else "at part use")
    if demand is not None:
        heads += ["instances", "GPUs", "USD/hour for it", "used"]
    missed = any(row.misses for row in rows)
    lines = []
    for row in rows:
        cells = [row.load.label, view.label(row.arm.name), *([row.run] if runs else [])]
        cells += [words.number(row.otps), words.usd(row.usd_per_hour), words.usd(row.usd_per_million)]
        cells += [_interval(row), words.usd(row.usd_used)]
        if demand is not None:
            fleet = row.fleet
            cells += [
                words.DASH if fleet is None else str(fleet.instances),
                words.DASH if fleet is None or fleet.gpus is None else str(fleet.gpus),
                words.usd(fleet.usd_per_hour if fleet else None),
                words.share(fleet.use if fleet else None),
            ]
        lines.append((*cells, "; ".join(row.misses)) if missed else tuple(cells))
    figures = tuple(heads[heads.index("OTPS") :])
    return render_rows(Rows((*heads, "misses") if missed else tuple(heads), tuple(lines), figures))


def _interval(row: CostRow) -> str:
    from peagle_sm.measure.report import words

    return words.DASH if row.usd_low is None else f"{words.usd(row.usd_low)} to {words.usd(row.usd_high)}"


def _answer(view: View, rows: Sequence[CostRow], demand: Demand) -> str:
    from peagle_sm.measure.costs import cheapest
    from peagle_sm.measure.report import words

    asked = (
        f"{words.number(demand.otps)} tokens/s"
        if demand.otps is not None
        else f"{words.number(demand.requests_per_s)} requests/s"
    )
    asked += f" with {words.share(demand.headroom)} headroom"
    best = cheapest(rows)
    if best is None or best.fleet is None:
        return f"No measured load serves {asked}: each misses the objective, has failed requests or no price."
    fleet = best.fleet
    gpus = f" ({words.plural(fleet.gpus, 'GPU')})" if fleet.gpus else ""
    return (
        f"Least for {asked}: {words.plural(fleet.instances, 'instance')}{gpus} of"
        f" {view.label(best.arm.name)} at {best.load.label} each, {words.usd(fleet.usd_per_hour)} USD/hour,"
        f" {words.share(fleet.use)} of what was measured is used."
    )


def _training(view: View, values: Sequence[HeadValue]) -> str:
    from peagle_sm.measure.report import words

    first = values[0]
    worth = first.break_even
    said = (
        f"Training for {words.usd(worth.training_usd)} USD:"
        f" {view.label(first.head)} set against {view.label(first.baseline)}"
    )
    if worth.days is not None:
        return (
            f"{said}; the cheapest fleet for the load above saves {words.usd(worth.saved_usd_per_hour)}"
            f" USD/hour: paid back after {words.number(worth.days)} days"
        )
    if worth.saved_usd_per_hour is not None:
        return f"{said}; the cheapest fleet for the load above is no cheaper: not paid back at that load"
    return said


def _value(each: HeadValue) -> str:
    from peagle_sm.measure.report import words

    at = f"  {each.load.label}:"
    worth = each.break_even
    if each.shown is False:
        return f"{at} no difference shown ({words.ratio(each.ratio)}), so no saving is either"
    if worth.million_tokens is None:
        return f"{at} nothing is saved ({words.ratio(each.ratio)}): not paid back"
    said = (
        f"{at} saves {words.usd(worth.saved_usd_per_million)} USD/1M tokens, paid back after"
        f" {words.tokens(worth.million_tokens)} output tokens"
    )
    if each.shown is None:
        return f"{said} (no interval was measured)"
    latest = words.tokens(each.latest) if each.latest is not None else "never"
    return f"{said} [{words.tokens(each.soonest)}, {latest}]"


def _sources(rows: Sequence[CostRow]) -> list[str]:
    return [f"price: {source}" for source in dict.fromkeys(row.price_source for row in rows)]


def cost_data(
    view: View, rows: Sequence[CostRow], demand: Demand | None, values: Sequence[HeadValue]
) -> dict[str, Any]:
    """The same as plain JSON types; None is unknown."""
    from peagle_sm.measure.costs import cheapest

    best = cheapest(rows)
    return {
        "stand_in_weights": view.stand_in,
        "demand": asdict(demand) if demand else None,
        "rows": [_row(row) for row in rows],
        "cheapest": _row(best) if best else None,
        "break_even": [asdict(each) for each in values],
    }


def _row(row: CostRow) -> dict[str, Any]:
    return {**asdict(row), "arm": row.arm.name, "load": row.load.label, "usd_used": row.usd_used}
