"""A conversation, and one turn of it: send messages, stream the answer, report its end.

No terminal is needed here. `is_too_long` recognises vLLM's refusal of a conversation that exceeds the
context length.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from peagle_sm.core.errors import PeagleError, SpecError

if TYPE_CHECKING:
    from peagle_sm.aws.streams.runtime import Chunk, StreamSummary
    from peagle_sm.service import Endpoint


Message = dict[str, str]


@dataclass(frozen=True)
class Turn:
    """A question and its answer, which may be the part of one that was stopped or cut."""

    user: str
    assistant: str


@dataclass
class Conversation:
    """Everything so far. ``left_out`` counts the oldest turns that are no longer sent."""

    system: str | None = None
    turns: list[Turn] = field(default_factory=list)
    left_out: int = 0

    def messages(self, question: str | None = None) -> list[Message]:
        """The messages to send: system, the turns that fit, and a question to be answered."""
        found = [] if self.system is None else [{"role": "system", "content": self.system}]
        for turn in self.turns[self.left_out :]:
            found += [_said("user", turn.user), _said("assistant", turn.assistant)]
        return [*found, _said("user", question)] if question is not None else found

    def transcript(self) -> list[Message]:
        """All messages, those that are no longer sent included."""
        return Conversation(self.system, self.turns).messages()

    def keep(self, question: str, answer: str) -> None:
        """Remember a turn; one without a word of an answer is not remembered."""
        if answer:
            self.turns.append(Turn(question, answer))

    def leave_out_oldest(self) -> bool:
        """Send the oldest turn no longer; False when none is left to leave out."""
        if self.left_out >= len(self.turns):
            return False
        self.left_out += 1
        return True

    def take_back(self) -> str | None:
        """Forget the last turn and return its question; None when there is none."""
        if not self.turns:
            return None
        last = self.turns.pop()
        self.left_out = min(self.left_out, len(self.turns))
        return last.user

    def reset(self) -> None:
        """Forget every turn; the system message stays."""
        self.turns.clear()
        self.left_out = 0


def _said(role: str, content: str) -> Message:
    return {"role": role, "content": content}


# How vLLM says that a conversation is too long (vllm/renderers/params.py, v1/engine/input_processor.py).
_TOO_LONG = re.compile(r"context length|maximum model length", re.IGNORECASE)


@dataclass(frozen=True)
class Settings:
    """What is sent with every question; None leaves it to the engine."""

    max_tokens: int
    temperature: float | None = None
    component: str | None = None

    def to_arguments(self) -> dict[str, Any]:
        """The arguments of `Endpoint.stream`."""
        told = {} if self.temperature is None else {"temperature": self.temperature}
        return {
            "max_tokens": self.max_tokens,
            "component": self.component,
            # Without these counts nothing could be said of an answer before its end.
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            **told,
        }


@dataclass(frozen=True)
class Answer:
    """How a turn ended.

    ``summary`` is None for an answer that did not come to its end: it was ``stopped`` by Ctrl-C, or broke
    with ``error``. ``dropped`` counts the turns that had to be left out for it.
    """

    text: str
    summary: StreamSummary | None = None
    stopped: bool = False
    error: PeagleError | None = None
    dropped: int = 0


def is_too_long(error: PeagleError) -> bool:
    """Whether the engine refused because the conversation does not fit its context."""
    return isinstance(error, SpecError) and _TOO_LONG.search(error.message) is not None


def ask(
    endpoint: Endpoint,
    conversation: Conversation,
    question: str,
    settings: Settings,
    on_chunk: Callable[[Chunk], None],
    *,
    keep_all: bool = False,
) -> Answer:
    """Ask, and leave the oldest turns out while the engine finds the conversation too long.

    With ``keep_all`` none is left out. A request is sent again only when the engine refused it whole: never
    after its first token. The conversation remembers the turn when this returns, whatever came of it.
    """
    dropped, before = 0, conversation.left_out
    while True:
        answer = _asked_once(endpoint, conversation, question, settings, on_chunk)
        fits = answer.error is None or not is_too_long(answer.error)
        if fits or keep_all or not conversation.leave_out_oldest():
            break
        dropped += 1
    if not fits:  # the question alone is too long: leaving turns out has not helped
        dropped, conversation.left_out = 0, before
    conversation.keep(question, answer.text)
    return Answer(answer.text, answer.summary, answer.stopped, answer.error, dropped)


def _asked_once(
    endpoint: Endpoint,
    conversation: Conversation,
    question: str,
    settings: Settings,
    on_chunk: Callable[[Chunk], None],
) -> Answer:
    stream = None
    try:
        stream = endpoint.stream(messages=conversation.messages(question), **settings.to_arguments())
        for chunk in stream:
            on_chunk(chunk)
        return Answer(stream.text, stream.summary)
    except KeyboardInterrupt:
        return Answer(stream.text if stream is not None else "", stopped=True)
    except PeagleError as error:
        return Answer(stream.text if stream is not None else "", error=error)
    finally:
        if stream is not None:
            stream.close()
