"""What `compare` prints: the price before, and the ratios with their intervals at the end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from peagle_sm.cli.table import render_fields, render_table
from peagle_sm.cli.words import STAND_IN, usd

if TYPE_CHECKING:
    from peagle_sm.core.plan.plan import Plan
    from peagle_sm.measure.compare.estimate import Estimate
    from peagle_sm.measure.compare.run import Outcome
    from peagle_sm.measure.records import ArmRecord, ComparisonRecord, Interval, Percentiles, PointRecord

NO_DIFFERENCE = "no difference shown"
WITHHELD = "withheld"
FINE = 1.02  #: the difference that "about so many" is told for
CONTROL_WITHIN = 0.10  #: so far from 1 an arm's interval beside itself may reach for "as it should be"
_RATIOS = ("load", "ratio of tokens/s", "x", "interval", "acceptance x", "step time x", "verdict")
_ARMS = ("load", "arm", "mode", "K", "prompts", "failed", "tokens/s", "acceptance", "TTFT ms", "TPOT ms")


def render_estimate(plans: Sequence[Plan], found: Estimate) -> str:
    """What --modes deploys, and what it is likely to cost."""
    rows = [
        (
            plan.names.endpoint,
            plan.spec.speculation.mode,
            usd(plan.usd_per_hour, "hour"),
        )
        for plan in plans
    ]
    times = "" if found.deployments == 1 else f", {found.deployments} times after each other"
    minutes = max(1, round(found.minutes))
    about = f"about {minutes} minute{'' if minutes == 1 else 's'}"
    fields = [
        ("deploys", f"all of these together{times}; each is deleted after it was measured"),
        ("price", usd(found.usd_per_hour, "hour") + " while they are up"),
        ("likely", f"{about}, {usd(found.usd)}"),
        ("at most", f"{usd(found.most_usd)}, if all of them lived to the end of their lifetime limits"),
        ("price from", "\n".join(found.price_sources)),
    ]
    return (
        render_table(("endpoint", "mode", "price"), rows, right=("price",)) + "\n\n" + render_fields(fields)
    )


def estimate_data(plans: Sequence[Plan], found: Estimate) -> dict[str, Any]:
    """The same as JSON-able data."""
    from dataclasses import asdict

    return {"endpoints": [plan.names.endpoint for plan in plans], **asdict(found)}


def render_outcome(outcome: Outcome) -> str:
    """The arms, the ratios of all pairs, by category, and what to know of them."""
    from peagle_sm.measure.withholding import sort

    results = outcome.results
    arms = {arm.name: arm for arm in results.arms}
    shown = [one for one in results.points if not arms[one.arm].control]
    found = sort(results.points, results.comparisons)
    ratios = [_ratio(one) for one in found.comparisons]
    ratios += [_withheld(one) for one in found.withheld_comparisons]
    parts = [
        render_table(_ARMS, [_arm(arms[one.arm], one) for one in shown], right=_ARMS[3:]) + _star(shown),
        render_table(_RATIOS, ratios, right=("x",)) + "\n" + _legend(outcome),
        _categories(found.comparisons),
        "\n".join(f"note: {note}" for note in _notes(outcome)),
        f"results: {outcome.path}",
    ]
    return "\n\n".join(part for part in parts if part)


def _star(points: Sequence[PointRecord]) -> str:
    """The footnote of the table of arms, where a figure is marked."""
    from peagle_sm.measure.withholding import is_late, is_short, is_withheld

    shown = [one for one in points if not is_withheld(one.client)]
    marked = any(is_short(one) or is_late(one.client) for one in shown)
    return "\n(* in doubt: see the note)" if marked else ""


def _notes(outcome: Outcome) -> list[str]:
    return [*outcome.notes, *([STAND_IN] if outcome.results.header.stand_in_weights else [])]


def _legend(outcome: Outcome) -> str:
    temperatures = {point.temperature for point in outcome.results.points}
    told = {"as each request says" if one is None else f"{one:g}" for one in temperatures}
    return (
        "(95% intervals; ratio = acceptance x step time, each above 1 where it helps the first arm; "
        f"temperature {', '.join(sorted(told))})"
    )


def _arm(arm: ArmRecord, point: PointRecord) -> tuple[str, ...]:
    from peagle_sm.measure.withholding import is_short, is_withheld

    accepted = point.acceptance.per_step if point.acceptance else None
    about = (
        point.load.label,
        arm.name,
        arm.mode,
        str(arm.num_speculative_tokens or "-"),
        str(point.requests),
        str(sum(point.errors.values())),
    )
    if is_withheld(point.client):
        return (*about, *[WITHHELD] * 4)
    return (
        *about,
        f"{point.otps:,.1f}" + (" *" if is_short(point) else ""),
        "-" if accepted is None else f"{accepted:.2f}",
        _latency(point, point.ttft_ms),
        _latency(point, point.tpot_ms),
    )


def _latency(point: PointRecord, found: Percentiles | None) -> str:
    from peagle_sm.measure.withholding import is_late

    return "-" if found is None else f"{found.p50:,.2f}" + (" *" if is_late(point.client) else "")


def _withheld(one: ComparisonRecord) -> tuple[str, ...]:
    return (one.load.label, _pair(one), WITHHELD, "-", "-", "-", "see the note")


def _pair(one: ComparisonRecord) -> str:
    return f"{one.slower} beside itself" if one.control else f"{one.faster} over {one.slower}"


def _ratio(one: ComparisonRecord) -> tuple[str, ...]:
    return (
        one.load.label,
        _pair(one),
        f"{one.ratio.value:.3f}",
        f"[{one.ratio.low:.3f}, {one.ratio.high:.3f}] over {_units(one)}",
        _factor(one.acceptance_ratio),
        _factor(one.step_time_ratio),
        verdict(one),
    )


def _units(one: ComparisonRecord) -> str:
    return f"{one.units} {one.over}" + (", this deployment only" if one.deployments == 1 else "")


def _factor(factor: Interval | None) -> str:
    return "-" if factor is None else f"{factor.value:.3f} [{factor.low:.3f}, {factor.high:.3f}]"


def _control_verdict(one: ComparisonRecord) -> str:
    """A wide interval holds 1 whether or not the comparison can be trusted, so it is no all-clear."""
    if one.ratio.shown:
        return "differs from 1: see the note"
    if one.ratio.low >= 1 - CONTROL_WITHIN and one.ratio.high <= 1 + CONTROL_WITHIN:
        return "1, as it should be"
    return f"no difference shown (too few {one.over} to tell)"


def verdict(one: ComparisonRecord) -> str:
    """What the interval says, in words; for an arm beside itself, whether the comparison can be trusted."""
    if one.control:
        return _control_verdict(one)
    if one.ratio.shown:
        reach = " in this deployment" if one.deployments == 1 else ""
        return f"{one.faster if one.ratio.value > 1 else one.slower} is faster{reach}"
    half = math.log(one.ratio.high / one.ratio.low) / 2
    told = f"{NO_DIFFERENCE} (+-{math.expm1(half):.1%}"
    if one.over != "deployments" and half > math.log(FINE):
        needed = math.ceil(one.units * (half / math.log(FINE)) ** 2)
        told += f"; +-{FINE - 1:.0%} takes about {needed:,} {one.over}"
    return told + ")"


def _categories(comparisons: Sequence[ComparisonRecord]) -> str:
    rows = [
        (one.load.label, f"{one.faster} over {one.slower}", name, *_interval(found))
        for one in comparisons
        if not one.control
        for name, found in one.categories.items()
    ]
    if not rows:
        return ""
    return render_table(("load", "pair", "category", "x", "interval"), rows, right=("x",))


def _interval(found: Interval) -> tuple[str, str]:
    told = f"[{found.low:.3f}, {found.high:.3f}]"
    return f"{found.value:.3f}", told if found.shown else f"{told} {NO_DIFFERENCE}"


def outcome_data(outcome: Outcome) -> dict[str, Any]:
    """The same as JSON-able data."""
    from peagle_sm.measure.result_file import encode
    from peagle_sm.measure.withholding import sort

    results = outcome.results
    found = sort(results.points, results.comparisons)
    return {
        "file": str(outcome.path),
        "stand_in_weights": results.header.stand_in_weights,
        "arms": [encode(arm) for arm in results.arms],
        "points": [encode(point) for point in found.points],
        "comparisons": [
            {**encode(one), "shown": one.ratio.shown, "verdict": verdict(one)} for one in found.comparisons
        ],
        "withheld": [
            {"faster": one.faster, "slower": one.slower, "load": encode(one.load)}
            for one in found.withheld_comparisons
        ],
        "notes": list(outcome.notes),
    }
