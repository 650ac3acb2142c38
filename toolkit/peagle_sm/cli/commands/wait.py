"""`peagle-sm wait`: for scripts, until an endpoint is in service or gone."""

from __future__ import annotations

import click

from peagle_sm.cli.endpoint_name import endpoint_argument
from peagle_sm.cli.lazy import Command
from peagle_sm.cli.options import as_seconds, global_options
from peagle_sm.cli.output import emit
from peagle_sm.cli.state import State


@click.command(cls=Command)
@endpoint_argument
@click.option("--deleted", is_flag=True, help="Wait until the endpoint is gone.")
@click.option(
    "--timeout",
    metavar="DURATION",
    callback=as_seconds,
    default="2h30m",
    show_default=True,
    help="Give up then, with exit code 16.",
)
@global_options
@click.pass_obj
def wait(state: State, name: str, deleted: bool, timeout: float) -> None:
    """Wait until an endpoint is in service, or gone.

    Progress goes to stderr. Exit code 0: it is in service, or gone with --deleted. 4: there is no such
    endpoint. 7: it failed, or was deleted meanwhile. 16: the timeout. Ctrl-C ends the waiting and changes
    nothing. Without NAME it is the endpoint of ./peagle.yaml.
    """
    from peagle_sm.cli.connect import open_session
    from peagle_sm.cli.progress import follower
    from peagle_sm.service import wait as wait_for

    with follower(state) as follow:
        found = wait_for(
            name, session=open_session(state), deleted=deleted, timeout_s=timeout, progress=follow
        )
    status = found.status if found is not None else "gone"
    emit(
        state,
        table=lambda: f"endpoint {name} is {'gone' if found is None else 'in service'}",
        data=lambda: {"name": name, "status": status},
        names=[name],
    )
