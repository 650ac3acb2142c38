"""Page of the recipes' sizes: memory by partitions, instances, hours and price of training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from peagle_learn.core.memory import GPU_SHARE, PARTITIONS
from peagle_learn.core.recipes import Recipe, load_recipes
from peagle_learn.core.training_options import INSTANCES, LENGTHS, TOKENS, TrainingOption, training_options
from peagle_sm.core.catalog import load_catalog
from peagle_sm.core.words import usd

REGION = "us-east-1"
MODELS = ("gpt-oss-20b", "gpt-oss-120b", "qwen3-coder-30b-a3b-instruct", "gemma-4-31b-it")

_INTRO = f"""\
# Sizes of training by model

`scripts/reference` writes this page from the recipes in `core/data/recipes.yaml` and the sums of
`peagle-sm learn plan`. [Train a head](../how-to/train-a-head.md) explains the settings.

**No GPU has run any row of this page.** Memory is calculated from the code of NeMo AutoModel 0.7.0 and
compared with points measured on a CPU ([memory of a training step](training-memory.md)). It must fit into
{GPU_SHARE:.0%} of a GPU. Hours are estimated for {TOKENS:,} tokens on one instance. The price is hours x the
instance's price per hour.

## How the target is shared
Each GPU holds a whole head. The 8 GPUs of an instance share the target: by its experts
(`expert_parallel_size`), or a target without experts by all of its weights (`target_shards`, FSDP2).

Checked without a GPU: two processes that share the small target give the same losses as with a whole target
each (relative difference below 1e-5, `tests/training/test_trainer.py`). In full size and without values, the
library's FSDP2 leaves an eighth of Gemma-4-31B's weights in each of 8 processes
(`tests/training/test_four_models.py`).

## Prices
`peagle-sm learn plan MODEL` asks AWS's price list and shows each price with its date. The prices here are
those that count without an answer, in {REGION}: the catalogue's, of hosting. EC2's is not SageMaker's, so
an upper bound counts.

| instance | GPUs | USD/hour | source |
|---|---|---|---|
"""


def training_sizes_page() -> str:
    """Return the page: sharding, prices, and two tables for each model."""
    lines = [*_prices()]
    for model in MODELS:
        lines += _model(model, load_recipes().recipe(model))
    return _INTRO + "\n".join(lines)


def _prices() -> Iterator[str]:
    """Yield a row for each instance: the price that counts without AWS's list."""
    catalog = load_catalog()
    for name in INSTANCES:
        entry, price = catalog.instances[name], catalog.price(name, REGION)
        gpus = f"{entry.gpu_count} x {entry.gpu}, {entry.gpu_memory_gb:g} GB"
        bound = "at most " if price and price.at_most else ""
        figure = "unknown" if price is None else f"{bound}{price.counted_usd_per_hour:,.2f}"
        yield f"| {name} | {gpus} | {figure} | {price or ''} |"
    yield ""


def _model(model: str, recipe: Recipe) -> Iterator[str]:
    yield f"## {model}"
    yield f"Sizes: {recipe.source}; {recipe.date}."
    yield f"{recipe.checked}.".replace("assumed", "Assumed", 1) if recipe.checked else ""
    yield "\nGB of one GPU by partitions of a sequence, on any of these instances:\n"
    yield f"| tokens | {' | '.join(map(str, PARTITIONS))} |"
    yield "|---:|" + "---:|" * len(PARTITIONS)
    by_parts = [_options(recipe, parts) for parts in PARTITIONS]
    for length in LENGTHS:
        cells = [
            next(f"{option.needed_gb:.1f}" for option in each if option.sequence_length == length)
            for each in by_parts
        ]
        yield f"| {length:,} | {' | '.join(cells)} |"
    yield "\nWith the fewest partitions that fit:\n"
    yield "| tokens | instance | partitions | needs GB | has GB | hours | price |"
    yield "|---:|---|---:|---:|---:|---:|---|"
    yield from map(_row, _options(recipe, None))
    yield ""


def _options(recipe: Recipe, partitions: int | None) -> Sequence[TrainingOption]:
    catalog = load_catalog()
    return training_options(
        recipe,
        catalog,
        load_recipes(),
        lambda name: (catalog.price(name, REGION), "the catalogue"),
        partitions=partitions,
    )


def _row(option: TrainingOption) -> str:
    hours = "unknown" if option.hours is None else f"{option.hours:.1f}"
    price = f"{'at most ' if option.at_most else ''}{usd(option.usd)}"
    end = f"{hours} | {price}" if option.fits else "- | does not fit"
    return (
        f"| {option.sequence_length:,} | {option.instance_type} | {option.partitions} "
        f"| {option.needed_gb:.1f} | {option.available_gb:.1f} | {end} |"
    )
