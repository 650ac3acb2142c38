"""What a request may not ask for: a parsed request in, a refusal or None out. Pure.

Every rule is here because a single small request could otherwise hold or end the engine for everybody; the
sources are in docs/container.md. What vLLM checks itself is left to it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from peagle_gate.settings import Limits

Request = Mapping[str, Any]

#: Fields that are refused whatever they hold, unless that is nothing.
NEVER = {
    "chat_template": "a template is code, and runs in the server",
    "prompt_embeds": "tensors from outside have crashed the engine",
    "use_beam_search": "a beam holds many sequences in one request",
    "kv_transfer_params": "the inner protocol of a split engine",
    "mm_processor_kwargs": "it reconfigures the media processor for everybody",
    "media_io_kwargs": "it reconfigures the media loader",
}
_FORMATS = ("response_format", "structured_outputs", "tools", "guided_json", "guided_regex", "guided_grammar")
_MEDIA = ("image", "audio", "video", "file")


@dataclass(frozen=True)
class Refusal:
    """Why a request is not passed on: the HTTP status, the field, and a sentence."""

    status: int
    param: str
    message: str


def refuse(request: Any, limits: Limits) -> Refusal | None:
    """Return the first reason to refuse a request's parsed JSON, None when there is none."""
    if not isinstance(request, Mapping):
        return Refusal(400, "", "the body is not a JSON object")
    for rule in _RULES:
        for param, message in rule(request, limits):
            return Refusal(400, param, message)
    return None


def too_large(size: int, limits: Limits) -> Refusal | None:
    """Return the refusal of a body of ``size`` bytes, None when it is small enough."""
    if size <= limits.max_body_bytes:
        return None
    return Refusal(413, "", f"the body has more than {limits.max_body_bytes} bytes")


Found = Iterator[tuple[str, str]]


def _never(request: Request, limits: Limits) -> Found:
    for name, why in NEVER.items():
        if request.get(name):
            yield name, f"{name} is not taken: {why}"


def _sequences(request: Request, limits: Limits) -> Found:
    n = max(_number(request.get("n"), 1), _number(request.get("best_of"), 1), 1)
    wanted = n * _prompts(request.get("prompt"))
    if wanted > limits.max_sequences:
        yield (
            "n",
            f"{wanted} sequences are asked for (n times the prompts); at most {limits.max_sequences}",
        )


def _prompts(prompt: Any) -> int:
    """A list of texts or of token lists is many prompts; a list of token ids is one."""
    if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
        return len(prompt)
    return 1


def _tokens(request: Request, limits: Limits) -> Found:
    for name in ("max_tokens", "max_completion_tokens", "min_tokens"):
        if _number(request.get(name), 0) > limits.max_tokens:
            yield name, f"{name} is {request[name]}; at most {limits.max_tokens}"


def _logprobs(request: Request, limits: Limits) -> Found:
    for name in ("logprobs", "top_logprobs", "prompt_logprobs"):
        value = request.get(name)
        if isinstance(value, bool):
            continue
        number = _number(value, 0)
        if number < 0 or number > limits.max_logprobs:
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


def _formats(request: Request, limits: Limits) -> Found:
    for name in _FORMATS:
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
            yield "chat_template_kwargs", f"chat_template_kwargs.{key} is not taken; allowed: {allowed}"
        elif isinstance(value, Mapping | list):
            yield "chat_template_kwargs", f"chat_template_kwargs.{key} must be a single value"


def _media(request: Request, limits: Limits) -> Found:
    found = 0
    for part in _parts(request.get("messages")):
        kind = str(part.get("type", ""))
        if not any(word in kind or any(word in key for key in part) for word in _MEDIA):
            continue
        found += 1
        if found > limits.max_media:
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


def _number(value: Any, default: int) -> int:
    """A number as vLLM would read it: pydantic takes 3.0 and "3" for 3 too."""
    if isinstance(value, bool) or value is None:
        return default
    try:
        return int(value) if isinstance(value, int | float) else int(str(value).strip())
    except (ValueError, OverflowError):
        return default  # vLLM says what is wrong with it


def _deeper_than(value: Any, depth: int) -> bool:
    level = [value]
    while level and depth >= 0:
        level = [
            item
            for node in level
            for item in (
                node.values() if isinstance(node, Mapping) else node if isinstance(node, list) else ()
            )
        ]
        depth -= 1
    return bool(level)


_RULES: tuple[Callable[[Request, Limits], Found], ...] = (
    _never,
    _sequences,
    _tokens,
    _logprobs,
    _stops,
    _formats,
    _template,
    _media,
)
