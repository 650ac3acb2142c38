"""`peagle-sm local`: the SageMaker on this machine."""

from __future__ import annotations

import click

from peagle_sm.cli.lazy import Entry, LazyGroup
from peagle_sm.cli.options import global_options

_COMMANDS = "peagle_sm.cli.commands"
ENTRIES = (
    Entry("up", f"{_COMMANDS}.local_up:up", "Start the local SageMaker."),
    Entry(
        "status",
        f"{_COMMANDS}.local_status:status",
        "Show where it listens, what a script needs to use it, and its engines.",
    ),
    Entry("logs", f"{_COMMANDS}.local_logs:logs", "Print what the server wrote, or an endpoint's engine."),
    Entry("clock", f"{_COMMANDS}.local_clock:clock", "Move its clock forward."),
    Entry("fault", f"{_COMMANDS}.local_fault:fault", "Make answers go wrong on demand, to test a client."),
    Entry("down", f"{_COMMANDS}.local_down:down", "Stop it, and end every process that it started."),
)


@click.group(cls=LazyGroup, entries=ENTRIES)
@global_options
def local() -> None:
    """Run a SageMaker on this machine.

    It speaks the AWS API on one port of the loopback address, and behind each endpoint it runs the real vLLM
    on small stand-in weights. Needs the extra `local`. Nothing survives `down`.
    """
