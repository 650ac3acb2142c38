"""Reader of one streamed answer: from timed bytes to its figures or its error. Pure.

Each server-sent event carries the time at which its last byte arrived.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from peagle_sm.aws.streams.answers import aborted_in, error_in, every_step
from peagle_sm.aws.streams.framing import (
    MAX_EVENT_BYTES,
    FrameDecoder,
    FrameException,
    SseError,
    SseParser,
    Timed,
)


class TimedEvents:
    """Parser from timed parts, cut anywhere, to server-sent events with their completion times."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        """Start empty; ``max_event_bytes`` bounds what is kept for one event."""
        self._parser = SseParser(max_event_bytes)

    def feed(self, parts: Sequence[Timed]) -> list[Timed]:
        """Return the events that ``parts`` complete.

        Raises:
            SseError: an event exceeds the limit, or a line is not part of an event.
        """
        feed = self._parser.feed
        return [(event, at) for part, at in parts for event in feed(part)]

    def finish(self, at: float) -> list[Timed]:
        """Return the event left when the stream ends without a blank line; it may be cut.

        Raises:
            SseError: a line is not part of an event; most likely it was cut.
        """
        return [(event, at) for event in self._parser.finish()]


#: Parts to read at once: fewer cost more CPU per chunk, more block the event loop longer.
BATCH = 32


@dataclass(frozen=True)
class Answer:
    """One answer; times on the client's clock, ``gaps_ms`` between content chunks."""

    sent: float
    done: float
    first: float | None
    last: float | None
    gaps_ms: tuple[float, ...]
    chunks: int
    input_tokens: int | None
    output_tokens: int | None
    finish_reason: str | None
    text: str
    output_sha256: str | None
    distinct_4_grams: float | None = None
    drafts: int | None = None
    accepted: int | None = None
    histogram: tuple[int, ...] = ()
    cached_tokens: int | None = None
    error: str | None = None
    error_message: str | None = None


