"""Send one prompt to one endpoint through its own API, and time it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from peagle_sm.measure.workloads.public_datasets import Prompt
from scripts.bench.comparison.sample import Output, build_output, parse_completion
from scripts.bench.comparison.turns import Answer, Ask

TEMPERATURE = 0.0  #: greedy: the only temperature at which answers can be compared token by token


class Completion(Protocol):
    """A whole answer; ``raw`` is the engine's JSON."""

    @property
    def raw(self) -> Mapping[str, Any]: ...  # noqa: D102


class Stream(Protocol):
    """An answer as it is written; ``summary`` (figures of the request) is there after the end."""

    @property
    def text(self) -> str: ...  # noqa: D102
    @property
    def summary(self) -> Any: ...  # noqa: D102
    def __iter__(self) -> Iterator[Any]: ...


class Invokable(Protocol):
    """The part of :class:`peagle_sm.service.Endpoint` that measuring needs."""

    def invoke(self, body: Mapping[str, Any] | None = None) -> Completion: ...  # noqa: D102
    def stream(self, body: Mapping[str, Any] | None = None) -> Stream: ...  # noqa: D102


def request_body(prompt: Prompt, max_tokens: int, salt: str) -> dict[str, Any]:
    """The completion request that every arm gets, byte for byte the same.

    ``return_token_ids`` is vLLM's: outputs are then compared by token id, not by text. A natural
    end counts (no ``ignore_eos``): greedy modes that agree end at the same token.
    ``cache_salt`` keeps a run from finding the prompts of an earlier one in the prefix cache: an
    engine that stays up from one comparison to the next would otherwise skip its prefill.
    """
    return {
        "cache_salt": salt,
        "prompt": prompt.text,
        "max_tokens": max_tokens,
        "temperature": TEMPERATURE,
        "return_token_ids": True,
    }


def asker(
    endpoint: Invokable,
    *,
    max_tokens: int,
    salt: str,
    stream: bool = False,
    monotonic: Callable[[], float] = time.perf_counter,
) -> Ask:
    """A function that sends a prompt to ``endpoint`` and waits for the whole answer."""

    def whole(prompt: Prompt) -> Answer:
        body = request_body(prompt, max_tokens, salt)
        began = monotonic()
        completion = endpoint.invoke(body)
        seconds = monotonic() - began
        return Answer(parse_completion(completion.raw), seconds)

    def streamed(prompt: Prompt) -> Answer:
        body = request_body(prompt, max_tokens, salt)
        began = monotonic()
        answer = endpoint.stream(body)
        for _ in answer:
            pass
        seconds = monotonic() - began
        return Answer(_output_of(answer.text, answer.summary), seconds, answer.summary.ttft_ms)

    return streamed if stream else whole


def _output_of(text: str, summary: Any) -> Output:
    speculation: dict[str, Any] = {}
    if summary.acceptance is not None:
        speculation = {
            "num_spec_steps": sum(summary.acceptance.histogram),
            "num_accepted_draft_tokens": summary.acceptance.accepted_tokens,
            "acceptance_histogram": summary.acceptance.histogram,
        }
    return build_output(
        text=text,
        token_ids=None,  # the stream's chunks carry text, so a streamed run compares text
        finish_reason=summary.finish_reason,
        usage={"completion_tokens": summary.output_tokens},
        metrics={"speculative_decoding": speculation},
    )
