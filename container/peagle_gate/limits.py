"""Limits of requests: a parsed request gives a refusal or None. Pure.

Without these rules a single small request could block or crash the engine for all users; sources are in
docs/explanation/container.md. What vLLM itself checks is not repeated.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from peagle_gate.grammars import FIELDS, excessive
from peagle_gate.startup import Limits

Request = Mapping[str, Any]

#: Fields that are refused with any value that is not empty.
NEVER = {
    "chat_template": "a template is code, and runs in the server",
    "prompt_embeds": "tensors from outside have crashed the engine",
    "use_beam_search": "a beam holds many sequences in one request",
    "kv_transfer_params": "the inner protocol of a split engine",
    "ec_transfer_params": "the inner protocol of a split engine",
    "mm_processor_kwargs": "it reconfigures the media processor for all users",
    "media_io_kwargs": "it reconfigures the media loader",
}
_MEDIA = ("image", "audio", "video", "file", "prompt_embeds")
_TEXT_PARTS = frozenset({"text", "input_text", "output_text", "refusal", "thinking", "tool_reference"})
_INTEGERS = ("n", "max_tokens", "max_completion_tokens", "min_tokens")
_LOGPROBS = ("logprobs", "top_logprobs", "prompt_logprobs")
_NAMES = ("model", "request_id", "session_id", "user")
_REPETITION = ("max_pattern_size", "min_pattern_size", "min_count")
_SHOWN = 40  # characters of a refused value in its message


@dataclass(frozen=True)
class Refusal:
    """Refusal of a request: HTTP status, field, and message."""

    status: int
    param: str
    message: str


def judged(body: bytes, limits: Limits) -> tuple[Request, Refusal | None]:
    """Return a request's parsed JSON, empty if it is not an object, and the first reason to refuse it.

    The body is parsed as vLLM's server parses it, so both read the same of two equal keys.
    """
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        return {}, Refusal(400, "", "the body is not JSON")
    refusal = refuse(request, limits)
    return (request if isinstance(request, Mapping) else {}), refusal


def refuse(request: Any, limits: Limits) -> Refusal | None:
    """Return the first reason to refuse a request's parsed JSON; None if there is none."""
    if not isinstance(request, Mapping):
        return Refusal(400, "", "the body is not a JSON object")
    for rule in _RULES:
        for param, message in rule(request, limits):
            return Refusal(400, param, message)
    return None


def too_large(size: int, limits: Limits) -> Refusal | None:
    """Return the refusal of a body of ``size`` bytes; None if it is small enough."""
    if size <= limits.max_body_bytes:
        return None
    return Refusal(413, "", f"the body has more than {limits.max_body_bytes} bytes")


Found = Iterator[tuple[str, str]]


def _never(request: Request, limits: Limits) -> Found:
    further = request.get("vllm_xargs")  # vLLM puts these beside the fields of the same name
    places = [request, further] if isinstance(further, Mapping) else [request]
    for name, why in NEVER.items():
        if any(place.get(name) for place in places):
            yield name, f"{name} is not supported: {why}"


@cache
def ignored_fields() -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    """Return the fields that vLLM ignores although they change an answer: of any request, of a completion."""
    data = json.loads(Path(__file__).with_name("ignored_fields.json").read_text(encoding="utf-8"))
    fields: Mapping[str, Mapping[str, Mapping[str, Any]]] = data
    return fields


def _ignored(request: Request, limits: Limits) -> Found:
    lists = ignored_fields()
    is_chat = request.get("messages") is not None
    fields = lists["any"] if is_chat else {**lists["any"], **lists["completion"]}
    for name, entry in fields.items():
        value = request.get(name)
        if value is not None and value not in entry.get("harmless", ()):
            yield name, f"the engine ignores {name}; use {entry['instead']}"
    if is_chat and request.get("prompt") is not None:
        yield "prompt", "the engine ignores prompt beside messages; send one of them"


