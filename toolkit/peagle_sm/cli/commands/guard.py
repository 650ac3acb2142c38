"""`peagle-sm guard`: what turns off endpoints that nobody uses."""

from __future__ import annotations

import click

from peagle_sm.cli.lazy import Entry, LazyGroup
from peagle_sm.cli.options import global_options

_COMMANDS = "peagle_sm.cli.commands"
ENTRIES = (
    Entry("install", f"{_COMMANDS}.guard_install:install", "Install the guard, or bring it up to date."),
    Entry(
        "status",
        f"{_COMMANDS}.guard_status:status",
        "Show its version, its last sweep, its alarms and the endpoints it knows.",
    ),
    Entry("sweep", f"{_COMMANDS}.guard_sweep:sweep", "Let it look at every endpoint now."),
    Entry("uninstall", f"{_COMMANDS}.guard_uninstall:uninstall", "Remove the guard from this region."),
)


@click.group(cls=LazyGroup, entries=ENTRIES)
@global_options
def guard() -> None:
    """Install, watch and remove what turns off unused endpoints.

    Once in an account and region. It looks at every endpoint of peagle-sm every five minutes and turns off
    what is proven quiet, over its lifetime or over its budget, after notifying people.
    """
