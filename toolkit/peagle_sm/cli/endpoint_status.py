"""Endpoint lists and statuses as text and JSON, for several commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from peagle_sm.cli.base import State
from peagle_sm.cli.console import emit, note
from peagle_sm.cli.terminal import render_table
from peagle_sm.core.display import text
from peagle_sm.core.errors import PeagleError
from peagle_sm.core.words import cause_first, elapsed, relative

if TYPE_CHECKING:
    from peagle_sm.aws.session.session import Session
    from peagle_sm.service import EndpointStatus, EndpointSummary


_HEADERS = ("name", "status", "mode", "instance", "age", "usd/hour", "spent", "expires")


def render_list(summaries: Sequence[EndpointSummary], now: datetime) -> str:
    """Render one row for each endpoint; a dash means unknown."""
    from peagle_sm.service.inventory.endpoint_status import instance_text

    rows = [
        (
            each.name,
            each.status,
            _short_mode(each),
            instance_text(each),
            "-" if each.age_s is None else elapsed(each.age_s),
            _amount(each, each.usd_per_hour),
            _amount(each, each.spent_usd),
            "-" if each.expires_at is None else relative(each.expires_at, now),  # the date is in `status`
        )
        for each in summaries
    ]
    return render_table(_HEADERS, rows, right=("age", "usd/hour", "spent"))


def _short_mode(each: EndpointSummary) -> str:
    if each.mode is None:
        return "-"
    return (
        each.mode if each.num_speculative_tokens is None else f"{each.mode} K={each.num_speculative_tokens}"
    )


def _amount(each: EndpointSummary, value: float | None) -> str:
    """Render an amount of USD; `~` marks an estimate, because of autoscaling."""
    if value is None:
        return "-"
    return f"~{value:,.2f}" if each.instance_bounds else f"{value:,.2f}"


def change_line(status: EndpointStatus) -> str:
    """Render the line that `status --watch` prints on a pipe when it changes.

    It has no times and no costs, which always change.
    """
    each = status.summary
    parts = [f"{each.name} is {each.status}", f"config {status.config or 'unknown'}", *status.warnings]
    if status.failure_reason:
        parts.insert(1, f"failure: {cause_first(status.failure_reason, '').splitlines()[0]}")
    return " · ".join(" ".join(part.split()) for part in parts)


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
