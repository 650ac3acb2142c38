"""What pausing, resuming and keeping say before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peagle_sm.cli.status_text import when
from peagle_sm.cli.table import render_fields
from peagle_sm.cli.words import usd
from peagle_sm.core.plan.resting import rest_costs

if TYPE_CHECKING:
    from peagle_sm.service import EndpointSummary, Lease, PauseReport, ResumeOffer


def render_running(running: EndpointSummary) -> str:
    """What stops, and what it costs until then."""
    owner = f", turned off by its stack {running.stack}" if running.stack else ""
    return (
        f"{running.name} is {running.status} and costs {usd(running.usd_per_hour, 'hour')} "
        f"({usd(running.spent_usd)} so far){owner}."
    )


def render_paused(report: PauseReport, flags: str) -> str:
    """What stays, and how it comes back."""
    first = "was off already" if report.was_off else "is off"
    lines = [f"{report.name} {first}: {rest_costs(report.stack, report.usd_per_hour)}"]
    lines += [f"kept     {resource}" for resource in report.kept]
    if report.stack:
        lines.append(f"stack    {report.stack} knows: `cdk diff` stays empty")
    return "\n".join([*lines, f"back     peagle-sm resume {report.name}{flags}"])


def render_offer(offer: ResumeOffer) -> str:
    """What resuming costs, and when it ends."""
    fields = [
        ("resume", f"{offer.name} with config {offer.config}"),
        ("stack", offer.stack or ""),
        ("price", usd(offer.usd_per_hour, "hour")),
        ("at most", f"{usd(offer.max_usd)} in its lifetime of {offer.lifetime_hours:g} h"),
        ("lifetime", f"deleted at {when(offer.expires_at)} whatever happens"),
        ("hours", f"{offer.hours}: the guard turns it off at their next end" if offer.hours else ""),
    ]
    return render_fields([(name, value) for name, value in fields if value])


def render_lease(lease: Lease) -> str:
    """Until when it is kept, when it ends, and what that costs on top."""
    fields = [
        ("keep", lease.name),
        ("until", f"{when(lease.keep_until)}, idle or not" if lease.guarded else ""),
        ("lifetime", _lifetime(lease)),
        ("price", usd(lease.usd_per_hour, "hour")),
        ("on top", f"at most {usd(lease.more_usd)}" if lease.expires_at > lease.expired_at else ""),
        ("budget", _budget(lease)),
        ("note", _note(lease)),
    ]
    return render_fields([(name, value) for name, value in fields if value])


def _lifetime(lease: Lease) -> str:
    if not lease.limit_acts:
        return f"the limit at {when(lease.expires_at)} cannot act: its role went with the guard"
    if lease.expires_at == lease.expired_at:
        return f"deleted at {when(lease.expires_at)} whatever happens, as before"
    return f"deleted at {when(lease.expires_at)} whatever happens, before: {when(lease.expired_at)}"


def _note(lease: Lease) -> str:
    if lease.guarded:
        return ""
    ends = "only the lifetime limit ends it" if lease.limit_acts else "nothing ends it by itself"
    return f"no guard is installed: {ends}"


def _budget(lease: Lease) -> str:
    if lease.budget_usd is None:
        return ""
    spent = "" if lease.spent_usd is None else f", {usd(lease.spent_usd)} of it spent"
    return f"{usd(lease.budget_usd)}{spent}: it is turned off when that is reached"


def render_kept(lease: Lease) -> str:
    """The new ends, in one line."""
    if not lease.limit_acts:
        return f"{lease.name}: nothing ends it by itself, since the role of its limit went with the guard"
    kept = f"{lease.name} is kept until {when(lease.keep_until)}; " if lease.guarded else f"{lease.name}: "
    return f"{kept}its lifetime ends at {when(lease.expires_at)}"
