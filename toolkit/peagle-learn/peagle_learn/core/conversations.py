"""Prompts by conversation: repeats, near-duplicates, and the split into training and held-out. Pure.

Two prompts belong together if their first user message is the same, if one text begins with the other, or
if their words are nearly the same. What belongs together is in one set of the split, so a held-out prompt
has no relative in training.

Near means a Jaccard similarity of word 5-grams of `NEAR` or more. A conversation that is still to be held is
compared by what its user has written at each turn, since each turn is answered. The join is exact: prefix
filtering (Bayardo, Ma and Srikant, "Scaling up all pairs similarity search", WWW 2007) leaves out only pairs
that cannot reach the threshold.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

from peagle_bench.dialogues import FEWEST_CONVERSATIONS, Together, beginnings
from peagle_sm.core.errors import SpecError

NEAR = 0.8  #: similarity from which two prompts count as one
_GRAM = 5  #: words
_WORDS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|\w+|[^\w\s]")
FEWEST = 2  #: conversations in each set


@dataclass(frozen=True)
class LearnPrompt:
    """One request to learn from, redacted: its OpenAI body, and its place in the source.

    ``turns`` are all messages of the user in a conversation that is still to be held; the body asks the
    first. A single request has none.
    """

    id: str
    body: Mapping[str, Any]
    category: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    turns: tuple[str, ...] = ()
    conversation: str | None = None  #: the source's id of its conversation; None: by its text

    @property
    def is_chat(self) -> bool:
        """Whether the body has messages."""
        return "messages" in self.body


def compared_texts(prompt: LearnPrompt) -> tuple[str, ...]:
    """Return the texts by which a prompt is compared with others; the first is the whole of it.

    Each turn of a conversation that is still to be held is answered, so what the user has written by then is
    one. Of a chat with answers in it, what the user wrote is one too: another chat has other answers.
    """
    if prompt.turns:
        return tuple("\n".join(prompt.turns[:count]) for count in range(len(prompt.turns), 0, -1))
    messages = [each for each in prompt.body.get("messages") or () if isinstance(each, Mapping)]
    own = "\n".join(text_of(each) for each in messages if each.get("role") == "user")
    whole = user_text(prompt.body)
    return (whole, own) if own and own != whole else (whole,)


def user_text(body: Mapping[str, Any]) -> str:
    """Return what the user wrote, and what was answered before; system messages are left out."""
    if "messages" not in body:
        prompt = body.get("prompt")
        return prompt if isinstance(prompt, str) else " ".join(map(str, prompt or ()))
    messages = [each for each in body["messages"] if isinstance(each, Mapping)]
    return "\n".join(text_of(each) for each in messages if each.get("role") not in ("system", "developer"))


def text_of(message: Mapping[str, Any]) -> str:
    """Return the text of a chat message; of several parts, all texts."""
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))
    return str(content or "")


def first_turn(body: Mapping[str, Any]) -> str | None:
    """Return the first user message; None for a text to complete."""
    for message in body.get("messages") or ():
        if isinstance(message, Mapping) and message.get("role") == "user":
            return " ".join(text_of(message).casefold().split())
    return None


def exact_key(body: Mapping[str, Any], turns: Sequence[str] = ()) -> str:
    """Return the hash of everything that a request asks, without the settings of the answer.

    ``turns`` are the user's messages of a conversation that is still to be held.
    """
    parts = {name: body[name] for name in ("messages", "prompt", "tools") if name in body}
    parts |= {"turns": tuple(turns)} if turns else {}
    return hashlib.sha256(repr(_frozen(parts)).encode("utf-8", "surrogatepass")).hexdigest()


def _frozen(value: Any) -> Any:
    if isinstance(value, Mapping):
        return tuple(sorted((str(name), _frozen(each)) for name, each in value.items()))
    if isinstance(value, list | tuple):
        return tuple(_frozen(each) for each in value)
    return value


def shingles(text: str) -> frozenset[int]:
    """Return the hashed word 5-grams of a text; of a shorter one, the whole."""
    words = _WORDS.findall(text.casefold())
    grams = (words[at : at + _GRAM] for at in range(max(1, len(words) - _GRAM + 1)))
    return frozenset(_number(" ".join(gram)) for gram in grams)


Shingles = tuple[Mapping[int, int], int]
"""Shingles of a text: a mapping, and how many of its first keys they are.

