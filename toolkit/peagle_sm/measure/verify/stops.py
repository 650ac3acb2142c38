"""Stop strings: the answer ends where the string begins, and nothing of it leaks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from peagle_sm.measure.verify.answers import Answer
from peagle_sm.measure.verify.figures import ALPHA, fisher_greater, rate_found
from peagle_sm.measure.verify.verdict import Verdict, counted, percent, undecided


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
