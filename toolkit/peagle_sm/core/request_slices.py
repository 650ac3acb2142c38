"""Slices of a request: properties that are known without extra work, by which figures are split. Pure.

A slice is a dimension and a value: ``script: han``, ``prompt tokens: 1k to 4k``. Most come from the request's
body, some from the answer (its length, its cached tokens), and labels come from the user's workload. A
dimension that does not apply to a request is left out.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any, Protocol

from peagle_sm.core.errors import SpecError

#: Dimensions of every request; labels are added to them as ``label:NAME``.
DIMENSIONS = (
    "category",
    "api",
    "turn",
    "prompt tokens",
    "output tokens",
    "cached prompt",
    "tools",
    "format",
    "reasoning effort",
    "script",
    "temperature",
)
LABEL = "label:"
MOST_LABELS = 4
MOST_VALUES = 20  #: of one label: a slice needs several prompts, and each costs the others some certainty
_LONGEST_VALUE = 64
#: Characters of the prompt's end that decide its script: the user's last words, at a bounded cost.
_READ = 1000
_READ_PARTS = 200  #: messages, and content parts of one, that are read for them
_BOUNDS = (256, 1024, 4096, 16384, 65536)
BUCKETS = ("below 256", "256 to 1k", "1k to 4k", "4k to 16k", "16k to 64k", "64k or more")
_JAPANESE = ("hiragana", "katakana")
#: Scripts of ten thousand letters and more: one name at a time they would cost a millisecond a prompt.
_LARGE = (
    ("han", re.compile("[\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff]+")),
    ("hangul", re.compile("[\uac00-\ud7a3]+")),
)
_MAIN_SHARE = 0.7  #: of the letters; below it the script is mixed
_LETTERS_SHARE = 0.3  #: of the characters that are no spaces; below it the prompt is symbols


def slices_of_body(body: Mapping[str, Any], labels: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the slices of an OpenAI request body by dimension; any JSON is accepted, at a bounded cost."""
    found = {
        "api": "completion" if body.get("messages") is None else "chat",
        "tools": "yes" if body.get("tools") and body.get("tool_choice") != "none" else "no",
        "format": _format(body),
        "script": _script(_end_of_prompt(body)),
        "temperature": _temperature(body.get("temperature")),
    }
    if effort := _effort(body):
        found["reasoning effort"] = effort
    return found | {LABEL + name: value for name, value in (labels or {}).items()}


class Answered(Protocol):
    """A request with its answer's token counts, None where unknown: a `RequestRecord`, for example."""

    @property
    def slices(self) -> Mapping[str, str]:
        """Slices of its body."""

    @property
    def category(self) -> str | None:
        """Category of its prompt."""

    @property
    def turn(self) -> int:
        """Index in a conversation of several turns."""

    @property
    def input_tokens(self) -> int | None:
        """Tokens of the prompt."""

    @property
    def cached_tokens(self) -> int | None:
        """Prompt tokens found in the prefix cache."""

    @property
    def output_tokens(self) -> int | None:
        """Tokens of the answer."""


def slices_of(record: Answered) -> dict[str, str]:
    """Return all slices of a measured request: those of its body, and those of its answer."""
    found = dict(record.slices)
    if record.category is not None:
        found["category"] = record.category
    if record.slices:  # files of earlier versions have none: then nothing is split by lengths either
        found["turn"] = str(record.turn + 1) if record.turn < 3 else "4 or later"
        if record.input_tokens is not None:
            found["prompt tokens"] = token_bucket(record.input_tokens)
            if record.cached_tokens is not None:
                found["cached prompt"] = _cached(record.cached_tokens, record.input_tokens)
        if record.output_tokens is not None:
            found["output tokens"] = token_bucket(record.output_tokens)
    return found


def token_bucket(tokens: int) -> str:
    """Return the bucket of a number of tokens; bounds are powers of 4."""
    return BUCKETS[bisect_right(_BOUNDS, tokens)]


def _cached(cached: int, prompt: int) -> str:
    if not cached:
        return "none"
    return "half or more" if 2 * cached >= prompt else "under half"


def _effort(body: Mapping[str, Any]) -> str | None:
    """Return the reasoning effort: vLLM's field, the template's own, or that of the Responses API."""
    template, reasoning = body.get("chat_template_kwargs"), body.get("reasoning")
    for found in (
        body.get("reasoning_effort"),
        template.get("reasoning_effort") if isinstance(template, Mapping) else None,
        reasoning.get("effort") if isinstance(reasoning, Mapping) else None,
    ):
        if isinstance(found, str) and found:
            return found if found.isprintable() and len(found) <= _LONGEST_VALUE else "other"
    return None


#: Constraints that are neither JSON nor a schema; the types of vLLM's StructuredOutputsParams.
_GRAMMARS = {"regex", "choice", "grammar", "structural_tag"}


def _format(body: Mapping[str, Any]) -> str:
    asked = body.get("response_format")
    kind = asked.get("type") if isinstance(asked, Mapping) else None
    structured = body.get("structured_outputs")
    given = _constraints(structured) if isinstance(structured, Mapping) else set()
    given |= {  # vLLM before 0.12
        name.removeprefix("guided_") for name in _constraints(body) if name.startswith("guided_")
    }
    if kind == "json_schema" or "json" in given:
        return "json schema"
    if kind == "json_object" or "json_object" in given:
        return "json"
    return "grammar" if kind == "structural_tag" or given & _GRAMMARS else "text"


