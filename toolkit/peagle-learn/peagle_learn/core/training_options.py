"""What training a model needs by sequence length: partitions, memory, hours and price on each instance. Pure.

`learn plan MODEL` shows these rows; nothing is read from AWS but the price.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from peagle_learn.core.memory import PARTITIONS, TrainingLoad, TrainingMachine, least_partitions, memory_of
from peagle_learn.core.price import duration_of
from peagle_learn.core.recipes import HeadSizes, Recipe, RecipeBook, chosen, head_sizes, shards_of
from peagle_learn.core.spec import TrainSpec
from peagle_sm.core.catalog import Catalog
from peagle_sm.core.prices import PriceEntry
from peagle_sm.core.words import usd

LENGTHS = (4096, 10240, 20480)
INSTANCES = ("ml.p5.48xlarge", "ml.p5en.48xlarge", "ml.p6-b200.48xlarge", "ml.p6-b300.48xlarge")
TOKENS = 100_000_000
"""Tokens of the shown hours and price: about an epoch of P-EAGLE's authors (47,000 x 2,048)."""
PriceOf = Callable[[str], tuple[PriceEntry | None, str]]
"""Price of an instance, and its source or why there is none."""


@dataclass(frozen=True)
class TrainingOption:
    """Training at one sequence length on one instance type; ``lines`` is the sum of one GPU's memory.

    ``hours`` and ``usd`` are for `TOKENS` tokens; None if unknown. ``price`` is the hourly price with its
    source and date, or why there is none; ``at_most``: it is an upper bound.
    """

    sequence_length: int
    instance_type: str
    partitions: int
    needed_gb: float
    available_gb: float
    fits: bool
    hours: float | None
    usd: float | None
    price: str
    lines: tuple[str, ...]
    at_most: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)


def training_options(
    recipe: Recipe,
    catalog: Catalog,
    book: RecipeBook,
    price_of: PriceOf,
    *,
    lengths: Sequence[int] = LENGTHS,
    partitions: int | None = None,
    warm: bool = True,
) -> list[TrainingOption]:
    """Return a row for each length and instance; the recipe's own instance alone if it has no GPU."""
    own = catalog.instances.get(recipe.instance_type)
    types = INSTANCES if own is None or own.gpu_count else (recipe.instance_type,)
    options = []
    for length in lengths:
        for name in types:
            entry = catalog.instances[name]
            values = chosen(TrainSpec(sequence_length=length), recipe, warm=warm, gpus=entry.gpu_count)
            head = head_sizes(recipe, values)
            options.append(_option(recipe, head, values, name, catalog, book, price_of, partitions))
    return options


def _option(
    recipe: Recipe,
    head: HeadSizes,
    values: Mapping[str, Any],
    name: str,
    catalog: Catalog,
    book: RecipeBook,
    price_of: PriceOf,
    partitions: int | None,
) -> TrainingOption:
    entry = catalog.instances[name]
    machine, shards = TrainingMachine.of(entry, name), shards_of(values)
    load = TrainingLoad.of(values)
    parts = partitions or least_partitions(recipe.target, head, load, machine, shards) or PARTITIONS[-1]
    load = replace(load, partitions=parts)
    memory = memory_of(recipe.target, head, load, machine, shards)
    duration = duration_of(recipe, head, load, book.speeds, entry.gpu, entry.gpu_count)
    hours = duration.hours(TOKENS) if memory.fits else None
    price, source = price_of(name)
    return TrainingOption(
        sequence_length=load.sequence_length,
        instance_type=name,
        partitions=parts,
        needed_gb=memory.needed_gb,
        available_gb=memory.available_gb,
        fits=memory.fits,
        hours=hours,
        usd=None if hours is None or price is None else hours * price.counted_usd_per_hour,
        price=f"unknown: {source}"
        if price is None
        else f"{'at most ' if price.at_most else ''}{usd(price.counted_usd_per_hour, 'hour')}, {source}",
        lines=memory.lines,
        at_most=price is not None and price.at_most,
    )