class AnswerReader:
    """Reader of the parts of one answer; batches of `BATCH` parts take a third less CPU."""

    def __init__(self, *, framed: bool) -> None:
        """``framed``: the server-sent events come inside event-stream messages."""
        self._frames = FrameDecoder() if framed else None
        self._events = TimedEvents()
        self._times = array("d")
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._calls: dict[int, list[str]] = {}  # name and arguments by index
        self._ids: list[int] | None = []
        self._usage: Mapping[str, Any] = {}
        self._metrics: Mapping[str, Any] = {}
        self._finish_reason: str | None = None
        self._done = False
        self._error: tuple[str, str] | None = None

    def take(self, parts: Sequence[Timed]) -> bool:
        """Read parts with their arrival times; return False when an error has ended the answer."""
        if self._error is not None:
            return False
        payloads = parts
        problem: Exception | None = None
        if self._frames is not None:
            payloads, problem = self._frames.feed(parts)
        try:
            self._take(self._events.feed(payloads))
        except SseError as error:
            problem = error
        if problem is not None and not self.broken and not self._done:
            self._error = _named(problem)
        return not self.broken

    @property
    def broken(self) -> bool:
        """Whether an error has been read."""
        return self._error is not None

    def fail(self, name: str, message: str) -> None:
        """Record an error outside the stream; an earlier error inside the stream takes precedence."""
        if self._error is None and not (self._done and self._usage):
            self._error = (name, message)

    def finish(self, at: float, *, sent: float) -> Answer:
        """Return the figures of the answer to a request sent at ``sent`` and ended at ``at``."""
        if self._error is None and not self._done:
            try:
                self._take(self._events.finish(at), at_end=True)
            except SseError as cut:
                self._error = ("StreamError", f"the stream was cut in the middle of an event: {cut}")
        if self._error is None:
            self._judge()
        error, message = self._error or (None, None)
        times = self._times
        speculation = _object(self._metrics.get("speculative_decoding"))
        # Tool calls as JSON after the text, without the ids that the server draws at random: chunks cut their
        # arguments anywhere, and with speculation elsewhere than without.
        calls = [{"name": name, "arguments": text} for _, (name, text) in sorted(self._calls.items())]
        text = "".join([*self._texts, json.dumps(calls) if calls else ""])
        output = self._ids or "".join([*self._thoughts, text])
        tokens = _count(self._usage.get("completion_tokens"))
        drafts, accepted = (
            _count(speculation.get(name)) for name in ("num_spec_steps", "num_accepted_draft_tokens")
        )
        histogram = _counts(speculation.get("acceptance_histogram"))
        if drafts is not None and accepted is not None:
            drafts, histogram = every_step(tokens, drafts, accepted, histogram)
        return Answer(
            sent=sent,
            done=at,
            first=times[0] if times else None,
            last=times[-1] if times else None,
            gaps_ms=tuple((b - a) * 1000 for a, b in pairwise(times)),
            chunks=len(times),
            input_tokens=_count(self._usage.get("prompt_tokens")),
            output_tokens=tokens,
            finish_reason=self._finish_reason,
            text=text,
            output_sha256=None if error else hashlib.sha256(json.dumps(output).encode()).hexdigest(),
            distinct_4_grams=None if error else _distinct_4_grams(output),
            drafts=drafts,
            accepted=accepted,
            histogram=histogram,
            cached_tokens=_count(_object(self._usage.get("prompt_tokens_details")).get("cached_tokens")),
            error=error,
            error_message=message,
        )

    def _judge(self) -> None:
        """Check that the answer is complete: it has an end and a token count."""
        if self._frames is not None and not self._frames.is_whole:
            self._error = ("StreamError", "the stream was cut in the middle of a message")
        elif not self._done and self._finish_reason is None:
            self._error = (
                "StreamError",
                "the stream ended before the answer was complete: no finish_reason, no [DONE]",
            )
        elif _count(self._usage.get("completion_tokens")) is None:
            self._error = ("NoUsage", "the answer has no usage.completion_tokens")

    def _take(self, events: list[Timed], *, at_end: bool = False) -> None:
        if self._done:
            return
        try:
            self._take_all(events, at_end)
        except (AttributeError, TypeError, KeyError, IndexError) as error:
            self._error = ("StreamError", f"an event of the stream is not an OpenAI completion: {error!r}")

    def _take_all(self, events: list[Timed], at_end: bool) -> None:
        documents, broken = self._documents([event for event, _ in events])
        for document, (_, at) in zip(documents, events, strict=False):
            if not isinstance(document, dict):
                shown = str(document)[:200]
                self._error = ("StreamError", f"an event of the stream is not a JSON object: {shown}")
                return
            if (message := error_in(document)) is not None:
                self._error = ("EngineError", message[:500])
                return
            if usage := _object(document.get("usage")):
                self._usage = usage
                self._metrics = _object(usage.get("metrics")) or self._metrics
            if metrics := _object(document.get("metrics")):
                self._metrics = metrics
            if choices := document.get("choices"):
                self._take_choice(choices[0], at)
                if self._finish_reason is not None and (reason := aborted_in(document)) is not None:
                    self._error = ("EngineError", f"the engine aborted the answer: finish_reason {reason!r}")
                    return
        if broken is not None:
            what = "the stream was cut in the middle of an event" if at_end else "an event is not JSON"
            self._error = ("StreamError", f"{what}: {broken[:200].decode(errors='replace')}")

    def _documents(self, events: list[bytes]) -> tuple[list[Any], bytes | None]:
        """Parse the events up to [DONE]; return the documents and the first event that is not JSON."""
        for place, event in enumerate(events):
            if event.startswith(b"[DONE]"):
                self._done = True
                events = events[:place]
                break
        try:  # one call for all events takes half the time of one call per event
            documents: list[Any] = json.loads(b"[" + b",".join(events) + b"]")
        except ValueError:
            documents = []
        if len(documents) == len(events):
            return documents, None
        documents = []
        for event in events:
            try:
                documents.append(json.loads(event))
            except ValueError:
                return documents, event
        return documents, None

    def _take_choice(self, choice: Mapping[str, Any], at: float) -> None:
        thought, calls = "", False
        text = choice.get("text")
        if text is None:
            delta = choice.get("delta") or {}
            thought, text = (
                delta.get("reasoning_content") or delta.get("reasoning") or "",
                delta.get("content") or "",
            )
            if deltas := delta.get("tool_calls"):
                calls = self._take_calls(deltas)
        if not isinstance(text, str):
            raise TypeError(f"text of type {type(text).__name__}")
        ids = choice.get("token_ids")
        if text or thought or calls or ids:
            self._times.append(at)
            self._texts.append(text)
            if thought:
                self._thoughts.append(thought)
            if ids is None:
                self._ids = None  # some token ids are unknown, so outputs are compared by their text
            elif self._ids is not None:
                self._ids.extend(ids)
        if reason := choice.get("finish_reason"):
            self._finish_reason = reason

    def _take_calls(self, deltas: Sequence[Mapping[str, Any]]) -> bool:
        """Join the parts of tool calls; return whether there was any text in them."""
        has_call = False
        for delta in deltas:
            function = delta.get("function") or {}
            name, arguments = function.get("name") or "", function.get("arguments") or ""
            index = delta.get("index") or 0
            if not isinstance(index, int):
                raise TypeError(f"index of type {type(index).__name__}")
            call = self._calls.setdefault(index, ["", ""])
            call[0] += name
            call[1] += arguments
            has_call = has_call or bool(name or arguments)
        return has_call


def _object(value: Any) -> Mapping[str, Any]:
    """Return an object as it is; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def _count(value: Any) -> int | None:
    """Return a number of tokens; None for anything else, since some engines send what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _counts(value: Any) -> tuple[int, ...]:
    counts = [_count(entry) for entry in value] if isinstance(value, list) else []
    return tuple(count for count in counts if count is not None) if None not in counts else ()


def _distinct_4_grams(output: list[int] | str) -> float:
    """Distinct 4-grams by 4-grams, of the words where the token ids are unknown; 1 if there is none."""
    # As text, since a damaged answer may hold ids that cannot be hashed.
    items = output.split() if isinstance(output, str) else [str(token) for token in output]
    grams = list(zip(items, items[1:], items[2:], items[3:], strict=False))
    return len(set(grams)) / len(grams) if grams else 1.0


def _named(broken: Exception) -> tuple[str, str]:
    if isinstance(broken, FrameException):
        return broken.name, broken.message[:500]
    return "StreamError", f"the stream is damaged: {broken}"
