"""Seeded texts of the packs: documents with a passage to quote, as prose for chat models and as code. Pure.

Names and figures are invented, so nothing of it was in a model's training data and no licence applies. The
tests' small model only continues code: for it the documents are functions, and a question is the beginning
of one of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, takewhile

from peagle_bench.packs.pack import ServedModel


@dataclass(frozen=True)
class SourceText:
    """A document, a question that a passage of it answers, and that passage."""

    text: str
    question: str
    passage: str


_SYLLABLES = (
    *("bar", "bel", "cor", "dan", "dor", "el", "fen", "gar", "hal", "ker", "lan", "lor", "mar", "mel", "nor"),
    *("ost", "pel", "quin", "ras", "sel", "tam", "ter", "ul", "van", "vel", "wen", "yar", "zan"),
)
_THINGS = ("bridge", "library", "harbour", "observatory", "mill", "tower", "market hall", "canal", "museum")
_PLANS = (
    "It was designed by {person} of {town}, whose other works include the {other} in {place}.",
    "In {year} its roof was replaced at a cost of {cost} crowns, paid by the guild of {trade}s.",
    "Every {month} the {trade}s of {place} meet there to settle the prices of the coming year.",
    "A flood in {year} reached a height of {height} centimetres, which a mark on the north wall still shows.",
    "The collection of {person} came here in {year} and has grown to {count} pieces since.",
    "From its upper floor one sees as far as {place}, {distance} kilometres to the north.",
    "The {trade}s kept their records here until {year}, when they moved to {town}.",
    "Two of its {count} windows are older than the walls, and nobody knows where they came from.",
)
_TRADES = ("weaver", "baker", "glazier", "carter", "printer", "dyer", "cooper", "ropemaker")
_MONTHS = ("January", "March", "May", "June", "September", "October", "November")


def invented_name(rng: random.Random) -> str:
    """Return a name of two or three syllables."""
    return "".join(rng.choice(_SYLLABLES) for _ in range(rng.choice((2, 2, 3)))).capitalize()


def prose(rng: random.Random) -> SourceText:
    """Make a document of some 150 words about an invented building."""
    name, town, thing = invented_name(rng), invented_name(rng), rng.choice(_THINGS)
    passage = (
        f"The {thing} of {name} was opened on {rng.randint(1, 28)} {rng.choice(_MONTHS)}"
        f" {rng.randint(1610, 1990)} by {invented_name(rng)} {invented_name(rng)};"
        f" {rng.randint(200, 9000):,} people came."
    )
    sentences = [
        plan.format(
            person=f"{invented_name(rng)} {invented_name(rng)}",
            town=town,
            other=rng.choice(_THINGS),
            place=invented_name(rng),
            trade=rng.choice(_TRADES),
            month=rng.choice(_MONTHS),
            year=rng.randint(1650, 2010),
            cost=rng.randint(300, 90_000),
            height=rng.randint(40, 400),
            count=rng.randint(12, 4000),
            distance=rng.randint(3, 90),
        )
        for plan in rng.sample(_PLANS, 6)
    ]
    sentences.insert(rng.randint(1, len(sentences)), passage)
    text = f"The {thing} of {name}\nIt stands in {town}. {' '.join(sentences)}"
    question = f"Quote the sentence that says when the {thing} of {name} was opened, word for word."
    return SourceText(text, question, passage)


_VERBS = ("merge", "count", "filter", "sort", "group", "index", "collect", "check", "split", "join")
_NOUNS = (
    "order",
    "node",
    "path",
    "token",
    "user",
    "edge",
    "line",
    "record",
    "value",
    "name",
    "item",
    "field",
)
_PARTS = ("key", "size", "index", "count", "name", "weight", "length", "state", "level", "parent")
_BODIES = (
    """    result = []
    for {noun} in {noun}s:
        if {noun}.{part} > {low}:
            result.append({noun}.{other})
    return result
""",
    """    found = {{}}
    for {noun} in {noun}s:
        {part} = {noun}.{part}
        if {part} not in found:
            found[{part}] = []
        found[{part}].append({noun})
    return found
""",
    """    total = {low}
    for index, {noun} in enumerate({noun}s):
        if index >= limit:
            break
        total += {noun}.{part} * {noun}.{other}
    return total
""",
    """    if not {noun}s:
        raise ValueError("no {noun}s")
    best = {noun}s[0]
    for {noun} in {noun}s[1:]:
        if {noun}.{part} < best.{part}:
            best = {noun}
    return best.{other}
""",
    """    seen = set()
    for {noun} in {noun}s:
        if {noun}.{part} in seen:
            continue
        seen.add({noun}.{part})
        yield {noun}
""",
)


def code(rng: random.Random) -> SourceText:
    """Make a Python function; its question is its first two lines, its passage the rest."""
    noun, verb = rng.choice(_NOUNS), rng.choice(_VERBS)
    part, other = rng.sample(_PARTS, 2)
    head = (
        f"def {verb}_{noun}s_by_{part}_{rng.randint(2, 99)}({noun}s, limit={rng.randint(2, 50)}):\n"
        f'    """{verb.capitalize()} the {noun}s by their {part}."""\n'
    )
    body = rng.choice(_BODIES).format(noun=noun, part=part, other=other, low=rng.randint(0, 9))
    return SourceText(head + body, head, body)


def documents(model: ServedModel, seed: str) -> Iterator[SourceText]:
    """Yield documents for a model, without end."""
    rng = random.Random(seed)
    while True:
        yield code(rng) if model.stand_in else prose(rng)


BETWEEN = "\n\n\n"  #: documents in a prompt


def enough(source: Iterator[SourceText], characters: int) -> list[SourceText]:
    """Take documents until they have at least ``characters`` with what is between them."""
    chosen: list[SourceText] = []
    while sum(len(document.text) + len(BETWEEN) for document in chosen) < characters:
        chosen.append(next(source))
    return chosen


def fitting(chosen: list[SourceText], characters: int) -> int:
    """Count the documents that are whole in the first ``characters``."""
    ends = accumulate(len(document.text) + len(BETWEEN) for document in chosen)
    return len(list(takewhile(lambda end: end <= characters, ends)))


def tokens_a_character(model: ServedModel) -> float:
    """Measure the model's tokens per character on a sample of these texts."""
    source = documents(model, "sample")
    text = BETWEEN.join(next(source).text for _ in range(8))
    text = text[: model.context // 2]  # the engine refuses texts longer than its context
    return len(model.tokenize(text)) / len(text)


def lengths(
    context: int, answer: int, *, shortest: int, most: int = 5, spare: float = 0.05
) -> tuple[int, ...]:
    """Return prompt lengths in tokens, each twice the one before, up to what the context has room for.

    ``spare`` of the context stays free, since a text's length in tokens is an estimate.
    """
    sizes = [int(context * (1 - spare)) - answer]
    while len(sizes) < most and sizes[-1] // 2 >= shortest:
        sizes.append(sizes[-1] // 2)
    return tuple(reversed(sizes))
