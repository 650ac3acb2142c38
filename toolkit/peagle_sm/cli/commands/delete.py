"""`peagle-sm delete`: show what goes, ask, delete in the right order, wait, and prove it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from peagle_sm.cli.confirm import confirmed
from peagle_sm.cli.endpoint_name import complete_endpoint, name_from_spec
from peagle_sm.cli.lazy import Command
from peagle_sm.cli.options import global_options
from peagle_sm.cli.output import emit, say, to_json
from peagle_sm.cli.state import State

if TYPE_CHECKING:
    from peagle_sm.service import Deletable


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
    from peagle_sm.cli.connect import open_session
    from peagle_sm.cli.delete_text import render_deleted
    from peagle_sm.cli.progress import follower
    from peagle_sm.cli.signals import termination_is_ctrl_c
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
    from peagle_sm.cli.delete_text import going_data, render_going

    if state.format == "json":
        click.echo(to_json({"deleting": going_data(going)}, indent=None), err=True)
    elif asked or state.format == "table":
        say(render_going(going, with_logs) + "\n")
