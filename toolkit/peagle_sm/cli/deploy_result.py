"""What `deploy` and `status` print at the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from peagle_sm.cli.output import emit, note
from peagle_sm.cli.state import State
from peagle_sm.cli.status_text import render_status
from peagle_sm.core.errors import PeagleError

if TYPE_CHECKING:
    from peagle_sm.aws.session.session import Session
    from peagle_sm.service import EndpointStatus


def is_stand_in(state: State, status: EndpointStatus) -> bool:
    """Whether the endpoint serves the small weights that ship with peagle-sm."""
    return state.local or (status.image or "").endswith("-cpu")


def read_status(state: State, read: Callable[[], EndpointStatus]) -> EndpointStatus | None:
    """The status that decorates a result; where it cannot be read a note says why, and the result counts."""
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
    """Print the endpoint that is ready, with its status if that can be read."""
    flags = session.command_flags()
    status = read_status(state, read)
    if status is None:
        commands = f"follow it:  peagle-sm status {name}{flags}\ndelete it:  peagle-sm delete {name}{flags}"
        emit(
            state,
            table=lambda: f"name  {name}\n\n{commands}",
            data=lambda: {"name": name, "status": None},
            names=[name],
        )
        return
    emit(
        state,
        table=lambda: render_ready(state, status, session, verbose),
        data=lambda: status_data(state, status),
        names=[name],
    )


def render_ready(state: State, status: EndpointStatus, session: Session, verbose: bool = False) -> str:
    """The status, and the commands that come next."""
    name, flags = status.summary.name, session.command_flags()
    try_it = f"try it:     peagle-sm invoke {name} -p 'def fibonacci(n):' --temperature 0{flags}"
    follow = f"follow it:  peagle-sm status {name}{flags}"
    commands = (
        f"{try_it if status.summary.status == 'InService' else follow}\n"
        f"delete it:  peagle-sm delete {name}{flags}"
    )
    shown = render_status(status, stand_in=is_stand_in(state, status), now=session.now(), verbose=verbose)
    return f"{shown}\n\n{commands}"


def status_data(state: State, status: EndpointStatus) -> dict[str, Any]:
    """The status as JSON-able data: the row of `list`, what only `status` knows, and `stand_in_weights`."""
    document = status.to_dict()
    return {**document.pop("summary"), **document, "stand_in_weights": is_stand_in(state, status)}
