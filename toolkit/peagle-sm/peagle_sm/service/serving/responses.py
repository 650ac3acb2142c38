"""Translation of OpenAI's Responses API to chat completions and back. Pure.

SageMaker endpoints serve only /invocations, which vLLM treats as chat completions. Only text is supported;
requests that chat completions cannot express are refused. Order and fields of the events: OpenAI's API
reference, "Responses", "Streaming events".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from peagle_sm.aws.streams.answers import Usage, choice_content, usage_of
from peagle_sm.core.errors import SpecError
from peagle_sm.service.serving.upstream import Problem, Relay

#: Parameters that are accepted only with these values, which have no effect.
_REFUSED: dict[str, tuple[object, ...]] = {
    "background": (False,),
    "context_management": (),
    "conversation": (),
    "include": ([],),
    "max_tool_calls": (),
    "moderation": (),
    "previous_response_id": (),
    "prompt": (),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "tool_choice": ("auto", "none"),
    "tools": ([],),
    "top_logprobs": (0,),
    "truncation": ("disabled",),
}
#: Parameters of chat completions that this API does not have.
_OF_CHATS = ("messages", "n", "max_tokens", "max_completion_tokens", "response_format")
#: Parameters without an effect on the answer.
_IGNORED = (
    "metadata",
    "parallel_tool_calls",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "stream_options",
    "user",
)
_TRANSLATED = ("input", "instructions", "max_output_tokens", "reasoning", "text")
_ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
_TEXTS = ("input_text", "output_text", "text")
_CUT_SHORT = {"length": "max_output_tokens", "content_filter": "content_filter"}


def chat_of(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the chat completion request; unknown fields are passed to the engine.

    Raises:
        SpecError: chat completions cannot express the request.
    """
    for name, allowed in _REFUSED.items():
        if request.get(name) is not None and request[name] not in allowed:
            raise _refused(name, request[name], " or ".join(map(json.dumps, allowed)) or "nothing")
    for name in _OF_CHATS:
        if name in request:
            raise _refused(name, request[name], "nothing; it is not a parameter of /v1/responses")
    untouched = {
        name: value
        for name, value in request.items()
        if name not in (*_REFUSED, *_IGNORED, *_TRANSLATED) and value is not None
    }
    chat = {**untouched, "messages": _messages(request.get("input"), request.get("instructions"))}
    if request.get("max_output_tokens") is not None:
        chat["max_tokens"] = request["max_output_tokens"]
    reasoning = _fields(request.get("reasoning"), "reasoning", ("effort",))
    if reasoning.get("effort") is not None:
        chat["reasoning_effort"] = reasoning["effort"]
    form = _fields(request.get("text"), "text", ("format",)).get("format")
    if form is not None and form != {"type": "text"}:
        chat["response_format"] = _response_format(form)
    if request.get("stream"):
        chat["stream_options"] = {"include_usage": True}
    return chat


def _messages(given: Any, instructions: Any) -> list[dict[str, str]]:
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if not isinstance(given, list) or not given:
        raise _refused("input", given, "a text or a list of messages")
    # The reasoning of earlier turns is dropped, as chat templates do.
    kept = [
        (f"input[{place}]", item)
        for place, item in enumerate(given)
        if not (isinstance(item, Mapping) and item.get("type") == "reasoning")
    ]
    messages = [_message(item, where) for where, item in kept]
    if instructions is None:
        return messages
    if not isinstance(instructions, str):
        raise _refused("instructions", instructions, "a text")
    if messages and messages[0]["role"] == "system":  # many chat templates accept only one system message
        instructions = f"{instructions}\n\n{messages.pop(0)['content']}"
    return [{"role": "system", "content": instructions}, *messages]


def _message(item: Any, where: str) -> dict[str, str]:
    if not isinstance(item, Mapping) or item.get("type", "message") != "message":
        raise _refused(f"{where}.type", item.get("type") if isinstance(item, Mapping) else item, '"message"')
    role = _ROLES.get(str(item.get("role")))
    if role is None:
        raise _refused(f"{where}.role", item.get("role"), ", ".join(_ROLES))
    content = item.get("content")
    if isinstance(content, str):
        return {"role": role, "content": content}
    if not isinstance(content, list):
        raise _refused(f"{where}.content", content, "a text or a list of texts")
    texts = []
    for place, part in enumerate(content):
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind not in _TEXTS or not isinstance(part.get("text"), str):
            raise _refused(f"{where}.content[{place}].type", kind, ", ".join(_TEXTS))
        texts.append(part["text"])
    return {"role": role, "content": "".join(texts)}


