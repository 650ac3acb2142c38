"""Redaction of secrets in recorded traffic: keys, tokens, passwords, e-mail addresses, cards, bank accounts.

The formats of keys come from bc-detect-secrets, from `secret_rules` and from `token_prefixes`. A text is
searched as it is and with its escapes decoded (URL, JSON, HTML; also several levels), and the secret is
replaced in the original. JSON inside a text is read as JSON, too, where a field's name says that its value
is a secret.

It finds formats, not meaning: names, addresses and unknown formats of keys stay
(docs/how-to/record.md, "Redaction and its limits").
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from peagle_sm.traffic.secret_rules import (
    TOKEN_RULES,
    Span,
    address_spans,
    assigned_spans,
    card_spans,
    command_spans,
    iban_spans,
    is_secret_name,
    is_value,
    private_key_spans,
)
from peagle_sm.traffic.token_prefixes import prefixed_spans

#: Levels of escapes, and of JSON inside a text, that are looked into.
_LEVELS = 4
#: Detectors of the library that guess by entropy or by file type: hashes in text must stay.
_GUESSING = frozenset(
    {"Base64HighEntropyString", "HexHighEntropyString", "KeywordDetector", "IPPublicDetector"}
)
_SHORTEST = 6  #: of a secret that the library finds: it reports values, and a short one occurs elsewhere
_LONG = re.compile(r"[A-Za-z0-9_+/=-]{16,}")
_AROUND = 400  #: characters of context that a format of the library may need
_ESCAPE = re.compile(
    r"%([0-9A-Fa-f]{2})|\\{1,64}u00([0-7][0-9A-Fa-f])|\\{1,64}([/\"'nrt])|&#x([0-9A-Fa-f]{2});|&#(\d{2,3});"
    r"|&(amp|lt|gt|quot|apos|commat);"
)
_LETTERS = {"n": "\n", "r": "\r", "t": "\t"}
_ENTITIES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'", "commat": "@"}


def placeholder(kind: str) -> str:
    """Return the text that replaces a secret."""
    return f"[REDACTED:{kind}]"


class Redactor:
    """Replaces secrets in any JSON value, and counts them by kind in ``counts``."""

    def __init__(self) -> None:
        """Start without any."""
        self.counts: Counter[str] = Counter()
        self._detectors = detectors()

    def redact(self, value: Any, name: str | None = None, level: int = 0) -> Any:
        """Return the value without secrets; ``name`` is the field that holds it."""
        if isinstance(value, str):
            if name is not None and is_secret_name(name) and _is_named_secret(name, value):
                return self._replaced("password")
            return self.text(value, level)
        if isinstance(value, dict):
            return {self.text(key, level): self.redact(each, key, level) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return self._list(value, name, level)
        if type(value) is int and abs(value) >= 10**11 and next(card_spans(str(abs(value))), None):
            return self._replaced("card")
        return value

    def text(self, text: str, level: int = 0) -> str:
        """Return a text without secrets."""
        if len(text) < _SHORTEST:
            return text
        if level < _LEVELS and text[:64].lstrip()[:1] in ("{", "[", '"'):
            text = self._json(text, level)
        return self._replace(text, self._spans(text))

    def _list(self, values: Sequence[Any], name: str | None, level: int) -> list[Any]:
        """Redact each part; a secret that is split over text parts is removed from all of them."""
        parts = [dict(each) if isinstance(each, dict) else each for each in values]
        texts = [part for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
        if len(texts) > 1:
            self._across(texts)
        return [self.redact(each, name, level) for each in parts]

    def _across(self, parts: Sequence[dict[str, Any]]) -> None:
        joined = "".join(part["text"] for part in parts)
        spans = self._spans(joined)
        start = 0
        for part in parts:
            text = part["text"]
            here = [
                (max(first, start) - start, min(last, start + len(text)) - start, kind)
                for first, last, kind in spans
                if first < start + len(text) and last > start
            ]
            start += len(text)
            part["text"] = self._replace(text, here)

    def _json(self, text: str, level: int) -> str:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return text
        if not isinstance(value, dict | list | str):
            return text
        before = self.counts.total()
        redacted = self.redact(value, None, level + 1)
        return text if self.counts.total() == before else json.dumps(redacted, ensure_ascii=False)

    def _replaced(self, kind: str) -> str:
        self.counts[kind] += 1
        return placeholder(kind)

    def _replace(self, text: str, spans: Sequence[tuple[int, int, str]]) -> str:
        parts, end = [], 0
        for start, stop, kind in spans:
            parts += [text[end:start], self._replaced(kind)]
            end = stop
        return text if not spans else "".join(parts) + text[end:]

    def _spans(self, text: str) -> list[tuple[int, int, str]]:
        """Return where secrets are, in order and without overlaps."""
        spans = [(start, end, kind) for kind, (start, end) in self._found(text)]
        view = text
        to_original: Callable[[int], int] = _same
        for _ in range(_LEVELS):
            decoded = _decoded(view)
            if decoded is None:
                break
            view, inner = decoded
            to_original = _composed(to_original, inner)
            spans += [
                (to_original(start), to_original(end), kind) for kind, (start, end) in self._found(view)
            ]
        return _merged(spans)

    def _found(self, text: str) -> Iterator[tuple[str, Span]]:
        for rule in TOKEN_RULES:
            for span in rule.spans(text):
                yield rule.kind, span
        for span in assigned_spans(text):
            yield "password", span
        for span in command_spans(text):
            yield "password", span
        for span in private_key_spans(text):
            yield "private key", span
        for span in address_spans(text):
            yield "email", span
        for span in card_spans(text):
            yield "card", span
        for span in iban_spans(text):
            yield "bank account", span
        runs = [run.span() for run in _LONG.finditer(text) if any(map(str.isdigit, run[0]))]
        for span in prefixed_spans(text, runs):
            yield "token", span
        for line in _lines_around(text, runs):
            for kind, detect in self._detectors:
                for secret in {each for each in detect(line) if isinstance(each, str)}:
                    if len(secret) >= _SHORTEST:
                        start = text.find(secret)
                        while start >= 0:
                            yield kind, (start, start + len(secret))
                            start = text.find(secret, start + len(secret))


def _lines_around(text: str, runs: Sequence[Span]) -> set[str]:
    """Return the lines, or parts of long ones, around long runs of key characters."""
    lines = set()
    for first, last in runs:
        before, after = max(0, first - _AROUND), last + _AROUND
        start = text.rfind("\n", before, first) + 1 or before
        end = text.find("\n", last, after)
        lines.add(text[start : after if end < 0 else end])
    return lines


def _is_named_secret(name: str, value: str) -> bool:
    """Return whether a field's value is secret: of a general name only if it looks like it."""
    if value.startswith("[REDACTED:"):
        return False
    general = name.lower().endswith(("token", "tokens", "credential", "credentials"))
    return is_value(name, value) if general else len(value) >= 4


