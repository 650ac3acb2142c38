"""`peagle-sm local clock`: time passes at will, for lifetimes, schedules and metrics."""

from __future__ import annotations

from time import monotonic

import click

from peagle_sm.cli.lazy import Command, Entry, LazyGroup
from peagle_sm.cli.local_options import chosen_port, need_local_extra, port_option
from peagle_sm.cli.options import global_options
from peagle_sm.cli.output import emit, note
from peagle_sm.cli.state import State

# A shorter wait needs no progress.
_SILENCE_S = 3.0

ENTRIES = (Entry("advance", f"{__name__}:advance", "Move the local clock forward."),)


@click.group(cls=LazyGroup, entries=ENTRIES)
@global_options
def clock() -> None:
    """Move its clock forward."""


@click.command(cls=Command)
@click.argument("duration")
@port_option
@global_options
@click.pass_obj
def advance(state: State, duration: str, port: int | None) -> None:
    """Move the local clock forward.

    DURATION is, for example, 90s, 45m, 2h or 1h30m. Schedules that come due run: with a guard
    installed, eight hours take about a minute and a half.
    """
    from peagle_sm.cli.words import elapsed, parse_duration
    from peagle_sm.core.errors import SpecError

    try:
        seconds = parse_duration(duration)
    except ValueError as error:
        raise SpecError(
            str(error),
            next_step="peagle-sm local clock advance 2h",
            details={"found": duration, "allowed": "a number and s, m, h or d"},
        ) from error
    need_local_extra()
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
        table=lambda: f"the local clock reads {now}",
        data=lambda: {"now": now, "advanced_seconds": seconds},
        names=[str(now)],
    )
