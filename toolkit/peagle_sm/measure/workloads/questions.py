"""What a workload is made of, before it becomes requests; and how some of it is chosen. Pure."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Any

from peagle_sm.core.errors import SpecError


@dataclass(frozen=True)
class Question:
    """One prompt: the user's words, turn by turn, or a whole request body.

    ``prompt`` is a text (or token ids) to go on from, ``turns`` what a user says in a chat, ``body`` an
    OpenAI request as somebody wrote it. Exactly one of the three is given.
    """

    id: str
    prompt: str | tuple[int, ...] | None = None
    turns: tuple[str, ...] = ()
    body: Mapping[str, Any] | None = None
    category: str | None = None


@dataclass(frozen=True)
class Source:
    """All questions of one source; ``notes`` is what a reader of the figures must know."""

    name: str
    questions: tuple[Question, ...]
    origin: str  #: a file, or where it was fetched from
    sha256: str | None
    license: str | None
    notes: tuple[str, ...] = ()
    #: What every request of this workload carries besides the prompt.
    parameters: Mapping[str, Any] = field(default_factory=dict)


def choose(questions: Sequence[Question], count: int | None, seed: int) -> list[Question]:
    """``count`` questions (None: all), chosen by ``seed`` alone and balanced over the categories.

    A larger count extends a smaller one of the same seed.

    Raises:
        SpecError: fewer exist than were asked for, or fewer than one was.
    """
    if count is not None and not 1 <= count <= len(questions):
        raise SpecError(
            f"{count} prompts were asked for; this workload has {len(questions)}",
            next_step=f"ask for 1 to {len(questions)} (--prompts)",
            details={"found": count, "allowed": len(questions)},
        )
    by_category: dict[str, list[Question]] = defaultdict(list)
    for question in sorted(questions, key=lambda question: question.id):
        by_category[question.category or ""].append(question)
    shuffler = random.Random(seed)
    for category in sorted(by_category):
        shuffler.shuffle(by_category[category])
    rounds = zip_longest(*(by_category[category] for category in sorted(by_category)))
    ordered = [question for question in chain.from_iterable(rounds) if question is not None]
    return ordered[:count]


def refuse_repeated_ids(questions: Sequence[Question], origin: str) -> None:
    """Raise SpecError when two questions have the same id: their answers could not be told apart."""
    seen: set[str] = set()
    for question in questions:
        if question.id in seen:
            raise SpecError(
                f"{origin}: the id {question.id!r} appears twice",
                next_step="give each prompt an id of its own, or leave the ids out",
            )
        seen.add(question.id)