The turns of a conversation share the mapping, since each has all shingles of the turn before. The value of a
shingle is the number of keys of the first text that has it.
"""


def whole(one: frozenset[int]) -> Shingles:
    """Return a set as the shingles of a text that shares them with no other."""
    return dict.fromkeys(one, len(one)), len(one)


def _shingles_of(prompt: LearnPrompt, texts: Sequence[str]) -> Iterator[Shingles]:
    """Yield the shingles of a prompt's compared texts; of many turns each is made once."""
    if not prompt.turns:
        yield from (whole(shingles(text)) for text in texts)
        return
    words: list[str] = []
    shared: dict[int, int] = {}
    sizes: list[int] = []
    for turn in prompt.turns:
        first = max(0, len(words) - _GRAM + 1)
        words += _WORDS.findall(turn.casefold())
        grams = (words[at : at + _GRAM] for at in range(first, len(words) - _GRAM + 1))
        new = {_number(" ".join(gram)) for gram in grams} - shared.keys()
        sizes.append(len(shared) + len(new))
        shared |= dict.fromkeys(new, sizes[-1])
    for text, size in zip(texts, reversed(sizes), strict=True):
        yield (shared, size) if size else whole(shingles(text))  # fewer words than a shingle has


def _number(text: str) -> int:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def similarity(one: frozenset[int], other: frozenset[int]) -> float:
    """Compute the Jaccard similarity of two sets; of two empty ones 1."""
    shared = len(one & other)
    union = len(one) + len(other) - shared
    return shared / union if union else 1.0


def near_pairs(
    texts: Sequence[Shingles], threshold: float = NEAR, owners: Sequence[int | None] = ()
) -> Iterator[tuple[int, int]]:
    """Yield every pair of places whose shingles are at least ``threshold`` similar; none is missed.

    ``owners`` has the owner of each text: two texts of one owner are not a pair. None is a separate owner.
    """
    mappings = {id(shared): shared for shared, _ in texts}
    counts = Counter(chain.from_iterable(mappings.values()))
    ordered = {key: sorted(shared, key=lambda item: (counts[item], item)) for key, shared in mappings.items()}
    index: dict[int, list[int]] = defaultdict(list)
    for place in sorted(range(len(texts)), key=lambda each: (texts[each][1], each)):
        (shared, size), owner = texts[place], owners[place] if owners else None
        least = threshold * size - 1e-9  # items; a smaller set is too small for all that follow, too
        # A pair at the threshold shares at least `least` items, so their rarest items cannot all differ.
        own = (item for item in ordered[id(shared)] if shared[item] <= size)
        rarest = list(islice(own, size - math.ceil(least) + 1))
        candidates: set[int] = set()
        for item in rarest:
            if (places := index[item]) and texts[places[0]][1] < least:
                places[:] = [other for other in places if texts[other][1] >= least]
            candidates.update(places)
            places.append(place)
        if owner is not None:
            candidates = {other for other in candidates if owners[other] != owner}
        shingle_set = frozenset(islice(shared, size)) if candidates else frozenset()
        for other in sorted(candidates):
            if similarity(shingle_set, frozenset(islice(*texts[other]))) >= threshold:
                yield other, place


@dataclass(frozen=True)
class PromptGroup:
    """Prompts that belong together; ``key`` is the same in every run."""

    key: str
    prompts: tuple[LearnPrompt, ...]


@dataclass(frozen=True)
class Grouped:
    """Conversations, and the number of prompts that were left out as near-duplicates."""

    conversations: tuple[PromptGroup, ...]
    near_repeats: int


def without_repeats(prompts: Sequence[LearnPrompt]) -> list[LearnPrompt]:
    """Return the prompts without those that ask the same as an earlier one."""
    return list({exact_key(each.body, each.turns): each for each in reversed(prompts)}.values())[::-1]


