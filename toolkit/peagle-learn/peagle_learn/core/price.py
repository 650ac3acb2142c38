"""Hours and price of a training job, and whether its budget allows it. Pure.

The price that counts is on demand: a managed spot job costs at most that. Storage and requests, some cents,
are not counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from peagle_learn.core.memory import TrainingLoad, rows_per_token
from peagle_learn.core.recipes import HeadSizes, Recipe, Speeds
from peagle_learn.core.spec import TrainSpec
from peagle_sm.core.words import Finding, error_finding, usd


@dataclass(frozen=True)
class TrainingPrice:
    """Price of a job: USD per hour of one instance, None if unknown, and where it is from."""

    usd_per_instance_hour: float | None
    instances: int
    max_hours: float
    spot: bool
    source: str

    @property
    def usd_per_hour(self) -> float | None:
        """Price of all instances."""
        each = self.usd_per_instance_hour
        return None if each is None else each * self.instances

    @property
    def max_usd(self) -> float | None:
        """Most that the job can cost: all instances until the maximum run time."""
        hourly = self.usd_per_hour
        return None if hourly is None else hourly * self.max_hours

    def words(self) -> str:
        """Return the price in words: `at most 400.00 USD (8 h x 50.00 USD/hour)`."""
        hourly = self.usd_per_hour
        if hourly is None:
            return "price unknown"
        if hourly == 0:
            return "nothing is billed"
        most = f"at most {usd(self.max_usd)} ({self.max_hours:g} h x {usd(hourly, 'hour')})"
        return f"{most}; spot costs up to that" if self.spot else most


def price_findings(train: TrainSpec, price: TrainingPrice) -> Iterator[Finding]:
    """Yield an error for an unknown price, and for a budget below what the job can cost."""
    most = price.max_usd
    if most is None:
        yield error_finding(
            "price",
            f"the price of training on {train.instance_type or 'this instance type'} is not known "
            f"({price.source})",
            "Write what AWS's price list says into train.usd_per_hour (USD per hour of one instance).",
        )
        return
    budget = train.budget_usd
    if budget is not None and most > budget:
        hours = budget / (price.usd_per_hour or 1.0)
        # Rounded down, so that the advice keeps the budget.
        allowed = math.floor(hours * 100) / 100
        step = (
            f"Set train.max_hours to {allowed:g} or less, or raise train.budget_usd to {most:,.2f}."
            if allowed > 0
            else f"Raise train.budget_usd to {most:,.2f}, or take a cheaper instance."
        )
        yield error_finding(
            "budget",
            f"train.budget_usd: found {budget:g}; the job can cost {most:,.2f} USD ({price.max_hours:g} h x "
            f"{price.instances} x {price.usd_per_instance_hour:,.2f} USD/hour)",
            step,
        )


@dataclass(frozen=True)
class Duration:
    """Estimated speed of a job; None if unknown. ``source`` says how it was estimated."""

    tokens_per_second: float | None
    source: str

    def hours(self, tokens: float | None) -> float | None:
        """Return the hours for a number of tokens."""
        if tokens is None or self.tokens_per_second is None:
            return None
        return tokens / self.tokens_per_second / 3600


def operations_per_token(recipe: Recipe, head: HeadSizes, load: TrainingLoad) -> float:
    """Return the floating-point operations of one token: the target's forward pass, and the head's both.

    Two for each parameter that a forward pass uses, and two such for a backward one; attention over half of
    the sequence. Context rows do not reach the lm_head.
    """
    target = recipe.target
    every = rows_per_token(head.depths, load.down_sample_ratio, load.down_sample_ratio_min)
    # As context, the tokens of depth 0 go through the head again in each further partition: half on average.
    context = (load.partitions - 1) / 2
    inner = head.attention_heads * head.head_dim
    embedding = target.vocabulary * target.hidden_size
    passes = 6 * (head.parameters(target) - embedding)
    attention = 12 * head.layers * inner * load.sequence_length / 2
    again = 4 / 3 if load.checkpointing else 1.0
    head_passes = (every + context) * (passes + attention) - context * 6 * embedding
    return 2 * target.active_billions * 1e9 + head_passes * again


def duration_of(
    recipe: Recipe, head: HeadSizes, load: TrainingLoad, speeds: Speeds, gpu: str | None, gpus: int
) -> Duration:
    """Estimate the speed on ``gpus`` GPUs of a kind; measured where the recipe has a measured speed."""
    if gpu is None or gpus == 0:
        if recipe.tokens_per_second is None:
            return Duration(None, "unknown: this model was not trained on a host without GPUs")
        return Duration(recipe.tokens_per_second, str(recipe.tokens_per_second_source))
    peak = speeds.teraflops.get(gpu)
    if peak is None:
        return Duration(None, f"unknown: no speed of {gpu} is known here")
    rate = gpus * peak * 1e12 * speeds.utilization / operations_per_token(recipe, head, load)
    source = (
        f"estimated: {speeds.utilization:.1%} of {gpus} x {peak:g} TFLOPS ({speeds.utilization_source}); "
        "not measured"
    )
    return Duration(rate, source)


def _unchecked(tokens: float | None, duration: Duration) -> tuple[str, str]:
    """Return why it is not known whether an epoch fits, and what to do."""
    uncounted = "the data is too large to count here, and not the newest of `learn data`"
    why = uncounted if tokens is None else f"its speed is {duration.source}"
    return (
        f"whether one epoch fits into train.max_hours, and so into the budget, could not be checked: {why}",
        "Give train.max_steps, or look at the first steps: `peagle-sm learn status JOB` shows the time left.",
    )


def hour_words(hours: float) -> str:
    """Format hours; below one, minutes or seconds.

    >>> hour_words(8.04), hour_words(0.75), hour_words(0.0001)
    ('8.0 h', '45.0 min', '0.4 s')
    """
    if hours >= 1:
        return f"{hours:,.1f} h"
    return f"{hours * 60:.1f} min" if hours * 60 >= 1 else f"{hours * 3600:.1f} s"


def epoch_findings(
    train: TrainSpec, values: Mapping[str, Any], tokens: float | None, duration: Duration, instances: int
) -> Iterator[Finding]:
    """Yield an error if the maximum run time is too short for one epoch, a warning if too short for all.

    Also a warning if that is unknown: ``tokens`` None (not counted), or an unknown speed.
    """
    if values.get("max_steps") is not None:
        return  # the steps end it, and a resumed job has some of them behind it
    hours = duration.hours(tokens)
    if hours is None:
        yield Finding("warning", *_unchecked(tokens, duration), "epoch")
        return
    one_epoch = hours / instances
    all_epochs = one_epoch * int(values["epochs"])
    if one_epoch > train.max_hours:
        yield error_finding(
            "epoch",
            f"train.max_hours: found {train.max_hours:g} ({hour_words(train.max_hours)}); one epoch "
            f"of {tokens:,.0f} tokens takes about {hour_words(one_epoch)} ({duration.source})",
            "Raise train.max_hours and the budget, give train.max_steps, or train on less data.",
        )
    elif all_epochs > train.max_hours:
        yield Finding(
            "warning",
            f"train.max_hours: found {train.max_hours:g} ({hour_words(train.max_hours)}); "
            f"{values['epochs']} epochs take about {hour_words(all_epochs)}",
            "The job stops at its limit with a checkpoint; the same command then continues from it.",
            "epoch",
        )
