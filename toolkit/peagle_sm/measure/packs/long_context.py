"""Pack long context: to the model's limit, with answers at sampled positions. Pure.

Each unit is one long text, cut to several lengths, and always with the same end: so its parts differ in
position alone. The last answer ends with the context, where an engine must draft fewer tokens. Prompts are
token ids, so that every length is exact.
"""

from __future__ import annotations

import random

from peagle_sm.measure.load import WorkItem
from peagle_sm.measure.packs.judges import (
    FALLEN,
    acceptance_by,
    answered,
    drafts_applicable,
    falls,
    judge_answered,
    part_of,
)
from peagle_sm.measure.packs.pack import Judgement, Make, Observed, Pack, PackNotMeasured, PackWork
from peagle_sm.measure.packs.texts import BETWEEN, LICENSE, SOURCE, documents, tokens_a_character
from peagle_sm.measure.results.records import RequestRecord
from peagle_sm.measure.verify.statistics import CheckVerdict, counted, undecided

UNITS = 24
PARTS = 4  #: of the context, by length; one more reaches its limit
_ANSWER = 48  #: tokens
_END = 96  #: tokens at the end of every prompt of a unit, which are the same
_LIMIT = "limit"
_FULL = 4096  #: a context that shows what the pack is for


def make(asked: Make) -> PackWork:
    """Make the prompts of each unit, shortest first.

    Raises:
        PackNotMeasured: the engine does not return token ids for a long text.
    """
    model, units = asked.model, asked.units or UNITS
    context = model.context
    lengths = [context * (2 * part + 1) // (2 * PARTS) for part in range(PARTS)]
    rate = tokens_a_character(model)
    ending = min(_END, context // 8)
    items: list[WorkItem] = []
    for unit in range(units):
        rng = random.Random(f"long context {asked.seed} {unit}")
        ids = _ids(asked, unit, int(1.3 * context / rate))
        end, ids = ids[:ending], ids[ending:]
        if len(ids) < context - ending:
            raise PackNotMeasured(
                f"a text of {context:,} tokens has only {len(ids):,} in this model's tokenizer",
                next_step="report this: the texts of the pack are too short for this tokenizer",
            )
        for part, length in enumerate(lengths):
            # A position sampled within the part, so that runs of different seeds see different ones.
            at = length + rng.randint(-context // (4 * PARTS), context // (4 * PARTS))
            at = max(ending + 8, min(at, context - _ANSWER))
            items.append(_item(f"{unit}/{part + 1}", ids[: at - ending] + end, _ANSWER, unit))
        room = _ANSWER // 2
        items.append(_item(f"{unit}/{_LIMIT}", ids[: context - room - ending] + end, room, unit))
    notes = () if context >= _FULL else (f"scaled down to the context of {context:,} tokens",)
    return PackWork(tuple(items), SOURCE, LICENSE, notes)


def _ids(asked: Make, unit: int, characters: int) -> tuple[int, ...]:
    source = documents(asked.model, f"long context {asked.seed} {unit}")
    texts: list[str] = []
    while sum(map(len, texts)) < characters:
        texts.append(next(source).text + BETWEEN)
    # The engine refuses texts longer than its context, and asking it in pieces costs little.
    piece = max(200, int(characters / 4))
    whole = "".join(texts)
    found: list[int] = []
    for at in range(0, len(whole), piece):
        found += asked.model.tokenize(whole[at : at + piece])
        if len(found) >= asked.model.context + _END:
            break
    return tuple(found)


def _item(name: str, ids: tuple[int, ...], answer: int, unit: int) -> WorkItem:
    body = {"prompt": list(ids), "max_tokens": answer, "temperature": 0.0}
    place = name.partition("/")[2]
    return WorkItem(name, body, category=f"part {place}", share=f"long context {unit}")


def judge(observed: Observed) -> Judgement:
    """Judge acceptance by position, the limit, and the identity of answers."""
    own = answered(observed.requests)
    parts = [str(part + 1) for part in range(PARTS)]
    by_position = falls(own, parts, alpha=observed.alpha, by="quarter {}")
    checks = {
        "answered": judge_answered(observed.requests, observed.baseline_requests),
        "limit": _judge_limit(own),
        "acceptance by position": drafts_applicable(observed.arm.mode, by_position),
    }
    if observed.identity is not None:
        checks["identity"] = observed.identity
    return Judgement(checks, _figure(own, parts))


def _judge_limit(own: list[RequestRecord]) -> CheckVerdict:
    """Judge whether no answer at the limit is longer than the room that its prompt leaves."""
    last = [one for one in own if part_of(one) == _LIMIT]
    if not last:
        return undecided("no prompt at the context's limit was answered")
    longest = max((one.input_tokens or 0) + (one.output_tokens or 0) for one in last)
    figures: dict[str, float] = {"prompts": len(last), "longest_tokens": longest}
    over = [one for one in last if (one.output_tokens or 0) > _ANSWER // 2]
    unended = [one for one in last if one.finish_reason not in ("stop", "length")]
    said = f"{counted(len(last), 'answer')} at the limit, up to {longest:,} tokens"
    power = "detects any answer that does not end at the context's limit"
    examples = [f"{one.prompt_id}: {one.output_tokens} tokens, {one.finish_reason}" for one in over + unended]
    return CheckVerdict(not examples, said, power, figures, examples)


def _figure(own: list[RequestRecord], parts: list[str]) -> str:
    lengths = acceptance_by(own, part_of)
    known = [part for part in parts if part in lengths]
    if not known:
        return ""
    said = ", ".join(f"{lengths[part]:.2f}" for part in known)
    return f"acceptance by quarter of the context: {said}"


PACK = Pack(
    name="long-context",
    shows="answers at sampled positions of long texts, up to the last token of the context",
    passes=(
        f"acceptance does not fall below {FALLEN:.0%} of that of the first quarter, answers end at the limit,"
        " and they"
        " are the target's own at every position"
    ),
    finds="another answer, or a fall of acceptance, that shows only at far positions",
    needs=("a context of 256 tokens or more", "an arm without speculation, for the identity of answers"),
    data=f"{SOURCE}; {LICENSE}",
    stand_ins="positions, identity and acceptance are real, up to the stand-in's 8,192 tokens",
    make=make,
    judge=judge,
)
