"""`peagle-sm local fault`, `interrupt` and `clock`: inject faults, interrupt training, move time forward.

Faults test clients, and interruptions test checkpoints. Moving the clock forward ends lifetimes, runs
schedules and ages metrics without waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

import click

from peagle_sm.cli.base import Command, Entry, LazyGroup, State, global_options
from peagle_sm.cli.commands.local import render_faults
from peagle_sm.cli.console import emit, note
from peagle_sm.cli.terminal import parse_duration
from peagle_sm.core.errors import SpecError
from peagle_sm.core.words import elapsed

FAULT_ENTRIES = (
    Entry(
        "add",
        "commands.local_faults:add",
        "Add a fault, which applies to the answers from now on.",
    ),
    Entry(
        "list",
        "commands.local_faults:list_",
        "List the faults, and how often each was injected.",
    ),
    Entry("clear", "commands.local_faults:clear", "Remove the given faults, or all of them."),
)


@click.group(cls=LazyGroup, entries=FAULT_ENTRIES)
@global_options
def fault() -> None:
    """Inject faults into answers, to test a client.

    Each request gets at most one fault: the oldest that matches it. `peagle-sm help faults` shows each kind,
    and how an unmodified boto3 reacts to it.
    """


@click.command(cls=Command)
@click.argument("kind")
@click.argument("options", metavar="[NAME=VALUE]...", nargs=-1)
@global_options
@click.pass_obj
def add(state: State, kind: str, options: tuple[str, ...]) -> None:
    """Add a fault, which applies to the answers from now on.

    \b
    KIND is one of
      cut                      the connection breaks: in a frame, between events, or at the start
      stall                    the stream pauses for some seconds
      corrupt                  damaged bytes
      split                    the same bytes, split at other places
      utf8-split               every multi-byte character is split in two
      throttle                 ThrottlingException
      service-error            InternalFailure, ServiceUnavailable and similar errors
      model-error              ModelError: the container answers with an error
      stream-error             the exception ModelStreamError inside the stream
      internal-stream-failure  the exception InternalStreamFailure inside the stream
      sse-error                an error event inside the answer, as vLLM sends it
      draft-tokens             tokens of the stream that the model did not verify
      keeps-generating         the engine generates on after the client has left
      no-format                the engine does not get the demanded format

    \b
    Settings of every kind, with their defaults:
      endpoint=*      names of the endpoints, as a glob
      operation=      stream, invoke or openai; all that the kind supports
      times=          remove the fault after this many injections; no limit
      probability=1   share of the calls
      seed=0          seed of all random choices

    Some kinds have settings of their own, such as where, after_events, seconds, parts, status, code and
    message: `peagle-sm help faults`.
    """
    from peagle_sm.aws.session.local_server import add_fault, fault_of, find_server

    fault = fault_of({"kind": kind, **dict(map(_setting, options))})
    added = add_fault(find_server(state.local_port).port, fault)
    emit(state, table=lambda: render_faults([added]), data=lambda: added, names=[added["id"]])


def _setting(text: str) -> tuple[str, Any]:
    """Read a setting of a fault: times=1, probability=0.5, clean=true, or a text."""
    name, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"found {text!r}; allowed: NAME=VALUE, for example times=1")
    for read in (int, float):
        with suppress(ValueError):
            return name, read(value)
    return name, {"true": True, "false": False}.get(value, value)


@click.command("list", cls=Command)
@global_options
@click.pass_obj
def list_(state: State) -> None:
    """List the faults, and how often each was injected."""
    from peagle_sm.aws.session.local_server import faults, find_server

    _show(state, faults(find_server(state.local_port).port))


@click.command(cls=Command)
@click.argument("ids", metavar="[ID]...", nargs=-1)
@global_options
@click.pass_obj
def clear(state: State, ids: tuple[str, ...]) -> None:
    """Remove the given faults, or all of them.

    Prints the removed faults, and how often each was injected. Exit code 4 if an ID does not exist.
    """
    from peagle_sm.aws.session.local_server import clear_faults, find_server

    _show(state, clear_faults(find_server(state.local_port).port, ids))


def _show(state: State, faults: Sequence[dict[str, Any]]) -> None:
    emit(
        state,
        table=lambda: render_faults(faults),
        data=lambda: list(faults),
        names=[fault["id"] for fault in faults],
    )


@click.command(cls=Command)
@click.argument("job")
@global_options
@click.pass_obj
def interrupt(state: State, job: str) -> None:
    """Take a training job's Spot instances away.

    AWS may do so at any time. The job gets SIGTERM and has 120 seconds of the local clock to save a
    checkpoint. Then it starts again with the checkpoints that are in S3. JOB is its name; it needs
    EnableManagedSpotTraining.
    """
    from peagle_sm.aws.session.local_server import find_server, interrupt_training

    interrupt_training(find_server(state.local_port).port, job)
    emit(
        state,
        table=lambda: f"the Spot instances of {job} are being interrupted",
        data=lambda: {"interrupting": job},
        names=[job],
    )


# A shorter wait needs no progress.
_SILENCE_S = 3.0

CLOCK_ENTRIES = (Entry("advance", "commands.local_faults:advance", "Move the clock forward by a duration."),)


@click.group(cls=LazyGroup, entries=CLOCK_ENTRIES)
@global_options
def clock() -> None:
    """Move the local server's clock forward."""


@click.command(cls=Command)
@click.argument("duration")
@global_options
@click.pass_obj
def advance(state: State, duration: str) -> None:
    """Move the clock forward by a duration.

    DURATION is, for example, 90s, 45m, 2h or 1h30m. Schedules that become due are run: with a guard
    installed, eight hours take about a minute and a half.
    """
    try:
        seconds = parse_duration(duration)
    except ValueError as error:
        raise SpecError(
            str(error),
            next_step="peagle-sm local clock advance 2h",
            details={"found": duration, "allowed": "a number and s, m, h or d"},
        ) from error
    from peagle_sm.aws.session.local_server import advance_clock, find_server

    server = find_server(state.local_port)
    began = monotonic()

    def progress(advanced_s: float) -> None:
        spent = monotonic() - began
        if spent >= _SILENCE_S and advanced_s < seconds:
            left = spent / advanced_s * (seconds - advanced_s)
            note(state, f"{elapsed(advanced_s)} of {elapsed(seconds)} passed; about {elapsed(left)} left")

    now = advance_clock(server.port, seconds, progress)
    emit(
        state,
        table=lambda: f"the local clock is now at {now}",
        data=lambda: {"now": now, "advanced_seconds": seconds},
        names=[str(now)],
    )
