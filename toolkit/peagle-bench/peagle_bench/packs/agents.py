"""Pack agents: recorded conversations of an agent, whose prompts grow with every turn. Pure.

A turn's prompt is that of the turn before, the recorded answer, and the result of a tool. The answers are
recorded and not the model's own, so that all arms get the same prompts. The engine should find the earlier
turns in its prefix cache.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from peagle_bench.load import WorkItem
from peagle_bench.packs.judges import (
    acceptance_by,
    answered,
    drafts_applicable,
    falls,
    no_fall,
    unit_of,
)
from peagle_bench.packs.pack import Judgement, Make, Observed, Pack, PackWork, ServedModel
from peagle_bench.packs.texts import (
    BETWEEN,
    SourceText,
    documents,
    enough,
    lengths,
    tokens_a_character,
)
from peagle_bench.results.records import RequestRecord
from peagle_bench.verify.statistics import CheckVerdict, percent, undecided

CONVERSATIONS = 24
TURNS = 6
_MOST = 16_384  #: tokens of the last prompt; more shows the pack "long context"
_ANSWER = 64  #: tokens
_LEAST_TURN = 90  #: tokens of a turn with its question and answer
_AROUND = 60  #: characters of a turn that are neither: separators, and the chat template's
_FEWEST_CACHED = 256  #: tokens of the turn before: two blocks of 128, of which an engine may drop one
_HITS = 0.5  #: share of the turns that must find the turn before in the cache
_FULL = 2048  #: tokens of the last prompt that show what the pack is for

_SYSTEM = (
    "You are an agent that works on a library of documents. Call `read(title)` to read a document, and answer"
    " with the sentence that was asked for, word for word."
)


def make(settings: Make) -> PackWork:
    """Make the recorded conversations."""
    model, units = settings.model, settings.units or CONVERSATIONS
    last = min(lengths(model.context, _ANSWER, shortest=1, most=1)[0], _MOST)
    rate = tokens_a_character(model)
    count = max(2, min(TURNS, last // _LEAST_TURN))
    each = int((last / rate - (0 if model.stand_in else len(_SYSTEM))) / count)
    items = tuple(_conversation(model, settings.seed, unit, count, each) for unit in range(units))
    notes = () if last >= _FULL else (f"scaled down: the last turn's prompt has about {last:,} tokens",)
    return PackWork(items, notes)


def _conversation(model: ServedModel, seed: int, unit: int, count: int, characters: int) -> WorkItem:
    rng = random.Random(f"agents {seed} {unit}")
    source = documents(model, f"agents {seed} {unit}")
    turns = [_observation(rng, source, characters) for _ in range(count)]
    build = _code_body if model.stand_in else _chat_body
    return _turn(unit, 0, turns, build)


def _observation(rng: random.Random, source: Any, characters: int) -> tuple[str, SourceText]:
    """Return a tool's result and the document that is asked about: with its answer about ``characters``."""
    chosen = enough(source, characters)
    about = rng.choice(chosen)
    room = characters - len(about.question) - len(about.passage) - _AROUND
    return BETWEEN.join(document.text for document in chosen)[: max(1, room)], about


Turn = tuple[str, SourceText]
Build = Callable[[Sequence[Turn]], dict[str, Any]]


def _turn(unit: int, number: int, turns: Sequence[Turn], build: Build) -> WorkItem:
    body = {**build(turns[: number + 1]), "max_tokens": _ANSWER, "temperature": 0.0}
    item = WorkItem(
        f"{unit}/conversation",
        body,
        category=f"turn {number + 1}",
        turn=number,
        share=f"agents {unit}",
    )
    if number + 1 == len(turns):
        return item
    return replace(item, then=lambda answer: _turn(unit, number + 1, turns, build))


