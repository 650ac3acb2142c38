"""Requests that are turns of one conversation. Pure.

Turns of a conversation resemble each other, so intervals are over conversations. The user's id decides,
unless another id has exactly the same requests. Without an id, two requests belong to one conversation if the
messages of one begin those of the other, or if one text to complete begins with the other.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

FEWEST_CONVERSATIONS = 8
"""Fewest conversations for a verdict. With fewer, a few people decide it, even if the interval is right."""
LONG_BEGINNING = 64  #: characters; a shorter beginning does not show a common origin


@dataclass(frozen=True)
class Asked:
    """A request: the user's id of its conversation, and its content.

    ``turns`` are the user's messages of a conversation that was not sent yet; ``body`` is None then.
    """

    given: str | None
    body: Mapping[str, Any] | None
    turns: Sequence[str] = ()


class Together:
    """Groups of places that belong together (union-find)."""

    def __init__(self, count: int) -> None:
        """Start with one group for each place."""
        self._above = list(range(count))

    def of(self, place: int) -> int:
        """Return the first place of a group."""
        while self._above[place] != place:
            self._above[place] = self._above[self._above[place]]
            place = self._above[place]
        return place

    def join(self, left: int, right: int) -> None:
        """Merge two groups."""
        first, last = sorted((self.of(left), self.of(right)))
        self._above[last] = first


def conversation_ids(requests: Sequence[Asked]) -> list[str]:
    """Return the id of each request's conversation; "" for a request that is alone in it.

    A request without an id gets the id of a conversation that it begins or continues. If no request of the
    conversation has an id, it is a hash of the shortest request.
    """
    names = _given_ids(requests)
    chains, texts = list(map(_chain, requests)), list(map(_text, requests))
    together = Together(len(requests))
    of_given: list[tuple[int, str]] = []  # a request without an id, and a possible id
    for left, right in chain(_begin_others(chains), beginnings(texts)):
        if not names[left] and not names[right]:
            together.join(left, right)
        elif not names[left]:
            of_given.append((left, names[right]))
        elif not names[right]:
            of_given.append((right, names[left]))
    given_names: dict[int, str] = {}
    for place, name in of_given:
        given_names.setdefault(together.of(place), name)
    members: dict[int, list[int]] = defaultdict(list)
    for place, name in enumerate(names):
        if not name:
            members[together.of(place)].append(place)
    ids = list(names)
    for group, places in members.items():
        if len(places) > 1 or group in given_names:
            name = given_names.get(group) or _hash_of_shortest(places, chains, texts)
            for place in places:
                ids[place] = name
    return ids


def _given_ids(requests: Sequence[Asked]) -> list[str]:
    """Return the given ids; "" for a request without one.

    Of two ids with exactly the same requests the first counts for both: a file that was read twice, with new
    ids, has no more conversations than the file itself.
    """
    contents_by_id: dict[str, set[bytes]] = defaultdict(set)
    for request in requests:
        if request.given:
            contents_by_id[request.given].add(_content(request))
    first_ids: dict[frozenset[bytes], str] = {}
    names = {
        given_id: first_ids.setdefault(frozenset(contents), given_id)
        for given_id, contents in contents_by_id.items()
    }
    return [names[request.given] if request.given else "" for request in requests]


def _content(request: Asked) -> bytes:
    """Return a hash of a request's whole content, with its system messages."""
    body = request.body or {}
    parts = [body.get("messages"), body.get("prompt"), list(request.turns)]
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _hash_of_shortest(
    places: Sequence[int], chains: Sequence[Sequence[bytes]], texts: Sequence[str | None]
) -> str:
    shortest = min(places, key=lambda place: (len(chains[place]), len(texts[place] or "")))
    content = (
        chains[shortest][-1] if chains[shortest] else (texts[shortest] or "").encode("utf-8", "surrogatepass")
    )
    return hashlib.sha256(content).hexdigest()[:16]


def _begin_others(chains: Sequence[Sequence[bytes]]) -> Iterator[tuple[int, int]]:
    """Yield pairs of places where one chat is the beginning of the other, or equal to it."""
    first_places: dict[bytes, int] = {}
    for place, hashes in enumerate(chains):
        if hashes:
            yield first_places.setdefault(hashes[-1], place), place
    for place, hashes in enumerate(chains):
        yield from ((first_places[digest], place) for digest in hashes[:-1] if digest in first_places)


def _chain(request: Asked) -> list[bytes]:
    """Return a hash of the messages up to each one. System messages may have a date, so they do not count."""
    messages: Sequence[Any] = [{"role": "user", "content": turn} for turn in request.turns]
    if request.body is not None:
        messages = request.body.get("messages") or ()
    running, hashes = hashlib.blake2b(digest_size=16), list[bytes]()
    for message in messages:
        if isinstance(message, Mapping) and message.get("role") not in ("system", "developer"):
            fields = [message.get("role"), message.get("content"), message.get("tool_calls")]
            running.update(json.dumps(fields, sort_keys=True, default=str).encode("utf-8", "surrogatepass"))
            hashes.append(running.digest())
    return hashes


def _text(request: Asked) -> str | None:
    """Return the text to complete, or the token ids as text; None for a chat."""
    prompt = None if request.body is None else request.body.get("prompt")
    if not prompt or isinstance(prompt, str):
        return prompt or None
    return "".join(f"{token} " for token in prompt)


def beginnings(texts: Sequence[str | None]) -> Iterator[tuple[int, int]]:
    """Yield pairs of places where the first text equals the second, or is a long beginning of it."""
    ordered = sorted((text, place) for place, text in enumerate(texts) if text is not None)
    open_: list[tuple[str, int]] = []
    for text, place in ordered:
        while open_ and text != open_[-1][0] and not _begins(open_[-1][0], text):
            open_.pop()
        if open_:
            yield open_[-1][1], place
        open_.append((text, place))


def _begins(beginning: str, text: str) -> bool:
    return len(beginning) >= LONG_BEGINNING and text.startswith(beginning)
