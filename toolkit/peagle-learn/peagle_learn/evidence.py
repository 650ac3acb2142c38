"""From what a proof measured to its evidence: the candidate against the serving head. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from peagle_bench.compare.analysis import Cells, Key, Measured, compare_cells, of_prompts
from peagle_bench.compare.slices import (
    confidence_of_each,
    in_order,
    keys_by_slice,
    of_both,
)
from peagle_bench.dialogues import FEWEST_CONVERSATIONS
from peagle_bench.results.records import ArmRecord, CheckRecord, Interval, RequestRecord
from peagle_bench.results.result_file import Results
from peagle_learn.core.proof import (
    SURE,
    ProofCheck,
    Ratio,
    SetEvidence,
    SliceEvidence,
    Thresholds,
    is_hopeless,
    is_look,
)

SERVING, CANDIDATE, PLAIN = "serving", "candidate", "plain"  #: names of the arms


def set_evidence(results: Results, confidence: float) -> SetEvidence:
    """Compare the candidate with the serving head in a results file; arms by their names."""
    records = _measured(results.requests)
    cells = _cells(records, results.arms)
    failed, serving_failed = (
        sum(record.arm == name and record.error is not None for record in records)
        for name in (CANDIDATE, SERVING)
    )
    pair = next(
        (each for each in results.comparisons if {each.faster, each.slower} == {SERVING, CANDIDATE}), None
    )
    lengths = {name: _length(each) for name, each in cells.items()}
    shared = set(cells[CANDIDATE]) & set(cells[SERVING])
    conversations = len({cells[CANDIDATE][prompt].conversation or prompt for prompt in shared})
    try:
        comparison = compare_cells([cells[CANDIDATE]], [cells[SERVING]], confidence=confidence)
    except ValueError:  # too few common prompts for an interval
        return SetEvidence(
            len(shared),
            None,
            None,
            lengths[SERVING],
            lengths[CANDIDATE],
            failed,
            conversations=conversations,
            serving_failed=serving_failed,
        )
    return SetEvidence(
        prompts=len(shared),
        acceptance=_ratio(comparison.acceptance),
        speed=_ratio(comparison.rate),
        serving_length=lengths[SERVING],
        candidate_length=lengths[CANDIDATE],
        failed=failed,
        identical=None if pair is None else pair.identical_outputs,
        compared=None if pair is None else pair.compared_outputs,
        slices=_slices(records, cells),
        conversations=conversations,
        serving_failed=serving_failed,
    )


def _slices(records: Iterable[RequestRecord], cells: dict[str, Cells]) -> tuple[SliceEvidence, ...]:
    """Compare the two heads in each slice of the prompts that both answered."""
    answered = [each for each in records if each.error is None and each.output_tokens]
    sides = [[each for each in answered if each.arm == name] for name in (SERVING, CANDIDATE)]
    keys = keys_by_slice(of_both(*sides))
    confidence = confidence_of_each(keys.values())
    return tuple(_slice(name, keys[name], cells, confidence) for name in in_order(keys))


def _slice(
    name: tuple[str, str], keys: set[Key], cells: dict[str, Cells], confidence: float
) -> SliceEvidence:
    prompts = {prompt for _, prompt, _ in keys}
    within = {
        arm: {prompt: each[prompt] for prompt in sorted(prompts) if prompt in each}
        for arm, each in cells.items()
    }
    acceptance = speed = None
    if len({conversation for conversation, *_ in keys}) >= FEWEST_CONVERSATIONS:
        with suppress(ValueError):  # too few of them are common, or have tokens
            comparison = compare_cells([within[CANDIDATE]], [within[SERVING]], confidence=confidence)
            acceptance, speed = _sound(comparison.acceptance), _sound(comparison.rate)
    lengths = _length(within[SERVING]), _length(within[CANDIDATE])
    return SliceEvidence(*name, len(prompts), acceptance, speed, confidence, *lengths)


def _sound(interval: Interval | None) -> Ratio | None:
    """Return a ratio with a finite interval; with few prompts it may be infinite."""
    ratio = _ratio(interval)
    return ratio if ratio is not None and ratio.is_sound else None


def ends_early(measured: Measured, arms: Iterable[ArmRecord], wanted: Thresholds) -> bool:
    """Decide at a look whether the candidate cannot be offered any more."""
    records = [each for name in (SERVING, CANDIDATE) for each in measured.requests(name)]
    cells = _cells(_measured(records), arms)
    shared = len(set(cells[CANDIDATE]) & set(cells[SERVING]))
    return is_look(shared) and is_hopeless(_sure_ratio(cells), wanted)


def hopeless_ratio(results: Results, wanted: Thresholds) -> Ratio | None:
    """Return the acceptance ratio that ends a proof early; None if the proof goes on."""
    ratio = _sure_ratio(_cells(_measured(results.requests), results.arms))
    return ratio if is_hopeless(ratio, wanted) else None


def _measured(records: Iterable[RequestRecord]) -> list[RequestRecord]:
    return [each for each in records if each.phase == "measured" and not each.prompt_id.endswith("#warm-up")]


def _cells(records: Iterable[RequestRecord], arms: Iterable[ArmRecord]) -> dict[str, Cells]:
    speculates = {arm.name: None if arm.mode == "unknown" else arm.mode != "none" for arm in arms}
    listed = list(records)
    return {
        name: of_prompts((each for each in listed if each.arm == name), speculates=speculates.get(name))
        for name in (SERVING, CANDIDATE)
    }


def _sure_ratio(cells: dict[str, Cells]) -> Ratio | None:
    try:
        return _ratio(compare_cells([cells[CANDIDATE]], [cells[SERVING]], confidence=SURE).acceptance)
    except ValueError:  # too few common prompts for an interval
        return None


def _ratio(interval: Interval | None) -> Ratio | None:
    return None if interval is None else Ratio(interval.value, interval.low, interval.high)


def _length(cells: Cells) -> float | None:
    drafts = [cell.drafts for cell in cells.values()]
    advanced = [cell.advanced for cell in cells.values()]
    if not drafts or None in drafts or None in advanced:
        return None
    return sum(each or 0.0 for each in advanced) / max(1e-9, sum(each or 0.0 for each in drafts))


def checks_of(records: Iterable[Any]) -> tuple[ProofCheck, ...]:
    """Return the checks of `verify` that apply; its other records are slices of them."""
    return tuple(
        ProofCheck(record.name, record.passed, record.summary)
        for record in records
        if isinstance(record, CheckRecord) and record.applicable
    )
