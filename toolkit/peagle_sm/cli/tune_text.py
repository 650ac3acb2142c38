"""What `tune` prints: before, and at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from peagle_sm.cli.table import render_fields, render_table
from peagle_sm.cli.words import STAND_IN

if TYPE_CHECKING:
    from peagle_sm.measure.records import FitRecord
    from peagle_sm.measure.tune.against import Against
    from peagle_sm.measure.tune.job import Done, Job
    from peagle_sm.measure.tune.price import Estimate

_HEADS = ("K", "accepted", "step ms", "tokens/s", "95% interval", "")


def render_before(job: Job, cost: Estimate, price_source: str) -> str:
    """What is about to be done, and what it costs."""
    settings = job.settings
    how = (
        f"{job.components} arms side by side as inference components of one endpoint"
        if job.components
        else "K changes inside one engine"
        if settings.runtime
        else f"at most {settings.most_deployments} deployments of K for each mode, besides the baseline"
    )
    lines = [
        ("tune", f"{', '.join(settings.modes)} of {job.spec.model}, K 1 to {settings.max_k}"),
        ("concurrency", ", ".join(map(str, settings.concurrencies))),
        ("how", how),
        ("workload", f"{job.workload.name}: {len(job.workload.items)} prompts"),
        ("takes", cost.words()),
        ("price", price_source),
    ]
    return render_fields(lines)


def render_done(done: Done) -> str:
    """The curve of each mode at each concurrency, the best mode, the sweep's verdict, and the cost."""
    from peagle_sm.measure.tune.outcome import best_mode, common_against_none

    tuned = done.tuned
    parts = []
    for record in done.fits:
        parts.append(
            f"{record.mode}, {record.load.label}: K={record.best_k} for this load alone\n"
            f"{_curve(record)}\n{record.reason}"
        )
    lines = []
    for result in tuned.results:
        lines.append(f"{result.mode}: one K for all loads, measured at each: {result.common.reason}")
        lines += [f"  at c={c}: {one.words}" for c, one in common_against_none(result).items()]
    for concurrency in tuned.results[0].choices:
        mode, k, rate = best_mode(tuned.results, concurrency)
        lines.append(f"best guess at c={concurrency}: {mode}{f' K={k}' if k else ''}, {rate:.0f} tokens/s")
    for one in tuned.agreements:
        words = "agrees" if one.agrees else "DISAGREES" if one.decided else "NOT DECIDED"
        lines.append(
            f"sweep of {one.mode} at c={one.concurrency}: {words}: K={one.tuned} has {one.ratio.value:.3f} "
            f"[{one.ratio.low:.3f}, {one.ratio.high:.3f}] of the rate of the sweep's best K={one.swept}"
        )
    parts.append("\n".join(lines))
    notes = _slower(done)
    notes += [f"not to be published: {line}" for line in tuned.untrusted]
    notes += [STAND_IN] if done.stand_in else []
    notes.append("the intervals are over windows of this deployment only")
    parts.append("\n".join(f"note: {line}" for line in notes))
    ending = [f"took {tuned.minutes:.1f} min, {spent(done)}", f"results: {done.out}"]
    if done.written:
        ending.append(f"written into {done.written}")
    return "\n\n".join([*parts, "\n".join(ending)])


def _slower(done: Done) -> list[str]:
    """Where the one K of a mode costs more than it brings."""
    from peagle_sm.measure.tune.outcome import common_against_none

    found = []
    for result in done.tuned.results:
        pays = common_against_none(result)
        loads = ", ".join(f"c={c}" for c, one in pays.items() if one.verdict == "slower")
        if loads:
            found.append(
                f"{result.mode} at K={result.common.k} is slower than no speculation at {loads}; "
                "deploy mode none for such a load"
            )
    return found


def spent(done: Done) -> str:
    """``cost 3.20 USD``, or why nobody can say."""
    if done.tuned.usd is None:
        return "cost unknown: no price is known"
    return f"cost {done.tuned.usd:.2f} USD" if done.tuned.usd else "nothing was billed"


def _curve(record: FitRecord) -> str:
    rows = [
        (
            str(point.k),
            f"{point.acceptance_length:.2f}",
            f"{point.step_ms:.2f}",
            f"{point.otps:.0f}",
            f"{point.low or 0:.0f} to {point.high or 0:.0f}",
            ("chosen" if point.k == record.best_k else "") + ("" if point.measured else " predicted"),
        )
        for point in record.points
    ]
    return render_table(_HEADS, rows, right=_HEADS[:5])


def done_data(done: Done) -> dict[str, Any]:
    """For --format json."""
    from peagle_sm.measure.tune.against import against_none
    from peagle_sm.measure.tune.outcome import best_mode, common_against_none

    tuned = done.tuned
    return {
        "modes": [
            {
                "mode": result.mode,
                "k": result.common.k,
                "deployments": result.deployments,
                "by_concurrency": {
                    str(concurrency): {
                        "k": choice.k,
                        "reason": choice.reason,
                        "expected_loss": round(choice.expected_loss, 5),
                        "against_none": _against_data(
                            against_none(result.predictions[concurrency], choice.k)
                        ),
                        "common_against_none": _against_data(common_against_none(result).get(concurrency)),
                    }
                    for concurrency, choice in result.choices.items()
                },
            }
            for result in tuned.results
        ],
        "best": [
            {"concurrency": c, "mode": mode, "k": k, "otps": round(rate, 1)}
            for c in tuned.results[0].choices
            for mode, k, rate in [best_mode(tuned.results, c)]
        ],
        "sweep": [
            {
                "mode": one.mode,
                "concurrency": one.concurrency,
                "tuned": one.tuned,
                "swept": one.swept,
                "ratio": one.ratio.value,
                "low": one.ratio.low,
                "high": one.ratio.high,
                "agrees": one.agrees,
            }
            for one in tuned.agreements
        ],
        "usd": tuned.usd,
        "minutes": round(tuned.minutes, 2),
        "results": str(done.out),
        "written": done.written,
        "stand_in_weights": done.stand_in,
        "warnings": list(tuned.untrusted),
    }


def _against_data(one: Against | None) -> dict[str, Any] | None:
    """None where no baseline was measured."""
    if one is None:
        return None
    figures = {"ratio": one.ratio, "low": one.low, "high": one.high}
    return {
        "k": one.k,
        "verdict": one.verdict,
        "none_otps": round(one.plain, 1),
        **{name: round(value, 4) for name, value in figures.items()},
    }