def group(prompts: Sequence[LearnPrompt]) -> Grouped:
    """Leave out repeats, and put what belongs together into conversations.

    Later turns of one conversation stay: their answers differ. A prompt that is nearly that of another
    conversation is left out.
    """
    distinct = without_repeats(prompts)
    together, left_out = _related(distinct)
    members: dict[int, list[int]] = defaultdict(list)
    for place in range(len(distinct)):
        members[together.of(place)].append(place)
    groups = []
    for places in members.values():
        kept = [distinct[place] for place in places if place not in left_out]
        groups.append(_group_of([distinct[place] for place in places], kept))
    groups.sort(key=lambda each: each.key)
    return Grouped(tuple(groups), len(left_out))


def related(prompts: Sequence[LearnPrompt]) -> tuple[PromptGroup, ...]:
    """Put prompts that are measured into conversations; none is left out."""
    together, _ = _related(prompts)
    members: dict[int, list[int]] = defaultdict(list)
    for place in range(len(prompts)):
        members[together.of(place)].append(place)
    return tuple(_group_of([prompts[place] for place in places]) for places in members.values())


def _group_of(prompts: Sequence[LearnPrompt], kept: Sequence[LearnPrompt] | None = None) -> PromptGroup:
    key = min(_dialogue_key(prompt) for prompt in prompts)
    return PromptGroup(key, tuple(prompts if kept is None else kept))


def _related(prompts: Sequence[LearnPrompt]) -> tuple[Together, set[int]]:
    """Join what belongs together; return also the places that are nearly an earlier one as a whole.

    What is near only by a turn, or without the answers in it, belongs together and stays.
    """
    dialogues = Together(len(prompts))
    seen: dict[tuple[str, str], int] = {}
    for place, prompt in enumerate(prompts):
        for key in (("first", first_turn(prompt.body)), ("given", prompt.conversation)):
            if key[1]:
                dialogues.join(seen.setdefault((key[0], key[1]), place), place)
    for left, right in beginnings([None if each.is_chat else user_text(each.body) for each in prompts]):
        dialogues.join(left, right)
    together = Together(len(prompts))
    for place in range(len(prompts)):
        together.join(dialogues.of(place), place)
    left_out: set[int] = set()
    for left, right, are_wholes in _alike(prompts):
        earlier, later = sorted((left, right))
        if are_wholes and dialogues.of(earlier) != dialogues.of(later) and earlier not in left_out:
            left_out.add(later)
        together.join(left, right)
    return together, left_out


def _alike(prompts: Sequence[LearnPrompt]) -> Iterator[tuple[int, int, bool]]:
    """Yield pairs of places with nearly the same text, and whether it is the whole of both.

    Many conversations begin alike, so each text is compared once, for the first prompt that has it.
    Texts that one prompt alone has are not compared with each other: its turns grow word by word.
    """
    owners: dict[bytes, list[int]] = defaultdict(list)
    wholes: dict[bytes, list[int]] = defaultdict(list)
    compared: dict[bytes, Shingles] = {}
    for place, prompt in enumerate(prompts):
        every = compared_texts(prompt)
        keys = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in every]
        wholes[keys[0]].append(place)
        for key, entry in zip(keys, _shingles_of(prompt, every), strict=True):
            owners[key].append(place)
            compared.setdefault(key, entry)
    texts = list(owners)
    alone = [entry[0] if len(entry) == 1 else None for entry in owners.values()]
    same = ((place, place) for place in range(len(texts)))
    for one, other in chain(same, near_pairs(list(compared.values()), owners=alone)):
        for of, are_wholes in ((owners, False), (wholes, True)):
            some, others = of.get(texts[one], []), of.get(texts[other], [])
            if some and others:
                yield from ((some[0], each, are_wholes) for each in others if each != some[0])
                yield from ((others[0], each, are_wholes) for each in some if each != others[0])


def _dialogue_key(prompt: LearnPrompt) -> str:
    first = first_turn(prompt.body)
    if not first:
        return exact_key(prompt.body, prompt.turns)
    return hashlib.sha256(first.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True)
class Split:
    """Conversations to train with, those held out, and the general prompts that are measured.

    Of the general conversations, ``general_train`` are trained on, so that the head does not forget; none of
    them is among ``general``.
    """

    train: tuple[PromptGroup, ...]
    held_out: tuple[PromptGroup, ...]
    general: tuple[LearnPrompt, ...] = ()
    general_train: tuple[PromptGroup, ...] = ()
    repeats: int = 0
    near_repeats: int = 0
    like_general: int = 0  #: prompts left out because the general set has nearly the same


