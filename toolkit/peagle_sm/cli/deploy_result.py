"""What `deploy` and `status` print at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from peagle_sm.cli.connect import flags
from peagle_sm.cli.state import State
from peagle_sm.cli.status_text import render_status

if TYPE_CHECKING:
    from peagle_sm.service import EndpointStatus


def is_stand_in(state: State, status: EndpointStatus) -> bool:
    """Whether the endpoint serves the small weights that ship with peagle-sm."""
    return state.local or "vllm-cpu" in (status.image or "") or (status.image or "").endswith("-cpu")


def render_ready(state: State, status: EndpointStatus) -> str:
    """The status, and the two commands that come next."""
    name = status.summary.name
    commands = (
        f"try it:     peagle-sm invoke {name} -p 'def fibonacci(n):'{flags(state)}\n"
        f"delete it:  peagle-sm delete {name}{flags(state)}"
    )
    return render_status(status, stand_in=is_stand_in(state, status)) + "\n\n" + commands


def status_data(state: State, status: EndpointStatus) -> dict[str, Any]:
    """The status as JSON-able data, with `stand_in_weights`."""
    return {**status.to_dict(), "stand_in_weights": is_stand_in(state, status)}
