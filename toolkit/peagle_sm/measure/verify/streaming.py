"""Streaming: the chunks joined are the answer that comes whole. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from peagle_sm.measure.verify.answers import Answer
from peagle_sm.measure.verify.figures import ALPHA, fisher_greater, rate_found
from peagle_sm.measure.verify.verdict import Verdict, counted, percent, undecided


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
