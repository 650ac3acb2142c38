"""`peagle-sm heads list`: the catalogue's draft heads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from peagle_sm.cli.lazy import Command
from peagle_sm.cli.options import global_options
from peagle_sm.cli.output import emit
from peagle_sm.cli.state import State
from peagle_sm.cli.table import render_table

if TYPE_CHECKING:
    from peagle_sm.core.catalog.catalog import HeadEntry

_HEADERS = ("head", "target", "mode", "trained K", "layers", "licence", "revision", "where")


@click.command("list", cls=Command)
@click.argument("model", required=False)
@global_options
@click.pass_obj
def list_(state: State, model: str | None) -> None:
    """List the draft heads of the catalogue.

    MODEL leaves those of one target. A dash: not known; where no revision is pinned, `heads stage` takes the
    newest commit and records it. --format json has each head's source and date.
    """
    from peagle_sm.core.catalog.catalog import load_catalog

    catalog = load_catalog()
    if model is not None:
        catalog.model(model)  # refuses a name that it does not have
    found = dict(catalog.heads) if model is None else catalog.heads_for(model)
    emit(
        state,
        table=lambda: render_table(
            _HEADERS, [_row(name, head) for name, head in found.items()], right=("trained K", "layers")
        ),
        data=lambda: [{"id": name, **head.model_dump(mode="json")} for name, head in found.items()],
        names=found,
    )


def _row(name: str, head: HeadEntry) -> tuple[str, ...]:
    where = head.hub_id or f"shipped ({head.artifact})"
    facts = (head.trained_depth, head.layers, head.licence, head.revision and head.revision[:12])
    return (name, head.target, head.method, *("-" if fact is None else str(fact) for fact in facts), where)
