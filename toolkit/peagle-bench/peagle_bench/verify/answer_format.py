"""Checks of stop strings and streaming. Pure.

- Stop strings: the answer ends where the string begins, and no part of it leaks.
- Streaming: the joined chunks equal the answer without streaming.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from peagle_bench.verify.answers import TokenAnswer
from peagle_bench.verify.statistics import (
    ALPHA,
    CheckVerdict,
    counted,
    fisher_greater,
    percent,
    rate_found,
    undecided,
)


@dataclass(frozen=True)
class StopCase:
    """One request with a stop string: answers of both engines, and the candidate's stream.

    ``full`` is the baseline's answer without a stop string; ``included``: the request set
    include_stop_str_in_output.
    """

    prompt_id: str
    stop: str
    included: bool
    full: str
    baseline: TokenAnswer
    candidate: TokenAnswer
    streamed: TokenAnswer

    @property
    def expected(self) -> str:
        """Baseline's text up to the first stop string (up to its end if it is included)."""
        at = self.full.find(self.stop)
        return self.full if at < 0 else self.full[: at + len(self.stop) * self.included]


def judge_stops(cases: Sequence[StopCase], exact: bool) -> CheckVerdict:
    """Judge whether stop strings end the candidate's answers as they end the baseline's.

    A full or partial leak, a missing stop_reason, and text cut before the string are always faults. With an
    exact floor any other difference is a fault; else only more differences than the baseline's (Fisher).
    """
    sound = [
        case
        for case in cases
        if case.baseline.stop_reason == case.stop and not faults_of(case, case.baseline)
    ]
    if not sound:
        return undecided("no stop string ended an answer of the baseline")
    faults, differing = [], 0
    for case in sound:
        for how, answer in (("whole", case.candidate), ("streamed", case.streamed)):
            reasons = faults_of(case, answer)
            if not reasons and answer.text != case.baseline.text:
                differing += 1
                reasons = ["text differs from the baseline's"] if exact else []
            elif (
                not reasons
                and exact
                and how == "whole"
                and answer.output_tokens != case.baseline.output_tokens
            ):
                reasons = [
                    f"usage counts {answer.output_tokens} tokens, baseline {case.baseline.output_tokens}"
                ]
            faults += [f"{case.prompt_id} ({how}, stop {case.stop!r}): {fault}" for fault in reasons]
    own = sum(case.baseline.text != case.expected for case in cases)
    p = fisher_greater(differing, 2 * len(sound), own, len(cases))
    if not exact and p < ALPHA:
        faults.append(f"{differing} of {2 * len(sound)} texts differ (baseline: {own}): p = {p:.1g}")
    figures = {"requests": 2 * len(sound), "faults": len(faults), "differing": differing, "fisher_p": p}
    summary = f"{counted(2 * len(sound), 'answer')} ended by a stop string, {counted(len(faults), 'fault')}"
    power = (
        "detects, in each tested answer"
        + ("" if exact else " that did not diverge before its stop string")
        + ", a stop string that leaks (whole or in part) or cuts the answer too early; "
        "detects a random fault with 90% probability if it affects "
        f"{percent(rate_found(2 * len(sound)))} of answers"
    )
    return CheckVerdict(not faults, summary, power, figures, faults)


def faults_of(case: StopCase, answer: TokenAnswer) -> list[str]:
    """List the faults in the end of one answer that do not depend on the arithmetic."""
    text, stop, expected = answer.text, case.stop, case.expected
    body = text[: -len(stop)] if case.included and text.endswith(stop) else text
    faults = []
    if stop in body:
        faults.append(f"the text continues after the stop string: …{body[-40:]!r}")
    if answer.finish_reason == "stop" and answer.stop_reason not in (stop, None):
        faults.append(f"stop_reason is {answer.stop_reason!r}")
    if faults or text == expected:
        return faults + _without_reason(answer, stop)
    rest = text.removeprefix(expected)
    if not case.included and rest != text and stop.startswith(rest):
        faults.append(f"part of the stop string leaked: {rest!r}")
    if answer.finish_reason == "stop" and answer.stop_reason == stop:
        if expected.startswith(text):
            faults.append(f"cut {len(expected) - len(text)} characters too early")
        if case.included and not text.endswith(stop):
            faults.append("the included stop string is missing")
    return faults


