"""One turn: send the conversation, take the answer as it comes, and say how it ended."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from peagle_sm.cli.chat.conversation import Conversation
from peagle_sm.core.errors import PeagleError, SpecError

if TYPE_CHECKING:
    from peagle_sm.aws.streams.runtime import Chunk, StreamSummary
    from peagle_sm.service import Endpoint

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