def _fields(value: Any, name: str, allowed: tuple[str, ...]) -> Mapping[str, Any]:
    """Return an object's fields; refuse fields that are not supported."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _refused(name, value, "an object")
    for key in value:
        if key not in allowed and value[key] is not None:
            raise _refused(f"{name}.{key}", value[key], "nothing")
    return value


def _response_format(form: Any) -> dict[str, Any]:
    kind = form.get("type") if isinstance(form, Mapping) else None
    if kind == "json_object":
        return {"type": "json_object"}
    if kind == "json_schema":
        return {"type": kind, "json_schema": {key: value for key, value in form.items() if key != "type"}}
    raise _refused("text.format.type", kind, "text, json_object, json_schema")


def _refused(name: str, value: object, allowed: str) -> SpecError:
    return SpecError(f"{name}: found {json.dumps(value)[:100]}; allowed here: {allowed}")


@dataclass
class ChatResponse:
    """One chat answer as a response; ``request`` is the one that it answers."""

    request: Mapping[str, Any]
    id: str = ""
    created: float = 0
    model: str = ""
    reasoning: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    finish_reason: str | None = None
    usage: Usage | None = None

    def take(self, document: Mapping[str, Any]) -> tuple[str, str]:
        """Add an answer or the next event; return its reasoning text and its text."""
        if not self.id:
            self.id = str(document.get("id") or "0").removeprefix("chatcmpl-")
            self.created = document.get("created") or 0
            self.model = str(document.get("model") or self.request.get("model") or "")
        if document.get("usage"):
            self.usage = usage_of(document["usage"])
        choices = document["choices"]
        if not choices:
            return "", ""
        text, reasoning, _, _ = choice_content(choices[0])
        self.finish_reason = choices[0].get("finish_reason") or self.finish_reason
        self.text.append(text)
        self.reasoning.append(reasoning)
        return reasoning, text

    def document(self, *, ended: bool = True) -> dict[str, Any]:
        """Return the response so far."""
        request = self.request
        reason = _CUT_SHORT.get(self.finish_reason or "") if ended else None
        return {
            "id": f"resp_{self.id}",
            "object": "response",
            "created_at": self.created,
            "status": "in_progress" if not ended else "incomplete" if reason else "completed",
            "background": False,
            "error": None,
            "incomplete_details": {"reason": reason} if reason else None,
            "instructions": request.get("instructions"),
            "max_output_tokens": request.get("max_output_tokens"),
            "metadata": request.get("metadata") or {},
            "model": self.model,
            "output": self._output() if ended else [],
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "reasoning": {"effort": None, **(request.get("reasoning") or {}), "summary": None},
            "store": False,
            "temperature": request.get("temperature"),
            "text": request.get("text") or {"format": {"type": "text"}},
            "tool_choice": request.get("tool_choice") or "auto",
            "tools": [],
            "top_p": request.get("top_p"),
            "truncation": "disabled",
            "usage": self._usage() if ended else None,
            "user": request.get("user"),
        }

    def item(self, kind: str, status: str, text: str | None) -> dict[str, Any]:
        """Return an output item; without content if ``text`` is None."""
        content = [] if text is None else [part_of(kind, text)]
        if kind == "reasoning":
            return {"type": kind, "id": f"rs_{self.id}", "summary": [], "content": content, "status": status}
        return {
            "type": kind,
            "id": f"msg_{self.id}",
            "role": "assistant",
            "content": content,
            "status": status,
        }

    @property
    def status(self) -> str:
        """Status of the last item."""
        return "incomplete" if self.finish_reason in _CUT_SHORT else "completed"

    def _output(self) -> list[dict[str, Any]]:
        thought, text = "".join(self.reasoning), "".join(self.text)
        items = [self.item("reasoning", "completed" if text else self.status, thought)] if thought else []
        return [*items, self.item("message", self.status, text)] if text or not thought else items

    def _usage(self) -> dict[str, Any] | None:
        used = self.usage
        if used is None:
            return None
        sent, received = used.prompt_tokens or 0, used.completion_tokens or 0
        return {
            "input_tokens": sent,
            "input_tokens_details": {"cached_tokens": used.cached_tokens or 0, "cache_write_tokens": 0},
            "output_tokens": received,
            "output_tokens_details": {"reasoning_tokens": used.reasoning_tokens or 0},
            "total_tokens": sent + received,
        }


def part_of(kind: str, text: str) -> dict[str, Any]:
    """Return the content part of an item."""
    if kind == "reasoning":
        return {"type": "reasoning_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def response_of(request: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a whole chat completion to a response."""
    answer = ChatResponse(request)
    answer.take(document)
    return answer.document()


