"""What hosting offers: the plan's instance types, and what one instance was measured to serve. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from peagle_bench.decide.costs import Hosting, exactly
from peagle_bench.load.points import Objective, is_withheld
from peagle_bench.report.costs import faults_of, rate_interval, serving_of
from peagle_bench.report.view import View
from peagle_bench.results.records import ArmRecord, Header, Interval, PointRecord
from peagle_bench.step_times import COMMAND, StepTimes, demand_target
from peagle_sm.core.catalog import ModelEntry, load_catalog
from peagle_sm.core.errors import SpecError
from peagle_sm.core.planning import Plan
from peagle_sm.core.prices import PriceEntry
from peagle_sm.core.served_target import ServedTarget
from peagle_sm.core.spec.hours import DAY_MINUTES, DAYS, parse_hours
from peagle_sm.core.spec.modes import title_of

#: Findings of the plan that say that the endpoint cannot serve the model in this mode.
_IMPOSSIBLE = (
    "flag-versions",
    "mode-conflicts",
    "draft-dropped",
    "other-engine",
    "head-vllm",
    "instance-type",
    "jumpstart-instance",
    "no-gpu",
    "memory",
)


def refuse_impossible(plan: Plan) -> None:
    """Refuse a plan whose image lacks the mode, or whose instance cannot hold the model.

    Raises:
        SpecError: the first such finding.
    """
    for finding in plan.findings:
        if finding.severity == "error" and finding.check in _IMPOSSIBLE:
            raise SpecError(
                finding.message,
                next_step=finding.next_step,
                details={"check": finding.check, "found": plan.draft.mode},
            )


def demand_one_type(plan: Plan, option: str) -> None:
    """Refuse a figure of one instance, given with ``option``, for several instance types.

    Raises:
        SpecError: the plan has several instance types.
    """
    types = list(plan.draft.instance_types)
    if len(types) > 1:
        raise SpecError(
            f"{option} is a figure of one instance type; found {len(types)}: {', '.join(types)}",
            next_step=f"Choose one, such as --instance-type {types[0]}.",
            details={"option": option, "instance_types": types},
        )


def share_on(hours: str | None) -> float:
    """Return the share of the week in which a timetable turns the endpoint on; 1 without one."""
    if hours is None:
        return 1.0
    spans = [span for day in parse_hours(hours).days for span in day]
    return sum(span.end - span.start for span in spans) / (len(DAYS) * DAY_MINUTES)


def price_bounds(price: PriceEntry) -> Interval:
    """Return USD per hour: of EC2's price everything up to the upper bound, which is the value."""
    counted = price.counted_usd_per_hour
    return Interval(counted, price.usd_per_hour, counted) if price.at_most else exactly(counted)


def planned(plan: Plan, usd_per_hour: float | None, serves: float | None) -> tuple[list[Hosting], list[str]]:
    """Return the plan's instance types in its mode, and a note for each one that has no price.

    ``usd_per_hour`` and ``serves`` are the user's own figures of one instance.

    Raises:
        SpecError: none has a price.
    """
    draft, spec = plan.draft, plan.spec
    prices = {name: draft.price(name) for name in draft.instance_types}
    hostings = []
    for name, price in prices.items():
        if usd_per_hour is None and price is None:
            continue
        given = usd_per_hour is not None or price is None
        hostings.append(
            Hosting(
                instance_type=name,
                mode=draft.mode,
                label=title_of(draft.mode),
                usd_per_hour=exactly(usd_per_hour or 0.0) if price is None or given else price_bounds(price),
                price_source=f"{name}: given with --usd-per-hour" if given else str(price),
                serves=None if serves is None else exactly(serves),
                serves_source="" if serves is None else "given with --serves",
                fewest=spec.placement.instance_count,
                on=share_on(spec.hours),
            )
        )
    if not hostings:
        names = ", ".join(prices)
        raise SpecError(
            f"no price known for {names} in {draft.region}",
            next_step="Give the price of one instance with --usd-per-hour, or another --region.",
            details={"instance_types": list(prices), "region": draft.region},
        )
    unpriced = [name for name, price in prices.items() if usd_per_hour is None and price is None]
    return hostings, [f"no price known for {name} in {draft.region}: left out" for name in unpriced]


@dataclass(frozen=True)
class _Load:
    """What one instance served at a load, why that does not count, and the goals that it misses."""

    label: str
    serves: Interval
    faults: tuple[str, ...]
    misses: tuple[str, ...]


