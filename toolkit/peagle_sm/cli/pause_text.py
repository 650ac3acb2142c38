"""What pausing, resuming and keeping say before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peagle_sm.cli.status_text import when
from peagle_sm.cli.table import render_fields
from peagle_sm.cli.words import usd

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
    first = "was off already" if report.was_off else "is off, and costs nothing"
    lines = [f"{report.name} {first}"]
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
        ("note", "" if lease.guarded else "no guard is installed: only the lifetime limit ends it"),
    ]
    return render_fields([(name, value) for name, value in fields if value])


def _lifetime(lease: Lease) -> str:
    if lease.expires_at == lease.expired_at:
        return f"deleted at {when(lease.expires_at)} whatever happens, as before"
    return f"deleted at {when(lease.expires_at)} whatever happens, before: {when(lease.expired_at)}"


def _budget(lease: Lease) -> str:
    if lease.budget_usd is None:
        return ""
    spent = "" if lease.spent_usd is None else f", {usd(lease.spent_usd)} of it spent"
    return f"{usd(lease.budget_usd)}{spent}: it is turned off when that is reached"


def render_kept(lease: Lease) -> str:
    """The new ends, in one line."""
    kept = f"{lease.name} is kept until {when(lease.keep_until)}; " if lease.guarded else f"{lease.name}: "
    return f"{kept}its lifetime ends at {when(lease.expires_at)}"
