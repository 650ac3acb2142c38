"""`peagle-sm pause`, `resume`, `keep`, `delete`: turn an endpoint off or on, keep it on, or delete it.

`pause` deletes what costs money and keeps what `resume` needs. `resume` and `keep` show the price before
they ask; `keep` also shows the end of the lifetime. `delete` checks that everything is gone.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from peagle_sm.cli.arguments import (
    endpoint_argument,
    follower,
    name_from_spec,
    open_session,
    unguarded_option,
    yes_option,
)
from peagle_sm.cli.base import Command, State, global_options
from peagle_sm.cli.commands.endpoints.status import emit_ready
from peagle_sm.cli.commands.guard import with_guard
from peagle_sm.cli.console import (
    asking,
    emit,
    need_terminal,
    note,
    termination_is_ctrl_c,
)
from peagle_sm.cli.terminal import parse_duration, render_fields
from peagle_sm.core.plan.cost import rest_costs
from peagle_sm.core.words import usd, when

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from peagle_sm.aws.session.session import Session
    from peagle_sm.service import Deletable, DeleteReport, EndpointSummary, Lease, PauseReport, ResumeOffer


@click.command(cls=Command)
@endpoint_argument
@yes_option
@global_options
@click.pass_obj
def pause(state: State, name: str, yes: bool) -> None:
    """Turn an endpoint off; keep its config and model, so that it can be resumed.

    Deletes the endpoint, so that no instance is billed. Config and model are kept; they cost nothing. An
    endpoint of a stack is turned off by its stack, so that the stack does not drift. The stack's key, alarms
    and dashboard are kept and cost a few USD a month. The endpoint stays off, also in the hours of its spec,
    until `peagle-sm resume`. The command waits until AWS reports that the endpoint is gone. Without NAME, the
    name comes from ./peagle.yaml.
    """
    from peagle_sm.service import pause as turn_off

    need_terminal(state, yes, f"peagle-sm status {name}{state.flags}")
    session = open_session(state)
    with termination_is_ctrl_c(), follower(state) as follow:
        ask = asking(
            state,
            yes,
            "pausing",
            render_running,
            lambda _: f"Pause {name}? It stops answering.",
            before=follow.pause,
        )
        report = turn_off(name, session=session, confirm=ask, progress=follow)
    emit(
        state,
        table=lambda: render_paused(report, session.command_flags()),
        data=report.to_dict,
        names=[report.name],
    )


@click.command(cls=Command)
@endpoint_argument
@yes_option
@unguarded_option
@global_options
@click.pass_obj
def resume(state: State, name: str, yes: bool, unguarded: bool) -> None:
    """Turn a paused endpoint on again and wait until it is in service.

    The command shows the price and asks for confirmation. The lifetime starts again: the schedule that
    deletes the endpoint is created first. If the resume fails, or if you stop it with Ctrl-C, the endpoint
    stays paused. An endpoint of a stack is turned on by its stack. An endpoint without a stack needs the
    guard, as with `peagle-sm deploy`, or --unguarded. Without NAME, the name comes from ./peagle.yaml.
    """
    from peagle_sm.service import resume as bring_back
    from peagle_sm.service import status as read_status

    need_terminal(state, yes, f"peagle-sm status {name}{state.flags}")
    session = open_session(state)
    with termination_is_ctrl_c(), follower(state) as follow:
        ask = asking(
            state,
            yes,
            "resume",
            render_offer,
            lambda offer: (
                f"Resume {name} for {usd(offer.usd_per_hour, 'hour', at_most=offer.price_at_most)}?"
            ),
            before=follow.pause,
        )

        def attempt() -> ResumeOffer:
            return bring_back(name, session=session, confirm=ask, progress=follow, unguarded=unguarded)

        offer = with_guard(state, session, follow, yes, attempt)
    if offer.is_on:
        note(state, f"{name} is not paused")
    emit_ready(state, name, lambda: read_status(name, session=session), session)


@click.command(cls=Command)
@click.argument("words", nargs=-1, metavar="[NAME] DURATION")
@yes_option
@global_options
@click.pass_context
def keep(ctx: click.Context, words: tuple[str, ...], yes: bool) -> None:
    """Keep an endpoint running for a while, even if idle, and extend its lifetime.

    DURATION counts from now: 90m, 2h, 1d. Until then the guard does not turn the endpoint off for being idle
    or at the end of its hours. If its lifetime ends earlier, the lifetime is extended to the same time; it is
    never shortened. The budget still applies. To keep the endpoint longer, run the command again. Without
    NAME, the name comes from ./peagle.yaml.
    """
    from peagle_sm.service import keep as renew

    state = ctx.ensure_object(State)
    if not 1 <= len(words) <= 2:
        raise click.UsageError(f"found {len(words)} arguments; allowed: [NAME] DURATION.", ctx=ctx)
    wanted = _length(words[-1])
    name = words[0] if len(words) == 2 else name_from_spec(ctx)
    session = open_session(state)
    ask = asking(state, yes, "keep", render_lease, lambda _: f"Keep {name}?")
    lease = renew(name, wanted, session=session, confirm=ask)
    emit(state, table=lambda: render_kept(lease), data=lease.to_dict, names=[name])


def _length(text: str) -> timedelta:
    try:
        return timedelta(seconds=parse_duration(text))
    except (ValueError, OverflowError) as error:
        raise click.BadParameter(str(error), param_hint="DURATION") from error


def render_running(running: EndpointSummary) -> str:
    """Render what is paused, and what it costs while it is on."""
    owner = f", turned off by its stack {running.stack}" if running.stack else ""
    bound = running.price_at_most
    return (
        f"{running.name} is {running.status} and costs {usd(running.usd_per_hour, 'hour', at_most=bound)} "
        f"({usd(running.spent_usd, at_most=bound)} so far){owner}."
    )


def render_paused(report: PauseReport, flags: str) -> str:
    """Render what is kept, and the command that resumes the endpoint."""
    first = "was off already" if report.was_off else "is off"
    lines = [f"{report.name} {first}: {rest_costs(report.stack, report.usd_per_hour)}"]
    lines += [f"kept     {resource}" for resource in report.kept]
    if report.stack:
        lines.append(f"stack    {report.stack} is in sync: `cdk diff` shows no change")
    return "\n".join([*lines, f"resume   peagle-sm resume {report.name}{flags}"])


def render_offer(offer: ResumeOffer) -> str:
    """Render what the resumed endpoint costs, and when its lifetime ends."""
    fields = [
        ("resume", f"{offer.name} with config {offer.config}"),
        ("stack", offer.stack or ""),
        ("price", usd(offer.usd_per_hour, "hour", at_most=offer.price_at_most)),
        ("at most", f"{usd(offer.max_usd)} in its lifetime of {offer.lifetime_hours:g} h"),
        ("lifetime", f"deleted at {when(offer.expires_at)} even if in use"),
        ("hours", f"{offer.hours}: the guard turns it off when they next end" if offer.hours else ""),
    ]
    return render_fields([(name, value) for name, value in fields if value])


def render_lease(lease: Lease) -> str:
    """Render how long it is kept, when its lifetime ends, and what that costs more."""
    fields = [
        ("keep", lease.name),
        ("until", f"{when(lease.keep_until)}, even if idle" if lease.guarded else ""),
        ("lifetime", _lifetime(lease)),
        ("price", usd(lease.usd_per_hour, "hour")),
        ("extra cost", f"at most {usd(lease.more_usd)}" if lease.expires_at > lease.expired_at else ""),
        ("budget", _budget(lease)),
        ("note", _note(lease)),
    ]
    return render_fields([(name, value) for name, value in fields if value])


def _lifetime(lease: Lease) -> str:
    if not lease.limit_acts:
        return f"the schedule at {when(lease.expires_at)} cannot act: its role was deleted with the guard"
    if lease.expires_at == lease.expired_at:
        return f"deleted at {when(lease.expires_at)} even if in use (unchanged)"
    return f"deleted at {when(lease.expires_at)} even if in use (before: {when(lease.expired_at)})"


def _note(lease: Lease) -> str:
    if lease.guarded:
        return ""
    ends = "only the lifetime schedule deletes it" if lease.limit_acts else "nothing deletes it automatically"
    return f"no guard is installed: {ends}"


def _budget(lease: Lease) -> str:
    if lease.budget_usd is None:
        return ""
    spent = "" if lease.spent_usd is None else f", {usd(lease.spent_usd)} of it spent"
    return f"{usd(lease.budget_usd)}{spent}: the guard turns it off when the budget is spent"


def render_kept(lease: Lease) -> str:
    """Render in one line until when it is kept, and when its lifetime ends."""
    if not lease.limit_acts:
        return (
            f"{lease.name}: nothing deletes it automatically: the role of its lifetime schedule was deleted "
            "with the guard"
        )
    kept = f"{lease.name} is kept until {when(lease.keep_until)}; " if lease.guarded else f"{lease.name}: "
    return f"{kept}its lifetime ends at {when(lease.expires_at)}"


@click.command(cls=Command)
@click.argument("patterns", metavar="[NAME|GLOB]...", nargs=-1)
@yes_option
@click.option("--dry-run", is_flag=True, help="Show what would be deleted; delete nothing.")
@global_options
@click.pass_context
def delete(ctx: click.Context, patterns: tuple[str, ...], yes: bool, dry_run: bool) -> None:
    """Delete endpoints and all their resources, and check that they are gone.

    Deletes the endpoint, its config, model and lifetime schedule, in the order that AWS needs. Quote globs:
    'demo-*'. Without NAME, the name comes from ./peagle.yaml.

    All endpoints are asked to be deleted at once. The command waits until AWS reports that each resource is
    gone. It also succeeds for a name that is already gone. It keeps the log group, and shows the command
    that deletes it: `cdk deploy` of a stack with the same name fails while the log group exists.
    """
    from peagle_sm.service import deletable
    from peagle_sm.service import delete as remove

    state = ctx.ensure_object(State)
    chosen = patterns or (name_from_spec(ctx),)
    session = open_session(state)
    if dry_run:
        going = deletable(chosen, session=session)
        emit(
            state,
            table=lambda: render_going(going) if going else "To be deleted: nothing",
            data=lambda: [asdict(endpoint) for endpoint in going],
            names=[endpoint.name for endpoint in going],
        )
        return
    with termination_is_ctrl_c(), follower(state) as follow:
        ask: Callable[[Sequence[Deletable]], bool] = asking(
            state,
            yes,
            "deleting",
            render_going,
            lambda going: f"Delete {', '.join(endpoint.name for endpoint in going)}?",
            data=lambda going: [asdict(endpoint) for endpoint in going],
            before=follow.pause,
        )
        report = remove(chosen, session=session, confirm=ask, progress=follow, missing_ok=True)
    emit(
        state,
        table=lambda: render_deleted(report, session),
        data=report.to_dict,
        names=report.names,
    )


def render_going(going: Sequence[Deletable]) -> str:
    """Render each endpoint with its status, its price and the resources to delete."""
    lines = ["To be deleted:"]
    for endpoint in going:
        price = usd(endpoint.usd_per_hour, "hour", at_most=endpoint.price_at_most)
        lines.append(f"  {endpoint.name} ({endpoint.status}, {price})")
        if endpoint.gone_stack is not None:
            lines.append(f"    remains of stack {endpoint.gone_stack}, which no longer exists")
        lines.extend(f"    {resource}" for resource in endpoint.resources)
        if endpoint.log_group is not None:
            lines.append(f"    log-group/{endpoint.log_group}: kept")
    return "\n".join(lines)


def render_deleted(report: DeleteReport, session: Session) -> str:
    """Render the deleted and the remaining resources, and the kept log groups."""
    from peagle_sm.core.resources.log_group import LogGroup
    from peagle_sm.service.inventory.resources import delete_command

    lines = [f"deleted  {resource}" for resource in report.deleted]
    lines.extend(f"absent   {note}" for note in report.absent.values())
    if not report.names:
        return "\n".join(lines)
    if report.leftovers:
        lines.extend(f"REMAINS  {resource}" for resource in report.leftovers)
    else:
        but = " except the log group" if report.logs_kept else ""
        lines.append(f"checked  no resource of {', '.join(report.names)} remains{but}")
    for group in report.logs_kept:
        lines.append(f"kept     log group {group}")
        command = delete_command(session, LogGroup(group))
        lines.append(f"         to delete it too, for example before a CDK stack of that name: `{command}`")
    return "\n".join(lines)
