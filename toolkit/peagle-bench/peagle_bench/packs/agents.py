"""Pack agents: recorded conversations of an agent with a tool, whose prompts grow with every turn. Pure.

A question takes two turns: the model calls the tool, in the form of Hermes, and answers from its result. A
turn's prompt is that of the turn before, the recorded answer, and what follows it. The answers are recorded
and not the model's own, so that all arms get the same prompts. The engine should find the earlier turns in
its prefix cache. Parts are questions, so that each has a call and an answer.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
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
    fitting,
    lengths,
    tokens_a_character,
)
from peagle_bench.results.records import RequestRecord
from peagle_bench.verify.statistics import CheckVerdict, percent, undecided

CONVERSATIONS = 24
QUESTIONS = 3
_MOST = 16_384  #: tokens of the last prompt; more shows the pack "long context"
_ANSWER = 64  #: tokens
_LEAST_QUESTION, _LEAST_CHAT = 180, 340  #: tokens of a question with its turns; in a chat with a document
_AROUND = 60  #: characters of a turn that are neither question nor answer: separators, the chat template's
_FEWEST_CACHED = 256  #: tokens of the turn before: two blocks of 128, of which an engine may drop one
_HITS = 0.5  #: share of the turns that must find the turn before in the cache
_FULL = 2048  #: tokens of the last prompt that show what the pack is for

_TOOL = {
    "name": "read",
    "description": "Read a document of the library.",
    "parameters": {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]},
}
#: In the messages and not in the field `tools`, which many chat templates leave out.
_SYSTEM = f"""You answer questions about a library of documents. You can call this function:
<tools>
{json.dumps({"type": "function", "function": _TOOL})}
</tools>
To call it, write a JSON object between <tool_call> and </tool_call>:
<tool_call>
{{"name": "read", "arguments": {{"title": "the title of a document"}}}}
</tool_call>
Then answer with the sentence that was asked for, word for word."""


def make(settings: Make) -> PackWork:
    """Make the recorded conversations."""
    model, units = settings.model, settings.units or CONVERSATIONS
    last = min(lengths(model.context, _ANSWER, shortest=1, most=1)[0], _MOST)
    rate = tokens_a_character(model)
    least, system = (_LEAST_QUESTION, 0) if model.stand_in else (_LEAST_CHAT, len(_SYSTEM))
    count = max(2, min(QUESTIONS, last // least))
    each = int((last / rate - system) / count)
    items = tuple(_conversation(model, settings.seed, unit, count, each) for unit in range(units))
    notes = () if last >= _FULL else (f"scaled down: the last turn's prompt has about {last:,} tokens",)
    return PackWork(items, notes)


def _conversation(model: ServedModel, seed: int, unit: int, count: int, characters: int) -> WorkItem:
    rng = random.Random(f"agents {seed} {unit}")
    source = documents(model, f"agents {seed} {unit}")
    if model.stand_in:
        results = [_result(rng, source, characters // 2, _AROUND) for _ in range(2 * count)]
        return _turn(unit, 0, 2 * count, partial(_code_body, results))
    results = [_result(rng, source, characters, 4 * _AROUND) for _ in range(count)]
    return _turn(unit, 0, 2 * count, partial(_chat_body, results))


Result = tuple[str, SourceText]


def _result(rng: random.Random, source: Iterator[SourceText], characters: int, around: int) -> Result:
    """Return a tool's result and the document that is asked about: with its answer about ``characters``."""
    chosen = enough(source, characters)
    longest = max(len(document.question) + len(document.passage) for document in chosen)
    room = max(1, characters - longest - around)
    about = rng.choice(chosen[: max(1, fitting(chosen, room))])
    return BETWEEN.join(document.text for document in chosen)[:room], about


def _turn(unit: int, number: int, count: int, build: Callable[[int], dict[str, Any]]) -> WorkItem:
    body = {**build(number), "max_tokens": _ANSWER, "temperature": 0.0}
    item = WorkItem(
        f"{unit}/conversation",
        body,
        category=("call", "answer")[number % 2],
        turn=number,
        share=f"agents {unit}",
    )
    if number + 1 == count:
        return item
    return replace(item, then=lambda answer: _turn(unit, number + 1, count, build))


def _chat_body(results: Sequence[Result], turn: int) -> dict[str, Any]:
    messages = [{"role": "system", "content": _SYSTEM}]
    for result, about in results:
        title = about.text.partition("\n")[0]
        call = json.dumps({"name": _TOOL["name"], "arguments": {"title": title}})
        messages += [
            {"role": "user", "content": about.question},
            {"role": "assistant", "content": f"<tool_call>\n{call}\n</tool_call>"},
            {"role": "user", "content": f"<tool_response>\n{result}\n</tool_response>"},
            {"role": "assistant", "content": about.passage},
        ]
    return {"messages": messages[: 2 * turn + 2]}


def _code_body(results: Sequence[Result], turn: int) -> dict[str, Any]:
    parts: list[str] = []
    for result, about in results[: turn + 1]:
        parts += [result, BETWEEN, about.question, about.passage, BETWEEN]
    return {"prompt": "".join(parts[:-2])}


def _question(record: RequestRecord) -> str:
    return str(record.turn // 2 + 1)


def judge(observed: Observed) -> Judgement:
    """Judge acceptance by question, and that turns find the one before in the prefix cache."""
    own = answered(observed.requests)
    parts = sorted({_question(record) for record in own}, key=int) or ["1"]
    by_question = falls(own, parts, alpha=observed.alpha, by="question {}", part=_question, unit=unit_of)
    checks = {
        "acceptance by question": drafts_applicable(observed.arm.mode, by_question),
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
    lengths_ = acceptance_by(own, _question)
    known = [f"{lengths_[part]:.2f}" for part in parts if part in lengths_]
    return f"acceptance by question: {', '.join(known)}" if known else ""


PACK = Pack(
    name="agents",
    shows="recorded conversations of an agent that calls a tool; prompts grow with every turn",
    passes=(
        f"{no_fall('the first question')}; later turns find the earlier ones in the prefix cache; the answers"
        " are the target's own"
    ),
    finds="a prefix cache that does not work with speculation, and acceptance that falls by question",
    needs=(
        "a context of 512 tokens or more",
        "an engine that reports cached tokens (--enable-prompt-tokens-details)",
        "an arm without speculation, for the identity of answers",
    ),
    make=make,
    judge=judge,
    least_context=512,
)