def measured(
    hostings: Sequence[Hosting], views: Iterable[View], objective: Objective | None
) -> tuple[list[Hosting], list[str]]:
    """Return the hostings with what was measured: one for each mode on each measured instance type.

    A mode serves its highest measured rate among the loads that meet the goals and failed no requests. A
    measured instance type that is not planned is left out, and so is a load whose rate is not known: the
    notes say so.

    Raises:
        SpecError: no load of the planned instance types has a rate.
    """
    by_type = {hosting.instance_type: hosting for hosting in hostings}
    loads: dict[str, dict[str, list[_Load]]] = {}
    notes, unusable = [], []
    for view in views:
        for arm in view.arms:
            kind = arm.instance_type
            if arm.control:
                continue
            if kind is None and len(by_type) == 1:  # a server by its URL: it is what the user means
                kind = next(iter(by_type))
            if kind not in by_type:
                notes.append(f"{arm.name} was measured on {kind or 'an unknown instance type'}: left out")
                continue
            for point in (*view.points, *view.withheld):
                if point.arm != arm.name:
                    continue
                serves, unknown = _serves(arm, point, view)
                if serves is None:
                    unusable.append(f"{arm.name} at {point.load.label}: left out: {unknown}")
                    continue
                misses = tuple(objective.misses(point)) if objective else ()
                rows = loads.setdefault(kind, {}).setdefault(arm.mode, [])
                rows.append(_Load(point.load.label, serves, faults_of(point), misses))
    if unusable and not loads:
        raise SpecError(
            f"--measured: no load has a rate of one instance: {unusable[0]}",
            next_step="Measure again with `peagle-sm bench`, or give what one instance serves with --serves.",
            details={"left_out": unusable},
        )
    notes += unusable
    result = []
    for hosting in hostings:
        modes = loads.get(hosting.instance_type)
        result += [hosting] if not modes else [_best(hosting, mode, rows) for mode, rows in modes.items()]
    return result, list(dict.fromkeys(notes))


def _best(hosting: Hosting, mode: str, loads: Sequence[_Load]) -> Hosting:
    """Return a mode at its highest load that counts; without one at its highest that nearly does."""
    best = max(loads, key=lambda load: (not load.faults, not load.misses, load.serves.value))
    return replace(
        hosting,
        mode=mode,
        serves=best.serves,
        serves_source=f"measured at {best.label}",
        misses=best.misses,
        faults=best.faults,
        label=title_of(mode),
    )


def _serves(arm: ArmRecord, point: PointRecord, view: View) -> tuple[Interval | None, str]:
    """Return output tokens/s of one instance at a point, with the interval over its requests; or why not."""
    if is_withheld(point.client):
        return None, str(point.client.reason)
    if not point.otps > 0:
        return None, "no answer has tokens"
    serving, unknown = serving_of(arm, point, None, load_catalog())
    if unknown:
        return None, unknown
    rate = serving.otps * serving.copies_per_instance
    interval = rate_interval(view.requests_of(point))
    if interval is None:
        return exactly(rate), ""
    return Interval(rate, rate * interval.low / interval.value, rate * interval.high / interval.value), ""


def refuse_other_figures(views: Iterable[View], model: ModelEntry, name: str) -> None:
    """Refuse results of the small stand-in weights, of a CPU, or of another model of the catalogue.

    Older files do not name their model.

    Raises:
        SpecError: the files are of stand-in weights or a CPU, and the model is not; or of another model.
    """
    ids = {
        entry.hub_id.rpartition("/")[2]: key for key, entry in load_catalog().models.items() if entry.hub_id
    }
    for view in views:
        measured = {ids[target] for header in view.headers for target in _targets(header) if target in ids}
        for other in (view.figures_of, *sorted(measured - {name})):
            refuse_figures_of(other, model, name, "--measured", "bench")


def refuse_figures_of(measured: str | None, model: ModelEntry, name: str, option: str, command: str) -> None:
    """Refuse figures of another target: stand-in weights, a model on a CPU, or one of the catalogue.

    Figures of a CPU are those of a model whose own image is for CPUs. ``option`` gave the file, and
    ``command`` writes such files.

    Raises:
        SpecError: as said.
    """
    title = (model.hub_id or name).rpartition("/")[2]
    own = ServedTarget(title, model.stand_in, on_cpu=model.image == "vllm-cpu").figures_of
    if measured not in (None, own):
        raise SpecError(
            f"{option}: found figures of {measured}; they say nothing about {name}",
            next_step=f"Measure {name} on its instance with `peagle-sm {command}`.",
            details={"found": measured, "model": name},
        )


def refuse_other_step_times(times: StepTimes, model: ModelEntry, name: str) -> None:
    """Refuse step times of another model, of the small stand-in weights, or of a CPU.

    Raises:
        SpecError: as said.
    """
    demand_target(times, name)
    refuse_figures_of(times.header.label, model, name, "--step-times", COMMAND)


def _targets(header: Header) -> Iterator[str]:
    """Yield the names of the models that a file says that it measured."""
    provenance = header.provenance
    for origin in (provenance.get("endpoint"), *(provenance.get("endpoints") or {}).values()):
        if isinstance(origin, Mapping) and isinstance(origin.get("target"), str):
            yield origin["target"]