def _constraints(fields: Mapping[Any, Any]) -> set[str]:
    """Return the names of fields that are set: vLLM counts even an empty schema."""
    return {
        name
        for name, value in fields.items()
        if isinstance(name, str) and value is not None and value is not False
    }


def _temperature(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:  # NaN
        return "model's default"
    if value <= 0:
        return "0"
    return "up to 0.5" if value <= 0.5 else "up to 1" if value <= 1 else "above 1"


def _end_of_prompt(body: Mapping[str, Any]) -> str:
    """Return the end of a completion's prompt, or of the last message of the user."""
    prompt = body.get("prompt")
    if isinstance(prompt, list) and prompt:  # a batch of texts; token ids are not read
        prompt = prompt[-1]
    if isinstance(prompt, str):
        return prompt[-_READ:]
    messages = body.get("messages")
    for message in islice(reversed(messages), _READ_PARTS) if isinstance(messages, list) else ():
        if isinstance(message, Mapping) and message.get("role") == "user":
            return _end_of_content(message.get("content"))
    return ""


def _end_of_content(content: Any) -> str:
    """Return the end of a message's text; its parts are objects with a text, or texts, as vLLM takes both."""
    if isinstance(content, str):
        return content[-_READ:]
    found: list[str] = []
    for part in islice(reversed(content), _READ_PARTS) if isinstance(content, list) else ():
        text = part.get("text") if isinstance(part, Mapping) else part
        if isinstance(text, str):
            found.append(text[-_READ:])
            if sum(map(len, found)) >= _READ:
                break
    return " ".join(reversed(found))[-_READ:]


def _script(text: str) -> str:
    """Return the script of most letters (``latin``, ``han`` …), ``mixed``, ``symbols``, or ``unknown``."""
    counts: Counter[str] = Counter()
    for name, its_letters in _LARGE:
        rest = its_letters.sub("", text)
        if found := len(text) - len(rest):
            counts[name] = found
        text = rest
    characters = counts.total()
    # Each distinct character once: this runs in the load client's event loop, for every request.
    for character, times in Counter(text).items():
        if not character.isspace():
            characters += times
            if character.isalpha():
                counts[_script_of(character)] += times
    if not characters:
        return "unknown"
    letters = sum(counts.values())
    if letters < _LETTERS_SHARE * characters:
        return "symbols"
    if sum(counts[one] for one in _JAPANESE) >= 0.1 * letters:  # Japanese writes Han beside its own scripts
        return "japanese"
    name, most = counts.most_common(1)[0]
    return name if most >= _MAIN_SHARE * letters else "mixed"


@lru_cache(maxsize=4096)
def _script_of(character: str) -> str:
    """Return the first word of a letter's Unicode name, which is its script.

    Variants count as their letter: full-width, half-width, superscript and mathematical ones.
    """
    plain = unicodedata.normalize("NFKC", character)
    word = unicodedata.name(plain[0], "OTHER").split()[0].lower()
    return "han" if word == "cjk" else word


def checked_labels(value: Any, where: str) -> dict[str, str]:
    """Check the labels of a line of a workload.

    Raises:
        SpecError: not an object of a few short names and texts.
    """
    if not isinstance(value, Mapping) or len(value) > MOST_LABELS:
        found = f"{len(value)} labels" if isinstance(value, Mapping) else repr(value)[:60]
        raise SpecError(
            f"{where}: labels: found {found}; allowed: an object with at most {MOST_LABELS} names",
            next_step='write {"labels": {"team": "search"}}',
        )
    for name, one in value.items():
        if not name or not name.replace("-", "").replace("_", "").isalnum() or len(name) > 32:
            raise SpecError(
                f"{where}: labels: found the name {name!r:.60}; allowed: up to 32 letters, digits, - and _",
                next_step='write {"labels": {"team": "search"}}',
            )
        if not isinstance(one, str) or not 0 < len(one) <= _LONGEST_VALUE or not one.isprintable():
            raise SpecError(
                f"{where}: labels.{name}: found {one!r:.60}; allowed: a text of 1 to {_LONGEST_VALUE}"
                " characters, all printable",
                next_step='write {"labels": {"team": "search"}}',
            )
    return dict(value)


def refuse_many_values(labels: Iterable[Mapping[str, str]], origin: str) -> None:
    """Refuse a label with so many values that no slice has enough prompts.

    Raises:
        SpecError: a label has more than `MOST_VALUES` values.
    """
    values: dict[str, set[str]] = {}
    for one in labels:
        for name, value in one.items():
            values.setdefault(name, set()).add(value)
    for name, found in values.items():
        if len(found) > MOST_VALUES:
            raise SpecError(
                f"{origin}: the label {name!r} has {len(found):,} values; allowed: {MOST_VALUES}, since each"
                " value is a slice and needs several prompts",
                next_step="use a coarser label, for example a team in place of a user",
            )


def checked_dimensions(
    names: Iterable[str], labels: Iterable[str], without: Iterable[str] = ()
) -> tuple[str, ...]:
    """Check the dimensions that a user asks for, against those of every request and the workload's labels.

    ``without`` are dimensions that the command sets for itself, so that nothing can be split by them.

    Raises:
        SpecError: an unknown dimension.
    """
    every = (*DIMENSIONS, *(LABEL + name for name in sorted(set(labels))))
    allowed = [name for name in every if name not in set(without)]
    chosen = tuple(dict.fromkeys(name.strip() for name in names))
    for name in chosen:
        if name not in allowed:
            raise SpecError(
                f"--slices: found {name!r}; allowed: {', '.join(allowed)}",
                next_step="give one or more of them, separated by commas, or `none`",
            )
    return chosen
