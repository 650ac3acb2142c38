"""`peagle-sm learn`: the command group, with one module for each command or a few related ones."""

from __future__ import annotations

from pathlib import Path

import click

from peagle_sm.cli.base import Entry, LazyGroup, global_options

ENTRIES: tuple[Entry, ...] = (
    Entry(
        "plan",
        "plan:plan",
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
    Entry("promote", "prove:promote", "Let a proven head serve the endpoint.", "The loop"),
    Entry(
        "rollback",
        "prove:rollback",
        "Restore the head that served before the last promotion.",
        "The loop",
    ),
    Entry(
        "run",
        "run:run",
        "Make data, train, prove and promote; after a stop, continue.",
        "The loop",
    ),
)


learn_spec_argument = click.argument(
    "spec_path", metavar="[SPEC]", default="learn.yaml", type=click.Path(path_type=Path, dir_okay=False)
)


@click.group(cls=LazyGroup, entries=ENTRIES, package=__name__)
@global_options
def learn() -> None:
    """Train a draft head on your traffic, prove it, and promote it.

    learn.yaml has the target, the data and the limits. A training job runs in SageMaker until it is done, or
    until its maximum run time. It continues if this program ends.
    """
