"""`peagle-sm learn plan`: memory, hours and price of training a model, by sequence length and instance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from peagle_sm.cli.arguments import open_session
from peagle_sm.cli.base import Command, State, global_options
from peagle_sm.cli.console import emit, note
from peagle_sm.cli.terminal import render_fields, render_table
from peagle_sm.core.errors import PeagleError, SpecError

if TYPE_CHECKING:
    from peagle_learn.core.recipes import Recipe
    from peagle_learn.core.training_options import PriceOf, TrainingOption
    from peagle_sm.core.prices import PriceEntry


@click.command(cls=Command)
@click.argument("model")
@global_options
@click.pass_obj
def plan(state: State, model: str) -> None:
    """Show what training a model needs: memory, hours and price.

    MODEL is a catalogue id. The memory of one GPU is a sum, shown for the first instance that fits. Hours and
    price are for 100 million tokens. Nothing is created, and no credentials are needed: without an answer of
    AWS's price list, the catalogue's price counts.
    """
    from peagle_learn.core.recipes import load_recipes
    from peagle_learn.core.training_options import LENGTHS, training_options
    from peagle_sm.core.catalog import load_catalog

    book, catalog = load_recipes(), load_catalog()
    if model not in book.models:
        raise SpecError(
            f"MODEL: found {model!r}; allowed: {', '.join(book.models)}",
            next_step="For a model of your own write its s3:// folder into target.model of learn.yaml; "
            "`peagle-sm learn train --dry-run` shows memory and price.",
        )
    recipe = book.recipe(model)
    longest = catalog.models[model].max_context
    lengths = [length for length in LENGTHS if longest is None or length <= longest] or [
        longest or LENGTHS[0]
    ]
    options = training_options(recipe, catalog, book, _prices(state), lengths=lengths)
    emit(
        state,
        table=lambda: render_options(model, recipe, options),
        data=lambda: {
            "model": model,
            "source": recipe.source,
            "checked": recipe.checked,
            "options": [option.to_dict() for option in options],
        },
        names=[f"{option.sequence_length} {option.instance_type}" for option in options if option.fits],
    )


def _prices(state: State) -> PriceOf:
    from peagle_learn.aws.prices import find_job_price
    from peagle_sm.core.plan.resolve import DEFAULT_REGION

    try:
        session = open_session(state)
    except PeagleError as error:  # plan without an account
        note(state, f"note: {error.message} Prices are those of {DEFAULT_REGION}.")
        session = None
    local, region = session is not None and session.is_local, session.region if session else DEFAULT_REGION
    prices: dict[str, tuple[PriceEntry | None, str]] = {}

    def price_of(name: str) -> tuple[PriceEntry | None, str]:
        if name not in prices:
            prices[name] = find_job_price(None if local else session, name, region, "Train")
        return prices[name]

    return price_of


def render_options(model: str, recipe: Recipe, options: list[TrainingOption]) -> str:
    """Render the table, the memory of the first row that fits, and the sources."""
    from peagle_sm.core.words import usd

    rows = [
        [
            f"{option.sequence_length:,}",
            option.instance_type,
            str(option.partitions),
            f"{option.needed_gb:.1f}",
            f"{option.available_gb:.1f}",
            "yes" if option.fits else "NO",
            ("unknown" if option.hours is None else f"{option.hours:.1f}") if option.fits else "-",
            f"{'at most ' if option.at_most else ''}{usd(option.usd)}" if option.fits else "-",
        ]
        for option in options
    ]
    heads = ("tokens", "instance", "parts", "needs GB", "has GB", "fits", "hours", "price")
    parts = [render_table(heads, rows, right=("tokens", "parts", "needs GB", "has GB", "hours", "price"))]
    detailed = next((option for option in options if option.fits), options[0])
    fits = "" if detailed.fits else ", which does not fit"
    title = f"{detailed.sequence_length:,} tokens on {detailed.instance_type}{fits}, one GPU:"
    parts.append("\n".join([title, *(f"  {line}" for line in detailed.lines)]))
    fields: list[tuple[str, Any]] = [
        ("model", model),
        ("hours, price", "for 100 million tokens; estimated, not measured"),
        *(("price from", price) for price in dict.fromkeys(option.price for option in options)),
        ("memory", "calculated from the trainer's code; measured on a CPU only"),
        ("sizes", recipe.source),
        ("", recipe.checked or ""),
    ]
    parts.append(render_fields([(name, str(value)) for name, value in fields if value]))
    return "\n\n".join(parts)
