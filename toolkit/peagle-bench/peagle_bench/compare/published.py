"""A published table as a comparison: its set-up, and its figures beside the measured ones. Pure.

`specs_for` gives the modes' specs at the published scale. On the stand-ins everything is smaller, and the
table's engine settings, which are for a GPU, are left out.

`line_up` puts each figure of a table beside what a comparison measured, as a ratio with its 95% confidence
interval. `differences` lists what is not as published. With one that is known, a figure's result is "other
set-up", never "differs".
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from peagle_bench.compare.arms import specs_of
from peagle_bench.compare.confidence_intervals import ratio
from peagle_bench.compare.measurement import START_UP_MINUTES, Setup, minutes_of
from peagle_bench.load import WorkItem
from peagle_bench.load.points import is_withheld, separate_withheld
from peagle_bench.published import Figure, PublishedTable
from peagle_bench.results.records import ArmRecord, Interval, Load, PointRecord, RequestRecord
from peagle_bench.results.result_file import Results
from peagle_sm.core.catalog import Catalog
from peagle_sm.core.spec.endpoint_spec import EndpointSpec, Mode

STAND_IN_MODEL = "tiny-code"
#: On the stand-ins, so that the whole path takes a minute or two.
LOCAL_PROMPTS, LOCAL_TOKENS, LOCAL_BLOCKS, LOCAL_CONCURRENCY = 8, 64, 2, 2
BLOCKS = 6
_HIGHEST_LIFETIME_H = 168.0


@dataclass(frozen=True)
class Scale:
    """Size of a measurement; ``prompts`` None is all of the workload."""

    prompts: int | None
    max_tokens: int
    concurrency: tuple[int, ...]
    blocks: int

    def setup(self, items: Sequence[WorkItem]) -> Setup:
        """Return the setup of a comparison, checked.

        Raises:
            SpecError: too few prompts for an interval.
        """
        found = Setup(
            items=tuple(items),
            loads=tuple(Load("closed", concurrency=number) for number in self.concurrency),
            blocks=self.blocks,
            repeat=True,  # a published table sends few prompts at a high concurrency
            temperature=0.0,
        )
        found.check()
        return found


def scale_of(
    table: PublishedTable,
    *,
    local: bool,
    prompts: int | None = None,
    max_tokens: int | None = None,
    concurrency: Sequence[int] | None = None,
) -> Scale:
    """Return the table's own size, or a small one for the stand-ins; what is given replaces either."""
    wanted = table.workload
    few = tuple(each for each in table.concurrency if each <= LOCAL_CONCURRENCY) or table.concurrency[:1]
    return Scale(
        prompts or (LOCAL_PROMPTS if local else wanted.prompts),
        max_tokens or (LOCAL_TOKENS if local else wanted.max_tokens),
        tuple(concurrency or (few if local else table.concurrency)),
        LOCAL_BLOCKS if local else BLOCKS,
    )


def staging(table: PublishedTable, modes: Sequence[Mode], artifacts: str, catalog: Catalog) -> dict[str, str]:
    """Return the S3 prefixes that a table needs, with the command that fills each.

    The target has the P-EAGLE head below it, as `heads stage` puts it; the EAGLE-3 head has its own prefix.
    """
    heads = table.used_heads(catalog)
    target = f"{artifacts}{table.model}/"
    first = f"peagle-sm heads stage {table.model} --head {heads['p-eagle']} --to {target}"
    found = {target: first}
    for mode, uri in head_prefixes(table, modes, artifacts, catalog).items():
        own = f"peagle-sm heads stage {heads[mode]} --to {uri}"
        found[uri] = first if uri.startswith(target) else own
    return found


def head_prefixes(
    table: PublishedTable, modes: Sequence[Mode], artifacts: str, catalog: Catalog
) -> dict[Mode, str]:
    """Return the S3 prefix of each mode's head."""
    heads = table.used_heads(catalog)
    places: dict[Mode, str] = {
        "p-eagle": f"{artifacts}{table.model}/p-eagle/",
        "eagle3": f"{artifacts}{heads.get('eagle3')}/",
    }
    return {mode: places[mode] for mode in modes if mode in heads}


