"""Slices that the request body and the answer's token counts give: dimension and value. Pure.

The gate counts by them in the container, and the toolkit measures by them. It is one file, since the image
has no toolkit: ``peagle_sm.core.slice_values`` is a link to it. Standard library only.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

LABEL = "label:"  #: prefix of the user's own dimensions
LONGEST_VALUE = 64
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


def slices_of_body(
    body: Mapping[str, Any], labels: Mapping[str, str] | None = None, *, script: bool = True
) -> dict[str, str]:
    """Return the slices of an OpenAI request body by dimension; any JSON is accepted, at a bounded cost.

    ``script`` False leaves out the script, the only dimension that takes time: it reads the prompt.
    """
    slices = {
        "api": "completion" if body.get("messages") is None else "chat",
        "tools": "yes" if body.get("tools") and body.get("tool_choice") != "none" else "no",
        "format": _format(body),
        "temperature": _temperature(body.get("temperature")),
    }
    if script:
        slices["script"] = _script(_end_of_prompt(body))
    if effort := _effort(body):
        slices["reasoning effort"] = effort
    return slices | {LABEL + name: value for name, value in (labels or {}).items()}


def token_bucket(tokens: int) -> str:
    """Return the bucket of a number of tokens; bounds are powers of 4."""
    return BUCKETS[bisect_right(_BOUNDS, tokens)]


def cached_share(cached: int, prompt: int) -> str:
    """Return the bucket of the share of a prompt that was in the prefix cache."""
    if not cached:
        return "none"
    return "half or more" if 2 * cached >= prompt else "under half"


def _effort(body: Mapping[str, Any]) -> str | None:
    """Return the reasoning effort: vLLM's field, the template's own, or that of the Responses API."""
    template, reasoning = body.get("chat_template_kwargs"), body.get("reasoning")
    for value in (
        body.get("reasoning_effort"),
        template.get("reasoning_effort") if isinstance(template, Mapping) else None,
        reasoning.get("effort") if isinstance(reasoning, Mapping) else None,
    ):
        if isinstance(value, str) and value:
            return value if value.isprintable() and len(value) <= LONGEST_VALUE else "other"
    return None


#: Constraints that are neither JSON nor a schema; the types of vLLM's StructuredOutputsParams.
_GRAMMARS = {"regex", "choice", "grammar", "structural_tag"}


def _format(body: Mapping[str, Any]) -> str:
    response_format = body.get("response_format")
    kind = response_format.get("type") if isinstance(response_format, Mapping) else None
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
    texts: list[str] = []
    for part in islice(reversed(content), _READ_PARTS) if isinstance(content, list) else ():
        text = part.get("text") if isinstance(part, Mapping) else part
        if isinstance(text, str):
            texts.append(text[-_READ:])
            if sum(map(len, texts)) >= _READ:
                break
    return " ".join(reversed(texts))[-_READ:]


def _script(text: str) -> str:
    """Return the script of most letters (``latin``, ``han`` …), ``mixed``, ``symbols``, or ``unknown``."""
    counts: Counter[str] = Counter()
    for name, its_letters in _LARGE:
        rest = its_letters.sub("", text)
        if count := len(text) - len(rest):
            counts[name] = count
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
    if (
        sum(counts[script] for script in _JAPANESE) >= 0.1 * letters
    ):  # Japanese writes Han beside its own scripts
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


@lru_cache(maxsize=1)
def _scripts() -> frozenset[str]:
    """Return all values of a script that a prompt can have."""
    names = {_script_of.__wrapped__(letter) for letter in map(chr, range(0x20000)) if letter.isalpha()}
    return frozenset(names - {*_JAPANESE} | {"japanese", "mixed", "symbols", "unknown"})


#: Dimensions that a request or its answer gives, wherever it is served.
SERVED = (
    "api",
    "prompt tokens",
    "output tokens",
    "cached prompt",
    "tools",
    "format",
    "reasoning effort",
    "script",
    "temperature",
)
OTHER, NONE = "other", "none"
MOST_CHOSEN = 4  #: dimensions
MOST_LISTED = 4  #: values in all; each has two metrics of its own
MOST_VALUES = 8  #: of one dimension; what comes later is `OTHER`
#: Header in which SageMaker passes on the caller's own text: ``team=search;tier=gold``.
LABEL_HEADER = "x-amzn-sagemaker-custom-attributes"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,32}")


@dataclass(frozen=True)
class Chosen:
    """One dimension by which requests are counted.

    Attributes:
        dimension: a name of `SERVED`, or ``label:NAME``.
        listed: values with metrics of their own, all others being `OTHER`; empty: each value counts.
    """

    dimension: str
    listed: tuple[str, ...] = ()

    def value(self, slices: Mapping[str, str], seen: set[str]) -> str:
        """Return the value that a request counts under; ``seen`` collects those of this dimension."""
        value = slices.get(self.dimension, NONE)
        if self.listed:
            return value if value in self.listed else OTHER
        if value not in seen and len(seen) < MOST_VALUES:
            seen.add(value)
        return value if value in seen else OTHER

    @property
    def slices(self) -> tuple[str, ...]:
        """The listed slices: ``script: han``."""
        return tuple(f"{self.dimension}: {value}" for value in self.listed)


def read_chosen(texts: Iterable[str]) -> tuple[Chosen, ...]:
    """Read ``format`` or ``script=latin,han`` each: the dimensions by which an endpoint counts.

    Raises:
        ValueError: the message says what is allowed.
    """
    chosen = []
    for text in texts:
        dimension, equals, rest = text.partition("=")
        dimension = dimension.strip()
        listed = tuple(dict.fromkeys(value.strip() for value in rest.split(","))) if equals else ()
        if dimension not in SERVED and not (
            dimension.startswith(LABEL) and _NAME.fullmatch(dimension.removeprefix(LABEL))
        ):
            raise ValueError(f"one of {', '.join(SERVED)}, or {LABEL}NAME (found {dimension!r})")
        if any(not value or len(value) > LONGEST_VALUE or ";" in value for value in listed):
            raise ValueError(
                f"values of 1 to {LONGEST_VALUE} characters without ; after the = (found {text!r})"
            )
        if dimension.startswith(LABEL) and not listed:
            raise ValueError(
                f"the values of {dimension}, since any other counts as {OTHER}: {dimension}=search,support"
            )
        unknown = set(listed) - set(_ALL_VALUES.get(dimension, listed))
        if unknown:
            raise ValueError(f"{dimension}: {', '.join(_ALL_VALUES[dimension])} (found {min(unknown)!r})")
        if dimension == "script" and (unknown := set(listed) - _scripts()):
            raise ValueError(
                "script: latin, cyrillic, arabic, devanagari, han (Chinese), japanese, hangul (Korean) or any"
                f" other script's Unicode name, mixed, symbols, unknown (found {min(unknown)!r})"
            )
        if dimension.startswith(LABEL) and (unknown := {value for value in listed if not value.isascii()}):
            raise ValueError(f"{dimension}: ASCII, as the header {LABEL_HEADER} (found {min(unknown)!r})")
        chosen.append(Chosen(dimension, listed))
    if len({one.dimension for one in chosen}) < len(chosen):
        raise ValueError("each dimension once")
    if len(chosen) > MOST_CHOSEN:
        raise ValueError(f"at most {MOST_CHOSEN} dimensions (found {len(chosen)})")
    if (listed_in_all := sum(len(one.listed) for one in chosen)) > MOST_LISTED:
        raise ValueError(
            f"at most {MOST_LISTED} listed values in all, since each is two metrics (found {listed_in_all})"
        )
    return tuple(chosen)


def slices_of_answer(usage: Mapping[str, Any]) -> dict[str, str]:
    """Return the slices of an answer's token counts."""
    slices = {}
    prompt, output = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if isinstance(prompt, int):
        slices["prompt tokens"] = token_bucket(prompt)
        details = usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
        if isinstance(cached, int):
            slices["cached prompt"] = cached_share(cached, prompt)
    if isinstance(output, int):
        slices["output tokens"] = token_bucket(output)
    return slices


def labels_of_header(text: str) -> dict[str, str]:
    """Return the ``name=value`` parts of a header, between ``;`` or ``,``; others are not for the gate."""
    labels = {}
    for part in re.split("[;,]", text[:1024]):
        name, equals, value = part.partition("=")
        if equals and _NAME.fullmatch(name.strip()) and value.strip():
            labels[name.strip()] = value.strip()[:LONGEST_VALUE]
    return labels


_ALL_VALUES: Mapping[str, tuple[str, ...]] = {
    "api": ("chat", "completion"),
    "prompt tokens": BUCKETS,
    "output tokens": BUCKETS,
    "cached prompt": ("none", "under half", "half or more"),
    "tools": ("yes", "no"),
    "format": ("text", "json", "json schema", "grammar"),
    "temperature": ("0", "up to 0.5", "up to 1", "above 1", "model's default"),
}
