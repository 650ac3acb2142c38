"""The form of an answer: stop strings, streaming, JSON by schema and tool calls. Pure.

- Stop strings: the answer ends where the string begins, and nothing of it leaks.
- Streaming: the chunks joined are the answer that comes whole.
- JSON by schema and tool calls: as well formed as the baseline's.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from peagle_sm.measure.verify.answers import Answer
from peagle_sm.measure.verify.statistics import (
    ALPHA,
    Verdict,
    counted,
    fisher_greater,
    percent,
    rate_found,
    undecided,
)


@dataclass(frozen=True)
class StopCase:
    """One request with a stop string, sent to both, and to the candidate once more as a stream.

    ``full`` is the baseline's answer without it; ``included``: include_stop_str_in_output was asked for.
    """

    prompt_id: str
    stop: str
    included: bool
    full: str
    baseline: Answer
    candidate: Answer
    streamed: Answer

    @property
    def expected(self) -> str:
        """The baseline's text up to the stop string's first place (its end, where it is included)."""
        at = self.full.find(self.stop)
        return self.full if at < 0 else self.full[: at + len(self.stop) * self.included]


def judge_stops(cases: Sequence[StopCase], exact: bool) -> Verdict:
    """Whether stop strings end the candidate's answers as they end the baseline's.

    A leak, whole or in part, a missing stop_reason, or text cut before the string are faults anywhere; where
    the floor is exact, so is any other difference, and elsewhere more of them than of the baseline (Fisher).
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
            found = faults_of(case, answer)
            if not found and answer.text != case.baseline.text:
                differing += 1
                found = ["text differs from the baseline's"] if exact else []
            elif (
                not found and exact and how == "whole" and answer.output_tokens != case.baseline.output_tokens
            ):
                found = [f"{answer.output_tokens} tokens counted, the baseline {case.baseline.output_tokens}"]
            faults += [f"{case.prompt_id} ({how}, stop {case.stop!r}): {fault}" for fault in found]
    own = sum(case.baseline.text != case.expected for case in cases)
    p = fisher_greater(differing, 2 * len(sound), own, len(cases))
    if not exact and p < ALPHA:
        faults.append(f"{differing} of {2 * len(sound)} texts differ, {own} of the baseline's: p = {p:.1g}")
    figures = {"requests": 2 * len(sound), "faults": len(faults), "differing": differing, "fisher_p": p}
    said = f"{counted(2 * len(sound), 'answer')} ended by a stop string, {counted(len(faults), 'fault')}"
    power = (
        "a stop string that leaks, whole or in part, or cuts too early is caught in each answer tested"
        + ("" if exact else " that did not diverge before it")
        + "; a fault that strikes by chance is met with 90% if it touches "
        f"{percent(rate_found(2 * len(sound)))} of answers"
    )
    return Verdict(not faults, said, power, figures, faults)


def faults_of(case: StopCase, answer: Answer) -> list[str]:
    """What is wrong with the way one answer ended, whatever the arithmetic."""
    text, stop, expected = answer.text, case.stop, case.expected
    body = text[: -len(stop)] if case.included and text.endswith(stop) else text
    found = []
    if stop in body:
        found.append(f"the text goes on after the stop string: …{body[-40:]!r}")
    if answer.finish_reason == "stop" and answer.stop_reason not in (stop, None):
        found.append(f"stop_reason is {answer.stop_reason!r}")
    if found or text == expected:
        return found + _unsaid(answer, stop)
    rest = text.removeprefix(expected)
    if not case.included and rest != text and stop.startswith(rest):
        found.append(f"a part of the stop string leaked: {rest!r}")
    if answer.finish_reason == "stop" and answer.stop_reason == stop:
        if expected.startswith(text):
            found.append(f"cut {len(expected) - len(text)} characters too early")
        if case.included and not text.endswith(stop):
            found.append("the stop string was to be included and is missing")
    return found


def _unsaid(answer: Answer, stop: str) -> list[str]:
    said = answer.finish_reason == "stop" and answer.stop_reason == stop
    return [] if said else [f"finish_reason {answer.finish_reason!r}, stop_reason {answer.stop_reason!r}"]


