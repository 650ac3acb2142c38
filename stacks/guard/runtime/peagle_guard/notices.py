"""The words of the notices. Pure."""

from __future__ import annotations

from datetime import datetime

from peagle_guard import costs
from peagle_guard.records import Decision, Lifecycle, OffBy, Record, Tell

# SNS allows 100 characters of ASCII without line breaks.
_LONGEST_SUBJECT = 100

_WHY = {
    OffBy.IDLE: "it has been quiet for its idle time",
    OffBy.LIFETIME: "its maximum lifetime ends",
    OffBy.BUDGET: "its budget is spent",
    OffBy.HOURS: "its hours end",
    OffBy.FAILED: "it failed",
    OffBy.OTHERS: "somebody else deleted it",
}


def subject(name: str, tell: Tell, off_by: OffBy | None) -> str:
    """Return the subject of a notice."""
    text = {
        Tell.IDLE_SOON: f"peagle-sm: {name} is idle and will be turned off",
        Tell.LIMIT_SOON: f"peagle-sm: {name} will be turned off ({off_by})",
        Tell.OFF_NOW: f"peagle-sm: {name} is being turned off ({off_by})",
        Tell.GONE: f"peagle-sm: {name} is off ({off_by})",
        Tell.WAKE_FAILED: f"peagle-sm: {name} could not be turned on",
    }[tell]
    return text.encode("ascii", "replace").decode()[:_LONGEST_SUBJECT]


def text(decision: Decision, lifecycle: Lifecycle, now: datetime, detail: str = "") -> str:
    """Return the body of a decision's notice."""
    record, tell = decision.record, decision.tell
    name = record.name
    why = _WHY[decision.off_by] if decision.off_by is not None else decision.reason
    spent = _spent(lifecycle, record, now)
    if tell is Tell.GONE:
        return "\n".join(
            [
                f"Endpoint {name} is gone ({why}), looked up and not found at {_at(now)}. {spent}",
                *_next_opening(lifecycle, decision.off_by),
                "Its configuration and model are kept and cost nothing. To turn it on again:",
                f"  peagle-sm resume {name}",
            ]
        )
    if tell is Tell.WAKE_FAILED:
        return (
            f"Endpoint {name} was to be turned on, but: {detail}\nTo try by hand:\n  peagle-sm resume {name}"
        )
    if tell is Tell.OFF_NOW:
        return "\n".join(
            [
                f"Endpoint {name} is being turned off now: {why}. {spent}",
                "To turn it on again once it is gone:",
                f"  peagle-sm resume {name}",
            ]
        )
    at = decision.off_at or now
    return "\n".join(
        [
            f"Endpoint {name} will be turned off at {_at(at)}, or soon after: {why}. {spent}",
            "To keep it alive, for two hours say:",
            f"  peagle-sm keep {name} 2h",
            *_or_by_traffic(tell),
        ]
    )


def _or_by_traffic(tell: Tell | None) -> list[str]:
    return ["or send it a request: traffic before then keeps it too."] if tell is Tell.IDLE_SOON else []


def _next_opening(lifecycle: Lifecycle, off_by: OffBy | None) -> list[str]:
    if lifecycle.hours is None or off_by not in (OffBy.HOURS, OffBy.IDLE, OffBy.LIFETIME):
        return []
    return [f"Its hours ({lifecycle.hours.text}) turn it on again at their next beginning."]


def _spent(lifecycle: Lifecycle, record: Record, now: datetime) -> str:
    if lifecycle.usd_per_hour is None:
        return "What it has cost is not known here: the plan knew no price."
    spent = costs.spent_usd(lifecycle, record, now)
    budget = "" if lifecycle.budget_usd is None else f" of a budget of {lifecycle.budget_usd:.2f} USD"
    return f"It has cost about {spent:.2f} USD so far{budget} (the plan's price, not the bill)."


def _at(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M UTC")
