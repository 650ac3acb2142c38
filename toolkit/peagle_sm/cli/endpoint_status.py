"""Endpoint lists and statuses as text and JSON, for `list`, `status` and `deploy`."""

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
    """`2026-11-20 08:15 UTC`, or a dash."""
    if moment is None:
        return "-"
    from datetime import UTC

    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def when_to(moment: datetime | None, now: datetime) -> str:
    """`2026-11-20 08:15 UTC (in 2 h 10 min)`, or a dash."""
    return "-" if moment is None else f"{when(moment)} ({relative(moment, now)})"


def render_list(summaries: Sequence[EndpointSummary], now: datetime) -> str:
    """One row an endpoint; a dash where AWS does not say."""
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
    """`2 x ml.g7e.2xlarge`; with autoscaling `1-4 x ml.g7e.2xlarge`, since the count changes by itself."""
    if each.instance_type is None:
        return "-"
    count = each.instance_bounds or each.instance_count
    return f"{count} x {each.instance_type}" if count else each.instance_type


def _instances_now(each: EndpointSummary) -> str:
    if each.instance_bounds is None or each.instance_type is None:
        return _instance(each)
    return f"{each.instance_count} x {each.instance_type} (autoscaling: {each.instance_bounds})"


def _amount(each: EndpointSummary, value: float | None) -> str:
    """An amount of USD; `~` marks one that autoscaling makes an estimate."""
    if value is None:
        return "-"
    return f"~{value:,.2f}" if each.instance_bounds else f"{value:,.2f}"


def render_status(status: EndpointStatus, *, stand_in: bool, now: datetime, verbose: bool = False) -> str:
    """Everything about one endpoint; lines without a fact are left out.

    ``verbose`` shows a long failure reason whole, and each override of the engine.
    """
    each = status.summary
    mode = speculation_text(each.mode, each.num_speculative_tokens)
    fields = [
        ("name", each.name),
        ("status", each.status),
        ("why", _why(status.failure_reason or "", verbose)),
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
            f"deleted at {when_to(each.expires_at, now)} whatever happens" if each.expires_at else "",
        ),
        ("kept", f"until {when_to(each.keep_until, now)}, idle or not" if each.keep_until else ""),
        ("hours", each.hours or ""),
        ("idle", _idle(each)),
        *_engine_fields(status, verbose),
        ("warning", "\n".join(status.warnings)),
    ]
    return render_fields([(name, value) for name, value in fields if value])


def _why(reason: str, verbose: bool) -> str:
    return reason if verbose else cause_first(reason, "whole: `peagle-sm status --verbose`")


def change_line(status: EndpointStatus) -> str:
    """What `status --watch` compares and prints on a pipe: no times and no money, which always change."""
    each = status.summary
    parts = [f"{each.name} is {each.status}", f"config {_config(status) or 'unknown'}", *status.warnings]
    if status.failure_reason:
        parts.insert(1, f"failure: {cause_first(status.failure_reason, '').splitlines()[0]}")
    return " · ".join(" ".join(part.split()) for part in parts)


def _config(status: EndpointStatus) -> str:
    if status.config_asked and status.config_asked != status.config_name:
        return f"{status.config_name} (asked for: {status.config_asked})"
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
    return f"about {usd(each.spent_usd)} spent so far (at the count where autoscaling starts)"


def _idle(each: EndpointSummary) -> str:
    if each.idle_minutes is None:
        return ""
    grace = f", looked at again {each.grace_minutes} min later" if each.grace_minutes else ""
    return f"counts as idle after {each.idle_minutes} min of proven quiet{grace}"


def engine_words(engine: Mapping[str, Any]) -> str:
    """`vLLM 0.32.0 (image: 0.30.0-gpu-…), process 4711`, from the local server's account of an engine."""
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
