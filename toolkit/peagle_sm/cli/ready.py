"""The endpoint after a deploy, an update or a resume: its status, and the commands to run next."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from peagle_sm.cli.base import State
from peagle_sm.cli.console import emit, note
from peagle_sm.core.display import text
from peagle_sm.core.errors import PeagleError

if TYPE_CHECKING:
    from peagle_sm.aws.session.session import Session
    from peagle_sm.service import EndpointStatus


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
    verbose: bool = False,
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
        table=lambda: render_ready(status, session, verbose),
        data=lambda: status_data(status),
        names=[name],
    )


def render_ready(status: EndpointStatus, session: Session, verbose: bool = False) -> str:
    """Render the status, and the commands to run next."""
    name, flags = status.summary.name, session.command_flags()
    try_it = f"try it:     peagle-sm invoke {name} -p 'def fibonacci(n):' --temperature 0{flags}"
    check_it = f"check it:   peagle-sm status {name}{flags}"
    commands = (
        f"{try_it if status.summary.status == 'InService' else check_it}\n"
        f"delete it:  peagle-sm delete {name}{flags}"
    )
    return f"{text(status.card(verbose))}\n\n{commands}"


def status_data(status: EndpointStatus) -> dict[str, Any]:
    """Return the status for --format json, with the fields of `list`."""
    document = status.to_dict()
    return {**document.pop("summary"), **document}
