"""An HTML page about one training job: what it did and cost, and the curves of loss and accuracy. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from importlib import resources

from peagle_bench.report.charts import LineChart, Mark, Series, both
from peagle_bench.report.formatting import Look
from peagle_learn.core.job_names import TrainerLine
from peagle_learn.train import TrainingState
from peagle_sm.core.display import Safe, join, tag
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


def training_page(state: TrainingState, now: datetime) -> str:
    """Return the page; without lines of the trainer it has the facts alone."""
    name = f"Training job {state.job.name}"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", name),
        tag("style", Safe(_style())),
    )
    charts = [both(chart, f"c{number}") for number, chart in enumerate(_charts(state.lines))]
    none = tag("p", "The trainer has not written a step yet.")
    body = tag("body", tag("main", tag("h1", name), _facts(state, now), *(charts or [none])))
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _style() -> str:
    return resources.files("peagle_bench.report").joinpath("page.css").read_text(encoding="utf-8")


def _facts(state: TrainingState, now: datetime) -> Safe:
    job, last = state.job, state.last
    rows = [
        ("status", f"{job.status} ({job.secondary})"),
        ("instance", f"{job.instances} x {job.instance_type}{', managed spot' * job.spot}"),
        ("begun", when(job.created_at)),
        ("billed", f"{elapsed(state.billed_s)} of each instance, {usd(state.usd)}"),
        ("step", "" if last is None else f"{last.step}{f' of {last.steps}' if last.steps else ''}"),
        ("interruptions", str(state.interruptions)),
        ("head", job.artifact or ""),
        ("reason", job.failure_reason or ""),
        ("written", when(now)),
    ]
    shown = [tag("tr", tag("th", name, scope="row"), tag("td", value)) for name, value in rows if value]
    return tag("table", join(*shown))


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
    last = "; ".join(f"{one.name} {one.marks[-1].y:.4g}" for one in series)
    return LineChart(
        title=title,
        description=f"{title}: at the end {last}",
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
