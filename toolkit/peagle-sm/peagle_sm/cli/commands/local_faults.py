"""`peagle-sm local fault`, `interrupt` and `clock`: inject faults, interrupt training, move time forward.

Faults test clients, and interruptions test checkpoints. Moving the clock forward ends lifetimes, runs
schedules and ages metrics without waiting.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from time import monotonic
from typing import Any

import click

from peagle_sm.cli.base import Command, Entry, LazyGroup, State, global_options
from peagle_sm.cli.commands.local import chosen_port, port_option, render_faults
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
@click.argument("settings", metavar="[NAME=VALUE]...", nargs=-1)
@click.option("--endpoint", metavar="GLOB", help="Names of the endpoints to inject it into.  [default: *]")
@click.option(
    "--times", type=click.IntRange(min=1), help="Inject it this often, then remove it.  [default: no limit]"
)
@port_option
@global_options
@click.pass_obj
def add(
    state: State,
    /,
    kind: str,
    settings: tuple[str, ...],
    endpoint: str | None,
    times: int | None,
    port: int | None,
) -> None:
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
    NAME=VALUE sets one of
      operation=stream|invoke|openai  calls to inject it into (default: all that the kind supports)
      probability=0.1                 share of the calls to inject it into (default: 1)
      seed=7                          seed of all random choices of this fault (default: 0)
      after_events=3                  events of a stream to send before the fault (default: 1)
    or an option of the kind, such as where=event; `peagle-sm help faults` lists them.
    """
    from peagle_sm.aws.session.local_server import add_fault, fault_of, find_server

    options = {"endpoint": endpoint, "times": times, **dict(map(_setting, settings))}
    wanted = fault_of({"kind": kind, **{name: item for name, item in options.items() if item is not None}})
    added = add_fault(find_server(chosen_port(state, port)).port, wanted)
    emit(state, table=lambda: render_faults([added]), data=lambda: added, names=[added["id"]])


def _setting(text: str) -> tuple[str, Any]:
    """Read NAME=VALUE; a value that is JSON is a number or true or false, any other is text."""
    name, equals, value = text.partition("=")
    if not equals:
        raise SpecError(
            f"expected NAME=VALUE, found {text!r}",
            next_step="peagle-sm local fault add cut where=event after_events=3",
            details={"found": text, "allowed": "NAME=VALUE"},
        )
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


@click.command("list", cls=Command)
@port_option
@global_options
@click.pass_obj
def list_(state: State, port: int | None) -> None:
    """List the faults, and how often each was injected."""
    from peagle_sm.aws.session.local_server import faults, find_server

    _show(state, faults(find_server(chosen_port(state, port)).port))


@click.command(cls=Command)
@click.argument("ids", metavar="[ID]...", nargs=-1)
@port_option
@global_options
@click.pass_obj
def clear(state: State, ids: tuple[str, ...], port: int | None) -> None:
    """Remove the given faults, or all of them.

    Prints the removed faults, and how often each was injected. Exit code 4 if an ID does not exist.
    """
    from peagle_sm.aws.session.local_server import clear_faults, find_server

    _show(state, clear_faults(find_server(chosen_port(state, port)).port, ids))


def _show(state: State, found: Sequence[dict[str, Any]]) -> None:
    emit(
        state,
        table=lambda: render_faults(found),
        data=lambda: list(found),
        names=[each["id"] for each in found],
    )


@click.command(cls=Command)
@click.argument("job")
@port_option
@global_options
@click.pass_obj
def interrupt(state: State, job: str, port: int | None) -> None:
    """Take a training job's Spot instances away.

    AWS may do so at any time. The job gets SIGTERM and has 120 seconds of the local clock to save a
    checkpoint. Then it starts again with the checkpoints that are in S3. JOB is its name; it needs
    EnableManagedSpotTraining.
    """
    from peagle_sm.aws.session.local_server import find_server, interrupt_training

    interrupt_training(find_server(chosen_port(state, port)).port, job)
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
@port_option
@global_options
@click.pass_obj
def advance(state: State, duration: str, port: int | None) -> None:
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

    server = find_server(chosen_port(state, port))
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
