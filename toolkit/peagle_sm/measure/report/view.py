"""One or several results files as the report shows them, and the cautions to read before any figure. Pure.

A caution says that the figures are of a small stand-in model, are made up, or belong to wrong answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from peagle_sm.core.errors import SpecError
from peagle_sm.measure.report import formatting
from peagle_sm.measure.report.formatting import Look
from peagle_sm.measure.results.records import (
    ArmRecord,
    CheckRecord,
    ComparisonRecord,
    FitRecord,
    Header,
    Load,
    PointRecord,
    RequestRecord,
)
from peagle_sm.measure.results.result_file import Results

STAND_IN = "small stand-in weights"


@dataclass(frozen=True)
class View:
    """What all files say together; arms in the order none, eagle3, p-eagle, controls last.

    ``withheld`` are points at which the client was the bottleneck, and what was compared there: their figures
    are shown nowhere (`load.points`). ``files`` are the results by what to call them, ``interrupted`` the
    runs that have less than they were asked for, ``empty`` the files of which nothing is shown.
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
    withheld_comparisons: tuple[ComparisonRecord, ...] = ()
    files: tuple[tuple[str, Results], ...] = ()
    interrupted: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()

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
        marks = ["synthetic data"] if self.synthetic else []
        return ", ".join([*marks, STAND_IN] if self.stand_in else marks) or None

    def run_of(self, record: PointRecord | ComparisonRecord | FitRecord | CheckRecord) -> str:
        """What the file that a record stands in is called; empty where it is in none."""
        for name, each in self.files:
            parts = (each.points, each.comparisons, each.fits, each.checks)
            if any(record is one for part in parts for one in part):
                return name
        return ""

    def requests_of(self, point: PointRecord) -> list[RequestRecord]:
        """The measured requests of a point, from the file that holds it."""
        for _, each in self.files:
            if point in each.points:
                return [
                    request
                    for request in each.requests
                    if request.arm == point.arm and request.load == point.load and request.phase == "measured"
                ]
        return []

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


STAND_IN_CAUTION = (
    "These figures compare the modes on the machine that ran them; they say nothing about a large model on a"
    " GPU."
)


@dataclass(frozen=True)
class Caution:
    """``kind`` chooses the colour; ``name`` is stressed."""

    kind: Literal["wrong", "not-real"]
    name: str
    text: str


def cautions(view: View) -> tuple[Caution, ...]:
    """All that hold, the gravest first."""
    found = []
    failed = list(dict.fromkeys(check.name for check in view.checks if check.passed is False))
    if failed:
        text = f"{', '.join(failed)} failed. A speed-up with other answers is none."
        found.append(Caution("wrong", "Answers are not the target's own", text))
    for row in view.comparisons:
        if row.control and row.ratio.shown:
            text = (
                f"{view.label(row.slower)} beside itself came out as {formatting.with_span(row.ratio)} at"
                f" {row.load.label}, which leaves out 1. By chance that happens in 1 run of 20; measure again"
                " before the other ratios are believed."
            )
            found.append(Caution("wrong", "The control failed", text))
    if view.synthetic:
        found.append(Caution("not-real", "Synthetic data", f"{view.synthetic}."))
    if view.stand_in:
        found.append(Caution("not-real", "Small stand-in weights", STAND_IN_CAUTION))
    return tuple(found)
