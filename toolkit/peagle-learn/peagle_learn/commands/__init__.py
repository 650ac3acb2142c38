"""`peagle-sm learn`: the group; one module for each of its commands or a few that belong together."""

from __future__ import annotations

import click

from peagle_sm.cli.base import Entry, LazyGroup, global_options

ENTRIES: tuple[Entry, ...] = (
    Entry(
        "plan",
        "sizes:plan",
        "Show what training a model needs: memory, hours and price.",
        "Training",
    ),
    Entry(
        "train",
        "train:train",
        "Train a head in a SageMaker training job, and follow it.",
        "Training",
    ),
    Entry(
        "status",
        "train:status",
        "Show training jobs: steps, losses and cost.",
        "Training",
    ),
    Entry(
        "stop",
        "train:stop",
        "Stop a training job.",
        "Training",
    ),
    Entry(
        "data",
        "data:data",
        "Make training data: your prompts with the target's own answers.",
        "The loop",
    ),
    Entry(
        "delete-data",
        "data:delete_data",
        "Delete the data that learn data and learn train stored.",
        "The loop",
    ),
    Entry(
        "prove",
        "prove:prove",
        "Measure a trained head beside the one that serves.",
        "The loop",
    ),
    Entry("promote", "prove:promote", "Let a proved head serve the endpoint.", "The loop"),
    Entry(
        "rollback",
        "prove:rollback",
        "Bring back the head that served before the last promotion.",
        "The loop",
    ),
    Entry(
        "run",
        "run:run",
        "Make data, train, prove and promote; after a stop, continue.",
        "The loop",
    ),
)


@click.group(cls=LazyGroup, entries=ENTRIES, package=__name__)
@global_options
def learn() -> None:
    """Train a draft head on your traffic, prove it, and promote it.

    learn.yaml names the target, the data and the limits. A training job runs in SageMaker until it is done,
    or until its maximum run time; it goes on when this program ends.
    """
