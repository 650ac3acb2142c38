"""From the bytes of a request and its answer to a redacted record. Pure.

The recorded process only keeps bytes; everything here runs in the recording's own process.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from peagle_sm.aws.streams.answers import (
    Acceptance,
    ToolCalls,
    Usage,
    aborted_in,
    acceptance_of,
    choice_content,
    engine_error,
    usage_of,
)
from peagle_sm.aws.streams.decoding import EventReader
from peagle_sm.aws.streams.runtime import answers_asked
from peagle_sm.core.errors import SpecError
from peagle_sm.core.request_slices import request_slices
from peagle_sm.core.slice_values import LABEL, slices_of_body
from peagle_sm.traffic.records import (
    Mode,
    Outcome,
    RecordedAnswer,
    RecordedCall,
    RecordedUsage,
    TrafficRecord,
)
from peagle_sm.traffic.redaction import Redactor

#: Fields of a request that name a person, or that are a secret; they do not change the answer.
NEVER = ("user", "safety_identifier", "cache_salt", "prompt_cache_key", "metadata", "prompt_embeds")
_LONGEST_ERROR = 200
_NOT_RECORDED = "[NOT RECORDED: {}]"
_OTHER_FORM = (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError)


@dataclass(frozen=True)
class Exchange:
    """One request as the client process saw it; ``parts`` are the first parts' sizes and times.

    ``framed``: the answer is SageMaker's event stream, not server-sent events or JSON. ``left``: the caller
    closed it. ``problem``: why no answer came, or why it broke, as the client process knows it.
    """

    id: str
    time: float
    endpoint: str
    component: str | None = None
    target: str | None = None
    mode: Mode = "unknown"
    streamed: bool = False
    framed: bool = False
    left: bool = False
    problem: str | None = None
    status: int | None = None
    total_ms: float | None = None
    parts: tuple[tuple[int, float], ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    sample: float = 1.0


def record_of(exchange: Exchange, body: bytes, answer: bytes) -> TrafficRecord:
    """Return the redacted record of one request.

    Raises:
        ValueError: the request is not a JSON object.
    """
    request = json.loads(body)
    if not isinstance(request, dict):
        raise ValueError("the request is not a JSON object")
    answer_read = _streamed(exchange, answer) if exchange.streamed else _whole(answer)
    outcome, error = _outcome(exchange, request, answer_read)
    redactor = Redactor()
    slices = _slices(request, answer_read, exchange.labels)
    drafts, redacted = answer_read.acceptance, redactor.redact(recorded_request(request))
    return TrafficRecord(
        id=exchange.id,
        time=exchange.time,
        endpoint=exchange.endpoint,
        component=exchange.component,
        target=exchange.target,
        mode=exchange.mode,
        num_speculative_tokens=None if drafts is None else drafts.num_speculative_tokens,
        streamed=exchange.streamed,
        request=redacted,
        answers=tuple(_redacted(answer, redactor) for answer in answer_read.answers()),
        outcome=outcome,
        error=None if error is None else redactor.text(error)[:_LONGEST_ERROR],
        status=exchange.status,
        usage=_usage(answer_read.usage),
        ttft_ms=answer_read.first_ms,
        total_ms=exchange.total_ms,
        slices={name: redactor.text(value) for name, value in slices.items()},
        drafts=None if drafts is None else drafts.target_steps,
        drafted=None if drafts is None else drafts.draft_tokens,
        accepted=None if drafts is None else drafts.accepted_tokens,
        histogram=() if drafts is None else drafts.histogram,
        redacted=dict(redactor.counts),
        sample=exchange.sample,
        conversation=_conversation_key(redacted.get("messages")),
    )


def _conversation_key(messages: Any) -> str | None:
    """Return an id for the conversation that a chat's messages begin; None without a message of the user.

    It is a hash of the first message of the user, so every turn of the conversation has the same.
    """
    for message in messages if isinstance(messages, list) else ():
        if isinstance(message, Mapping) and message.get("role") == "user":
            content = json.dumps(message.get("content"), sort_keys=True, default=str)
            return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return None


class _Answer:
    """An answer so far: its choices, its counts, and its problem."""

    def __init__(self) -> None:
        self.usage: Usage | None = None
        self.acceptance: Acceptance | None = None
        self.first_ms: float | None = None
        self.done = False
        self.problem: str | None = None
        self.finished: set[int] = set()
        self._choices: dict[int, tuple[list[str], list[str], ToolCalls, list[str]]] = {}

    def take(self, document: Mapping[str, Any]) -> bool:
        """Add an event or a whole answer; return whether it has text."""
        has_text = False
        for place, choice in enumerate(document.get("choices") or ()):
            text, reasoning, calls, _ = choice_content(choice)
            index = choice.get("index", place) or 0
            texts, thoughts, tools, reasons = self._choices.setdefault(index, ([], [], ToolCalls(), []))
            texts.append(text)
            thoughts.append(reasoning)
            for call in calls:
                tools.add(call)
            if choice.get("finish_reason"):
                reasons.append(str(choice["finish_reason"]))
                self.finished.add(index)
            has_text = has_text or bool(text or reasoning or calls)
        if document.get("usage"):
            self.usage = usage_of(document["usage"])
        self.acceptance = acceptance_of(document) or self.acceptance
        return has_text

    def answers(self) -> Iterator[RecordedAnswer]:
        """Yield the choices, in order."""
        for index, (texts, thoughts, tools, reasons) in sorted(self._choices.items()):
            calls = tuple(RecordedCall(call.id, call.name, call.arguments) for call in tools.all())
            reason = reasons[-1] if reasons else None
            yield RecordedAnswer(index, "".join(texts), reason, "".join(thoughts), calls)

    def is_whole(self, expected: int) -> bool:
        """Return whether all answers have arrived in full."""
        return self.done or (len(self.finished) >= expected and set(self._choices) <= self.finished)


def _streamed(exchange: Exchange, answer: bytes) -> _Answer:
    answer_read = _Answer()
    reader = EventReader(framed=exchange.framed)
    try:
        for part, at_ms in _timed(exchange, answer):
            for document in reader.feed(part):
                if answer_read.take(document) and answer_read.first_ms is None:
                    answer_read.first_ms = at_ms
        for document in reader.finish(finished=bool(answer_read.finished)):
            answer_read.take(document)
    except _OTHER_FORM as error:
        answer_read.problem = f"an event is not a completion: {type(error).__name__}"
    answer_read.done = reader.done
    if reader.problem is not None and not exchange.left:
        answer_read.problem = answer_read.problem or reader.problem.message
    return answer_read


def _timed(exchange: Exchange, answer: bytes) -> Iterator[tuple[bytes, float | None]]:
    """Yield the first parts with their times, then the rest."""
    start = 0
    for size, at_ms in exchange.parts:
        yield answer[start : start + size], at_ms
        start += size
    if start < len(answer):
        yield answer[start:], None


def _whole(answer: bytes) -> _Answer:
    answer_read = _Answer()
    if not answer:
        return answer_read
    try:
        document = json.loads(answer)
        failed = engine_error(document)
        if failed is not None:
            answer_read.problem = str(failed.get("message") or failed)
            return answer_read
        answer_read.take(document)
        reason = aborted_in(document)
        answer_read.problem = None if reason is None else f"the engine aborted the answer: {reason}"
        answer_read.done = reason is None
    except (*_OTHER_FORM, RecursionError):
        answer_read.problem = "the answer is not an OpenAI completion"
    return answer_read


def _outcome(
    exchange: Exchange, request: Mapping[str, Any], answer_read: _Answer
) -> tuple[Outcome, str | None]:
    problem = exchange.problem or answer_read.problem
    try:
        expected = answers_asked(request)
    except SpecError:
        expected = 1
    if exchange.status is not None and exchange.status >= 400:
        return "failed", problem
    if answer_read.is_whole(expected) and answer_read.problem is None:
        return "whole", None
    if exchange.left:
        return "cancelled", problem
    if not exchange.streamed and not answer_read.finished:
        return "failed", problem
    return "cut", problem


def _slices(request: Mapping[str, Any], answer_read: _Answer, labels: Mapping[str, str]) -> dict[str, str]:
    messages = request.get("messages")
    users = [each for each in messages if _is_user(each)] if isinstance(messages, list) else []
    usage = answer_read.usage or Usage(None, None, None)
    return request_slices(
        slices_of_body(request, labels),
        max(len(users) - 1, 0),
        input_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        output_tokens=usage.completion_tokens,
    )


def _is_user(message: Any) -> bool:
    return isinstance(message, Mapping) and message.get("role") == "user"


def _redacted(answer: RecordedAnswer, redactor: Redactor) -> RecordedAnswer:
    calls = tuple(
        RecordedCall(redactor.text(call.id), redactor.text(call.name), redactor.text(call.arguments))
        for call in answer.tool_calls
    )
    text, reasoning = redactor.text(answer.text), redactor.text(answer.reasoning)
    return RecordedAnswer(answer.index, text, answer.finish_reason, reasoning, calls)


def _usage(usage: Usage | None) -> RecordedUsage | None:
    if usage is None:
        return None
    return RecordedUsage(
        usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, usage.reasoning_tokens
    )


def recorded_request(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a body that may be recorded, before redaction.

    Token ids, images and audio cannot be searched for secrets, so they are left out.
    """
    kept = {name: value for name, value in body.items() if name not in NEVER}
    if "prompt" in kept and not _is_text(kept["prompt"]):
        kept["prompt"] = None
    return {name: _without_data(value) for name, value in kept.items()}


def _is_text(prompt: Any) -> bool:
    return isinstance(prompt, str) or (
        isinstance(prompt, list) and all(isinstance(each, str) for each in prompt)
    )


def _without_data(value: Any) -> Any:
    if isinstance(value, str):
        if value.startswith("data:") and "base64," in value[:200]:
            return _NOT_RECORDED.format(f"{len(value)} characters of data")
        return value
    if isinstance(value, list):
        return [_without_data(each) for each in value]
    if not isinstance(value, dict):
        return value
    if value.get("type") in ("input_audio", "image_pil", "image_embeds", "audio_embeds", "video_embeds"):
        return {"type": "text", "text": _NOT_RECORDED.format(value["type"])}
    return {name: _without_data(each) for name, each in value.items()}


def labels_in(slices: Mapping[str, str]) -> dict[str, str]:
    """Return the user's labels among slices."""
    return {name.removeprefix(LABEL): value for name, value in slices.items() if name.startswith(LABEL)}
