"""`peagle-sm delete`: show what will be deleted, ask, delete in order, and prove it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from peagle_sm.cli.arguments import complete_endpoint, name_from_spec
from peagle_sm.cli.base import Command, State, global_options
from peagle_sm.cli.console import confirmed, emit, say, to_json
from peagle_sm.core.words import usd

if TYPE_CHECKING:
    from peagle_sm.service import Deletable, DeleteReport


@click.command(cls=Command)
@click.argument("patterns", metavar="[NAME|GLOB]...", nargs=-1, shell_complete=complete_endpoint)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--with-logs", is_flag=True, help="Delete SageMaker's log group of each name too.")
@global_options
@click.pass_context
def delete(ctx: click.Context, patterns: tuple[str, ...], yes: bool, with_logs: bool) -> None:
    """Delete endpoints and all that belongs to them, and prove it.

    Endpoint, config, model and lifetime schedule go, in the order that AWS needs. Quote globs: 'demo-*'.
    Without NAME it is the endpoint of ./peagle.yaml.
    The command waits until AWS says that each is gone. The log group stays, unless you say so at the second
    question or give --with-logs; `cdk deploy` of a stack of the same name fails while there is one.
    """
    from peagle_sm.cli.arguments import open_session
    from peagle_sm.cli.console import termination_is_ctrl_c
    from peagle_sm.cli.progress import follower
    from peagle_sm.service import delete as remove

    state = ctx.ensure_object(State)
    chosen = patterns or (name_from_spec(ctx),)
    session = open_session(state)
    with termination_is_ctrl_c(), follower(state) as follow:

        def ask(going: Sequence[Deletable]) -> bool:
            follow.pause()
            _show(state, going, asked=not yes, with_logs=with_logs)
            return confirmed(state, f"Delete {', '.join(each.name for each in going)}?", yes)

        def ask_for_logs(groups: Sequence[str]) -> bool:
            return confirmed(state, f"Delete the logs too ({', '.join(groups)})?", False)

        logs = with_logs or (False if yes else ask_for_logs)
        report = remove(chosen, session=session, confirm=ask, with_logs=logs, progress=follow)
    emit(
        state,
        table=lambda: render_deleted(report, session.command_flags()),
        data=report.to_dict,
        names=report.names,
    )


def _show(state: State, going: Sequence[Deletable], *, asked: bool, with_logs: bool) -> None:

    if state.format == "json":
        click.echo(to_json({"deleting": going_data(going)}, indent=None), err=True)
    elif asked or state.format == "table":
        say(render_going(going, with_logs) + "\n")


def render_going(going: Sequence[Deletable], with_logs: bool) -> str:
    """Each endpoint with its state, its price, and every resource that goes with it."""
    lines = ["To be deleted:"]
    for each in going:
        lines.append(f"  {each.name} ({each.status}, {usd(each.usd_per_hour, 'hour')})")
        if each.gone_stack is not None:
            lines.append(f"    left by stack {each.gone_stack}, which no longer exists")
        lines.extend(f"    {resource}" for resource in each.resources)
        if each.log_group is not None:
            lines.append(f"    log-group/{each.log_group}{'' if with_logs else ': stays, unless you say so'}")
    return "\n".join(lines)


def going_data(going: Sequence[Deletable]) -> list[dict[str, Any]]:
    """The same as JSON-able data."""
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
    """Each resource that went, then the proof, and the logs that stay."""
    lines = [f"deleted  {resource}" for resource in report.deleted]
    if report.leftovers:
        lines.extend(f"LEFT     {resource}" for resource in report.leftovers)
    else:
        but = " but the log" if report.logs_kept else ""
        lines.append(f"proven   asked again: nothing of {', '.join(report.names)} is left{but}")
    lines.extend(f"kept     log group {group}" for group in report.logs_kept)
    if report.logs_kept:
        names = " ".join(group.rpartition("/")[2] for group in report.logs_kept)
        command = f"peagle-sm delete {names} --with-logs{flags}"
        lines.append(f"         to delete it too, as a CDK stack of that name would want: `{command}`")
    return "\n".join(lines)
