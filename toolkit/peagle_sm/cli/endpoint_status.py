"""Endpoint lists and statuses as text and JSON, for several commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from peagle_sm.cli.base import State
from peagle_sm.cli.console import emit, note
from peagle_sm.cli.terminal import render_fields, render_table
from peagle_sm.core.errors import PeagleError
from peagle_sm.core.plan.cost import rest_costs
from peagle_sm.core.words import STAND_IN, cause_first, elapsed, relative, speculation_text, usd

if TYPE_CHECKING:
    from peagle_sm.aws.session.session import Session
    from peagle_sm.service import EndpointStatus, EndpointSummary


_HEADERS = ("name", "status", "mode", "instance", "age", "usd/hour", "spent", "expires")


def when(moment: datetime | None) -> str:
    """Render a time as `2026-11-20 08:15 UTC`; None as a dash."""
    if moment is None:
        return "-"
    from datetime import UTC

    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def when_to(moment: datetime | None, now: datetime) -> str:
    """Render a time as `2026-11-20 08:15 UTC (in 2 h 10 min)`; None as a dash."""
    return "-" if moment is None else f"{when(moment)} ({relative(moment, now)})"


def render_list(summaries: Sequence[EndpointSummary], now: datetime) -> str:
    """Render one row for each endpoint; a dash means unknown."""
    rows = [
        (
            each.name,
            each.status,
            _short_mode(each),
            _instance(each),
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


def _instance(each: EndpointSummary) -> str:
    """Render `2 x ml.g7e.2xlarge`; with autoscaling `1-4 x ml.g7e.2xlarge`."""
    if each.instance_type is None:
        return "-"
    count = each.instance_bounds or each.instance_count
    return f"{count} x {each.instance_type}" if count else each.instance_type


def _instances_now(each: EndpointSummary) -> str:
    if each.instance_bounds is None or each.instance_type is None:
        return _instance(each)
    return f"{each.instance_count} x {each.instance_type} (autoscaling: {each.instance_bounds})"


def _amount(each: EndpointSummary, value: float | None) -> str:
    """Render an amount of USD; `~` marks an estimate, because of autoscaling."""
    if value is None:
        return "-"
    return f"~{value:,.2f}" if each.instance_bounds else f"{value:,.2f}"


def render_status(status: EndpointStatus, *, stand_in: bool, now: datetime, verbose: bool = False) -> str:
    """Render everything about one endpoint; leave out lines without a value.

    ``verbose`` shows a long failure reason in full, and each override of the engine.
    """
    each = status.summary
    mode = speculation_text(each.mode, each.num_speculative_tokens)
    fields = [
        ("name", each.name),
        ("status", each.status),
        ("reason", _failure_reason(status.failure_reason or "", verbose)),
        ("off", _off(each, now)),
        ("stack", each.stack or ""),
        ("speculation", mode),
        ("weights", STAND_IN if stand_in else ""),
        ("instance", _instances_now(each)),
        ("image", status.image or ""),
        ("model", status.model_name or ""),
        ("config", _config(status)),
        ("created", when_to(each.created_at, now)),
        ("price", _price(each)),
        (
            "lifetime",
            f"deleted at {when_to(each.expires_at, now)} even if in use" if each.expires_at else "",
        ),
        ("kept", f"until {when_to(each.keep_until, now)}, even if idle" if each.keep_until else ""),
        ("hours", each.hours or ""),
        ("idle", _idle(each)),
        *_engine_fields(status, verbose),
        ("warning", "\n".join(status.warnings)),
    ]
    return render_fields([(name, value) for name, value in fields if value])


def _failure_reason(reason: str, verbose: bool) -> str:
    return reason if verbose else cause_first(reason, "in full: `peagle-sm status --verbose`")


def change_line(status: EndpointStatus) -> str:
    """Render the line that `status --watch` prints on a pipe when it changes.

    It has no times and no costs, which always change.
    """
    each = status.summary
    parts = [f"{each.name} is {each.status}", f"config {_config(status) or 'unknown'}", *status.warnings]
    if status.failure_reason:
        parts.insert(1, f"failure: {cause_first(status.failure_reason, '').splitlines()[0]}")
    return " · ".join(" ".join(part.split()) for part in parts)


def _config(status: EndpointStatus) -> str:
    if status.config_asked and status.config_asked != status.config_name:
        return f"{status.config_name} (requested: {status.config_asked})"
    return status.config_name or ""


def _off(each: EndpointSummary, now: datetime) -> str:
    if each.off_why is None:
        return ""
    return each.off_why if each.off_since is None else f"{each.off_why}, since {when_to(each.off_since, now)}"


def _price(each: EndpointSummary) -> str:
    if each.off_why is not None:
        rest = rest_costs(each.stack, each.usd_per_hour)
        return f"{usd(each.usd_per_hour, 'hour')} when it is on\noff: {rest}"
    return f"{usd(each.usd_per_hour, 'hour')}, {_spent(each)}"


def _spent(each: EndpointSummary) -> str:
    if each.instance_bounds is None:
        return f"{usd(each.spent_usd)} spent so far"
    return f"about {usd(each.spent_usd)} spent so far (at autoscaling's initial instance count)"


def _idle(each: EndpointSummary) -> str:
    if each.idle_minutes is None:
        return ""
    grace = f", checked again {each.grace_minutes} min later" if each.grace_minutes else ""
    return f"counts as idle after {each.idle_minutes} min in which the metrics show no request{grace}"


def engine_words(engine: Mapping[str, Any]) -> str:
    """Render an engine as `vLLM 0.32.0 (image: 0.30.0-gpu-…), process 4711`."""
    running = engine.get("engine_version") or "not running yet"
    asked = str(engine.get("image") or "unknown").rpartition(":")[2]
    return f"vLLM {running} (image: {asked}), process {engine.get('pid') or 'none'}"


def _engine_fields(status: EndpointStatus, verbose: bool) -> list[tuple[str, str]]:
    engine = status.engine
    if not engine:
        return []
    overrides = [str(line) for line in engine.get("overrides", ())]
    if len(overrides) > 1 and not verbose:
        overrides = [f"{len(overrides)} for this machine (`peagle-sm status --verbose` lists them)"]
    return [("engine", engine_words(engine)), ("overrides", "\n".join(overrides))]


def is_stand_in(state: State, status: EndpointStatus) -> bool:
    """Return whether the endpoint serves the small weights that ship with peagle-sm."""
    return state.local or (status.image or "").endswith("-cpu")


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
        table=lambda: render_ready(state, status, session, verbose),
        data=lambda: status_data(state, status),
        names=[name],
    )


def render_ready(state: State, status: EndpointStatus, session: Session, verbose: bool = False) -> str:
    """Render the status, and the commands to run next."""
    name, flags = status.summary.name, session.command_flags()
    try_it = f"try it:     peagle-sm invoke {name} -p 'def fibonacci(n):' --temperature 0{flags}"
    check_it = f"check it:   peagle-sm status {name}{flags}"
    commands = (
        f"{try_it if status.summary.status == 'InService' else check_it}\n"
        f"delete it:  peagle-sm delete {name}{flags}"
    )
    shown = render_status(status, stand_in=is_stand_in(state, status), now=session.now(), verbose=verbose)
    return f"{shown}\n\n{commands}"


def status_data(state: State, status: EndpointStatus) -> dict[str, Any]:
    """Return the status for --format json, with the fields of `list`."""
    document = status.to_dict()
    return {**document.pop("summary"), **document, "stand_in_weights": is_stand_in(state, status)}
