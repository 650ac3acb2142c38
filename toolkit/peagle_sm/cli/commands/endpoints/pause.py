"""`peagle-sm pause`, `resume`, `keep`: turn an endpoint off and on, or keep it running.

`pause` deletes what costs money and keeps what `resume` needs. `resume` and `keep` show the price before
they ask; `keep` also shows the end of the lifetime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from peagle_sm.cli.arguments import complete_endpoint, endpoint_argument, name_from_spec
from peagle_sm.cli.base import Command, State, global_options
from peagle_sm.cli.console import confirmed, emit, need_terminal, note, say, to_json
from peagle_sm.cli.endpoint_status import when
from peagle_sm.cli.terminal import render_fields
from peagle_sm.core.plan.cost import rest_costs
from peagle_sm.core.words import usd

if TYPE_CHECKING:
    from datetime import timedelta

    from peagle_sm.service import EndpointSummary, Lease, PauseReport, ResumeOffer


@click.command(cls=Command)
@endpoint_argument
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@global_options
@click.pass_obj
def pause(state: State, name: str, yes: bool) -> None:
    """Turn an endpoint off, and keep what brings it back.

    The endpoint goes, and with it the instances' cost; config and model stay, for nothing. An endpoint of a
    stack is turned off by its stack, so that nothing drifts; the stack's key, alarms and dashboard stay, for
    a few USD a month. Its timetable does not wake it before `peagle-sm resume`. The command
    waits until AWS says that the endpoint is gone.
    """
    from peagle_sm.cli.arguments import open_session
    from peagle_sm.cli.console import termination_is_ctrl_c
    from peagle_sm.cli.progress import follower
    from peagle_sm.service import pause as turn_off

    need_terminal(state, yes, f"peagle-sm status {name}{state.flags}")
    session = open_session(state)
    with termination_is_ctrl_c(), follower(state) as follow:

        def ask(running: EndpointSummary) -> bool:
            follow.pause()
            if state.format == "json":
                click.echo(to_json({"pausing": running.to_dict()}, indent=None), err=True)
            elif not yes or state.format == "table":
                say(render_running(running) + "\n")
            return confirmed(state, f"Pause {name}? It stops answering.", yes)

        report = turn_off(name, session=session, confirm=ask, progress=follow)
    emit(
        state,
        table=lambda: render_paused(report, session.command_flags()),
        data=report.to_dict,
        names=[report.name],
    )


@click.command(cls=Command)
@endpoint_argument
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option(
    "--unguarded",
    is_flag=True,
    help="Resume without an installed guard: only the lifetime limit ends what is forgotten.",
)
@global_options
@click.pass_obj
def resume(state: State, name: str, yes: bool, unguarded: bool) -> None:
    """Bring a paused endpoint back and follow it until it serves.

    The price comes first, then a question. Its lifetime begins anew: the schedule that ends it is armed
    before the endpoint. A resume that fails, or that Ctrl-C stops, leaves the endpoint paused. An endpoint
    of a stack is turned on by its stack. Without a stack it needs the guard, as `peagle-sm deploy` does, or
    --unguarded spelled out.
    """
    from peagle_sm.cli.arguments import open_session
    from peagle_sm.cli.commands.guard import with_guard
    from peagle_sm.cli.console import termination_is_ctrl_c
    from peagle_sm.cli.endpoint_status import emit_ready
    from peagle_sm.cli.progress import follower
    from peagle_sm.core.words import usd
    from peagle_sm.service import resume as bring_back
    from peagle_sm.service import status as read_status

    need_terminal(state, yes, f"peagle-sm status {name}{state.flags}")
    session = open_session(state)
    with termination_is_ctrl_c(), follower(state) as follow:

        def ask(offer: ResumeOffer) -> bool:
            follow.pause()
            if state.format == "json":
                click.echo(to_json({"resume": offer.to_dict()}, indent=None), err=True)
            elif not yes:  # even with --format quiet: nobody says yes to what was not shown
                say(render_offer(offer) + "\n")
            else:
                note(state, render_offer(offer) + "\n")
            return confirmed(state, f"Resume {name} for {usd(offer.usd_per_hour, 'hour')}?", yes)

        def attempt() -> ResumeOffer:
            return bring_back(name, session=session, confirm=ask, progress=follow, unguarded=unguarded)

        offer = with_guard(state, session, follow, yes, attempt)
    if offer.is_on:
        note(state, f"{name} is not paused")
    emit_ready(state, name, lambda: read_status(name, session=session), session)


@click.command(cls=Command)
@click.argument("words", nargs=-1, metavar="[NAME] DURATION", shell_complete=complete_endpoint)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@global_options
@click.pass_context
def keep(ctx: click.Context, words: tuple[str, ...], yes: bool) -> None:
    """Keep an endpoint for a while, idle or not, and move the end of its life.

    DURATION counts from now: 90m, 2h, 1d. The guard does not turn the endpoint off for being idle, or at the
    end of its hours, before then; where its lifetime would end earlier, the schedules that end it move too.
    Nothing is shortened. The budget holds all the same. For work that begins again and again, renew it.
    Without NAME it is the endpoint of ./peagle.yaml.
    """
    from peagle_sm.cli.arguments import open_session
    from peagle_sm.service import keep as renew

    state = ctx.ensure_object(State)
    if not 1 <= len(words) <= 2:
        raise click.UsageError(f"found {len(words)} arguments; allowed: [NAME] DURATION.", ctx=ctx)
    wanted = _length(words[-1])
    name = words[0] if len(words) == 2 else name_from_spec(ctx)
    session = open_session(state)

    def ask(lease: Lease) -> bool:
        if state.format == "json":
            click.echo(to_json({"keep": lease.to_dict()}, indent=None), err=True)
        elif not yes:  # even with --format quiet: nobody says yes to what was not shown
            say(render_lease(lease) + "\n")
        else:
            note(state, render_lease(lease) + "\n")
        return confirmed(state, f"Keep {name}?", yes)

    lease = renew(name, wanted, session=session, confirm=ask)
    emit(state, table=lambda: render_kept(lease), data=lease.to_dict, names=[name])


def _length(text: str) -> timedelta:
    from datetime import timedelta

    from peagle_sm.cli.terminal import parse_duration

    try:
        return timedelta(seconds=parse_duration(text))
    except (ValueError, OverflowError) as error:
        raise click.BadParameter(str(error), param_hint="DURATION") from error


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
