"""`peagle-sm learn plan --step-times`: what a better head saves, and when it has paid for its training."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from peagle_sm.cli.arguments import open_session
from peagle_sm.cli.base import State
from peagle_sm.cli.console import note
from peagle_sm.cli.terminal import render_table
from peagle_sm.core.errors import SpecError

if TYPE_CHECKING:
    from peagle_bench.decide.costs import Traffic
    from peagle_bench.decide.prediction import Prediction
    from peagle_learn.core.payback import Payback
    from peagle_learn.core.training_options import TrainingOption


@dataclass(frozen=True)
class PaybackOptions:
    """Options of `learn plan` that belong to ``--step-times``."""

    step_times: Path | None
    acceptance_length: float | None
    now: float | None
    k: int | None
    otps: float | None
    traffic: str | None
    used: float | None
    usd_per_hour: float | None
    training_usd: float | None

    def check(self) -> None:
        """Refuse options that lack another.

        Raises:
            UsageError: --step-times, the acceptance length or the rate is missing.
        """
        if self.step_times is None:
            given = [name for name, value in vars(self).items() if value is not None]
            if given:
                raise click.UsageError(f"--{given[0].replace('_', '-')} needs --step-times FILE.")
            return
        if self.acceptance_length is None:
            raise click.UsageError("--step-times needs --acceptance-length, such as --acceptance-length 3.0.")
        if (self.otps is None) == (self.traffic is None):
            raise click.UsageError("--step-times needs your rate: one of --otps and --traffic.")


def predictions(options: PaybackOptions, model: str) -> tuple[Prediction, Prediction]:
    """Return what an instance serves now, and with the new head.

    Raises:
        SpecError: the file has no step times of the model and K, or an acceptance length is impossible.
    """
    from peagle_bench.decide.options import refuse_other_step_times
    from peagle_bench.decide.prediction import Prediction, predict
    from peagle_bench.step_times import read_step_times
    from peagle_sm.core.catalog import load_catalog

    assert options.step_times is not None
    assert options.acceptance_length is not None
    times = read_step_times(options.step_times)
    refuse_other_step_times(times, load_catalog().model(model), model)
    (then,) = predict(times, [options.acceptance_length], options.k, None)
    if options.now is not None:
        times.demand_length(options.now, then.k, "--now")
    return Prediction(times, then.k, options.now), then


def payback_of(
    state: State,
    options: PaybackOptions,
    sides: tuple[Prediction, Prediction],
    rows: Sequence[TrainingOption],
) -> Payback:
    """Compute when the training has paid for itself.

    Raises:
        SpecError: the traffic cannot be read, or has no rate.
    """
    from peagle_learn.core.payback import Payback
    from peagle_sm.core.words import usd

    now, then = sides
    arm = then.times.arm
    # A price of 0 is the local SageMaker's: nothing is billed, and nothing is known of AWS.
    recorded = arm.usd_per_hour / max(1, arm.instance_count) if arm.usd_per_hour else None
    hourly = recorded if options.usd_per_hour is None else options.usd_per_hour
    price, source = options.training_usd, "given with --training-usd"
    if price is None:
        priced = [row for row in rows if row.fits and row.usd is not None]
        cheapest = min(priced, key=lambda row: row.usd or 0.0, default=None)
        source = "no row above has a price: give it with --training-usd"
        if cheapest is not None:
            price = cheapest.usd
            source = (
                f"{'at most ' if cheapest.at_most else ''}{usd(price)}: the cheapest row that fits,"
                f" {cheapest.sequence_length:,} tokens on {cheapest.instance_type}"
            )
    return Payback(now, then, _traffic(state, options), hourly, price, source)


def _traffic(state: State, options: PaybackOptions) -> Traffic:
    from peagle_bench.decide.costs import Traffic
    from peagle_bench.decide.traffic import read_traffic
    from peagle_bench.report.costs import USED

    used = USED if options.used is None else options.used
    if options.traffic is None:
        return Traffic(options.otps or 0.0, 0.0, used=used)
    observed = read_traffic(options.traffic, lambda: open_session(state))
    for line in observed.notes:
        note(state, f"note: {line}")
    if observed.otps is None:
        raise SpecError(
            f"{options.traffic} has no rate: its requests have no times over at least an hour",
            next_step="Give the mean rate with --otps in place of --traffic.",
        )
    busiest = observed.busiest if options.used is None else None
    return Traffic(observed.otps, observed.input_per_output, busiest=busiest, used=used)


def render_payback(payback: Payback) -> str:
    """Render the sentence, both heads, and what the figures assume, in 80 columns."""
    from peagle_bench.decide.decision import plain
    from peagle_bench.decide.prediction import caution
    from peagle_bench.report.formatting import number, share
    from peagle_bench.report.formatting import usd as amount
    from peagle_bench.step_times import REAL_ERROR
    from peagle_sm.core.words import usd

    traffic, hourly = payback.traffic, payback.usd_per_hour
    rows = []
    for when, side in (("now", payback.now), ("then", payback.then)):
        million = side.usd_per_million(hourly)
        instances = payback.instances(side)
        rows.append(
            [when, side.label, number(side.serves.value), f"c={side.best}", amount(million), str(instances)]
        )
    heads = ("", "head", "tokens/s", "load", "USD/1M tokens", "instances")
    used = (
        f"the busiest hour has {number(traffic.busiest)} times the mean rate"
        if traffic.busiest is not None
        else f"the mean rate uses {share(traffic.used)} of what the instances serve (--used)"
    )
    price = "unknown: give it with --usd-per-hour" if hourly is None else usd(hourly, "hour")
    lines = [
        caution(payback.then.times),
        *payback.then.times.notes,
        f"your rate: {plain(traffic.otps)} output tokens/s as a mean over the month; {used}",
        f"one instance ({payback.then.times.arm.instance_type or 'type unknown'}): {price}",
        f"training: {payback.training}",
        f"saved: {usd(payback.saved_usd(), 'month')}; if the head's rate is {share(REAL_ERROR)} lower than "
        f"predicted, the training has paid for itself: {payback.if_slower}",
    ]
    table = render_table(heads, rows, right=("tokens/s", "USD/1M tokens", "instances"))
    return "\n\n".join(
        [_wrapped(payback.sentence), table, "\n".join(_wrapped(f"- {line}") for line in lines)]
    )


def _wrapped(text: str) -> str:
    indent = "  " if text.startswith("- ") else ""
    lines = textwrap.wrap(text, 80, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)
