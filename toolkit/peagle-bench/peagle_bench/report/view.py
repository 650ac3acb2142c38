"""View of one or several results files for the report, and its cautions. Pure.

A caution warns that the figures are of a small stand-in model, are synthetic, or belong to wrong answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from peagle_bench.report import formatting
from peagle_bench.report.formatting import Look
from peagle_bench.results.records import (
    ArmRecord,
    CheckRecord,
    ComparisonRecord,
    FitRecord,
    Header,
    Load,
    PackRecord,
    PointRecord,
    RequestRecord,
)
from peagle_bench.results.result_file import Results
from peagle_bench.step_times import StepTimes


@dataclass(frozen=True)
class View:
    """Merged content of all files; arms in the order of the modes, controls last.

    ``withheld`` are points at which the client was the bottleneck, with ``withheld_comparisons``; their
    figures are never shown (`load.points`). ``files`` are pairs of a name and results, ``interrupted``
    describes incomplete runs, ``empty`` the files without any figure.
    """

    headers: tuple[Header, ...]
    arms: tuple[ArmRecord, ...]
    labels: Mapping[str, str]
    looks: Mapping[str, Look]
    points: tuple[PointRecord, ...]
    comparisons: tuple[ComparisonRecord, ...]
    fits: tuple[FitRecord, ...]
    checks: tuple[CheckRecord, ...]
    warnings: tuple[str, ...]
    packs: tuple[PackRecord, ...] = ()
    withheld: tuple[PointRecord, ...] = ()
    withheld_comparisons: tuple[ComparisonRecord, ...] = ()
    files: tuple[tuple[str, Results], ...] = ()
    interrupted: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()
    step_times: tuple[StepTimes, ...] = ()

    @property
    def figures_of(self) -> str | None:
        """What the figures are of, if they say nothing about a GPU."""
        return self.headers[0].label

    @property
    def synthetic(self) -> str | None:
        """Why the figures are synthetic, or None if they were measured."""
        reasons = [header.provenance.get("synthetic") for header in self.headers]
        return next((str(text) for text in reasons if text), None)

    @property
    def watermark(self) -> str | None:
        """Warning on every chart if the figures are not a real model's."""
        marks = ["synthetic data"] if self.synthetic else []
        return ", ".join([*marks, self.figures_of] if self.figures_of else marks) or None

    def requests_of(self, point: PointRecord) -> list[RequestRecord]:
        """Return the measured requests of a point."""
        for _, each in self.files:
            if point in each.points:
                return [
                    request
                    for request in each.requests
                    if request.arm == point.arm and request.load == point.load and request.phase == "measured"
                ]
        return []

    def arm(self, name: str) -> ArmRecord:
        """Return the arm of that name; one of unknown mode if the files do not describe it."""
        arm_of_name = next((arm for arm in self.arms if arm.name == name), None)
        return arm_of_name or ArmRecord(name, "unknown", None, "")

    def label(self, name: str) -> str:
        """Return an arm's label in the report."""
        return self.labels.get(name, name)

    def look(self, name: str) -> Look:
        """Return an arm's colour and marker."""
        return self.looks.get(name) or Look("grey", "diamond")

    def loads(self, kind: str | None = None) -> tuple[Load, ...]:
        """Return the measured loads of a kind, lowest first; without ``kind`` the closed, then the open."""
        measured = {point.load for point in self.points if kind in {None, point.load.kind}}
        return tuple(sorted(measured, key=lambda load: (load.kind, load_value(load))))

    def measured(self, arm: str, load: Load) -> list[PointRecord]:
        """Return the points of an arm under a load; several if it was measured several times."""
        return [point for point in self.points if point.arm == arm and point.load == load]

    def measured_by_load(self) -> Iterator[PointRecord]:
        """Return every point: by load as `loads` sorts them, then by arm."""
        for load in self.loads():
            for arm in self.arms:
                yield from self.measured(arm.name, load)

    def setting(self, name: str) -> Any:
        """Return a setting of the runs if all files that have it agree; else None."""
        values = [header.config[name] for header in self.headers if header.config.get(name) is not None]
        return values[0] if values and all(value == values[0] for value in values) else None


def load_value(load: Load) -> float:
    """Return the load as a number: its concurrency or its rate."""
    return float((load.concurrency if load.kind == "closed" else load.rate_per_s) or 0)


CPU_CAUTION = (
    "These figures compare the modes on the machine that ran them. They do not apply to a large model on a"
    " GPU."
)


@dataclass(frozen=True)
class Caution:
    """Warning before all figures; ``kind`` determines the colour, ``name`` is emphasised."""

    kind: Literal["wrong", "not-real"]
    name: str
    text: str


def cautions(view: View) -> tuple[Caution, ...]:
    """List the cautions that apply, most serious first."""
    listed = []
    failed = list(dict.fromkeys(check.name for check in view.checks if check.passed is False))
    if failed:
        text = f"{', '.join(failed)} failed. A speed-up with different answers does not count."
        listed.append(Caution("wrong", "Answers are not the target's own", text))
    for row in view.comparisons:
        if row.control and row.ratio.shown:
            text = (
                f"{view.label(row.slower)} compared with itself gave {formatting.with_span(row.ratio)} at"
                f" {row.load.label}, which excludes 1. By chance this happens in 1 of 20 runs; measure again"
                " before you trust the other ratios."
            )
            listed.append(Caution("wrong", "The A/A control failed", text))
    if view.synthetic:
        listed.append(Caution("not-real", "Synthetic data", f"{view.synthetic}."))
    if view.figures_of:
        name = view.figures_of[0].upper() + view.figures_of[1:]
        listed.append(Caution("not-real", name, CPU_CAUTION))
    return tuple(listed)
