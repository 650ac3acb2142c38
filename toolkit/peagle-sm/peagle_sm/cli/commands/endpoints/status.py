"""`peagle-sm list`, `status`, `wait`, `logs`: inspect endpoints and engine logs.

None of them changes anything. `logs --follow` runs until Ctrl-C. `emit_ready` shows an
endpoint after a deploy, an update or a resume, and the commands to run next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from peagle_sm.cli.arguments import endpoint_argument, follower, open_session
from peagle_sm.cli.base import Command, State, as_seconds, global_options
from peagle_sm.cli.console import emit, note, to_json, until_ctrl_c
from peagle_sm.cli.terminal import render_table
from peagle_sm.core.display import text
from peagle_sm.core.errors import PeagleError
from peagle_sm.core.words import elapsed, relative

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from peagle_sm.aws.session.session import Session
    from peagle_sm.service import EndpointStatus, EndpointSummary


def read_status(state: State, read: Callable[[], EndpointStatus]) -> EndpointStatus | None:
    """Read the status to show beside a result; after a failure, print a note."""
    try:
        return read()
    except PeagleError as error:
        note(state, f"note: the endpoint's status could not be read: {error.message}")
        return None


def emit_ready(
    state: State,
    name: str,
    read: Callable[[], EndpointStatus],
    session: Session,
) -> None:
    """Print the endpoint after a deploy, update or resume, with its status if known."""
    flags = session.command_flags()
    status = read_status(state, read)
    if status is None:
        commands = f"check it:   peagle-sm status {name}{flags}\ndelete it:  peagle-sm delete {name}{flags}"
        emit(
            state,
            table=lambda: f"name  {name}\n\n{commands}",
            data=lambda: {"name": name, "status": None},
            names=[name],
        )
        return
    emit(
        state,
        table=lambda: render_ready(status, session),
        data=lambda: status_data(status),
        names=[name],
    )


def render_ready(status: EndpointStatus, session: Session) -> str:
    """Render the status, and the commands to run next."""
    name, flags = status.summary.name, session.command_flags()
    try_it = f"try it:     peagle-sm invoke {name} -p '{status.target.example}' --temperature 0{flags}"
    check_it = f"check it:   peagle-sm status {name}{flags}"
    commands = (
        f"{try_it if status.summary.status == 'InService' else check_it}\n"
        f"delete it:  peagle-sm delete {name}{flags}"
    )
    return f"{text(status.card())}\n\n{commands}"


def status_data(status: EndpointStatus) -> dict[str, Any]:
    """Return the status for --format json, with the fields of `list`."""
    document = status.to_dict()
    return {**document.pop("summary"), **document}


@click.command("list", cls=Command)
@click.option("--all", "everything", is_flag=True, help="Include endpoints not created by peagle-sm.")
@global_options
@click.pass_obj
def list_(state: State, everything: bool) -> None:
    """List the endpoints created by peagle-sm.

    Resources that a killed deploy left without an endpoint are listed as Orphaned.

    K and the instances come from tags that the last deploy or update wrote; `peagle-sm status` reads what
    runs now. With autoscaling, the instances are its bounds (1-4), and ~ marks costs at the initial instance
    count. A dash means unknown.
    A narrow terminal leaves out age, mode, spent and expires, in this order; other formats have everything.
    """
    from peagle_sm.service import list_endpoints

    session = open_session(state)
    endpoints = list_endpoints(session, everything=everything, note=lambda text: note(state, f"note: {text}"))
    if not endpoints and state.format == "table":
        note(state, f"no endpoints in {session.region}")
        return
    emit(
        state,
        table=lambda: render_list(endpoints, session.now()),
        data=lambda: [endpoint.to_dict() for endpoint in endpoints],
        names=[endpoint.name for endpoint in endpoints],
    )


_HEADERS = ("name", "status", "mode", "instance", "age", "usd/hour", "spent", "expires")


def render_list(summaries: Sequence[EndpointSummary], now: datetime) -> str:
    """Render one row for each endpoint; a dash means unknown."""
    from peagle_sm.service.inventory.endpoint_status import instance_text

    rows = [
        (
            endpoint.name,
            endpoint.status,
            _short_mode(endpoint),
            instance_text(endpoint),
            "-" if endpoint.age_s is None else elapsed(endpoint.age_s),
            _amount(endpoint, endpoint.usd_per_hour),
            _amount(endpoint, endpoint.spent_usd),
            "-"
            if endpoint.expires_at is None
            else relative(endpoint.expires_at, now),  # the date is in `status`
        )
        for endpoint in summaries
    ]
    return render_table(
        _HEADERS, rows, right=("age", "usd/hour", "spent"), spare=("age", "mode", "spent", "expires")
    )


def _short_mode(endpoint: EndpointSummary) -> str:
    if endpoint.mode is None:
        return "-"
    return (
        endpoint.mode
        if endpoint.num_speculative_tokens is None
        else f"{endpoint.mode} K={endpoint.num_speculative_tokens}"
    )


def _amount(endpoint: EndpointSummary, value: float | None) -> str:
    """Render an amount of USD; `~` marks an estimate, because of autoscaling, `at most` an upper bound."""
    if value is None:
        return "-"
    bound = "at most " if endpoint.price_at_most else ""
    return f"{bound}{'~' if endpoint.instance_bounds else ''}{value:,.2f}"


@click.command(cls=Command)
@endpoint_argument
@click.option(
    "--verbose", "-v", is_flag=True, help="Show a long failure reason and all engine overrides in full."
)
@global_options
@click.pass_obj
def status(state: State, name: str, verbose: bool) -> None:
    """Show one endpoint: status, mode, config, cost and lifetime.

    To wait until it changes, use `peagle-sm wait`. Without NAME, the name comes from ./peagle.yaml.
    """
    from peagle_sm.service import status as read_status

    endpoint = read_status(name, session=open_session(state))
    emit(
        state,
        table=lambda: text(endpoint.card(verbose)),
        data=lambda: status_data(endpoint),
        names=[endpoint.summary.name],
    )


@click.command(cls=Command)
@endpoint_argument
@click.option("--deleted", is_flag=True, help="Wait until the endpoint is deleted.")
@click.option(
    "--timeout",
    metavar="DURATION",
    callback=as_seconds,
    default="2h30m",
    help="Give up after this time, with exit code 10.",
)
@global_options
@click.pass_obj
def wait(state: State, name: str, deleted: bool, timeout: float) -> None:
    """Wait until an endpoint is in service, or deleted.

    Progress goes to stderr. Exit code 0: the endpoint is in service, or with --deleted, it is deleted. 4:
    there is no such endpoint. 7: it failed, or was deleted during the wait. 10: timeout. Ctrl-C stops the
    command and changes nothing. Without NAME, the name comes from ./peagle.yaml.
    """
    from peagle_sm.service import wait as wait_for

    with follower(state) as follow:
        endpoint = wait_for(
            name, session=open_session(state), deleted=deleted, timeout_s=timeout, progress=follow
        )
    status = endpoint.status if endpoint is not None else "gone"
    emit(
        state,
        table=lambda: f"endpoint {name} is {'gone' if endpoint is None else 'in service'}",
        data=lambda: {"name": name, "status": status},
        names=[name],
    )


@click.command(cls=Command)
@endpoint_argument
@click.option("--follow", "-f", is_flag=True, help="Keep printing new lines until Ctrl-C.")
@click.option("--tail", type=click.IntRange(1, 10000), default=100, help="Start with the last N lines.")
@global_options
@click.pass_obj
def logs(state: State, name: str, follow: bool, tail: int) -> None:
    """Print the engine logs of an endpoint.

    With --format json, each line is a JSON object; with quiet, only the message is printed. Without NAME, the
    name comes from ./peagle.yaml.
    """
    from peagle_sm.service import logs as read_logs

    with until_ctrl_c(state, follow):
        for line in read_logs(name, session=open_session(state), follow=follow, limit=tail):
            moment = line.timestamp.isoformat(timespec="milliseconds")
            if state.format == "json":
                fields = {"timestamp": moment, "stream": line.stream, "message": line.message}
                click.echo(to_json(fields, indent=None))
            else:
                click.echo(line.message if state.format == "quiet" else f"{moment}  {line.message}")
