"""The record of a comparison: its arms by mode, the file that a team keeps, what makes two runs comparable.

A record is a results file of `compare`. `slim` leaves out what only a report needs, so that it is small
enough for a repository; it has digests of answers, and no text. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from peagle_bench.compare.analysis import CONTROL
from peagle_bench.results.records import ArmRecord, Header, Record
from peagle_bench.results.result_file import Results, records_of
from peagle_sm.core.errors import SpecError

BASELINE = "none"  #: the mode that every other mode's speed is divided by

Change = Literal["k", "engine", "instance"]
CHANGES: tuple[Change, ...] = get_args(Change)
"""Differences from the record that may be what a run tests (``--changed``)."""


@dataclass(frozen=True)
class Side:
    """One mode of a run: its arm in each deployment, and its A/A controls."""

    mode: str
    arms: tuple[ArmRecord, ...]
    controls: tuple[str, ...] = ()

    def same_endpoint(self, arm: ArmRecord) -> list[str]:
        """Return the names of an arm and of its A/A control, if it has one."""
        return [arm.name, *([arm.name + CONTROL] if arm.name + CONTROL in self.controls else [])]


def sides_of(results: Results) -> dict[str, Side]:
    """Group the arms of a comparison by mode; the arms of each deployment are in the same order.

    Raises:
        SpecError: the arms' modes are not known, or not different, or none of them is `BASELINE`.
    """
    arms = [arm for arm in results.arms if not arm.control]
    count = len(results.header.config.get("modes") or results.header.config.get("arms") or arms)
    by_place = [tuple(arms[place::count]) for place in range(count)]
    modes = [group[0].mode for group in by_place if group]
    refuse_modes(modes)
    controls = tuple(arm.name for arm in results.arms if arm.control and arm.mode == BASELINE)
    return {
        group[0].mode: Side(group[0].mode, group, controls if group[0].mode == BASELINE else ())
        for group in by_place
        if group
    }


def refuse_modes(modes: Sequence[str]) -> None:
    """Refuse arms that cannot be found again in another run, or that lack the baseline.

    Raises:
        SpecError: a mode is unknown or repeated, or none of them is `BASELINE`.
    """
    problem = None
    if "unknown" in modes:
        problem = "the mode of an arm is not known"
    elif len(set(modes)) < len(modes):
        problem = "two arms have the same mode"
    elif BASELINE not in modes:
        problem = f"no arm has mode {BASELINE}, and the speed of each mode is judged as a ratio to it"
    if problem:
        raise SpecError(
            f"found arms of these modes: {', '.join(modes) or '-'}; {problem}.",
            next_step="Give --modes none,MODE,…; or name each endpoint by its mode: none=PLAIN p-eagle=FAST.",
            details={"modes": list(modes)},
        )


@dataclass(frozen=True)
class ArmFacts:
    """What must be the same of a mode in both runs; None is unknown, and not compared."""

    k: int | None = None
    model: str | None = None
    instance: str | None = None
    image: str | None = None  #: tag of the image
    engine: str | None = None  #: version that runs, where the endpoint reports it


@dataclass(frozen=True)
class RunFacts:
    """What must be the same in both runs, as far as it is known; ``arms`` by mode."""

    settings: Mapping[str, Any]
    arms: Mapping[str, ArmFacts] = field(default_factory=dict)


#: Settings in a comparison's header, and their names for a reader.
SETTINGS = {
    "prompts": "number of prompts",
    "max_tokens": "--max-tokens",
    "temperature": "temperature",
    "loads": "loads",
    "blocks": "blocks of time",
    "seed": "seed",
    "requests_sha256": "requests (their prompts, limits or order)",
}


def settings_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in a header's config that must be the same."""
    workload = config.get("workload") or {}
    own = {**config, "prompts": workload.get("prompts"), "temperature": workload.get("temperature")}
    return {name: own.get(name) for name in SETTINGS}