class ResponseRelay(Relay):
    """Relay that converts the engine's events to the events of a response."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        """Take the request."""
        super().__init__()
        self._answer = ChatResponse(request)
        self._number = 0
        self._out: list[bytes] = []
        self._items: list[str] = []  #: kinds of the items that have begun
        self._ended = False

    def feed(self, part: bytes) -> bytes:
        """Return the converted events that ``part`` completes."""
        super().feed(part)
        return self._written()

    def finish(self) -> bytes:
        """Return the events that end the response; none if it was cut."""
        super().finish()
        if self.is_answer and not self._ended:
            self._ended = True
            self._begin()
            if not self._items:
                self._begin_item("message")
            self._end_item()
            response = self._answer.document()
            self._write_event(f"response.{response['status']}", response=response)
        return self._written()

    def failure(self, problem: Problem) -> bytes:
        """Return the event that ends a broken stream; OpenAI clients raise an error."""
        fields = json.loads(problem.body())["error"]
        self._write_event("error", **fields | {"type": "error"}, error=fields)
        return self._written()

    def _take(self, document: dict[str, Any]) -> None:
        super()._take(document)
        thought, text = self._answer.take(document)
        self._begin()
        for kind, delta in (("reasoning", thought), ("message", text)):
            if not delta:
                continue
            if self._items[-1:] != [kind]:
                self._end_item()
                self._begin_item(kind)
            self._write_event(
                f"response.{_EVENT[kind]}.delta", **self._place(), **_logprobs(kind), delta=delta
            )

    def _begin(self) -> None:
        if self._number:
            return
        for name in ("created", "in_progress"):
            self._write_event(f"response.{name}", response=self._answer.document(ended=False))

    def _begin_item(self, kind: str) -> None:
        self._items.append(kind)
        place = self._place()
        item = self._answer.item(kind, "in_progress", None)
        self._write_event("response.output_item.added", output_index=place["output_index"], item=item)
        self._write_event("response.content_part.added", **place, part=part_of(kind, ""))

    def _end_item(self) -> None:
        if not self._items:
            return
        kind, place = self._items[-1], self._place()
        text = "".join(self._answer.reasoning if kind == "reasoning" else self._answer.text)
        status = self._answer.status if self._ended else "completed"
        self._write_event(f"response.{_EVENT[kind]}.done", **place, **_logprobs(kind), text=text)
        self._write_event("response.content_part.done", **place, part=part_of(kind, text))
        item = self._answer.item(kind, status, text)
        self._write_event("response.output_item.done", output_index=place["output_index"], item=item)

    def _place(self) -> dict[str, Any]:
        kind = self._items[-1]
        return {
            "item_id": self._answer.item(kind, "", None)["id"],
            "output_index": len(self._items) - 1,
            "content_index": 0,
        }

    def _write_event(self, kind: str, **fields: Any) -> None:
        document = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        data = json.dumps(document, ensure_ascii=False)
        self._out.append(f"event: {kind}\ndata: {data}\n\n".encode())

    def _written(self) -> bytes:
        written = b"".join(self._out)
        self._out.clear()
        return written


_EVENT = {"reasoning": "reasoning_text", "message": "output_text"}


def _logprobs(kind: str) -> dict[str, Any]:
    return {"logprobs": []} if kind == "message" else {}