def _chat_body(turns: Sequence[Turn]) -> dict[str, Any]:
    messages = [{"role": "system", "content": _SYSTEM}]
    for number, (result, about) in enumerate(turns):
        messages.append({"role": "user", "content": f"Result of read():\n{result}\n\n{about.question}"})
        if number + 1 < len(turns):
            messages.append({"role": "assistant", "content": about.passage})
    return {"messages": messages}


def _code_body(turns: Sequence[Turn]) -> dict[str, Any]:
    parts: list[str] = []
    for number, (result, about) in enumerate(turns):
        parts += [result, BETWEEN, about.question]
        parts += [about.passage, BETWEEN] if number + 1 < len(turns) else []
    return {"prompt": "".join(parts)}


def _by_turn(record: RequestRecord) -> str:
    return str(record.turn + 1)


def judge(observed: Observed) -> Judgement:
    """Judge acceptance by turn, and that turns find the one before in the prefix cache."""
    own = answered(observed.requests)
    parts = [str(turn + 1) for turn in range(max((record.turn for record in own), default=0) + 1)]
    by_turn = falls(own, parts, alpha=observed.alpha, by="turn {}", part=_by_turn, unit=unit_of)
    checks = {
        "acceptance by turn": drafts_applicable(observed.arm.mode, by_turn),
        "prefix cache": judge_cache(own),
    }
    return Judgement(checks, _figure(own, parts))


def judge_cache(own: Sequence[RequestRecord]) -> CheckVerdict:
    """Judge whether turns find the turn before in the prefix cache.

    Turns count whose predecessor has enough tokens for a few blocks: an engine caches whole blocks (of up to
    128 tokens), and one that speculates may leave the last one out.
    """
    before = {(record.prompt_id, record.turn): record.input_tokens or 0 for record in own}
    later = [
        (record, before[record.prompt_id, record.turn - 1])
        for record in own
        if before.get((record.prompt_id, record.turn - 1), 0) >= _FEWEST_CACHED
    ]
    if not later:
        return undecided(f"no turn follows a prompt of {_FEWEST_CACHED} tokens or more")
    if all(record.cached_tokens is None for record, _ in later):
        return undecided(
            "the engine does not report cached tokens; deploy with serving.env"
            " SM_VLLM_ENABLE_PROMPT_TOKENS_DETAILS: 'true'"
        )
    hits = [record for record, _ in later if record.cached_tokens]
    share = sum(record.cached_tokens or 0 for record, _ in later) / sum(tokens for _, tokens in later)
    figures = {"turns": float(len(later)), "hits": float(len(hits)), "cached_share": share}
    summary = (
        f"{len(hits)} of {len(later)} later turns found the turn before in the cache, {percent(share)} of its"
        " tokens"
    )
    power = f"detects that fewer than {_HITS:.0%} of the turns find the turn before"
    missed = [
        f"{record.prompt_id}, turn {record.turn + 1}: 0 of {tokens:,} tokens"
        for record, tokens in later
        if not record.cached_tokens
    ]
    return CheckVerdict(len(hits) >= _HITS * len(later), summary, power, figures, missed)


def _figure(own: list[RequestRecord], parts: list[str]) -> str:
    by_turn = acceptance_by(own, _by_turn)
    known = [part for part in parts if part in by_turn]
    return "acceptance by turn: " + ", ".join(f"{by_turn[part]:.2f}" for part in known) if known else ""


PACK = Pack(
    name="agents",
    shows="recorded conversations of an agent, whose prompts grow with every turn",
    passes=(
        f"{no_fall('the first turn')}; later turns find the earlier ones in the prefix cache; the answers"
        " are the target's own"
    ),
    finds="a prefix cache that does not work with speculation, and acceptance that falls by turn",
    needs=(
        "a context of 512 tokens or more",
        "an engine that reports cached tokens (--enable-prompt-tokens-details)",
        "an arm without speculation, for the identity of answers",
    ),
    stand_ins="cache hits and acceptance by turn are real; the stand-in calls no tools",
    make=make,
    judge=judge,
    least_context=512,
)