@cache
def detectors() -> tuple[tuple[str, Callable[[str], Any]], ...]:
    """Return the library's detectors of known formats: their kind and their search."""
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class

    plugins = get_mapping_from_secret_type_to_class()
    return tuple(
        (kind.lower(), plugin().analyze_string)
        for kind, plugin in sorted(plugins.items())
        if plugin.__name__ not in _GUESSING
    )


def _same(position: int) -> int:
    return position


def _composed(outer: Callable[[int], int], inner: Callable[[int], int]) -> Callable[[int], int]:
    return lambda position: outer(inner(position))


def _decoded(text: str) -> tuple[str, Callable[[int], int]] | None:
    """Decode one level of escapes; return the text and its positions in ``text``; None without any."""
    if "%" not in text and "\\" not in text and "&" not in text:
        return None
    parts: list[str] = []
    places, originals = [0], [0]
    length = end = 0
    for escape in _ESCAPE.finditer(text):
        plain = text[end : escape.start()]
        length += len(plain)
        parts += [plain, _meaning(escape)]
        places += [length, length + 1]
        originals += [escape.start(), escape.end()]
        length += 1
        end = escape.end()
    if not end:
        return None
    parts.append(text[end:])

    def original(position: int) -> int:
        at = bisect_right(places, position) - 1
        return originals[at] + position - places[at]

    return "".join(parts), original


def _meaning(escape: re.Match[str]) -> str:
    url, json_code, letter, html_hex, html_number, entity = escape.groups()
    if letter is not None:
        return _LETTERS.get(letter, letter)
    if entity is not None:
        return _ENTITIES[entity]
    if html_number is not None:
        return chr(int(html_number))
    return chr(int(url or json_code or html_hex, 16))


def _merged(spans: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Sort spans and join those that overlap; the longest gives the kind."""
    merged: list[tuple[int, int, str]] = []
    for start, end, kind in sorted(spans, key=lambda span: (span[0], -span[1])):
        if merged and start < merged[-1][1]:
            first, last, known = merged[-1]
            merged[-1] = (first, max(last, end), known)
        elif end > start:
            merged.append((start, end, kind))
    return merged