def choose_stop(text: str, place: float) -> str | None:
    """A piece of ``text``, 3 to 6 characters, that occurs there first: at ``place`` (0 to 1) or else earlier.

    It may begin in the middle of a word, so that it spans tokens. None: no such piece, as in an answer that
    repeats itself from the start.
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
    """One greedy request, whole and streamed, on both; ``broken``: how the candidate's stream ended badly."""

    prompt_id: str
    baseline_whole: Answer
    baseline_streamed: Answer
    whole: Answer
    streamed: Answer | None
    broken: str | None = None


def judge_streaming(cases: Sequence[StreamCase], exact: bool) -> Verdict:
    """Whether the candidate's streams hold what its whole answers hold.

    Faults anywhere: a stream that breaks, a count of tokens that the chunks do not add up to, the same
    tokens with another text, a piece of text that is missing or comes twice in two streams or more. Where the
    floor is exact, any difference; elsewhere more of them than of the baseline (Fisher).
    """
    if not cases:
        return undecided("no prompt was answered by both")
    faults, pieces, differing = [], [], 0
    for case in cases:
        found = _faults(case)
        faults += [f"{case.prompt_id}: {fault}" for fault in found]
        if found or case.streamed is None or case.streamed.text == case.whole.text:
            continue
        differing += 1
        piece = odd_piece(case.whole.text, case.streamed.text)
        if exact:
            faults.append(f"{case.prompt_id}: the stream differs from the whole answer")
        elif piece is not None:
            pieces.append(f"{case.prompt_id}: {piece}")
    if len(pieces) > 1:
        faults += pieces
    own = sum(case.baseline_streamed.text != case.baseline_whole.text for case in cases)
    p = fisher_greater(differing, len(cases), own, len(cases))
    if not exact and p < ALPHA:
        faults.append(f"{differing} streams differ from whole answers, {own} of the baseline's: p = {p:.1g}")
    figures = {"prompts": len(cases), "differing": differing, "baseline_differing": own, "fisher_p": p}
    said = f"{len(cases) - differing} of {len(cases)} streams equal the whole answer"
    if faults:
        said += f"; {counted(len(faults), 'fault')}"
    power = (
        "a broken stream, a lost or doubled chunk, another text for the same tokens and tokens that do not "
        "add up to usage are caught in each stream tested; one that strikes by chance is met with 90% if it "
        f"touches {percent(rate_found(len(cases)))} of streams"
    )
    return Verdict(not faults, said, power, figures, faults)


def _faults(case: StreamCase) -> list[str]:
    if case.streamed is None:
        return [f"the stream broke: {case.broken}"]
    found, streamed = [], case.streamed
    if streamed.finish_reason is None:
        found.append("no finish_reason came")
    if streamed.ids and streamed.output_tokens is not None and len(streamed.ids) != streamed.output_tokens:
        found.append(f"usage counts {streamed.output_tokens} tokens, the chunks hold {len(streamed.ids)}")
    for own in (case.whole, case.baseline_whole):
        if streamed.ids and streamed.ids == own.ids and streamed.text != own.text:
            found.append("the same tokens, and another text")
            break
    return found


def odd_piece(whole: str, streamed: str) -> str | None:
    """How two texts differ, if by one piece that is in one of them only; None otherwise."""
    short, long = sorted((whole, streamed), key=len)
    head = next((n for n, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    tail = next(
        (n for n, (a, b) in enumerate(zip(short[::-1], long[::-1], strict=False)) if a != b), len(short)
    )
    if len(short) == len(long) or head + tail < len(short):
        return None
    piece = long[head : head + len(long) - len(short)]
    return f"{'missing' if long is whole else 'too much'} in the stream: {piece!r}"


Kind = Literal["object", "choice", "tool"]
TOOL = "record_choice"
#: Only closed values: any model that obeys it ends soon, and whether it obeys needs no library to tell.
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "colour": {"type": "string", "enum": ["red", "green", "blue"]},
        "urgent": {"type": "boolean"},
        "size": {"type": "integer", "enum": [1, 2, 3]},
    },
    "required": ["colour", "urgent", "size"],
    "additionalProperties": False,
}
#: A schema without a place for white space: a small model that would fill the object with it can only answer.
CHOICES = (
    "deliver it to the north-west corner of the building",
    "deliver it to the north-east corner of the building",
    "keep it at the post office until somebody asks for it",
)
CHOICE_SCHEMA: dict[str, Any] = {"type": "string", "enum": list(CHOICES)}