def _text(request: Request, limits: Limits) -> Found:
    """Refuse text that is not valid Unicode: a lone surrogate has stopped tokenizers and matchers."""
    for name, value in request.items():
        try:
            json.dumps({name: value}, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            surrogate = f"U+{ord(error.object[error.start]):04X}"
            shown = ascii(name)[1:-1] if len(name) <= _SHOWN else "a field"
            yield shown, f"{shown} has the lone surrogate {surrogate}; send valid Unicode"
        except RecursionError:
            yield "", "the body nests too deeply"


def _integers(request: Request, limits: Limits) -> Found:
    """Refuse every number that is not a JSON integer.

    vLLM also reads "99999.0", 99999.0, "99_999" and digits of other scripts as 99999. To copy all of these
    rules here would be fragile.
    """
    for name in (*_INTEGERS, *_LOGPROBS):
        value = request.get(name)
        if value is None or type(value) is int or (name == "logprobs" and isinstance(value, bool)):
            continue
        yield name, _not_an_integer(name, value)


def _not_an_integer(name: str, value: Any) -> str:
    shown = json.dumps(value)
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
    return f"{name} is {shown}; send an integer, without quotes and without a decimal point"


def _sequences(request: Request, limits: Limits) -> Found:
    n = max(request.get("n") or 1, 1)
    wanted = n * _prompts(request.get("prompt"))
    if wanted > limits.max_sequences:
        yield (
            "n",
            f"{wanted} sequences requested (n times the prompts); allowed: at most {limits.max_sequences}",
        )


def _prompts(prompt: Any) -> int:
    """Return the number of prompts: one for a list of token ids, else the length of the list."""
    if not isinstance(prompt, list) or all(type(entry) is int for entry in prompt):
        return 1
    return len(prompt)


def _tokens(request: Request, limits: Limits) -> Found:
    for name in ("max_tokens", "max_completion_tokens", "min_tokens"):
        if (request.get(name) or 0) > limits.max_tokens:
            yield name, f"{name} is {request[name]}; at most {limits.max_tokens}"


def _logprobs(request: Request, limits: Limits) -> Found:
    for name in _LOGPROBS:
        value = request.get(name) or 0
        if value is not True and not 0 <= value <= limits.max_logprobs:
            yield (
                name,
                f"{name} is {value}; from 0 to {limits.max_logprobs} (-1 would be the whole vocabulary)",
            )


def _stops(request: Request, limits: Limits) -> Found:
    for name in ("stop", "bad_words", "stop_token_ids"):
        value = request.get(name)
        entries = value if isinstance(value, list) else [value] if value else []
        if len(entries) > limits.max_stops:
            yield name, f"{name} has {len(entries)} entries; at most {limits.max_stops}"
        for entry in entries:
            if isinstance(entry, str) and len(entry) > limits.max_stop_chars:
                yield name, f"an entry of {name} has {len(entry)} characters; at most {limits.max_stop_chars}"


def _token_ids(request: Request, limits: Limits) -> Found:
    for name, most in (
        ("logprob_token_ids", limits.max_logprobs),
        ("logit_bias", limits.max_token_ids),
        ("allowed_token_ids", limits.max_token_ids),
    ):
        value = request.get(name)
        if isinstance(value, list | Mapping) and len(value) > most:
            yield name, f"{name} has {len(value)} entries; at most {most}"


def _names(request: Request, limits: Limits) -> Found:
    for name in _NAMES:
        value = request.get(name)
        if isinstance(value, str) and len(value) > limits.max_name_chars:
            yield name, f"{name} has {len(value)} characters; at most {limits.max_name_chars}"


def _repetition(request: Request, limits: Limits) -> Found:
    settings = request.get("repetition_detection")
    if not isinstance(settings, Mapping):
        return  # vLLM takes nothing else
    for name in _REPETITION:
        value = settings.get(name)
        if value is not None and type(value) is not int:
            yield "repetition_detection", _not_an_integer(f"repetition_detection.{name}", value)
            return
    size = settings.get("max_pattern_size") or 0
    if size > limits.max_repeated_tokens:
        yield (
            "repetition_detection",
            f"repetition_detection.max_pattern_size is {size}; at most {limits.max_repeated_tokens}",
        )


def _formats(request: Request, limits: Limits) -> Found:
    for name in FIELDS:
        value = request.get(name)
        if value is None:
            continue
        if _deeper_than(value, limits.max_format_depth):
            yield name, f"{name} nests deeper than {limits.max_format_depth}"
        elif len(json.dumps(value, ensure_ascii=False).encode(errors="replace")) > limits.max_format_bytes:
            yield name, f"{name} has more than {limits.max_format_bytes} bytes of JSON"


def _template(request: Request, limits: Limits) -> Found:
    given = request.get("chat_template_kwargs")
    if given is None:
        return
    allowed = ", ".join(limits.template_keys) or "none"
    if not isinstance(given, Mapping):
        yield "chat_template_kwargs", "chat_template_kwargs is not a JSON object"
        return
    for key, value in given.items():
        if key not in limits.template_keys:
            yield "chat_template_kwargs", f"chat_template_kwargs.{key} is not supported; allowed: {allowed}"
        elif isinstance(value, Mapping | list):
            yield "chat_template_kwargs", f"chat_template_kwargs.{key} must be a single value"


def _media(request: Request, limits: Limits) -> Found:
    count = 0
    for part in _parts(request.get("messages")):
        kind = part.get("type", "text")
        is_text = isinstance(kind, str) and kind in _TEXT_PARTS
        if is_text and not any(word in key for key in part for word in _MEDIA):
            continue
        count += 1
        if count > limits.max_media:
            yield "messages", f"more than {limits.max_media} images, sounds, videos or files in the messages"
        for address in _addresses(part):
            if not address.startswith("data:"):
                yield "messages", "media is taken as a data: address only; the server fetches nothing"


def _parts(messages: Any) -> Iterator[Mapping[str, Any]]:
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, Mapping) else None
        for part in content if isinstance(content, list) else ():
            if isinstance(part, Mapping):
                yield part


def _addresses(part: Mapping[str, Any]) -> Iterator[str]:
    for key, value in part.items():
        if not key.endswith("url"):
            continue
        address = value.get("url") if isinstance(value, Mapping) else value
        if isinstance(address, str):
            yield address


def _deeper_than(value: Any, depth: int) -> bool:
    level = [value]
    while level and depth >= 0:
        try:
            level = [inner for node in level for inner in _inner(node)]
        except RecursionError:  # JSON in a string, deeper than Python parses
            return True
        depth -= 1
    return bool(level)


def _inner(node: Any) -> Iterable[Any]:
    """Return a node's children; vLLM also accepts a JSON schema in a string."""
    if isinstance(node, str) and node.lstrip()[:1] in ("{", "["):
        try:
            node = json.loads(node)
        except ValueError:
            return ()
    return node.values() if isinstance(node, Mapping) else node if isinstance(node, list) else ()


_RULES: tuple[Callable[[Request, Limits], Found], ...] = (
    _never,
    _ignored,
    _integers,
    _sequences,
    _tokens,
    _logprobs,
    _stops,
    _token_ids,
    _names,
    _repetition,
    _formats,
    excessive,
    _text,
    _template,
    _media,
)