def stand_in_specs(
    name: str, modes: Sequence[Mode], ks: Mapping[Mode, int], catalog: Catalog, *, deployments: int
) -> list[dict[Mode, EndpointSpec]]:
    """Return the modes' specs on the stand-ins, for each deployment; K is at most the trained depth."""
    base = EndpointSpec(name=name, model=STAND_IN_MODEL, speculation={"mode": "none"})
    depths: dict[str, int | None] = {
        head.method: head.trained_depth for head in catalog.heads_for(STAND_IN_MODEL).values()
    }
    used = {str(mode): min(k, depths.get(mode) or k) for mode, k in ks.items()}
    return [
        specs_of(base, modes, ks=used, heads={}, deployment=number) for number in range(1, deployments + 1)
    ]


def specs_for(
    name: str,
    table: PublishedTable,
    modes: Sequence[Mode],
    ks: Mapping[Mode, int],
    catalog: Catalog,
    *,
    artifacts: str,
    minutes: float,
    deployments: int = 1,
    instance_type: str | None = None,
    image: str | None = None,
) -> list[dict[Mode, EndpointSpec]]:
    """Return the modes' specs with the table's flags, for each deployment.

    Args:
        name: stem of the endpoints' names.
        table: the published table.
        modes: its modes to measure.
        ks: num_speculative_tokens of each mode that speculates.
        catalog: the catalogue.
        artifacts: S3 prefix, filled as `staging` says.
        minutes: estimate of one deployment, for the lifetime.
        deployments: their number.
        instance_type: None is the table's.
        image: None is the catalogue's.

    Raises:
        SpecError: a field is invalid, for example an S3 prefix.
    """
    fields: dict[str, Any] = {
        "name": name,
        "model": table.model,
        "source": "container",
        "speculation": {"mode": "none"},
        "serving": table.serving.model_dump(exclude_unset=True),
        "placement": {"instance_types": [instance_type or table.instance_type]},
        "lifecycle": {"max_lifetime_hours": lifetime_hours(minutes)},
        "model_uri": f"{artifacts}{table.model}/",
    }
    base = EndpointSpec(**fields, **({"image": image} if image else {}))
    heads = {str(mode): head for mode, head in table.used_heads(catalog).items() if mode in modes}
    uris = {str(mode): uri for mode, uri in head_prefixes(table, modes, artifacts, catalog).items()}
    used = {str(mode): k for mode, k in ks.items()}
    return [
        specs_of(base, modes, ks=used, heads=heads, head_uris=uris, deployment=number)
        for number in range(1, deployments + 1)
    ]


def minutes_of_deployment(setup: Setup, arms: int) -> float:
    """Estimate one deployment on AWS in minutes; ``arms`` includes the control."""
    return START_UP_MINUTES + minutes_of(setup, arms)


def lifetime_hours(minutes: float) -> float:
    """Return a lifetime for a measurement of ``minutes``: 1.5 times as long and an hour, at least 2 hours."""
    return min(_HIGHEST_LIFETIME_H, max(2.0, math.ceil(1.5 * minutes / 60) + 1.0))


NOT_STATED = "not stated"
Result = Literal["agrees", "differs", "not decided", "other set-up", "not measured"]
"""agrees: the published figure is in the measured interval. differs: it is not, with the published set-up.
not decided: it is not, and the source does not state the whole set-up; or there is no interval."""


@dataclass(frozen=True)
class Difference:
    """One part of the set-up that is not as published, or that the source does not state."""

    what: str
    published: str
    measured: str

    @property
    def unstated(self) -> bool:
        """Whether the source does not state it, so that it may be equal."""
        return self.published == NOT_STATED


@dataclass(frozen=True)
class LinedUp:
    """A published figure beside the measured one.

    ``reason`` is why it was not measured, or what is different in this figure alone.
    """

    figure: Figure
    result: Result
    measured: float | None = None
    interval: Interval | None = None
    load: str | None = None
    reason: str | None = None

    @property
    def against(self) -> Interval | None:
        """Measured over published; without an interval its ends are the value itself."""
        if self.measured is None:
            return None
        found = self.interval or Interval(self.measured, self.measured, self.measured)
        value = self.figure.value
        return Interval(found.value / value, found.low / value, found.high / value)


@dataclass(frozen=True)
class Reproduction:
    """The set-up's differences and all figures of a table, lined up with one results file."""

    differences: tuple[Difference, ...]
    rows: tuple[LinedUp, ...]


def line_up(table: PublishedTable, results: Results, catalog: Catalog) -> Reproduction:
    """Put each figure of a table beside the measured one of a results file of `reproduce`."""
    found = tuple(differences(table, results, catalog))
    return Reproduction(found, tuple(_row(figure, results, found) for figure in table.rows()))


