"""Prompt files: read JSON lines (also gzip), choose a sample, fetch public prompts once.

Prompts whose licence does not allow shipping are fetched at the first use, cached, and checked against their
SHA-256.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import json
import random
import urllib.error
import urllib.request
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from peagle_sm.aws.files import write_file
from peagle_sm.core.errors import ServiceFault, SpecError
from peagle_sm.core.words import refuse_other_files, utf8_text

_GZIP = b"\x1f\x8b"


def read_bytes(path: Path) -> bytes:
    """Return a file's content, decompressed.

    Raises:
        SpecError: the file does not exist, cannot be read, or is a broken archive.
    """
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content.startswith(_GZIP) else content
    except FileNotFoundError:
        raise SpecError(f"file {path} not found", next_step="check the path") from None
    except (OSError, EOFError, zlib.error) as error:
        raise SpecError(f"{path} cannot be read: {error}", next_step="check the file") from error


def sha256_of(*contents: bytes) -> str:
    """Compute the SHA-256 of one content, or of the digests of several."""
    digests = [hashlib.sha256(content) for content in contents]
    if len(digests) == 1:
        return digests[0].hexdigest()
    return hashlib.sha256(b"".join(digest.digest() for digest in digests)).hexdigest()


def json_lines(content: bytes, origin: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield (line number, object) for each line that is not empty.

    Raises:
        SpecError: a line is not a JSON object; the message has its number.
    """
    refuse_other_files(content, origin)
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        text = utf8_text(line, origin, number).removeprefix("\ufeff")
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise SpecError(
                f"{origin}, line {number}: not JSON: {error}",
                next_step="write one JSON object per line (JSON lines); `jq -c . FILE` does so",
            ) from error
        if not isinstance(value, dict):
            raise SpecError(
                f"{origin}, line {number}: found {type(value).__name__}, expected a JSON object",
                next_step="write one JSON object per line (JSON lines)",
            )
        yield number, value


def json_array(content: bytes, origin: str) -> list[Mapping[str, Any]] | None:
    """Return the objects of a file that is one JSON array of objects; None if it is not one.

    Raises:
        SpecError: an array over several lines is not JSON; the message has the line.
    """
    if not content.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"["):
        return None
    try:
        values = json.loads(utf8_text(content, origin).removeprefix("\ufeff"))
    except RecursionError:
        return None
    except json.JSONDecodeError as error:
        if error.lineno == 1:
            return None
        raise SpecError(
            f"{origin}, line {error.lineno}: not JSON: {error.msg}; the file begins as a JSON array",
            next_step="correct the array, or write one JSON object per line (JSON lines)",
        ) from error
    objects: list[Mapping[str, Any]] = [value for value in values if isinstance(value, dict)]
    return objects if objects and len(objects) == len(values) else None


_PLACEHOLDER = "full benchmark data should be fetched"  #: in the public rows of SPEED-Bench, in any case


def is_placeholder(texts: Any) -> bool:
    """Decide whether a prompt is SPEED-Bench's placeholder for a text that NVIDIA may not distribute.

    A prompt without any text is one too: some preparing scripts leave what they could not fetch empty.
    """
    every = texts if isinstance(texts, list) else [texts]
    written = " ".join(" ".join(map(str, every)).casefold().split())
    blank = all(isinstance(text, str) and not text.strip() for text in every)
    return _PLACEHOLDER in written or blank


def empty(origin: str) -> SpecError:
    """Return the error for a workload without prompts."""
    return SpecError(f"{origin} has no prompts", next_step="give a workload with at least one prompt")


@dataclass(frozen=True)
class Question:
    """One prompt: a text, the user's turns of a conversation, or a whole request body.

    ``prompt`` is a text (or token ids) to continue, ``turns`` are the user's messages in a chat, ``body`` is
    the user's own OpenAI request. Exactly one of the three is given. ``system`` is the message before the
    turns, ``settings`` are the other fields of their requests. ``labels`` are the user's own slices.
    """

    id: str
    prompt: str | tuple[int, ...] | None = None
    turns: tuple[str, ...] = ()
    system: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    category: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    conversation: str | None = None  #: the user's id of the conversation of which it is a turn


@dataclass(frozen=True)
class Source:
    """All questions of one source; ``notes`` are for the reader of the figures."""

    name: str
    questions: tuple[Question, ...]
    origin: str  #: a file, or where it was fetched from
    sha256: str | None
    license: str | None
    notes: tuple[str, ...] = ()
    #: Fields of every request of this workload besides the prompt.
    parameters: Mapping[str, Any] = field(default_factory=dict)


def choose(questions: Sequence[Question], count: int | None, seed: int) -> list[Question]:
    """Choose ``count`` questions (None: all) by ``seed``, balanced over the categories.

    A larger count extends a smaller one of the same seed.

    Raises:
        SpecError: ``count`` is below 1 or above the number of questions.
    """
    if count is not None and not 1 <= count <= len(questions):
        raise SpecError(
            f"--prompts: found {count}; this workload has {len(questions)} prompts",
            next_step=f"give --prompts from 1 to {len(questions)}",
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
    """Raise SpecError if two questions have the same id: their answers could not be distinguished."""
    seen: set[str] = set()
    for question in questions:
        if question.id in seen:
            raise SpecError(
                f"{origin}: the id {question.id!r} appears twice",
                next_step="give each prompt its own id, or leave the ids out",
            )
        seen.add(question.id)


TIMEOUT_S = 60
Fetch = Callable[[str], bytes]


def fetch_url(url: str) -> bytes:
    """Fetch the document at an https URL.

    Raises:
        ServiceFault: the document cannot be fetched.
    """
    request = urllib.request.Request(url, headers={"User-Agent": "peagle-sm"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            return bytes(response.read())
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        raise ServiceFault(
            f"{url} could not be fetched: {error}",
            operation="fetch",
            next_step="download it on a machine with network access, and give the file with --workload FILE",
        ) from error


def cached(name: str, make: Callable[[], bytes], directory: Path) -> tuple[bytes, Path]:
    """Return ``name`` from the cache; if it is missing, make it and write it there atomically."""
    path = directory / name
    if path.is_file():
        return path.read_bytes(), path
    content = make()
    write_file(path, content, parents=True)
    return content, path


def demand_sha256(content: bytes, wanted: str, origin: str) -> None:
    """Raise SpecError unless the content has the published SHA-256."""
    digest = hashlib.sha256(content).hexdigest()
    if digest != wanted:
        raise SpecError(
            f"{origin} was changed or is incomplete: found SHA-256 {digest}, expected {wanted}",
            next_step="delete it and run the command again; to measure with a changed file, give it with"
            " --workload FILE",
            details={"found": digest, "allowed": wanted},
        )
