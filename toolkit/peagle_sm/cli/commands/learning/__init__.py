"""`peagle-sm learn`: the group; one module for each of its commands."""

from __future__ import annotations

import click

from peagle_sm.cli.base import Entry, LazyGroup, global_options

ENTRIES: tuple[Entry, ...] = ()


@click.group(cls=LazyGroup, entries=ENTRIES)
@global_options
def learn() -> None:
    """Train a draft head on your traffic, prove it, and promote it."""
