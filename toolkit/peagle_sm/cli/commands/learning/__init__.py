"""`peagle-sm learn`: the group; one module for each of its commands."""

from __future__ import annotations

import click

from peagle_sm.cli.base import Entry, LazyGroup, global_options

ENTRIES: tuple[Entry, ...] = (
    Entry("data", "commands.learning.data:data", "Make training data: your prompts with the target's own answers."),
    Entry("prove", "commands.learning.prove:prove", "Measure a trained head beside the one that serves."),
    Entry("promote", "commands.learning.prove:promote", "Let a proved head serve the endpoint."),
    Entry(
        "rollback",
        "commands.learning.prove:rollback",
        "Bring back the head that served before the last promotion.",
    ),
)


@click.group(cls=LazyGroup, entries=ENTRIES)
@global_options
def learn() -> None:
    """Train a draft head on your traffic, prove it, and promote it."""
