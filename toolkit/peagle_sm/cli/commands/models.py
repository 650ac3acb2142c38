"""`peagle-sm models`: the catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from peagle_sm.cli.lazy import Command
from peagle_sm.cli.options import global_options
from peagle_sm.cli.output import emit
from peagle_sm.cli.state import State
from peagle_sm.cli.table import render_table

if TYPE_CHECKING:
    from peagle_sm.core.catalog.catalog import Catalog

_HEADERS = (
    "model",
    "title",
    "source",
    "weights GB",
    "context",
    "draft head",
    "mode",
    "trained K",
    "default K",
)


@click.command(cls=Command)
@global_options
@click.pass_obj
def models(state: State) -> None:
    """List the models and draft heads of the catalogue.

    --format json has every fact with its source and date. A dash: not known.
    """
    from peagle_sm.core.catalog.catalog import load_catalog

    catalog = load_catalog()
    emit(
        state,
        table=lambda: render_table(
            _HEADERS, list(_rows(catalog)), right=("weights GB", "context", "trained K", "default K")
        ),
        data=lambda: _data(catalog),
        names=catalog.models,
    )


def _rows(catalog: Catalog) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name, entry in catalog.models.items():
        facts: tuple[str, ...] = (
            name,
            entry.title,
            entry.sources[0],
            _text(entry.weights_gb),
            _text(entry.max_context),
        )
        heads = catalog.heads_for(name)
        if not heads:
            rows.append((*facts, "-", "-", "-", "-"))
        for head_name, head in heads.items():
            default = entry.default_num_speculative_tokens.get(head.method)
            rows.append((*facts, head_name, head.method, _text(head.trained_depth), _text(default)))
            facts = ("", "", "", "", "")  # said once for a model, whatever the number of its heads
    return rows


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:g}" if value < 1e5 else f"{value:.0f}"


def _data(catalog: Catalog) -> list[dict[str, Any]]:
    return [
        {
            "id": name,
            **entry.model_dump(mode="json"),
            "heads": {key: head.model_dump(mode="json") for key, head in catalog.heads_for(name).items()},
        }
        for name, entry in catalog.models.items()
    ]