@dataclass(frozen=True)
class StructuredCase:
    """One request that demands `SCHEMA` (or `CHOICE_SCHEMA`).

    ``streamed`` is the candidate's answer to it as a stream.
    """

    name: str
    kind: Kind
    baseline: Answer
    candidate: Answer
    streamed: Answer | None = None


def conforms(kind: Kind, text: str) -> bool:
    """Whether ``text`` is one JSON value of the schema that goes with ``kind``."""
    try:
        value = json.loads(text)
    except ValueError:
        return False
    if kind == "choice":
        return value in CHOICES
    return (
        isinstance(value, dict)
        and set(value) == set(SCHEMA["required"])
        and value["colour"] in ("red", "green", "blue")
        and isinstance(value["urgent"], bool)
        and not isinstance(value["size"], bool)
        and value["size"] in (1, 2, 3)
    )


def judge_structured(cases: Sequence[StructuredCase], exact: bool) -> Verdict:
    """Whether the candidate obeys the schema wherever the baseline does.

    Only requests that the baseline itself answers whole and rightly are judged; were there none, the check
    could not be decided. Where the floor is exact, all answers are to be equal too, cut ones included.
    """
    sound = [case for case in cases if problem(case.kind, case.baseline) is None]
    faults = []
    for case in sound:
        answers = [("whole", case.candidate), *([("streamed", case.streamed)] if case.streamed else [])]
        for how, answer in answers:
            wrong = problem(case.kind, answer)
            if wrong is None and exact and content(case.kind, answer) != content(case.kind, case.baseline):
                wrong = "another answer than the baseline's"
            if wrong is not None:
                faults.append(f"{case.name} ({how}): {wrong}: {content(case.kind, answer)[:80]!r}")
    unequal = [
        c for c in cases if c not in sound and content(c.kind, c.candidate) != content(c.kind, c.baseline)
    ]
    if exact:
        faults += [f"{case.name}: a cut answer differs from the baseline's" for case in unequal]
    figures = {"requests": len(cases), "decidable": len(sound), "faults": len(faults)}
    said = f"{counted(len(sound), 'request')} of {len(cases)} answered by the baseline as the schema demands"
    power = (
        "an answer that breaks the schema is caught, of those tested; a fault that strikes by chance is met "
        f"with 90% if it touches {percent(rate_found(len(sound)))} of answers"
        + ("" if exact else "; which of the allowed values is chosen is not compared")
    )
    if faults:
        return Verdict(
            False, f"{said}, {counted(len(faults), 'fault')} of the candidate", power, figures, faults
        )
    if not sound:
        first = problem(cases[0].kind, cases[0].baseline) if cases else "nothing was asked"
        return undecided(
            f"the baseline itself meets the schema in none of {len(cases)} answers ({first})", figures
        )
    return Verdict(True, f"{said}, and by the candidate too", power, figures)


def content(kind: Kind, answer: Answer) -> str:
    """What is compared: the text, or the calls with their arguments."""
    return answer.text if kind != "tool" else json.dumps(answer.tool_calls)


def problem(kind: Kind, answer: Answer) -> str | None:
    """Why an answer is not what was demanded; None when it is."""
    if answer.finish_reason == "length":
        return "cut for length"
    if answer.finish_reason is None:
        return "no finish_reason came"
    if kind != "tool":
        return None if conforms(kind, answer.text) else "breaks the schema"
    if [name for name, _ in answer.tool_calls] != [TOOL]:
        return f"{len(answer.tool_calls)} calls of {TOOL}"
    return None if conforms(kind, answer.tool_calls[0][1]) else "arguments break the schema"
