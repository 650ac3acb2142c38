"""What `deploy` and `status` print at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from peagle_sm.cli.state import State
from peagle_sm.cli.status_text import render_status

if TYPE_CHECKING:
    from peagle_sm.service import EndpointStatus


def is_stand_in(state: State, status: EndpointStatus) -> bool:
    """Whether the endpoint serves the small weights that ship with peagle-sm."""
    return state.local or (status.image or "").endswith("-cpu")


def render_ready(state: State, status: EndpointStatus, flags: str) -> str:
    """The status, and the commands that come next; `flags` make them reach the same place."""
    name = status.summary.name
    try_it = f"try it:     peagle-sm invoke {name} -p 'def fibonacci(n):'{flags}"
    follow = f"follow it:  peagle-sm status {name}{flags}"
    commands = (
        f"{try_it if status.summary.status == 'InService' else follow}\n"
        f"delete it:  peagle-sm delete {name}{flags}"
    )
    return render_status(status, stand_in=is_stand_in(state, status)) + "\n\n" + commands


def status_data(state: State, status: EndpointStatus) -> dict[str, Any]:
    """The status as JSON-able data: the row of `list`, what only `status` knows, and `stand_in_weights`."""
    document = status.to_dict()
    return {**document.pop("summary"), **document, "stand_in_weights": is_stand_in(state, status)}