def differences(table: PublishedTable, results: Results, catalog: Catalog) -> Iterator[Difference]:
    """Yield what of the set-up is not as published, and what the source does not state."""
    config = results.header.config
    specs: Mapping[str, Any] = config.get("specs", {})
    models = {str(spec.get("model")) for spec in specs.values()}
    if models != {table.model}:
        yield Difference("model", table.model, ", ".join(sorted(models)) or "unknown")
        yield Difference("precision", table.precision, "that of the other model")
    yield from _hardware(table, results, catalog)
    yield from _engine(table, results, catalog)
    yield from _prompts(table, config)
    for mode, head in table.heads.items():
        used = specs.get(mode, {}).get("speculation", {}).get("draft_head")
        if mode in specs and used != head:
            yield Difference(f"head of {mode}", head or NOT_STATED, used or "the model's default")
    if models == {table.model}:
        yield from _flags(table, specs)
    for text in table.unstated:
        yield Difference(text, NOT_STATED, "")


def _hardware(table: PublishedTable, results: Results, catalog: Catalog) -> Iterator[Difference]:
    types = sorted({arm.instance_type or "unknown" for arm in _arms(results)})
    gpus = {catalog.instances[each].gpu if each in catalog.instances else None for each in types}
    if results.header.stand_in_weights:
        yield Difference("hardware", table.gpu or NOT_STATED, "the CPU of this machine")
    elif table.gpu is None or gpus != {table.gpu}:
        named = ", ".join(f"{each} ({_gpu(each, catalog)})" for each in types)
        yield Difference("hardware", table.gpu or NOT_STATED, named)


def _gpu(instance_type: str, catalog: Catalog) -> str:
    entry = catalog.instances.get(instance_type)
    return entry.gpu if entry and entry.gpu else "no known GPU"


def _engine(table: PublishedTable, results: Results, catalog: Catalog) -> Iterator[Difference]:
    origins = results.header.provenance.get("endpoints", {}).values()
    images = {str(origin.get("image")) for origin in origins if origin.get("image")}
    found = {catalog.images.describe(image).version_text for image in images} or {"unknown"}
    if found != {table.engine}:
        yield Difference("vLLM", table.engine or NOT_STATED, ", ".join(sorted(found)))


def _prompts(table: PublishedTable, config: Mapping[str, Any]) -> Iterator[Difference]:
    workload, wanted = config.get("workload", {}), table.workload
    measured = workload.get("prompts")
    if wanted.prompts is not None and measured != wanted.prompts:
        yield Difference("prompts", f"{wanted.prompts}", f"{measured}")
    elif wanted.prompts is None and measured != workload.get("available"):
        yield Difference("prompts", "all", f"{measured} of {workload.get('available')}")
    if config.get("max_tokens") != wanted.max_tokens:
        yield Difference(
            "output tokens", f"at most {wanted.max_tokens}", f"at most {config.get('max_tokens')}"
        )
    for note in workload.get("notes", ()):
        yield Difference("prompts", "the public ones", str(note))


def _flags(table: PublishedTable, specs: Mapping[str, Any]) -> Iterator[Difference]:
    wanted = table.serving.model_dump(mode="json", exclude_unset=True)
    for mode, spec in specs.items():
        used = spec.get("serving", {})
        other = sorted(key for key in {*wanted, *used} if wanted.get(key) != used.get(key))
        if other:
            yield Difference(f"flags of {mode}", "as in the table", ", ".join(other))


def _arms(results: Results) -> list[ArmRecord]:
    """Return the arms of the first deployment, without the A/A control."""
    first: dict[str, ArmRecord] = {}
    for arm in results.arms:
        if not arm.control:
            first.setdefault(arm.mode, arm)
    return list(first.values())


def _mode(arm: ArmRecord) -> Mode:
    return arm.mode if arm.mode != "unknown" else "none"


def _row(figure: Figure, results: Results, found_differences: Sequence[Difference]) -> LinedUp:
    missing = _not_measured(figure, results)
    if missing is not None:
        return LinedUp(figure, "not measured", reason=missing)
    found = {"ratio": _ratio, "otps": _otps, "acceptance": _acceptance}[figure.kind](figure, results)
    if isinstance(found, str):
        return LinedUp(figure, "not measured", reason=found)
    value, interval, load = found
    other_k = _other_k(figure, results)
    if other_k or any(not each.unstated for each in found_differences):
        return LinedUp(figure, "other set-up", value, interval, load, other_k)
    if interval is None:
        return LinedUp(figure, "not decided", value, None, load, "no interval at this concurrency")
    half = figure.rounding
    if interval.low <= figure.value + half and interval.high >= figure.value - half:
        return LinedUp(figure, "agrees", value, interval, load)
    return LinedUp(figure, "not decided" if found_differences else "differs", value, interval, load)


