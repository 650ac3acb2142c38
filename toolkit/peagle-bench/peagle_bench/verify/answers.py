"""Answers of an engine and the target's log-probabilities of their tokens, from vLLM's JSON. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from peagle_sm.aws.streams.answers import Acceptance, acceptance_of
from peagle_sm.core.errors import StreamError

READ_LOGPROBS = 2  #: most likely tokens to report at each position, enough for a margin
SCORED_RANKS = 5  #: most likely tokens to score at each position, enough for a test of ranks

Top = tuple[tuple[int, float], ...]
"""Most likely tokens at one position, best first: id and log-probability."""


@dataclass(frozen=True)
class TokenAnswer:
    """One answer; ``logprobs`` and ``others`` are reported by its engine (may be empty).

    ``others[t]`` is the log-probability of the most likely token other than the generated one at t.
    """

    text: str
    ids: tuple[int, ...]
    finish_reason: str | None
    stop_reason: str | int | None = None
    output_tokens: int | None = None  #: from ``usage``
    logprobs: tuple[float, ...] = ()
    others: tuple[float, ...] = ()
    acceptance: Acceptance | None = None  #: None if its engine does not report it
    cached_tokens: int | None = None  #: prompt tokens found in the prefix cache, from ``usage``
    tool_calls: tuple[tuple[str, str], ...] = ()  #: name and arguments, as text

    @property
    def margins(self) -> tuple[float, ...]:
        """Log-probability of each token minus that of the best other; empty if not reported."""
        return tuple(a - b for a, b in zip(self.logprobs, self.others, strict=True))

    def begin(self, tokens: int) -> TokenAnswer:
        """Return a copy with the first ``tokens`` alone; its text stays the whole one."""
        most = max(0, tokens)
        return replace(self, ids=self.ids[:most], logprobs=self.logprobs[:most], others=self.others[:most])


@dataclass(frozen=True)
class Scored:
    """An answer with the log-probabilities of its tokens under the target, without speculation.

    ``tops`` has the `SCORED_RANKS` most likely tokens at each position; empty if unknown.
    """

    answer: TokenAnswer
    logprobs: tuple[float, ...]
    others: tuple[float, ...]
    tops: tuple[Top, ...] = ()
    gaps: tuple[float, ...] = field(
        init=False
    )  #: log-probability of the target's best token minus that of the generated one; 0 if they are equal

    def __post_init__(self) -> None:
        pairs = zip(self.logprobs, self.others, strict=True)
        object.__setattr__(self, "gaps", tuple([b - a if b > a else 0.0 for a, b in pairs]))

    @property
    def margins(self) -> tuple[float, ...]:
        """Log-probability of each token minus that of the best other; negative if that is more likely."""
        return tuple(a - b for a, b in zip(self.logprobs, self.others, strict=True))


def parse_answer(document: Mapping[str, Any]) -> TokenAnswer:
    """Read the answer to a completion or chat request without streaming.

    Raises:
        ValueError: the answer has no choices.
    """
    choices = document.get("choices") or []
    if not choices:
        raise ValueError(f"the answer has no choices; its fields: {', '.join(sorted(document))}")
    choice = choices[0]
    message = choice.get("message") or {}
    logprobs, others = _own_logprobs(choice.get("logprobs"))
    return TokenAnswer(
        text=choice.get("text") or message.get("content") or "",
        ids=tuple(choice.get("token_ids") or ()),
        finish_reason=choice.get("finish_reason"),
        stop_reason=choice.get("stop_reason"),
        output_tokens=(document.get("usage") or {}).get("completion_tokens"),
        logprobs=logprobs,
        others=others,
        acceptance=acceptance_of(document),
        cached_tokens=_cached_tokens(document),
        tool_calls=tuple(_calls(message.get("tool_calls") or ())),
    )


def join_stream(documents: Iterable[Mapping[str, Any]]) -> TokenAnswer:
    """Join the chunks of a streamed answer."""
    text: list[str] = []
    ids: list[int] = []
    calls: dict[int, list[str]] = {}
    reason: str | None = None
    stop: str | int | None = None
    last: Mapping[str, Any] = {}
    for document in documents:
        if document.get("usage"):
            last = document
        for choice in (document.get("choices") or [])[:1]:
            delta = choice.get("delta") or {}
            text.append(choice.get("text") or delta.get("content") or "")
            ids += choice.get("token_ids") or ()
            reason = choice.get("finish_reason") or reason
            stop = choice.get("stop_reason") if choice.get("stop_reason") is not None else stop
            _add_calls(calls, delta.get("tool_calls") or ())
    return TokenAnswer(
        text="".join(text),
        ids=tuple(ids),
        finish_reason=reason,
        stop_reason=stop,
        output_tokens=(last.get("usage") or {}).get("completion_tokens"),
        acceptance=acceptance_of(last),
        cached_tokens=_cached_tokens(last),
        tool_calls=tuple((name, arguments) for _, (name, arguments) in sorted(calls.items())),
    )


def whole_or_cut(streamed: TokenAnswer | StreamError) -> TokenAnswer:
    """Return the answer of a stream; for a broken one its partial text, without finish_reason."""
    return streamed if isinstance(streamed, TokenAnswer) else TokenAnswer(streamed.partial_text, (), None)


def _add_calls(calls: dict[int, list[str]], deltas: Sequence[Mapping[str, Any]]) -> None:
    for delta in deltas:
        parts = calls.setdefault(int(delta.get("index") or 0), ["", ""])
        function = delta.get("function") or {}
        parts[0] += function.get("name") or ""
        parts[1] += function.get("arguments") or ""


def _calls(calls: Sequence[Mapping[str, Any]]) -> Iterable[tuple[str, str]]:
    for call in calls:
        function = call.get("function") or {}
        yield str(function.get("name") or ""), str(function.get("arguments") or "")


def _cached_tokens(document: Mapping[str, Any]) -> int | None:
    details = (document.get("usage") or {}).get("prompt_tokens_details")
    count = details.get("cached_tokens") if isinstance(details, Mapping) else None
    return count if isinstance(count, int) else None


def _own_logprobs(reported: Mapping[str, Any] | None) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Read the completion's ``logprobs``; tokens are identified by id (``return_tokens_as_token_ids``)."""
    if not reported or reported.get("token_logprobs") is None:
        return (), ()
    chosen = tuple(float(value) for value in reported["token_logprobs"])
    others = tuple(
        max((float(value) for name, value in (top or {}).items() if name != token), default=-math.inf)
        for token, top in zip(reported["tokens"], reported["top_logprobs"], strict=True)
    )
    return chosen, others


