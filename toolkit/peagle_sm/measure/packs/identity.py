"""Identity of an arm's greedy answers with the baseline's: what differs is asked again and scored.

Equal answers need no more requests. Where they differ, both engines answer again without streaming, and the
baseline scores the arm's tokens: a token below the target's best one by more than the noise is a fault. The
noise is that of the baseline itself, read at the same prompts (`peagle_sm.measure.verify.statistics`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from peagle_sm.measure.load import WorkItem
from peagle_sm.measure.packs.judges import answered
from peagle_sm.measure.results.records import RequestRecord
from peagle_sm.measure.verify.answers import Scored
from peagle_sm.measure.verify.engines import WITH_LOGPROBS, EnginePair, SideFailed, greedy_body
from peagle_sm.measure.verify.greedy import LongCase, judge_long_context
from peagle_sm.measure.verify.statistics import CheckVerdict, floor_of, largest_difference, undecided
from peagle_sm.measure.workloads import MAX_TOKENS, limit_of

MOST_ASKED = 8  #: differing prompts that are asked again: each costs several requests

Key = tuple[str, int]  #: a prompt's id and its turn


def compared(mine: Sequence[RequestRecord], baseline: Sequence[RequestRecord]) -> tuple[list[Key], list[Key]]:
    """Return the requests that both answered, and those of them whose answers differ.

    In a conversation only the first turn that differs counts, since later turns had other histories.
    """
    theirs = {(one.prompt_id, one.turn): one.output_sha256 for one in answered(baseline)}
    both = sorted(
        ((one.prompt_id, one.turn), one.output_sha256)
        for one in answered(mine)
        if (one.prompt_id, one.turn) in theirs and one.output_sha256 is not None
    )
    differing: dict[str, Key] = {}
    counted = []
    for key, output in both:
        if key[0] in differing:
            continue
        counted.append(key)
        if output != theirs[key]:
            differing[key[0]] = key
    return counted, list(differing.values())


def judge_same(
    mine: Sequence[RequestRecord],
    baseline: Sequence[RequestRecord],
    items: Sequence[WorkItem],
    engines: EnginePair,
) -> CheckVerdict:
    """Compare all answers; ask again and score the first few that differ."""
    both, differing = compared(mine, baseline)
    figures: dict[str, float] = {"compared": len(both), "identical": len(both) - len(differing)}
    if not both:
        return undecided("no prompt was answered by both", figures)
    said = f"{len(both) - len(differing)} of {len(both)} answers identical"
    if not differing:
        power = f"detects any other answer to one of {len(both)} requests"
        return CheckVerdict(True, said, power, figures)
    texts = {(one.prompt_id, one.turn): one.text or "" for one in baseline}
    bodies = [(f"{key[0]} {key[1]}", body_of(key, items, texts)) for key in differing[:MOST_ASKED]]
    try:
        verdict = _asked_again(engines, bodies)
    except SideFailed as failed:
        return undecided(f"{said}; {failed.side} failed when asked again: {failed.error}", figures)
    figures |= verdict.figures
    if verdict.passed:
        said += "; the others differ where two tokens are almost equally likely"
        return replace(verdict, summary=said, figures=figures)
    return replace(verdict, summary=f"{said}; {verdict.summary}", figures=figures)


def body_of(key: Key, items: Sequence[WorkItem], texts: Mapping[Key, str]) -> Mapping[str, Any]:
    """Return the body of a request: that of its item, or of the item's later turn."""
    item: WorkItem | None = next(one for one in items if one.prompt_id == key[0])
    for turn in range(key[1]):
        assert item is not None
        assert item.then is not None
        item = item.then(texts.get((key[0], turn), ""))
    assert item is not None
    return item.body


def _asked_again(engines: EnginePair, bodies: Sequence[tuple[str, Mapping[str, Any]]]) -> CheckVerdict:
    prompts = engines.prompts(bodies)
    cases: list[LongCase] = []
    first: list[Scored] = []
    repeat: list[Scored] = []
    for prompt, (_, body) in zip(prompts, bodies, strict=True):
        asked = _limit(body)
        own = greedy_body(prompt, asked)
        (its,) = engines.ask("baseline", [{**own, **WITH_LOGPROBS}], 1)
        (again,) = engines.ask("baseline", [own], 1)
        (mine,) = engines.ask("candidate", [own], 1)
        scored, scored_again, judged = engines.score([prompt] * 3, [its, again, mine])
        first.append(scored)
        repeat.append(scored_again)
        gaps = judged.gaps if mine.ids != its.ids else ()
        cases.append(LongCase(len(prompt.ids), asked, its, mine, gaps, largest_difference(scored)))
    return judge_long_context(cases, floor_of(first, repeat))


def _limit(body: Mapping[str, Any]) -> int:
    return limit_of(WorkItem("", body)) or MAX_TOKENS
