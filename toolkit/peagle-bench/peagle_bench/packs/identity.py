"""Identity of an arm's greedy answers with the baseline's: what differs is asked again and scored.

Equal answers need no more requests. Where they differ, both engines answer again without streaming, and the
baseline scores the arm's tokens: a token below the target's best one by more than the noise is a fault. The
noise is that of the baseline itself, read at the same prompts (`peagle_bench.verify.statistics`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from peagle_bench.load import WorkItem
from peagle_bench.packs.judges import answered
from peagle_bench.results.records import RequestRecord
from peagle_bench.verify.answers import Scored, TokenAnswer
from peagle_bench.verify.engines import WITH_LOGPROBS, EnginePair, SideFailed, greedy_body
from peagle_bench.verify.greedy import LongCase, judge_long_context
from peagle_bench.verify.statistics import CheckVerdict, floor_of, largest_difference, undecided
from peagle_bench.workloads import MAX_TOKENS, limit_of

MOST_ASKED = 8  #: differing prompts that are asked again: each costs several requests

Key = tuple[str, int]  #: a prompt's id and its turn


def compared(mine: Sequence[RequestRecord], baseline: Sequence[RequestRecord]) -> tuple[list[Key], list[Key]]:
    """Return the requests that both answered, and those of them whose answers differ.

    In a conversation only the first turn that differs counts, since later turns had other histories.
    """
    theirs = {(record.prompt_id, record.turn): record.output_sha256 for record in answered(baseline)}
    both = sorted(
        ((record.prompt_id, record.turn), record.output_sha256)
        for record in answered(mine)
        if (record.prompt_id, record.turn) in theirs and record.output_sha256 is not None
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
    limit: int | None = None,
    most: int = MOST_ASKED,
) -> CheckVerdict:
    """Compare all answers; ask again and score the first ``most`` that differ.

    ``limit`` is the model's own context in tokens; None: no prompt reaches it.
    """
    both, differing = compared(mine, baseline)
    figures: dict[str, float] = {"compared": len(both), "identical": len(both) - len(differing)}
    if not both:
        return undecided("no prompt was answered by both", figures)
    summary = f"{len(both) - len(differing)} of {len(both)} answers identical"
    if not differing:
        power = f"detects any other answer to one of {len(both)} requests"
        return CheckVerdict(True, summary, power, figures)
    texts = {(record.prompt_id, record.turn): record.text or "" for record in baseline}
    bodies = [(f"{key[0]} {key[1]}", body_of(key, items, texts)) for key in differing[:most]]
    again = _asked_again(engines, bodies, limit)
    if not again.cases:
        return undecided(f"{summary}; {again.problem}", figures)
    verdict = judge_long_context(again.cases, floor_of(again.first, again.repeat))
    figures |= verdict.figures
    if verdict.passed and again.problem is not None:
        left = f"{len(bodies) - len(again.cases)} of {len(bodies)} that differ could not be judged"
        return undecided(f"{summary}; {left}: {again.problem}", figures)
    if verdict.passed:
        scored = len(again.cases)
        summary += "; the others differ where two tokens are almost equally likely"
        if scored < len(differing):
            summary += f" ({scored} of them were scored)"
        return replace(verdict, summary=summary, figures=figures)
    return replace(verdict, summary=f"{summary}; {verdict.summary}", figures=figures)


def body_of(key: Key, items: Sequence[WorkItem], texts: Mapping[Key, str]) -> Mapping[str, Any]:
    """Return the body of a request: that of its item, or of the item's later turn."""
    item: WorkItem | None = next(item for item in items if item.prompt_id == key[0])
    for turn in range(key[1]):
        assert item is not None
        assert item.then is not None
        item = item.then(texts.get((key[0], turn), ""))
    assert item is not None
    return item.body


@dataclass
class _Again:
    """Prompts that were asked again, and the scores of the baseline's two answers to each.

    ``problem``: why the first prompt that is not among them was left out.
    """

    cases: list[LongCase] = field(default_factory=list)
    first: list[Scored] = field(default_factory=list)
    repeat: list[Scored] = field(default_factory=list)
    problem: str | None = None

    def take(self, engines: EnginePair, name: str, body: Mapping[str, Any], limit: int | None) -> None:
        """Ask one prompt again.

        Raises:
            SideFailed: an engine refused it, or failed.
        """
        (prompt,) = engines.prompts([(name, body)])
        tokens = _limit(body)
        own = greedy_body(prompt, tokens)
        (its,) = engines.ask("baseline", [{**own, **WITH_LOGPROBS}], 1)
        (again,) = engines.ask("baseline", [own], 1)
        (mine,) = engines.ask("candidate", [own], 1)
        # Scoring writes a token of its own, so the token that fills the context cannot be scored.
        room = tokens if limit is None else limit - 1 - len(prompt.ids)
        begun = [answer.begin(room) for answer in (its, again, mine)]
        scored, scored_again, judged = engines.score([prompt] * 3, begun)
        self.first.append(scored)
        self.repeat.append(scored_again)
        gaps = _gaps(judged, its, mine) if mine.ids != its.ids else ()
        self.cases.append(LongCase(len(prompt.ids), tokens, its, mine, gaps, largest_difference(scored)))


def _asked_again(
    engines: EnginePair, bodies: Sequence[tuple[str, Mapping[str, Any]]], limit: int | None
) -> _Again:
    """Ask the prompts again; one that is refused is left out, and an engine that fails is asked no more."""
    repeat = _Again()
    for name, body in bodies:
        try:
            repeat.take(engines, name, body, limit)
        except SideFailed as failed:
            repeat.problem = repeat.problem or f"{failed.side} failed when asked again: {failed.error}"
            if not failed.refused:
                break
    return repeat


def _gaps(judged: Scored, its: TokenAnswer, mine: TokenAnswer) -> tuple[float, ...]:
    """Return the candidate's gaps, with that of the first token behind those that were scored.

    If that token is the first that differs, it is below the target's best one by the baseline's own margin
    there, or by more.
    """
    at = len(judged.gaps)
    known = at < min(len(mine.ids), len(its.margins))
    if known and mine.ids[:at] == its.ids[:at] and mine.ids[at] != its.ids[at]:
        return (*judged.gaps, max(0.0, its.margins[at]))
    return judged.gaps


def _limit(body: Mapping[str, Any]) -> int:
    return limit_of(WorkItem("", body)) or MAX_TOKENS
