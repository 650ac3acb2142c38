"""`peagle-sm guard sweep`: the deployed sweeper, now, and what it saw."""

from __future__ import annotations

import click

from peagle_sm.cli.lazy import Command
from peagle_sm.cli.options import global_options
from peagle_sm.cli.output import emit
from peagle_sm.cli.state import State


@click.command(cls=Command)
@click.option("--dry-run", is_flag=True, help="Only show what it would do.")
@global_options
@click.pass_obj
def sweep(state: State, dry_run: bool) -> None:
    """Let it look at every endpoint now.

    Runs the deployed function, by the rules of the scheduled sweep: without --dry-run it may turn endpoints
    off.
    """
    from peagle_sm.cli.connect import open_session
    from peagle_sm.cli.guard_text import render_sweep
    from peagle_sm.service.guard.status import sweep as run

    session = open_session(state)
    report = run(session, dry_run=dry_run)
    emit(
        state,
        table=lambda: render_sweep(report),
        data=report.to_dict,
        names=[str(row.get("name", "")) for row in report.endpoints],
    )