def arm_facts(arm: ArmRecord, origin: Mapping[str, Any]) -> ArmFacts:
    """Return the facts of an endpoint that exists; ``origin`` is its provenance in the results file."""
    instance = None
    if arm.instance_type is not None:
        instance = f"{arm.instance_count} x {arm.instance_type}"
    image, engine = origin.get("image"), origin.get("engine") or {}
    return ArmFacts(
        k=arm.num_speculative_tokens,
        model=origin.get("target") or origin.get("model"),
        instance=instance,
        image=str(image).rpartition(":")[2] if image else None,
        engine=engine.get("engine_version"),
    )


def facts_of(results: Results) -> RunFacts:
    """Return the facts of a complete run.

    Raises:
        SpecError: as `sides_of`.
    """
    header: Header = results.header
    origins = header.provenance.get("endpoints") or {}
    arms = {
        mode: arm_facts(side.arms[0], origins.get(side.arms[0].name) or {})
        for mode, side in sides_of(results).items()
    }
    return RunFacts(settings_of(header.config), arms)


def differences(record: RunFacts, run: RunFacts, changed: Collection[str] = ()) -> list[str]:
    """List what keeps two runs from being compared; ``changed`` names differences that are being tested."""
    lines = []
    if record.settings.get("requests_sha256") is None:
        lines.append("the record has no digest of its requests")
    for name, words in SETTINGS.items():
        old, new = record.settings.get(name), run.settings.get(name)
        if old is not None and old != new:
            shown = "differ" if name == "requests_sha256" else f"{_text(old)} in the record, now {_text(new)}"
            lines.append(f"{words}: {shown}")
    if lines[1:] and lines[-1].startswith(SETTINGS["requests_sha256"]):
        lines.pop()  # the other settings explain it
    if run.arms:
        lines += _arm_differences(record.arms, run.arms, changed)
    return lines


def _arm_differences(
    record: Mapping[str, ArmFacts], run: Mapping[str, ArmFacts], changed: Collection[str]
) -> Iterator[str]:
    for mode in sorted({*record} - {*run}):
        yield f"mode {mode}: in the record, but not in this run"
    for mode in sorted({*run} - {*record}):
        yield f"mode {mode}: not in the record"
    parts = (("model", ""), ("k", "k"), ("instance", "instance"), ("image", "engine"), ("engine", "engine"))
    for mode in [mode for mode in run if mode in record]:
        for part, change in parts:
            old, new = getattr(record[mode], part), getattr(run[mode], part)
            if change not in changed and None not in (old, new) and old != new:
                name = "K" if part == "k" else part
                yield f"mode {mode}: {name} {old} in the record, now {new}"


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def refuse_differences(path: str, record: RunFacts, run: RunFacts, changed: Collection[str] = ()) -> None:
    """Refuse a run that cannot be compared with its record.

    Raises:
        SpecError: they differ; the message lists all differences.
    """
    lines = differences(record, run, changed)
    if lines:
        testable = [change for change in CHANGES if differences(record, run, [*changed, change]) != lines]
        step = "Measure as the record was measured, or make a new record: peagle-sm compare … --record FILE."
        if testable:
            step += f" If this difference is what you test, add --changed {','.join([*changed, *testable])}."
        raise SpecError(
            f"{path}: this run cannot be compared with the record: {'; '.join(lines)}",
            next_step=step,
            details={"differences": lines},
        )


def demand_comparison(path: str, results: Results) -> None:
    """Refuse a results file that is no record.

    Raises:
        SpecError: another command wrote it, or its modes cannot be found again in another run.
    """
    command = results.header.command
    if command != "compare" or not results.requests:
        file = f"a results file of {command}" + ("" if results.requests else " without requests")
        raise SpecError(
            f"{path}: found {file}; a record is a results file of compare",
            next_step="Make one: peagle-sm compare --modes none,MODE --record FILE.",
            details={"command": command},
        )
    try:
        sides_of(results)
    except SpecError as error:
        raise SpecError(
            f"{path}: {error.message}", next_step=error.next_step, details=error.details
        ) from None


def slim(results: Results) -> list[Record]:
    """Return the records of a run that a later one is judged by, header first."""
    kept = [
        replace(request, gaps_ms=(), histogram=(), text=None, slices={}, distinct_4_grams=None)
        for request in results.requests
        if request.phase == "measured"
    ]
    small = replace(results, requests=tuple(kept), slices=())
    return list(records_of(small))
