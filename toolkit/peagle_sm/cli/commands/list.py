"""`peagle-sm list`."""

from __future__ import annotations

import click

from peagle_sm.cli.lazy import Command
from peagle_sm.cli.options import global_options
from peagle_sm.cli.output import emit, note
from peagle_sm.cli.state import State


@click.command("list", cls=Command)
@click.option("--all", "everything", is_flag=True, help="Also the endpoints that peagle-sm did not make.")
@global_options
@click.pass_obj
def list_(state: State, everything: bool) -> None:
    """List the endpoints made by peagle-sm.

    What a killed run left without an endpoint is listed too, as Orphaned.

    It makes one call a page and service, however many endpoints there are. K and the instances are what
    the last deploy or update wrote into tags; `peagle-sm status` reads what runs now. With autoscaling the
    column shows its bounds (1-4), and ~ marks amounts at the count where it starts. A dash means not known:
    an older peagle-sm wrote no such tags, and `peagle-sm update` adds them. Without permission for
    tag:GetResources, each endpoint is read by calls of its own.
    """
    from peagle_sm.cli.connect import open_session
    from peagle_sm.cli.status_text import render_list
    from peagle_sm.service import list_endpoints

    session = open_session(state)
    found = list_endpoints(session, everything=everything, note=lambda text: note(state, f"note: {text}"))
    if not found and state.format == "table":
        note(state, f"no endpoints in {session.region}")
        return
    emit(
        state,
        table=lambda: render_list(found, session.now()),
        data=lambda: [each.to_dict() for each in found],
        names=[each.name for each in found],
    )
