"""One or several results files as what a report shows of them. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from peagle_sm.core.errors import SpecError
from peagle_sm.measure.records import (
    ArmRecord,
    CheckRecord,
    ComparisonRecord,
    FitRecord,
    Header,
    Load,
    PointRecord,
)
from peagle_sm.measure.report.looks import Look, looks_of
from peagle_sm.measure.report.words import MODE_NAMES
from peagle_sm.measure.result_file import Results

_ORDER = {"none": 0, "eagle3": 1, "p-eagle": 2, "unknown": 3}
STAND_IN = "small stand-in weights"
STAND_IN_WORDS = (
    "Small stand-in weights. These figures compare the modes on the machine that ran them; they say nothing"
    " about a large model on a GPU."
)


@dataclass(frozen=True)
class View:
    """What all files say together; arms in the order none, eagle3, p-eagle, controls last.

    ``withheld`` are points at which the client was the bottleneck: their figures are shown nowhere.
    """

    headers: tuple[Header, ...]
    arms: tuple[ArmRecord, ...]
    labels: Mapping[str, str]
    looks: Mapping[str, Look]
    points: tuple[PointRecord, ...]
    comparisons: tuple[ComparisonRecord, ...]
    fits: tuple[FitRecord, ...]
    checks: tuple[CheckRecord, ...]
    requests: int
    warnings: tuple[str, ...]
    withheld: tuple[PointRecord, ...] = ()

    @property
    def stand_in(self) -> bool:
        """Whether small weights stand in for the model."""
        return self.headers[0].stand_in_weights

    @property
    def synthetic(self) -> str | None:
        """Why the figures are made up, or None when they were measured."""
        told = [header.provenance.get("synthetic") for header in self.headers]
        return next((str(text) for text in told if text), None)

    @property
    def watermark(self) -> str | None:
        """What every chart says of its figures when they are not a real model's."""
        if self.synthetic:
            return "synthetic data"
        return STAND_IN if self.stand_in else None

    def arm(self, name: str) -> ArmRecord:
        """The arm of that name; one of unknown mode where the file does not describe it."""
        found = next((arm for arm in self.arms if arm.name == name), None)
        return found or ArmRecord(name, "unknown", None, "")

    def name_of(self, *modes: str) -> str:
        """The name of the first arm of the first of ``modes`` that has one.

        Raises:
            SpecError: no arm has any of these modes.
        """
        for mode in modes:
            for arm in self.arms:
                if arm.mode == mode and not arm.control:
                    return arm.name
        raise SpecError(
            f"no arm of mode {' or '.join(modes)} was measured;"
            f" found: {', '.join(arm.name for arm in self.arms) or 'none'}",
            next_step="name the arms with --head and --baseline",
        )

    def label(self, name: str) -> str:
        """What the report calls an arm."""
        return self.labels.get(name, name)

    def look(self, name: str) -> Look:
        """The colour and marker of an arm."""
        return self.looks.get(name) or Look("grey", "diamond")

    def loads(self, kind: str) -> tuple[Load, ...]:
        """The closed or the open loads at which points were measured, least first."""
        found = {point.load for point in self.points if point.load.kind == kind}
        return tuple(sorted(found, key=load_value))

    def measured(self, arm: str, load: Load) -> list[PointRecord]:
        """The points of an arm under a load: several where it was measured several times."""
        return [point for point in self.points if point.arm == arm and point.load == load]

    def setting(self, name: str) -> Any:
        """A setting of the runs where all files that have it agree, else None."""
        found = [header.config[name] for header in self.headers if header.config.get(name) is not None]
        return found[0] if found and all(value == found[0] for value in found) else None


def load_value(load: Load) -> float:
    """The load as a number: its concurrency or its rate."""
    return float((load.concurrency if load.kind == "closed" else load.rate_per_s) or 0)


def view_of(files: Sequence[Results]) -> View:
    """Put files together; an arm that means something else in another file gets a name of its own.

    Raises:
        SpecError: no file, or stand-in weights beside real ones.
    """
    if not files:
        raise SpecError("there is no results file to report on", next_step="name at least one")
    if len({each.header.stand_in_weights for each in files}) > 1:
        raise SpecError(
            "some of the files were measured on the small stand-in weights and some were not;"
            " one report must not put them side by side",
            next_step="make a report for each",
        )
    merged = _with_own_names(files)
    arms = sorted(
        _first_of_each(arm for each in merged for arm in each.arms),
        key=lambda arm: (arm.control, _ORDER[arm.mode], arm.num_speculative_tokens or 0, arm.name),
    )
    return View(
        headers=tuple(each.header for each in merged),
        arms=tuple(arms),
        labels=_labels(arms),
        looks=looks_of(arms),
        points=tuple(point for each in merged for point in each.points if point.client.trusted),
        withheld=tuple(point for each in merged for point in each.points if not point.client.trusted),
        comparisons=tuple(row for each in merged for row in each.comparisons),
        fits=tuple(fit for each in merged for fit in each.fits),
        checks=tuple(check for each in merged for check in each.checks),
        requests=sum(len(each.requests) for each in merged),
        warnings=tuple(text for each in merged for text in each.warnings),
    )


def _meaning(arm: ArmRecord) -> tuple[object, ...]:
    return arm.mode, arm.num_speculative_tokens, arm.instance_type, arm.control


def _with_own_names(files: Sequence[Results]) -> list[Results]:
    known: dict[str, tuple[object, ...]] = {}
    merged = []
    for number, each in enumerate(files, start=1):
        renamed = {arm.name: f"{arm.name} ({number})" for arm in each.arms if _clashes(arm, known)}
        known.update({renamed.get(arm.name, arm.name): _meaning(arm) for arm in each.arms})
        merged.append(_renamed(each, renamed) if renamed else each)
    return merged


def _clashes(arm: ArmRecord, known: Mapping[str, tuple[object, ...]]) -> bool:
    return arm.name in known and known[arm.name] != _meaning(arm)


def _renamed(each: Results, names: Mapping[str, str]) -> Results:
    def of(name: str) -> str:
        return names.get(name, name)

    return replace(
        each,
        arms=tuple(replace(arm, name=of(arm.name)) for arm in each.arms),
        points=tuple(replace(point, arm=of(point.arm)) for point in each.points),
        comparisons=tuple(
            replace(row, faster=of(row.faster), slower=of(row.slower)) for row in each.comparisons
        ),
        checks=tuple(replace(row, arm=of(row.arm), baseline=of(row.baseline)) for row in each.checks),
    )


def _first_of_each(arms: Iterable[ArmRecord]) -> list[ArmRecord]:
    found: dict[str, ArmRecord] = {}
    for arm in arms:
        found.setdefault(arm.name, arm)
    return list(found.values())


def _labels(arms: Sequence[ArmRecord]) -> dict[str, str]:
    """``P-EAGLE`` where one arm has the mode, with its K where K tells them apart, else its name too."""
    groups: dict[tuple[str, bool], list[ArmRecord]] = defaultdict(list)
    for arm in arms:
        groups[arm.mode, arm.control].append(arm)
    labels = {}
    for (mode, control), group in groups.items():
        depths = {arm.num_speculative_tokens for arm in group}
        for arm in group:
            if mode == "unknown":
                label = arm.name
            elif len(group) == 1:
                label = MODE_NAMES[mode]
            elif len(depths) == len(group):
                label = f"{MODE_NAMES[mode]} K={arm.num_speculative_tokens}"
            else:
                label = f"{MODE_NAMES[mode]} {arm.name}"
            labels[arm.name] = label + (" again (A/A)" if control else "")
    return labels
