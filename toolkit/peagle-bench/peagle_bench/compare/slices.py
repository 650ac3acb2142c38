"""Figures by slice of the traffic: acceptance length, speed-up and identical answers. Pure.

Each dimension splits the prompts on its own, so a prompt is in one slice of every dimension. Both arms of a
slice answered the same prompts: where their numbers of tokens differ, as for sampled answers, the mean
decides. If one arm's own number decided, its long answers would make a slice in which the other arm's answers
to the same prompts are shorter: there the time to the first token weighs more, and that arm looks slower.

Many intervals are looked at together. With 30 of them, one or two of the usual 95% intervals would exclude 1
by chance. So each interval gets the confidence 1 - 0.03 / n (Bonferroni); n is the number of slices that
have an interval in the run: all n cover their true values together in at least 95% of runs, however the
slices depend on each other. It is 0.03 and not 0.05, since so far out in its tails the jackknife falls a
little short of what it says (tests/bench/compare/test_slice_family.py). The price is width: with n=30 an
interval is 1.7 times as wide as one alone. Speed-ups, acceptance lengths and shares of identical answers are
three families.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from peagle_bench.compare.analysis import (
    ArmDeployments,
    Key,
    Measured,
    Pair,
    alike_outputs,
    key_of,
    ratios_of_requests,
)
from peagle_bench.compare.confidence_intervals import ratio, share_over_units
from peagle_bench.dialogues import FEWEST_CONVERSATIONS
from peagle_bench.results.records import Interval, RequestRecord, SliceRecord
from peagle_sm.core.request_slices import frequent_values, request_slices
from peagle_sm.core.slice_values import BUCKETS, OTHER, SERVED

#: Dimensions of every request; labels are added to them as ``label:NAME``.
DIMENSIONS = ("category", "api", "turn", *(name for name in SERVED if name != "api"))
#: Chance of a false alarm in a run, divided among its slices; what the jackknife lacks makes it 0.05.
FAMILY_ERROR = 0.03
MOST_RATIO = 100  #: of an interval's bounds; a wider one says nothing

Slice = tuple[str, str]  #: dimension and value


def slices_of_pairs(
    parts: Sequence[tuple[Pair, Sequence[Measured]]],
    *,
    temperature: float | None,
) -> list[SliceRecord]:
    """Compute the slices of pairs, each under one load, with one element per deployment.

    Controls are left out.
    """
    parts_by_slice = []
    for pair, measured in parts:
        if not pair.faster.is_control:
            sides = [_of_side(side, measured) for side in (pair.slower, pair.faster)]
            keys = keys_by_slice(of_both(*sides))
            parts_by_slice += [(pair, measured, name, keys[name]) for name in in_order(keys)]
    confidence = confidence_of_each(keys for *_, keys in parts_by_slice)
    return [
        _pair_record(pair, name, [each.only(within(keys)) for each in measured], confidence, temperature == 0)
        for pair, measured, name, keys in parts_by_slice
    ]


def confidence_of_each(slices: Iterable[Collection[Key]]) -> float:
    """Return the confidence of each interval, so that all cover together in 95% of runs (Bonferroni).

    ``slices``: the prompts of each slice that is looked at; those with too few have no interval.
    """
    return 1 - FAMILY_ERROR / max(sum(map(_enough, slices)), 1)


def in_order(names: Iterable[Slice]) -> list[Slice]:
    """Sort slices by dimension, and the values of each by size where they have one."""
    return sorted(names, key=_order)


def _order(name: Slice) -> tuple[int, str, int, str]:
    dimension, value = name
    place = DIMENSIONS.index(dimension) if dimension in DIMENSIONS else len(DIMENSIONS)
    return place, dimension, _VALUES.get(value, 99), value


#: Values that have an order of their own; others are sorted by name.
_VALUES = {
    value: place
    for values in (
        BUCKETS,
        ("none", "under half", "half or more"),
        ("minimal", "low", "medium", "high", "xhigh", "max"),
        ("0", "up to 0.5", "up to 1", "above 1"),
    )
    for place, value in enumerate(values)
}


def _counts(record: RequestRecord) -> bool:
    return record.phase == "measured" and record.error is None and bool(record.output_tokens)


def of_both(one: Sequence[RequestRecord], other: Sequence[RequestRecord]) -> list[RequestRecord]:
    """Merge the requests of two sides to one for each prompt that both answered, with mean token counts."""
    shared = set(map(key_of, one)) & set(map(key_of, other))
    by_key: dict[Key, list[RequestRecord]] = defaultdict(list)
    for record in (*one, *other):
        if key_of(record) in shared:
            by_key[key_of(record)].append(record)
    return [
        replace(
            same[0],
            input_tokens=_mean([record.input_tokens for record in same]),
            output_tokens=_mean([record.output_tokens for record in same]),
            cached_tokens=_mean([record.cached_tokens for record in same]),
        )
        for same in by_key.values()
    ]


def _mean(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return round(fmean(known)) if len(known) == len(counts) else None


def slices_of(record: RequestRecord) -> dict[str, str]:
    """Return all slices of a measured request: those of its body, and those of its answer."""
    return request_slices(
        record.slices,
        record.turn,
        record.category,
        input_tokens=record.input_tokens,
        cached_tokens=record.cached_tokens,
        output_tokens=record.output_tokens,
    )


def keys_by_slice(records: Iterable[RequestRecord]) -> dict[Slice, set[Key]]:
    """Sort prompts into slices; a dimension with a single value shows nothing and is left out.

    Of a dimension with many values, as a category of the user's own can have, the most
    frequent stay and the others are `OTHER`: each slice makes the intervals of all others wider.
    """
    by_dimension: dict[str, dict[str, set[Key]]] = defaultdict(lambda: defaultdict(set))
    for record in records:
        for dimension, value in slices_of(record).items():
            by_dimension[dimension][value].add(key_of(record))
    return {
        (dimension, value): keys
        for dimension, values in by_dimension.items()
        if len(values) > 1
        for value, keys in _bounded(values).items()
    }


def _bounded(values: Mapping[str, set[Key]]) -> dict[str, set[Key]]:
    """Return the most frequent values with their prompts, and `OTHER` with the prompts of the rest."""
    frequent = frequent_values({value: len(keys) for value, keys in values.items()})
    kept = {value: keys for value, keys in values.items() if value in frequent}
    rest = [keys for value, keys in values.items() if value not in frequent]
    return kept | ({OTHER: set[Key]().union(*rest)} if rest else {})


def within(keys: Collection[Key]) -> Callable[[RequestRecord], bool]:
    """Return a filter for the requests of a slice."""
    return lambda record: key_of(record) in keys


def _enough(keys: Collection[Key]) -> bool:
    return len({conversation for conversation, *_ in keys}) >= FEWEST_CONVERSATIONS


def _prompts(records: Sequence[RequestRecord]) -> int:
    return len({record.prompt_id for record in records})


def _conversations(records: Sequence[RequestRecord]) -> int:
    return len({record.unit for record in records})


def _acceptance_length(records: Sequence[RequestRecord], confidence: float) -> Interval | None:
    """Compute (accepted + drafts) / drafts over prompts; None if a request does not report its drafts."""
    if not records or any(record.drafts is None or record.accepted is None for record in records):
        return None
    by_unit: dict[Hashable, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for record in records:
        sums = by_unit[record.unit]
        sums[0] += (record.accepted or 0) + (record.drafts or 0)
        sums[1] += record.drafts or 0
    if len(by_unit) < FEWEST_CONVERSATIONS:
        return None
    try:
        return _known(ratio([by_unit], (1, -1), confidence))
    except ValueError:  # no drafts: answers of one token
        return None


def _known(interval: Interval) -> Interval | None:
    """Return an interval; None for one so wide that nothing is known, as of two blocks of time."""
    return interval if interval.high <= MOST_RATIO * interval.low else None


def _pair_record(
    pair: Pair, name: Slice, measured: Sequence[Measured], confidence: float, greedy: bool
) -> SliceRecord:
    """Compute one slice of a pair; ``measured`` holds the requests of the slice alone."""
    own = _of_side(pair.faster, measured)
    alike = alike_outputs(pair, measured) if greedy else {}
    ratios = (
        ratios_of_requests(pair, measured, confidence)
        if _conversations(own) >= FEWEST_CONVERSATIONS
        else None
    )
    return SliceRecord(
        arm=own[0].arm,
        load=own[0].load,
        dimension=name[0],
        value=name[1],
        prompts=_prompts(own),
        requests=len(own),
        acceptance_length=_acceptance_length(own, confidence),
        confidence=confidence,
        baseline=pair.slower.name,
        speed_up=_known(ratios.rate) if ratios else None,
        identical_outputs=sum(alike.values()) if alike else None,
        compared_outputs=len(alike) or None,
        identity=identity_share(alike, confidence),
    )


def identity_share(alike: dict[Key, bool], confidence: float) -> Interval | None:
    """Compute the share of identical answers; turns of a conversation are one unit."""
    by_unit: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for (conversation, *_), is_identical in alike.items():
        by_unit[conversation][0] += is_identical
        by_unit[conversation][1] += 1
    if len(by_unit) < FEWEST_CONVERSATIONS:
        return None
    return share_over_units(list(by_unit.values()), confidence)


def _of_side(side: ArmDeployments, measured: Sequence[Measured]) -> list[RequestRecord]:
    records = [request for each in measured for request in each.requests(side.arms[each.deployment].name)]
    return [record for record in records if _counts(record)]
