"""Figures by slice of the traffic: acceptance length, speed-up and identical answers. Pure.

Each dimension splits the prompts on its own, so a prompt is in one slice of every dimension. The baseline's
requests decide in which: then both arms of a slice answered the same prompts, even if one answer is longer.

Many intervals are looked at together. With 30 of them, one or two of the usual 95% intervals would exclude 1
by chance. So each interval gets the confidence 1 - 0.05 / n (Bonferroni), where n is the number of slices
with an interval in the run: all n of them cover their true values together in at least 95% of runs, however
the slices depend on each other. The price is width: with n=30 an interval is 1.6 times as wide as one alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import replace

from peagle_sm.core.request_slices import BUCKETS, DIMENSIONS, slices_of
from peagle_sm.measure.benchmark.acceptance import from_requests
from peagle_sm.measure.compare.analysis import (
    ArmDeployments,
    Measured,
    Pair,
    identical_outputs,
    ratios_of_requests,
)
from peagle_sm.measure.compare.confidence_intervals import CONFIDENCE, ratio
from peagle_sm.measure.results.records import Interval, Load, RequestRecord, SliceRecord

FEWEST_PROMPTS = 8  #: of a slice with an interval; below it the jackknife's spread is itself uncertain

Key = tuple[str, int]  #: a prompt's id and the turn of its conversation
Slice = tuple[str, str]  #: dimension and value


def slices_of_pairs(
    parts: Sequence[tuple[Pair, Sequence[Measured]]],
    *,
    temperature: float | None,
    dimensions: Collection[str] | None = None,
) -> list[SliceRecord]:
    """Compute the slices of pairs, each under one load, with one element per deployment.

    ``dimensions`` None: all that have more than one value. Controls are left out.
    """
    found = []
    for pair, measured in parts:
        if not pair.faster.is_control:
            keys = _keys_by_slice(_of_side(pair.slower, measured), dimensions)
            found += [(pair, measured, name, keys[name]) for name in sorted(keys, key=_order)]
    confidence = _each(sum(_enough(keys) for *_, keys in found))
    return [
        _pair_record(
            pair, name, [each.only(_within(keys)) for each in measured], confidence, temperature == 0
        )
        for pair, measured, name, keys in found
    ]


def slices_of_arm(
    records: Sequence[RequestRecord], dimensions: Collection[str] | None = None
) -> list[SliceRecord]:
    """Compute the slices of one arm's requests under each load: acceptance, no speed-up."""
    parts = []
    for load in dict.fromkeys(record.load for record in records):
        own = [record for record in records if record.load == load and _counts(record)]
        keys = _keys_by_slice(own, dimensions)
        parts += [(name, keys[name], own) for name in sorted(keys, key=_order)]
    confidence = _each(sum(_enough(keys) for _, keys, _ in parts))
    return [
        _record(own[0].arm, own[0].load, name, list(filter(_within(keys), own)), confidence)
        for name, keys, own in parts
    ]


def _each(intervals: int) -> float:
    """Return the confidence of each interval, so that all cover together with `CONFIDENCE` (Bonferroni)."""
    return 1 - (1 - CONFIDENCE) / max(intervals, 1)


def _order(name: Slice) -> tuple[int, str, int, str]:
    dimension, value = name
    place = DIMENSIONS.index(dimension) if dimension in DIMENSIONS else len(DIMENSIONS)
    return place, dimension, _VALUES.get(value, 99), value


#: Values that have an order of their own; others are sorted by name.
_VALUES = {
    value: place
    for values in (BUCKETS, ("none", "under half", "half or more"), ("minimal", "low", "medium", "high"))
    for place, value in enumerate(values)
}


def _counts(record: RequestRecord) -> bool:
    return record.phase == "measured" and record.error is None and bool(record.output_tokens)


def _keys_by_slice(
    records: Sequence[RequestRecord], dimensions: Collection[str] | None
) -> dict[Slice, set[Key]]:
    """Sort prompts into slices; a dimension with a single value shows nothing and is left out."""
    found: dict[str, dict[str, set[Key]]] = defaultdict(lambda: defaultdict(set))
    for record in records:
        for dimension, value in slices_of(record).items():
            if dimensions is None or dimension in dimensions:
                found[dimension][value].add((record.prompt_id, record.turn))
    return {
        (dimension, value): keys
        for dimension, values in found.items()
        if len(values) > 1
        for value, keys in values.items()
    }


def _within(keys: Collection[Key]) -> Callable[[RequestRecord], bool]:
    return lambda record: (record.prompt_id, record.turn) in keys


def _enough(keys: Collection[Key]) -> bool:
    return len({prompt for prompt, _ in keys}) >= FEWEST_PROMPTS


def _prompts(records: Sequence[RequestRecord]) -> int:
    return len({one.prompt_id for one in records})


def _record(
    arm: str, load: Load, name: Slice, records: Sequence[RequestRecord], confidence: float
) -> SliceRecord:
    accepted = from_requests(records)
    return SliceRecord(
        arm=arm,
        load=load,
        dimension=name[0],
        value=name[1],
        prompts=_prompts(records),
        requests=len(records),
        acceptance_length=_acceptance_length(records, confidence),
        survival=accepted.survival if accepted else (),
        confidence=confidence,
    )


def _acceptance_length(records: Sequence[RequestRecord], confidence: float) -> Interval | None:
    """Compute (accepted + drafts) / drafts over prompts; None if a request does not report its drafts."""
    if not records or any(one.drafts is None or one.accepted is None for one in records):
        return None
    by_prompt: dict[Hashable, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for one in records:
        sums = by_prompt[one.prompt_id]
        sums[0] += (one.accepted or 0) + (one.drafts or 0)
        sums[1] += one.drafts or 0
    if len(by_prompt) < FEWEST_PROMPTS:
        return None
    try:
        return ratio([by_prompt], (1, -1), confidence)
    except ValueError:  # no drafts: answers of one token
        return None


def _pair_record(
    pair: Pair, name: Slice, measured: Sequence[Measured], confidence: float, greedy: bool
) -> SliceRecord:
    """Compute one slice of a pair; ``measured`` holds the requests of the slice alone."""
    own = _of_side(pair.faster, measured)
    same = identical_outputs(pair, measured) if greedy else None
    ratios = ratios_of_requests(pair, measured, confidence) if _prompts(own) >= FEWEST_PROMPTS else None
    return replace(
        _record(pair.faster.name, measured[0].load, name, own, confidence),
        baseline=pair.slower.name,
        speed_up=ratios.rate if ratios else None,
        identical_outputs=same[0] if same else None,
        compared_outputs=same[1] if same else None,
    )


def _of_side(side: ArmDeployments, measured: Sequence[Measured]) -> list[RequestRecord]:
    records = [one for each in measured for one in each.requests(side.arms[each.deployment].name)]
    return [one for one in records if _counts(one)]
