"""Pack long context: to the model's limit, with answers at sampled positions. Pure.

Each unit is one long text, cut to several lengths, and always with the same question about its beginning at
the end: so its parts differ in position alone. The last answer ends with the context, where an engine must
draft fewer tokens. Prompts are token ids, so that every length is exact.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import takewhile

from peagle_bench.load import WorkItem
from peagle_bench.packs.judges import (
    acceptance_by,
    answered,
    drafts_applicable,
    falls,
    no_fall,
    part_of,
)
from peagle_bench.packs.pack import (
    Judgement,
    Make,
    Observed,
    Pack,
    PackNotMeasured,
    PackWork,
    ServedModel,
)
from peagle_bench.packs.texts import BETWEEN, SourceText, documents, enough, tokens_a_character
from peagle_bench.results.records import RequestRecord
from peagle_bench.verify.statistics import CheckVerdict, counted, not_applicable, undecided

UNITS = 24
PARTS = 4  #: of the context, by length; one more reaches its limit
_ANSWER = 48  #: tokens
_ROOM = 24  #: tokens of the answer that reaches the limit
_MARKS = ("once", "many")  #: texts in the place of the long one, to find what is around it
_LIMIT = "limit"  #: the last part of a unit
AT_LIMIT = "at limit"  #: fact: whether the last part ends at the model's own limit
_FULL = 4096  #: a context that shows what the pack is for


def make(settings: Make) -> PackWork:
    """Make the prompts of each unit, shortest first.

    Raises:
        PackNotMeasured: the engine does not return token ids for a long text.
    """
    model, units = settings.model, settings.units or UNITS
    context = model.context
    lengths = [context * (2 * part + 1) // (2 * PARTS) for part in range(PARTS)]
    rate = tokens_a_character(model)
    items: list[WorkItem] = []
    questions: dict[str, str] = {}
    for unit in range(units):
        rng = random.Random(f"long context {settings.seed} {unit}")
        source = documents(model, f"long context {settings.seed} {unit}")
        first = next(source)
        begin, end = _around(model, first.question)
        around = len(begin) + len(end)
        ids = _ids(model, first, source, int(1.3 * context / rate))
        if len(ids) < context - around:
            raise PackNotMeasured(
                f"a text of {context:,} tokens has only {len(ids):,} in this model's tokenizer",
                next_step="report this: the texts of the pack are too short for this tokenizer",
            )
        asked_about = around + int(rate * len(first.text))
        shortest = max(around + 8, min(asked_about, context // PARTS))
        for part, length in enumerate(lengths):
            # A position sampled within the part, so that runs of different seeds see different ones.
            at = length + rng.randint(-context // (4 * PARTS), context // (4 * PARTS))
            at = max(shortest, min(at, context - _ANSWER))
            items.append(_item(f"{unit}/{part + 1}", begin + ids[: at - around] + end, _ANSWER, unit))
        prompt = begin + ids[: context - _ROOM - around] + end
        items.append(_item(f"{unit}/{_LIMIT}", prompt, _ROOM, unit))
        questions |= {item.prompt_id: first.question for item in items[-PARTS - 1 :]}
    notes = () if context >= _FULL else (f"scaled down to the context of {context:,} tokens",)
    at_limit = model.limit is not None and context >= model.limit
    return PackWork(tuple(items), notes, {AT_LIMIT: at_limit, **questions})


def _around(model: ServedModel, question: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the tokens before and after the long text: the chat template's, and the question."""
    if model.stand_in:
        return (), tuple(model.tokenize(BETWEEN + question))
    chats = [f"Documents:\n\n{mark}{BETWEEN}Question: {question}" for mark in _MARKS]
    once, many = (
        tuple(model.ids_of({"messages": [{"role": "user", "content": content}]})) for content in chats
    )
    begin = _common(once, many)
    return begin, _common(once[len(begin) :][::-1], many[len(begin) :][::-1])[::-1]


def _common(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    """Return the tokens with which both begin."""
    return tuple(
        token for token, _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))
    )


