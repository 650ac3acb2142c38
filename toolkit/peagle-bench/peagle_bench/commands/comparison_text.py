"""What `compare` shows: its offer before anything is deployed, and its result as text and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from peagle_bench.commands.options import render_slices
from peagle_sm.cli.terminal import render_fields, render_table, show
from peagle_sm.core.words import usd

if TYPE_CHECKING:
    from peagle_bench.compare.measurement import Estimate
    from peagle_bench.results.result_file import Outcome
    from peagle_sm.core.planning import Plan
    from peagle_sm.core.spec.modes import Mode as SpecMode


def render_outcome(outcome: Outcome) -> str:
    """Render the arms, the ratios of all pairs with their factors, the slices, and notes."""
    from peagle_bench.report import modes, tables
    from peagle_bench.report.merging import view_of

    results = outcome.results
    view = view_of([results])
    by_mode = modes.modes(view)
    arms = ", ".join(
        arm.name + (f" (K={arm.num_speculative_tokens})" if arm.num_speculative_tokens else "")
        for arm in results.arms
        if not arm.control
    )
    notes = [*outcome.notes, *results.header.notes]
    ratios = tables.ratios(view, factors=True)
    parts = [
        f"arms: {arms}",
        "" if by_mode is None else f"{by_mode.title}:\n{show(by_mode)}",
        *(show(table) for table in (tables.points(view), ratios) if table is not None),
        "(95% confidence intervals; speed-up = acceptance x step time; above 1 the first arm is faster)",
        render_slices(results),
        "\n".join(f"note: {note}" for note in notes),
        f"results: {outcome.path}",
    ]
    return "\n\n".join(part for part in parts if part)


def outcome_data(outcome: Outcome) -> dict[str, Any]:
    """Return the same data for --format json."""
    from peagle_bench.load.points import separate_withheld
    from peagle_bench.report import modes, slices
    from peagle_bench.report.merging import view_of
    from peagle_bench.report.verdict import outcome_of
    from peagle_bench.results.result_file import encode

    results = outcome.results
    shown = separate_withheld(results.points, results.comparisons)
    return {
        "file": str(outcome.path),
        **results.header.target_data(),
        "arms": [encode(arm) for arm in results.arms],
        "modes": modes.data(view_of([results])),
        "points": [encode(point) for point in shown.points],
        "comparisons": [
            {**encode(comparison), "shown": comparison.significant, "verdict": outcome_of(comparison)}
            for comparison in shown.comparisons
        ],
        "withheld": [
            {"faster": row.faster, "slower": row.slower, "load": encode(row.load)}
            for row in shown.withheld_comparisons
        ],
        "slices": slices.data(results),
        "notes": list(outcome.notes),
    }


def render_estimate(
    plans: Sequence[Plan],
    estimate: Estimate,
    note: str | None = None,
    left_out: Mapping[SpecMode, str] | None = None,
) -> str:
    """Render what --modes deploys and leaves out, the likely cost, and what the prompts cannot show."""
    rows = [
        (
            plan.names.endpoint,
            plan.spec.speculation.mode,
            usd(plan.usd_per_hour, "hour"),
        )
        for plan in plans
    ]
    times = "" if estimate.deployments == 1 else f", {estimate.deployments} times, one after the other"
    minutes = max(1, round(estimate.minutes))
    about = f"about {minutes} minute{'' if minutes == 1 else 's'}"
    if minutes > 120:
        about = f"about {minutes / 60:.1f} hours"
    fields = [
        ("deploys", f"all of these at the same time{times}; each is deleted after the measurement"),
        ("price", usd(estimate.usd_per_hour, "hour") + " for all of them"),
        ("likely", f"{about}, {usd(estimate.usd)}"),
        ("at most", f"{usd(estimate.most_usd)}, if all of them run until the end of their lifetime"),
        ("price from", "\n".join(estimate.price_sources)),
        *(
            [("left out", "\n".join(f"{mode}: {reason}" for mode, reason in left_out.items()))]
            if left_out
            else []
        ),
        *([("note", note)] if note else []),
    ]
    return (
        render_table(("endpoint", "mode", "price"), rows, right=("price",)) + "\n\n" + render_fields(fields)
    )
