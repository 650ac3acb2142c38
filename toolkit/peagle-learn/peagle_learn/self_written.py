"""Prompts that the target writes itself: it continues a chat that ends where a user's turn begins.

This is Magpie (Xu et al., arXiv:2406.08464): a model that was tuned on chats writes what its users would.
Where the turn begins and ends comes from the endpoint's own chat template, as token ids: two chats that
differ in the user's text alone are sent, and what their prompts have in common is the template.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from peagle_learn.core.spec import SelfWrittenSpec
from peagle_learn.core.token_rows import answer_text, prompt_ids_of
from peagle_learn.sampling import Journal, Sampling, Streams
from peagle_sm.aws.files import write_file
from peagle_sm.core.errors import ServiceFault
from peagle_sm.traffic.redaction import Redactor

LONGEST = 256  #: tokens of a prompt; a longer one is left out, since it would end in the middle
FILE = "self-written.jsonl"
_ROUNDS = 3  #: of tries, each for the prompts that are still missing
_TEXTS = ("x", "7")  #: each one token of any vocabulary, and never merged with the same neighbours


@dataclass(frozen=True)
class UserTurn:
    """A user's turn in the chat template: the token ids before its text, and the one that ends it."""

    before: tuple[int, ...]
    end: int


@dataclass(frozen=True)
class WantedPrompt:
    """One prompt to write, the ``number``-th of its group."""

    group: SelfWrittenSpec
    turn: UserTurn
    number: int

    @property
    def key(self) -> str:
        """Its name in the journal."""
        return f"{_group_key(self.group)}/{self.number}"

    @property
    def body(self) -> dict[str, Any]:
        """The request: a completion that begins with token ids."""
        return {
            "prompt": list(self.turn.before),
            "max_tokens": LONGEST,
            "temperature": self.group.temperature,
            "top_p": 1.0,
            "seed": int.from_bytes(hashlib.sha256(self.key.encode()).digest()[:4], "big"),
            "stop_token_ids": [self.turn.end],
            "return_token_ids": True,
        }


def _group_key(group: SelfWrittenSpec) -> str:
    parts = [group.category, group.system, group.temperature, group.answer_temperature]
    return "written-" + hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:8]


def missing(groups: Iterable[SelfWrittenSpec], journal: Journal) -> int:
    """Return how many prompts are still to be written."""
    return sum(max(0, group.count - len(_texts_of(group, journal))) for group in groups)


def write_file_of(groups: Iterable[SelfWrittenSpec], journal: Journal, work: Path) -> list[str]:
    """Write the prompts that exist into one file of requests; return its path, or nothing without any."""
    lines = [
        {
            "id": key,
            "messages": [{"role": "user", "content": text}],
            "temperature": group.answer_temperature,
        }
        | ({"category": group.category} if group.category else {})
        for group in groups
        for key, text in _texts_of(group, journal)[: group.count]
    ]
    if not lines:
        return []
    content = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    write_file(work / FILE, content.encode("utf-8", "replace"), parents=True)
    return [str(work / FILE)]


def _texts_of(group: SelfWrittenSpec, journal: Journal) -> list[tuple[str, str]]:
    begin = _group_key(group) + "/"
    texts = [(key, text) for key, text in journal.written.items() if key.startswith(begin)]
    return sorted(texts, key=lambda each: int(each[0].removeprefix(begin)))


def write_prompts(sampling: Sampling, groups: Sequence[SelfWrittenSpec]) -> str | None:
    """Let the target write the prompts that are missing; return what stopped it early, such as the budget.

    A prompt that is empty, too long or has a secret is left out, and another is written in its place; of
    `_ROUNDS` rounds some may still be missing.

    Raises:
        ServiceFault: the endpoint fails, or its chat template cannot be seen; what was written is kept.
        StreamError: many streams broke one after the other.
        SpecError: the endpoint refuses the chats.
    """
    journal = sampling.journal
    for group in groups:
        turn: UserTurn | None = None
        for _ in range(_ROUNDS):
            lacking = missing([group], journal)
            if not lacking:
                break
            turn = turn or user_turn(sampling.engine, group.system)
            first = 1 + max(_numbers(group, journal), default=0)
            todo = [WantedPrompt(group, turn, number) for number in range(first, first + lacking)]
            stopped = sampling.ask(todo, group.count, lambda each: _line(sampling, each), "written")
            if stopped is not None:
                return stopped
    return None


def _numbers(group: SelfWrittenSpec, journal: Journal) -> Iterator[int]:
    begin = _group_key(group) + "/"
    for key in (*journal.written, *journal.left_out):
        if key.startswith(begin):
            yield int(key.removeprefix(begin))


def _line(sampling: Sampling, wanted: WantedPrompt) -> Mapping[str, Any]:
    events = sampling.stream(wanted.body)
    text = answer_text(events).strip()
    reasons = [choice.get("finish_reason") for event in events for choice in event.get("choices") or ()]
    if not text:
        return {"prompt": wanted.key, "why": "the target wrote an empty prompt"}
    if "length" in reasons:
        return {"prompt": wanted.key, "why": f"the target wrote more than {LONGEST} tokens"}
    if Redactor().text(text) != text:
        return {"prompt": wanted.key, "why": "the target wrote a secret into the prompt"}
    return {"prompt": wanted.key, "written": text}


def user_turn(engine: Streams, system: str | None) -> UserTurn:
    """Return where a user's turn begins and ends in the endpoint's chat template.

    Raises:
        ServiceFault: the endpoint sends no token ids of the prompt, or nothing follows the user's text.
    """
    before = [] if system is None else [{"role": "system", "content": system}]
    one, other = (
        prompt_ids_of(
            engine.stream(
                {
                    "messages": [*before, {"role": "user", "content": text}],
                    "max_tokens": 1,
                    "return_token_ids": True,
                }
            )
        )
        for text in _TEXTS
    )
    begin = _shared(one, other)
    after = _shared(one[len(begin) :][::-1], other[len(begin) :][::-1])[::-1]
    if not begin or not after:
        raise ServiceFault(
            "the endpoint's chat template shows no token that ends a user's turn, so the target cannot write"
            f" prompts (prompts of {len(one):,} and {len(other):,} token ids came back)",
            code="NoUserTurn",
            next_step="Use a chat model and vLLM 0.10.2 or later, or leave data.self_written out.",
        )
    return UserTurn(begin, after[0])


def _shared(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    """Return what two sequences have in common at their beginning."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return tuple(token for token, _ in pairs)
