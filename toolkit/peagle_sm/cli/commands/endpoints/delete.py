"""`peagle-sm delete`: show what will be deleted, ask, delete, check the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from peagle_sm.cli.arguments import complete_endpoint, name_from_spec, open_session
from peagle_sm.cli.base import Command, State, global_options
from peagle_sm.cli.console import asking, confirmed, emit, follower, termination_is_ctrl_c
from peagle_sm.core.words import usd

if TYPE_CHECKING:
    from peagle_sm.service import Deletable, DeleteReport


@click.command(cls=Command)
@click.argument("patterns", metavar="[NAME|GLOB]...", nargs=-1, shell_complete=complete_endpoint)
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.option("--with-logs", is_flag=True, help="Also delete each endpoint's log group.")
@global_options
@click.pass_context
def delete(ctx: click.Context, patterns: tuple[str, ...], yes: bool, with_logs: bool) -> None:
    """Delete endpoints and all their resources, and check that they are gone.

    Deletes the endpoint, its config, model and lifetime schedule, in the order that AWS needs. Quote globs:
    'demo-*'. Without NAME, the name comes from ./peagle.yaml.

    The command waits until AWS reports that each resource is gone. It keeps the log group, unless you confirm
    the second prompt or give --with-logs. `cdk deploy` of a stack with the same name fails while the log
    group exists.
    """
    from peagle_sm.service import delete as remove

    state = ctx.ensure_object(State)
    chosen = patterns or (name_from_spec(ctx),)
    session = open_session(state)
    with termination_is_ctrl_c(), follower(state) as follow:
        ask = asking(
            state,
            yes,
            "deleting",
            lambda going: render_going(going, with_logs),
            lambda going: f"Delete {', '.join(each.name for each in going)}?",
            data=going_data,
            before=follow.pause,
        )

        def ask_for_logs(groups: Sequence[str]) -> bool:
            return confirmed(state, f"Delete the log groups too ({', '.join(groups)})?", False)

        logs = with_logs or (False if yes else ask_for_logs)
        report = remove(chosen, session=session, confirm=ask, with_logs=logs, progress=follow)
    emit(
        state,
        table=lambda: render_deleted(report, session.command_flags()),
        data=report.to_dict,
        names=report.names,
    )


def render_going(going: Sequence[Deletable], with_logs: bool) -> str:
    """Render each endpoint with its status, its price and the resources to delete."""
    lines = ["To be deleted:"]
    for each in going:
        lines.append(f"  {each.name} ({each.status}, {usd(each.usd_per_hour, 'hour')})")
        if each.gone_stack is not None:
            lines.append(f"    remains of stack {each.gone_stack}, which no longer exists")
        lines.extend(f"    {resource}" for resource in each.resources)
        if each.log_group is not None:
            kept = "" if with_logs else ": kept, unless you also confirm to delete it"
            lines.append(f"    log-group/{each.log_group}{kept}")
    return "\n".join(lines)


def going_data(going: Sequence[Deletable]) -> list[dict[str, Any]]:
    """Return the same data for --format json."""
    return [
        {
            "name": each.name,
            "status": each.status,
            "usd_per_hour": each.usd_per_hour,
            "resources": list(each.resources),
            "log_group": each.log_group,
            "gone_stack": each.gone_stack,
        }
        for each in going
    ]


def render_deleted(report: DeleteReport, flags: str) -> str:
    """Render the deleted and the remaining resources, and the kept log groups."""
    lines = [f"deleted  {resource}" for resource in report.deleted]
    if report.leftovers:
        lines.extend(f"REMAINS  {resource}" for resource in report.leftovers)
    else:
        but = " except the log group" if report.logs_kept else ""
        lines.append(f"checked  no resource of {', '.join(report.names)} remains{but}")
    lines.extend(f"kept     log group {group}" for group in report.logs_kept)
    if report.logs_kept:
        names = " ".join(group.rpartition("/")[2] for group in report.logs_kept)
        command = f"peagle-sm delete {names} --with-logs{flags}"
        lines.append(f"         to delete it too, for example before a CDK stack of that name: `{command}`")
    return "\n".join(lines)
