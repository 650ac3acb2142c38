from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from peagle_sm.measure.workloads.public_datasets import Prompt
from scripts.bench.comparison.client import asker, request_body
from scripts.bench.comparison.sample import Sample, parse_completion
from tests.scripts.bench.comparison.making import output

PROMPT = Prompt("p", "def f():")
# As vLLM 0.32.0 answers, shortened.
BODY: dict[str, Any] = {
    "choices": [{"index": 0, "text": "abc", "finish_reason": "length", "token_ids": [5, 6, 7, 8]}],
    "usage": {"prompt_tokens": 7, "total_tokens": 11, "completion_tokens": 4},
    "metrics": {
        "time_to_first_token_ms": None,
        "speculative_decoding": {
            "mean_acceptance_length": 1.5,
            "acceptance_histogram": [1, 1, 0],
            "num_spec_steps": 2,
            "num_accepted_draft_tokens": 1,
            "num_draft_tokens": 4,
            "num_spec_tokens": 2,
            "per_step_accepted": None,
        },
    },
}


@dataclass
class Whole:
    raw: Mapping[str, Any]


@dataclass
class Acceptance:
    accepted_tokens: int
    histogram: tuple[int, ...]


@dataclass
class Summary:
    output_tokens: int | None
    ttft_ms: float | None
    finish_reason: str | None
    acceptance: Acceptance | None


@dataclass
class Streamed:
    text: str
    summary: Summary

    def __iter__(self) -> Iterator[str]:
        return iter(self.text)


class ScriptedEndpoint:
    def __init__(self, body: Mapping[str, Any], summary: Summary) -> None:
        self.body, self.summary = body, summary
        self.asked: list[Mapping[str, Any] | None] = []

    def invoke(self, body: Mapping[str, Any] | None = None) -> Whole:
        self.asked.append(body)
        return Whole(self.body)

    def stream(self, body: Mapping[str, Any] | None = None) -> Streamed:
        self.asked.append(body)
        return Streamed("abc", self.summary)


def clock() -> Iterator[float]:
    yield from (10.0, 12.5)


SUMMARY = Summary(4, 3.5, "length", Acceptance(1, (1, 1, 0)))


def test_a_whole_answer_carries_token_ids_and_the_drafts_of_the_request() -> None:
    endpoint = ScriptedEndpoint(BODY, SUMMARY)
    ticks = clock()
    answer = asker(endpoint, max_tokens=4, salt="run 1", monotonic=lambda: next(ticks))(PROMPT)
    assert endpoint.asked == [
        {
            "cache_salt": "run 1",
            "prompt": "def f():",
            "max_tokens": 4,
            "temperature": 0.0,
            "return_token_ids": True,
        }
    ]
    assert (answer.seconds, answer.ttft_ms) == (2.5, None)
    assert answer.output.identity == (5, 6, 7, 8)
    assert (answer.output.drafts, answer.output.accepted, answer.output.histogram) == (2, 1, (1, 1, 0))


def test_a_streamed_answer_has_a_first_token_time_and_compares_by_text() -> None:
    ticks = clock()
    endpoint = ScriptedEndpoint(BODY, SUMMARY)
    ask = asker(endpoint, max_tokens=4, salt="run 1", stream=True, monotonic=lambda: next(ticks))
    answer = ask(PROMPT)
    assert (answer.seconds, answer.ttft_ms) == (2.5, 3.5)
    assert answer.output.identity == "abc"
    assert (answer.output.output_tokens, answer.output.drafts, answer.output.accepted) == (4, 2, 1)


def test_a_streamed_answer_without_speculation_reports_no_drafts() -> None:
    summary = Summary(4, 3.5, "stop", None)
    answer = asker(ScriptedEndpoint(BODY, summary), max_tokens=4, salt="run 1", stream=True)(PROMPT)
    assert answer.output.drafts is None
    assert answer.output.histogram == ()


def test_every_request_of_a_prompt_is_the_same() -> None:
    assert request_body(PROMPT, 8, "run 1") == request_body(Prompt("other id", PROMPT.text), 8, "run 1")


def test_an_answer_without_speculation() -> None:
    found = parse_completion({**BODY, "metrics": None})
    assert (found.drafts, found.histogram) == (None, ())


def test_tokens_are_counted_from_ids_when_there_is_no_usage() -> None:
    assert parse_completion({**BODY, "usage": None}).output_tokens == 4


def test_an_answer_that_says_nothing_of_its_length_is_refused() -> None:
    with pytest.raises(ValueError, match=r"neither usage\.completion_tokens nor token_ids"):
        parse_completion({"choices": [{"text": "abc"}]})


def test_an_answer_without_a_choice_is_refused_with_what_it_has() -> None:
    with pytest.raises(ValueError, match="holds no choice, only the fields \\['error'\\]"):
        parse_completion({"error": {}})


def test_a_sample_for_json_carries_a_hash_instead_of_ids() -> None:
    one = Sample("a", "p", 1.0, output((1, 2))).to_dict()
    other = Sample("b", "p", 2.0, output((1, 3))).to_dict()
    assert "token_ids" not in one["output"]
    assert len(one["output"]["identity_sha256"]) == 64
    assert one["output"]["identity_sha256"] != other["output"]["identity_sha256"]
