"""The conversation of a chat, and one turn: send messages, stream the answer.

This module uses no terminal. `is_too_long` recognises vLLM's refusal of a conversation that exceeds the
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
    """A message and its answer, which is partial if it was stopped or broke off."""

    user: str
    assistant: str


@dataclass
class Conversation:
    """All turns so far; the oldest ``left_out`` turns are no longer sent."""

    system: str | None = None
    turns: list[Turn] = field(default_factory=list)
    left_out: int = 0

    def messages(self, question: str | None = None) -> list[Message]:
        """Return the messages to send: system, the turns that fit, and the new message."""
        messages = [] if self.system is None else [{"role": "system", "content": self.system}]
        for turn in self.turns[self.left_out :]:
            messages += [_message("user", turn.user), _message("assistant", turn.assistant)]
        return [*messages, _message("user", question)] if question is not None else messages

    def transcript(self) -> list[Message]:
        """Return all messages, including those that are no longer sent."""
        return Conversation(self.system, self.turns).messages()

    def keep(self, question: str, answer: str) -> None:
        """Add a turn, unless its answer is empty."""
        if answer:
            self.turns.append(Turn(question, answer))

    def leave_out_oldest(self) -> bool:
        """Stop sending the oldest turn that is still sent; return False if there is none."""
        if self.left_out >= len(self.turns):
            return False
        self.left_out += 1
        return True

    def take_back(self) -> str | None:
        """Remove the last turn and return its message; None if there is no turn."""
        if not self.turns:
            return None
        last = self.turns.pop()
        self.left_out = min(self.left_out, len(self.turns))
        return last.user

    def reset(self) -> None:
        """Remove every turn; keep the system message."""
        self.turns.clear()
        self.left_out = 0


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}


# vLLM's errors for a conversation that is too long (vllm/renderers/params.py, v1/engine/input_processor.py).
_TOO_LONG = re.compile(r"context length|maximum model length", re.IGNORECASE)


@dataclass(frozen=True)
class ChatSettings:
    """Parameters sent with every message; None means the engine's default."""

    max_tokens: int
    temperature: float | None = None
    component: str | None = None

    def to_arguments(self) -> dict[str, Any]:
        """Return the arguments for `Endpoint.stream`."""
        sampling = {} if self.temperature is None else {"temperature": self.temperature}
        return {
            "max_tokens": self.max_tokens,
            "component": self.component,
            # Token counts with each chunk, for the status line during an answer.
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            **sampling,
        }


@dataclass(frozen=True)
class ChatAnswer:
    """The result of a turn.

    ``summary`` is None if the answer is incomplete: it was ``stopped`` by Ctrl-C, or failed with ``error``.
    ``dropped`` counts the turns that were left out to fit the context.
    """

    text: str
    summary: StreamSummary | None = None
    stopped: bool = False
    error: PeagleError | None = None
    dropped: int = 0


def is_too_long(error: PeagleError) -> bool:
    """Return whether the engine refused because the conversation exceeds its context."""
    return isinstance(error, SpecError) and _TOO_LONG.search(error.message) is not None


def ask(
    endpoint: Endpoint,
    conversation: Conversation,
    question: str,
    settings: ChatSettings,
    on_chunk: Callable[[Chunk], None],
    *,
    keep_all: bool = False,
) -> ChatAnswer:
    """Send a message; leave out oldest turns while the engine refuses the length.

    With ``keep_all`` no turn is left out. A request is sent again only if the engine refused it, never after
    its first token. The turn is added to the conversation in any case, unless its answer is empty.
    """
    dropped, before = 0, conversation.left_out
    while True:
        answer = _asked_once(endpoint, conversation, question, settings, on_chunk)
        fits = answer.error is None or not is_too_long(answer.error)
        if fits or keep_all or not conversation.leave_out_oldest():
            break
        dropped += 1
    if not fits:  # the new message alone is too long: leaving out turns did not help
        dropped, conversation.left_out = 0, before
    conversation.keep(question, answer.text)
    return ChatAnswer(answer.text, answer.summary, answer.stopped, answer.error, dropped)


def _asked_once(
    endpoint: Endpoint,
    conversation: Conversation,
    question: str,
    settings: ChatSettings,
    on_chunk: Callable[[Chunk], None],
) -> ChatAnswer:
    stream = None
    try:
        stream = endpoint.stream(messages=conversation.messages(question), **settings.to_arguments())
        for chunk in stream:
            on_chunk(chunk)
        return ChatAnswer(stream.text, stream.summary)
    except KeyboardInterrupt:
        return ChatAnswer(stream.text if stream is not None else "", stopped=True)
    except PeagleError as error:
        return ChatAnswer(stream.text if stream is not None else "", error=error)
    finally:
        if stream is not None:
            stream.close()
