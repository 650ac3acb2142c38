"""What a reader of a bench must know beside its figures, whichever client measured. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from peagle_sm.measure.acceptance import is_ineffective
from peagle_sm.measure.records import ArmRecord, PointRecord, RequestRecord
from peagle_sm.measure.withholding import doubt_lines, withheld_lines


def notes_of(points: Sequence[PointRecord], requests: Sequence[RequestRecord], arm: ArmRecord) -> list[str]:
    """What is withheld or in doubt, what failed, and drafts that show no effect; by load."""
    notes = [*withheld_lines(points), *doubt_lines(points)]
    for point in points:
        if point.errors:
            notes.append(_failed(point, requests))
        notes += _drafting(point, arm)
    return notes


def errors_in_words(point: PointRecord) -> str:
    """``2 x ModelError, 1 x StreamError``."""
    return ", ".join(f"{count} x {name}" for name, count in sorted(point.errors.items())) or "nothing sent"


def _failed(point: PointRecord, requests: Sequence[RequestRecord]) -> str:
    first = next(
        one.error_message
        for one in requests
        if one.load == point.load and one.phase == "measured" and one.error in point.errors
    )
    return (
        f"{point.load.label}: {sum(point.errors.values())} of {point.requests} requests failed"
        f" ({errors_in_words(point)}); the first: {first}"
    )


def _drafting(point: PointRecord, arm: ArmRecord) -> list[str]:
    found = point.acceptance
    if arm.mode in ("eagle3", "p-eagle") and found is None:
        return [f"{point.load.label}: no acceptance: neither the answers nor the engine tell of any draft"]
    if arm.mode == "p-eagle" and found is not None and is_ineffective(found):
        return [
            f"{point.load.label}: parallel drafting ineffective: the second draft token hardly ever survives"
        ]
    return []