def _ids(
    model: ServedModel, first: SourceText, source: Iterator[SourceText], characters: int
) -> tuple[int, ...]:
    # The engine refuses texts longer than its context, and asking it in pieces costs little.
    piece = max(200, int(characters / 4))
    whole = "".join(document.text + BETWEEN for document in [first, *enough(source, characters)])
    ids: list[int] = []
    for at in range(0, len(whole), piece):
        ids += model.tokenize(whole[at : at + piece])
        if len(ids) >= model.context:
            break
    return tuple(ids)


def _item(name: str, ids: tuple[int, ...], answer: int, unit: int) -> WorkItem:
    body = {"prompt": list(ids), "max_tokens": answer, "temperature": 0.0}
    place = name.partition("/")[2]
    category = place if place == _LIMIT else f"quarter {place}"
    return WorkItem(name, body, category=category, share=f"long context {unit}")


def judge(observed: Observed) -> Judgement:
    """Judge acceptance by position, the limit, and the identity of answers."""
    own = answered(observed.requests)
    parts = [str(part + 1) for part in range(PARTS)]
    by_position = falls(own, parts, alpha=observed.alpha, by="quarter {}")
    checks = {
        "limit": not_applicable(
            "no prompt reaches the model's own limit: --context is smaller, or the limit is not known"
        ),
        "acceptance by position": drafts_applicable(observed.arm.mode, by_position),
    }
    if observed.work.facts.get(AT_LIMIT):
        checks["limit"] = judge_limit(own, answered(observed.baseline_requests))
    return Judgement(checks, _figure(own, parts))


def judge_limit(own: Sequence[RequestRecord], baseline: Sequence[RequestRecord]) -> CheckVerdict:
    """Judge whether answers at the model's limit fill the context, or end by themselves.

    An engine that has no room for its drafts may end an answer too early. An answer that the baseline ends
    too early says nothing about the arm.
    """
    last = [record for record in own if part_of(record) == _LIMIT]
    if not last:
        return undecided("no prompt at the context's limit was answered")
    early_without = {record.prompt_id for record in baseline if not _ends_well(record)}
    wrong = [record for record in last if not _ends_well(record) and record.prompt_id not in early_without]
    longest = max((record.input_tokens or 0) + (record.output_tokens or 0) for record in last)
    figures: dict[str, float] = {"prompts": len(last), "longest_tokens": longest, "faults": len(wrong)}
    summary = f"{counted(len(last), 'answer')} at the limit, up to {longest:,} tokens"
    if wrong:
        summary = f"{len(wrong)} of {summary}, do not end there"
    power = (
        f"detects any answer that ends before the model's limit without an end of its own ({_ROOM} tokens)"
    )
    examples = [
        f"{record.prompt_id}: {record.output_tokens} of {_ROOM} tokens, {record.finish_reason}"
        for record in wrong
    ]
    return CheckVerdict(not wrong, summary, power, figures, examples)


def _ends_well(record: RequestRecord) -> bool:
    tokens = record.output_tokens or 0
    return (
        tokens == _ROOM
        if record.finish_reason == "length"
        else record.finish_reason == "stop" and tokens <= _ROOM
    )


def _figure(own: list[RequestRecord], parts: list[str]) -> str:
    lengths = acceptance_by(own, part_of)
    known = [part for part in parts if part in lengths]
    if not known:
        return ""
    figures = ", ".join(f"{lengths[part]:.2f}" for part in known)
    return f"acceptance by quarter of the context: {figures}"


PACK = Pack(
    name="long-context",
    shows="answers at sampled positions of long texts, up to the last token of the context",
    passes=(
        f"{no_fall('the first quarter')}; answers at the model's own limit fill the context, and all are the"
        " target's own at every position"
    ),
    finds="another answer, or a fall of acceptance, that shows only at far positions",
    needs=("a context of 256 tokens or more", "an arm without speculation, for the identity of answers"),
    make=make,
    judge=judge,
)
