"""`peagle-sm learn plan`: memory, hours and price of training a model, by sequence length and instance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from peagle_bench.commands.options import Figure, k_option, step_times_option
from peagle_learn.commands.payback import PaybackOptions, payback_of, predictions, render_payback
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
@step_times_option
@click.option(
    "--acceptance-length",
    type=Figure(),
    help="With --step-times: tokens of a step that the trained head would give, such as 3.0.",
)
@click.option(
    "--now",
    type=Figure(),
    help="Acceptance length of the head that you serve now.  [default: no speculation]",
)
@k_option
@click.option("--otps", type=Figure(), help="Output tokens per second, as a mean over the whole month.")
@click.option("--traffic", metavar="FILE", help="Take the rate from recorded traffic, in place of --otps.")
@click.option(
    "--used",
    type=Figure(most=1),
    help="Share of the capacity that your mean rate uses.  [default: from the busiest hour, else 0.3]",
)
@click.option("--usd-per-hour", type=Figure(), help="Your price of one serving instance.")
@click.option(
    "--training-usd", type=Figure(), help="Price of the training.  [default: the cheapest row that fits]"
)
@global_options
@click.pass_obj
def plan(state: State, /, model: str, **given: Any) -> None:
    """Show what training a model needs: memory, hours and price.

    MODEL is a catalogue id. The memory of one GPU is a sum, shown for the first instance that fits. Hours and
    price are for 100 million tokens. Nothing is created, and no credentials are needed: without an answer of
    AWS's price list, the catalogue's price counts.

    With --step-times (a file of `tune --synthetic`) it also shows what a head with --acceptance-length
    would save each month at your rate, and after how many weeks the training has paid for itself.
    """
    from peagle_learn.core.recipes import load_recipes
    from peagle_learn.core.training_options import LENGTHS, training_options
    from peagle_sm.core.catalog import load_catalog

    worth = PaybackOptions(**given)
    worth.check()
    book, catalog = load_recipes(), load_catalog()
    if model not in book.models:
        raise SpecError(
            f"MODEL: found {model!r}; allowed: {', '.join(book.models)}",
            next_step="For a model of your own write its s3:// folder into target.model of learn.yaml; "
            "`peagle-sm learn train --dry-run` shows memory and price.",
        )
    recipe = book.recipe(model)
    sides = None if worth.step_times is None else predictions(worth, model)
    longest = catalog.models[model].max_context
    lengths = [length for length in LENGTHS if longest is None or length <= longest] or [
        longest or LENGTHS[0]
    ]
    options = training_options(recipe, catalog, book, _prices(state), lengths=lengths)
    payback = None if sides is None else payback_of(state, worth, sides, options)
    blocks = [render_options(model, recipe, options)]
    if payback is not None:
        blocks.append(render_payback(payback))
    emit(
        state,
        table=lambda: "\n\n".join(blocks),
        data=lambda: {
            "model": model,
            "source": recipe.source,
            "checked": recipe.checked,
            "options": [option.to_dict() for option in options],
            **({} if payback is None else {"payback": payback.to_dict()}),
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