def _without_reason(answer: TokenAnswer, stop: str) -> list[str]:
    stopped = answer.finish_reason == "stop" and answer.stop_reason == stop
    return [] if stopped else [f"finish_reason {answer.finish_reason!r}, stop_reason {answer.stop_reason!r}"]


def choose_stop(text: str, place: float) -> str | None:
    """Choose a piece of ``text`` (3 to 6 characters) at its first occurrence, at ``place`` or earlier.

    ``place`` is 0 to 1. The piece may begin in the middle of a word, so that it spans tokens. None if there
    is no such piece, as in an answer that repeats itself from the start.
    """
    start = int(len(text) * place)
    while start > 0:
        for length in (6, 5, 4, 3):
            for at in range(start, len(text) - length):
                piece = text[at : at + length]
                if piece.strip() == piece and text.find(piece) == at:
                    return piece
        start //= 2
    return None


@dataclass(frozen=True)
class StreamCase:
    """One greedy request with and without streaming on both engines; ``broken``: the stream's error."""

    prompt_id: str
    baseline_whole: TokenAnswer
    baseline_streamed: TokenAnswer
    whole: TokenAnswer
    streamed: TokenAnswer | None
    broken: str | None = None


def judge_streaming(cases: Sequence[StreamCase], exact: bool) -> CheckVerdict:
    """Judge whether the candidate's streams equal its answers without streaming.

    Always faults: a stream that breaks, a token count that differs from the chunks' sum, another text for the
    same tokens, a missing or doubled piece of text in two or more streams. With an exact floor any difference
    is a fault; else only more differences than the baseline's (Fisher).
    """
    if not cases:
        return undecided("no prompt was answered by both engines")
    faults, pieces, differing = [], [], 0
    for case in cases:
        reasons = _faults(case)
        faults += [f"{case.prompt_id}: {fault}" for fault in reasons]
        if reasons or case.streamed is None or case.streamed.text == case.whole.text:
            continue
        differing += 1
        piece = odd_piece(case.whole.text, case.streamed.text)
        if exact:
            faults.append(f"{case.prompt_id}: the stream differs from the answer without streaming")
        elif piece is not None:
            pieces.append(f"{case.prompt_id}: {piece}")
    if len(pieces) > 1:
        faults += pieces
    own = sum(case.baseline_streamed.text != case.baseline_whole.text for case in cases)
    p = fisher_greater(differing, len(cases), own, len(cases))
    if not exact and p < ALPHA:
        faults.append(
            f"{differing} streams differ from answers without streaming (baseline: {own}): p = {p:.1g}"
        )
    figures = {"prompts": len(cases), "differing": differing, "baseline_differing": own, "fisher_p": p}
    summary = f"{len(cases) - differing} of {len(cases)} streams equal the answer without streaming"
    if faults:
        summary += f"; {counted(len(faults), 'fault')}"
    power = (
        "detects a broken stream, a lost or doubled chunk, another text for the same tokens and a wrong "
        "token count, in each tested stream; detects a random fault with 90% probability if it affects "
        f"{percent(rate_found(len(cases)))} of streams"
    )
    return CheckVerdict(not faults, summary, power, figures, faults)


def _faults(case: StreamCase) -> list[str]:
    if case.streamed is None:
        return [f"the stream broke: {case.broken}"]
    faults, streamed = [], case.streamed
    if streamed.finish_reason is None:
        faults.append("finish_reason is missing")
    if streamed.ids and streamed.output_tokens is not None and len(streamed.ids) != streamed.output_tokens:
        faults.append(f"usage counts {streamed.output_tokens} tokens, the chunks have {len(streamed.ids)}")
    for own in (case.whole, case.baseline_whole):
        if streamed.ids and streamed.ids == own.ids and streamed.text != own.text:
            faults.append("same tokens but another text")
            break
    return faults


def odd_piece(whole: str, streamed: str) -> str | None:
    """Describe the difference of two texts if it is one piece that only one of them has; else None."""
    short, long = sorted((whole, streamed), key=len)
    head = next((n for n, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    tail = next(
        (n for n, (a, b) in enumerate(zip(short[::-1], long[::-1], strict=False)) if a != b), len(short)
    )
    if len(short) == len(long) or head + tail < len(short):
        return None
    piece = long[head : head + len(long) - len(short)]
    return f"{'missing' if long is whole else 'additional'} in the stream: {piece!r}"