def _other_k(figure: Figure, results: Results) -> str | None:
    used = {_mode(arm): arm.num_speculative_tokens for arm in _arms(results)}
    other = [f"{mode} ran with K={used[mode]}, not {k}" for mode, k in figure.k.items() if used[mode] != k]
    return ", ".join(other) or None


_Found = tuple[float, Interval | None, str] | str


def _not_measured(figure: Figure, results: Results) -> str | None:
    arms = {_mode(arm): arm for arm in _arms(results)}
    for mode, k in figure.k.items():
        if mode not in arms:
            return f"mode {mode} was not measured"
        used = arms[mode].num_speculative_tokens
        if figure.kind == "acceptance" and used != k:
            return f"{mode} ran with K={used}; add --k {mode}={k}"
    measured = {point.load.concurrency for point in results.points}
    if figure.concurrency is not None and figure.concurrency not in measured:
        return f"c={figure.concurrency} was not measured"
    return None


def _ratio(figure: Figure, results: Results) -> _Found:
    shown = separate_withheld(results.points, results.comparisons)
    for one in shown.comparisons:
        names = (one.faster, one.slower)
        if one.control or one.load.concurrency != figure.concurrency:
            continue
        if names == (figure.mode, figure.over):
            return one.ratio.value, one.ratio, one.load.label
    withheld = [one for one in shown.withheld_comparisons if one.load.concurrency == figure.concurrency]
    return "withheld: the client did not keep up" if withheld else "too little data for a ratio"


def _otps(figure: Figure, results: Results) -> _Found:
    points = [
        point for point in _points(figure.mode, results) if point.load.concurrency == figure.concurrency
    ]
    if not points:
        return "withheld: the client did not keep up"
    label = points[0].load.label
    if figure.concurrency == 1:
        tables = _tables(
            figure.mode, 1, results, lambda each: (each.output_tokens, each.done_s - each.sent_s)
        )
        found = _interval(tables)
        if found is not None:
            return found.value, found, label
    return math.fsum(point.otps for point in points) / len(points), None, label


def _acceptance(figure: Figure, results: Results) -> _Found:
    names = {arm.name for arm in results.arms if arm.mode == figure.mode and not arm.control}
    # Also of points that are withheld: how many tokens are accepted does not depend on the client.
    loads = sorted({point.load.concurrency or 1 for point in results.points if point.arm in names})
    for concurrency in loads:
        tables = _tables(figure.mode, concurrency, results, _steps)
        found = _interval(tables)
        if found is not None:
            return found.value, found, f"c={concurrency}"
    return "the answers do not report drafts"


def _steps(record: RequestRecord) -> tuple[float | None, float]:
    if record.drafts is None or record.accepted is None:
        return None, 0.0
    return record.drafts + record.accepted, record.drafts


def _points(mode: Mode, results: Results) -> list[PointRecord]:
    """Return the mode's points of all deployments, without the A/A control and withheld ones."""
    names = {arm.name for arm in results.arms if arm.mode == mode and not arm.control}
    return [point for point in results.points if point.arm in names and not is_withheld(point.client)]


def _tables(
    mode: Mode, concurrency: int, results: Results, columns: Any
) -> list[dict[str, tuple[float, float]]]:
    """Sum two columns over each prompt, in one table for each deployment; failed requests are left out."""
    names = [arm.name for arm in results.arms if arm.mode == mode and not arm.control]
    tables: list[dict[str, tuple[float, float]]] = []
    for name in dict.fromkeys(names):
        units: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        for record in results.requests:
            measured = record.phase == "measured" and record.error is None
            if record.arm != name or not measured or record.load.concurrency != concurrency:
                continue
            first, second = columns(record)
            if first:
                unit = units[record.conversation or record.prompt_id.partition("#")[0]]
                unit[0] += first
                unit[1] += second
        if units:
            tables.append({key: (unit[0], unit[1]) for key, unit in units.items()})
    return tables


def _interval(tables: Sequence[Mapping[str, tuple[float, float]]]) -> Interval | None:
    try:
        return ratio(tables, (1, -1)) if tables else None
    except ValueError:  # fewer than two prompts
        return None