def split(
    prompts: Sequence[LearnPrompt],
    held_out: float,
    seed: int,
    general: Sequence[LearnPrompt] = (),
    general_trained: float = 0.0,
    limit: int | None = None,
) -> Split:
    """Leave out repeats, draw ``limit`` of the prompts, and split them by conversation.

    A conversation's draw depends on the seed and its own key alone. The general conversations are split in
    the same way; ``general_trained`` 0 measures all of them.

    Raises:
        SpecError: fewer than `FEWEST` conversations would be in one of the two sets.
    """
    drawn = without_repeats(prompts)
    repeats = len(prompts) - len(drawn)
    if limit is not None and len(drawn) > limit:
        places = {id(each): _digest(seed, each.id) for each in drawn}
        drawn = sorted(drawn, key=lambda each: places[id(each)])[:limit]
    grouped = group(drawn)
    kept = _apart(grouped.conversations, general)
    _refuse_few(len(kept), "the prompts have", "Add prompts of other conversations to data.prompts.")
    chosen, rest = _drawn(kept, held_out, seed, _least_measured(len(kept)), FEWEST)
    learned: tuple[PromptGroup, ...] = ()
    measured = tuple(general)
    if general_trained and general:
        others = group(general).conversations
        step = "Add general prompts, or leave data.general_trained out."
        _refuse_few(len(others), "data.general_trained: the general prompts have", step)
        learned, apart = _drawn(others, general_trained, seed, FEWEST, _least_measured(len(others)))
        measured = tuple(prompt for each in apart for prompt in each.prompts)
        learned = _apart(learned, [prompt for each in chosen for prompt in each.prompts])
    like = sum(len(each.prompts) for each in grouped.conversations) - sum(len(each.prompts) for each in kept)
    return Split(rest, chosen, measured, learned, repeats, grouped.near_repeats, like)


def _refuse_few(count: int, what: str, step: str) -> None:
    if count < 2 * FEWEST:
        raise SpecError(
            f"{what} {count:,} conversation{'' if count == 1 else 's'} without repeats; allowed: at least"
            f" {2 * FEWEST}, {FEWEST} to train with and {FEWEST} to measure",
            next_step=step,
            details={"found": count, "allowed": 2 * FEWEST},
        )


def _least_measured(count: int) -> int:
    """Return how many are measured at least: as many as a proof needs, if they are at most half of all."""
    return FEWEST_CONVERSATIONS if count >= 2 * FEWEST_CONVERSATIONS else FEWEST


def _drawn(
    conversations: Sequence[PromptGroup], share: float, seed: int, least: int, least_rest: int
) -> tuple[tuple[PromptGroup, ...], tuple[PromptGroup, ...]]:
    """Draw a share of the conversations, and return them and the rest; each has a least number."""
    drawn = sorted(conversations, key=lambda each: (_draw(seed, each.key), each.key))
    count = sum(_draw(seed, each.key) < share for each in drawn)
    count = min(max(count, least), len(drawn) - least_rest)
    return tuple(drawn[:count]), tuple(drawn[count:])


def _apart(conversations: Sequence[PromptGroup], others: Sequence[LearnPrompt]) -> tuple[PromptGroup, ...]:
    """Leave out every conversation that would be one with one of the other prompts, which are measured."""
    if not others:
        return tuple(conversations)
    prompts = [prompt for each in conversations for prompt in each.prompts]
    together, _ = _related([*others, *prompts])
    measured = {together.of(place) for place in range(len(others))}
    near = {
        id(prompt)
        for place, prompt in enumerate(prompts, start=len(others))
        if together.of(place) in measured
    }
    # The whole conversation goes: its other turns repeat the prompt.
    return tuple(each for each in conversations if near.isdisjoint(map(id, each.prompts)))


def _draw(seed: int, key: str) -> float:
    return int.from_bytes(_digest(seed, key)[:8], "big") / 2**64


def _digest(seed: int, key: str) -> bytes:
    return hashlib.sha256(f"{seed}/{key}".encode()).digest()
