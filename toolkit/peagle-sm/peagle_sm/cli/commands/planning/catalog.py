"""`peagle-sm models` and `heads list`: what the catalogue has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from peagle_sm.cli.base import Command, State, global_options
from peagle_sm.cli.console import emit
from peagle_sm.cli.terminal import render_table

if TYPE_CHECKING:
    from peagle_sm.core.catalog import Catalog, HeadEntry, ModelEntry


_MODEL_HEADERS = ("model", "source", "weights GB", "context", "draft heads")


@click.command(cls=Command)
@global_options
@click.pass_obj
def models(state: State) -> None:
    """List the models in the catalogue.

    The last column has the modes for which the catalogue has a draft head; `peagle-sm heads list` names the
    heads. A dash means none, or unknown. --format json has all facts with their sources and dates. The model
    of the project's own tests is not listed.
    """
    from peagle_sm.core.catalog import load_catalog

    catalog = load_catalog()
    emit(
        state,
        table=lambda: render_table(_MODEL_HEADERS, _rows(catalog), right=("weights GB", "context")),
        data=lambda: _data(catalog),
        names=_listed(catalog),
    )


def _listed(catalog: Catalog) -> dict[str, ModelEntry]:
    """Return the models for users."""
    return {name: entry for name, entry in catalog.models.items() if not entry.stand_in}


def _rows(catalog: Catalog) -> list[tuple[str, ...]]:
    return [
        (
            name,
            entry.sources[0],
            _text(entry.weights_gb),
            _text(entry.max_context),
            ", ".join(dict.fromkeys(head.method for head in catalog.heads_for(name).values())) or "-",
        )
        for name, entry in _listed(catalog).items()
    ]


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:g}" if value < 1e5 else f"{value:.0f}"


def _data(catalog: Catalog) -> list[dict[str, Any]]:
    return [
        {
            "id": name,
            **entry.model_dump(mode="json"),
            "heads": {key: head.model_dump(mode="json") for key, head in catalog.heads_for(name).items()},
        }
        for name, entry in _listed(catalog).items()
    ]


_HEAD_HEADERS = ("head", "target", "mode", "trained K", "layers", "licence", "revision", "location")


@click.command("list", cls=Command)
@click.argument("model", required=False)
@global_options
@click.pass_obj
def list_(state: State, model: str | None) -> None:
    """List the draft heads in the catalogue.

    MODEL selects the heads of one target. A dash means unknown. If a head has no pinned revision, `heads
    stage` uses the newest commit and records it. --format json has each head's source and date. The heads of
    the project's own tests are listed only if MODEL names their target.
    """
    from peagle_sm.core.catalog import load_catalog

    catalog = load_catalog()
    if model is not None:
        catalog.model(model)  # raises for an unknown model
    models = [model] if model is not None else _listed(catalog)
    heads = {name: head for name, head in catalog.heads.items() if head.target in models}
    emit(
        state,
        table=lambda: render_table(
            _HEAD_HEADERS, [_row(name, head) for name, head in heads.items()], right=("trained K", "layers")
        ),
        data=lambda: [{"id": name, **head.model_dump(mode="json")} for name, head in heads.items()],
        names=heads,
    )


def _row(name: str, head: HeadEntry) -> tuple[str, ...]:
    where = head.hub_id or f"shipped ({head.artifact})"
    facts = (head.trained_depth, head.layers, head.licence, head.revision and head.revision[:12])
    return (name, head.target, head.method, *("-" if fact is None else str(fact) for fact in facts), where)