def parse_scores(
    document: Mapping[str, Any], prompt_tokens: int, ids: Sequence[int]
) -> tuple[tuple[float, ...], tuple[float, ...], tuple[Top, ...]]:
    """Read ``prompt_logprobs`` of a request whose prompt was ``prompt_tokens`` tokens and then ``ids``.

    Returns:
        For each of ``ids``: its log-probability, that of the best other token, and the most likely tokens.

    Raises:
        ValueError: the engine sent no prompt_logprobs, or not one for each token.
    """
    choice = (document.get("choices") or [{}])[0]
    entries = choice.get("prompt_logprobs") or document.get("prompt_logprobs")
    if entries is None:
        raise ValueError("the engine sent no prompt_logprobs")
    if len(entries) != prompt_tokens + len(ids):
        raise ValueError(f"found {len(entries)} prompt_logprobs for {prompt_tokens + len(ids)} tokens")
    logprobs, others, tops = [], [], []
    for token, entry in zip(ids, entries[prompt_tokens:], strict=True):
        mine = str(token)
        logprobs.append(float(entry[mine]["logprob"]))
        rest = [float(rank["logprob"]) for name, rank in entry.items() if name != mine]
        others.append(max(rest, default=-math.inf))
        tops.append(_top(entry))
    return tuple(logprobs), tuple(others), tuple(tops)


def _top(entry: Mapping[str, Mapping[str, Any]]) -> Top:
    """Return the most likely tokens of one position, without a generated token of lower rank."""
    ranked = sorted(
        ((int(name), float(rank["logprob"])) for name, rank in entry.items()), key=lambda t: -t[1]
    )
    return tuple(ranked[:SCORED_RANKS])
