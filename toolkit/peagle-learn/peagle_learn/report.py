"""An HTML page about one training job: what it did and cost, and the curves of loss and accuracy. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from peagle_bench.report.charts import ChartFigure, LineChart, Mark, Series
from peagle_bench.report.formatting import Look
from peagle_bench.report.rendering import render
from peagle_learn.core.job_names import TrainerLine
from peagle_learn.jobs import JobState
from peagle_sm.core.words import elapsed, usd, when

_LOOKS = (
    Look("blue", "circle"),
    Look("orange", "square"),
    Look("green", "cross"),
    Look("purple", "triangle"),
    Look("sky", "square"),
    Look("brown", "diamond"),
    Look("pink", "circle"),
    Look("grey", "diamond"),
)
MOST_DEPTHS = len(_LOOKS)
"""Curves of accuracy that the page draws: the first depths."""


def training_page(state: JobState, now: datetime) -> str:
    """Return the page; without lines of the trainer it has the facts alone."""
    return render(
        "training.html",
        title=f"Training job {state.job.name}",
        facts=[(name, value) for name, value in _facts(state, now) if value],
        charts=[ChartFigure(chart) for chart in _charts(state.lines)],
    )


def _facts(state: JobState, now: datetime) -> list[tuple[str, str]]:
    job, last = state.job, state.last
    return [
        ("status", f"{job.status} ({job.secondary})"),
        ("instance", f"{job.instances} x {job.instance_type}{', managed spot' * job.spot}"),
        ("begun", when(job.created_at)),
        ("billed", f"{elapsed(state.billed_s)} of each instance, {usd(state.usd)}"),
        ("step", "" if last is None else f"{last.step}{f' of {last.steps}' if last.steps else ''}"),
        ("interruptions", str(job.interruptions)),
        ("head", job.artifact or ""),
        ("reason", job.failure_reason or ""),
        ("written", when(now)),
    ]


def _charts(lines: Sequence[TrainerLine]) -> list[LineChart]:
    training = [line for line in lines if line.kind == "training"]
    checked = [line for line in lines if line.kind == "validation"]
    if not training:
        return []
    depths = sorted({depth for line in training for depth in line.depth_accuracies()})[:MOST_DEPTHS]
    losses = [("training", training, _figure("loss")), ("validation", checked, _figure("loss"))]
    by_depth = [(f"token {depth}", training, _figure(f"accuracy_{depth}")) for depth in depths]
    speed = [("tokens/s", training, _figure("tokens_per_second"))]
    drawn = [
        _chart("Loss by step", "loss", losses),
        _chart("Accuracy by step, for each drafted token", "accuracy", by_depth),
        _chart("Tokens a second by step", "tokens a second", speed),
    ]
    return [chart for chart in drawn if chart is not None]


def _figure(name: str) -> Callable[[TrainerLine], float | None]:
    return lambda line: line.figures.get(name)


_Curve = tuple[str, Sequence[TrainerLine], Callable[[TrainerLine], float | None]]


def _chart(title: str, unit: str, curves: Iterable[_Curve]) -> LineChart | None:
    series = []
    for number, (name, lines, figure) in enumerate(curves):
        marks = tuple(
            Mark(float(line.step), value)
            for line in sorted(lines, key=lambda line: line.step)
            if (value := figure(line)) is not None and value == value  # no nan
        )
        if marks:
            series.append(Series(name, _LOOKS[number % len(_LOOKS)], marks))
    if not series:
        return None
    steps = sorted({mark.x for one in series for mark in one.marks})
    return LineChart(
        title=title,
        series=tuple(series),
        x_title="step",
        y_title=unit,
        x_ticks=tuple(_ticks(steps)),
    )


def _ticks(steps: Sequence[float], most: int = 6) -> list[float]:
    """Return some of the steps, the first and the last among them."""
    if len(steps) <= most:
        return list(steps)
    every = (len(steps) - 1) / (most - 1)
    return [steps[round(index * every)] for index in range(most)]
