"""`peagle-sm heads`: draft heads, listed, looked at, and put into S3."""

from __future__ import annotations

import click

from peagle_sm.cli.lazy import Entry, LazyGroup
from peagle_sm.cli.options import global_options

_COMMANDS = "peagle_sm.cli.commands"
ENTRIES = (
    Entry("list", f"{_COMMANDS}.heads_list:list_", "List the draft heads of the catalogue."),
    Entry(
        "check",
        f"{_COMMANDS}.heads_check:check",
        "Say all that is wrong with a head, before an engine loads it.",
    ),
    Entry("stage", f"{_COMMANDS}.heads_stage:stage", "Put a head, or a model with its head, into S3."),
)


@click.group(cls=LazyGroup, entries=ENTRIES)
@global_options
def heads() -> None:
    """List, check and stage draft heads.

    vLLM loads some broken heads without a word: the answers stay right, and nothing is faster.
    """
