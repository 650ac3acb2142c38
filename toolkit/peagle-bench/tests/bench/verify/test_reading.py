"""vLLM's JSON becomes answers and scores; streams that end badly become errors; the tests' own arithmetic."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest

from peagle_bench.commands.verify import render_checks
from peagle_bench.results.records import CheckRecord, Header
from peagle_bench.verify import statistics
from peagle_bench.verify.answers import join_stream, parse_answer, parse_scores
from peagle_bench.verify.engines import EndpointEngine, UrlEngine, read_events
from peagle_bench.verify.statistics import CheckVerdict, percent
from peagle_sm.aws.session.session import LocalTarget, Session
from peagle_sm.core.errors import StreamError


def test_an_answer_and_its_own_log_probabilities() -> None:
    fields = {
        "tokens": ["token_id:5", "token_id:6"],
        "token_logprobs": [-0.1, -2.0],
        "top_logprobs": [{"token_id:5": -0.1, "token_id:7": -3.0}, {"token_id:6": -2.0, "token_id:8": -0.5}],
    }
    choice = {"text": "ab", "token_ids": [5, 6], "finish_reason": "length", "logprobs": fields}
    metrics = {
        "speculative_decoding": {
            "mean_acceptance_length": 2.5,
            "acceptance_histogram": [0, 1, 1],
            "num_spec_steps": 2,
            "num_draft_tokens": 4,
            "num_accepted_draft_tokens": 3,
            "num_spec_tokens": 2,
        }
    }
    answer = parse_answer({"choices": [choice], "usage": {"completion_tokens": 2}, "metrics": metrics})
    assert (answer.ids, answer.output_tokens) == ((5, 6), 2)
    assert answer.acceptance is not None
    assert (answer.acceptance.acceptance_length, answer.acceptance.histogram) == (2.5, (0, 1, 1))
    assert answer.margins == (2.9, -1.5)
    with pytest.raises(ValueError, match="has no choices"):
        parse_answer({"error": "x"})


def test_scores_are_those_of_the_tokens_after_the_prompt() -> None:
    def entry(**told: float) -> dict[str, dict[str, float]]:
        return {name.removeprefix("t"): {"logprob": value} for name, value in told.items()}

    entries = [None, entry(t1=-1.0, t2=-2.0), entry(t5=-0.2, t6=-3.0), entry(t7=-4.0, t8=-0.1, t9=-3.0)]
    document = {"choices": [{"prompt_logprobs": entries}]}
    assert parse_scores(document, 2, (5, 7)) == (
        (-0.2, -4.0),
        (-3.0, -0.1),
        (((5, -0.2), (6, -3.0)), ((8, -0.1), (9, -3.0), (7, -4.0))),
    )
    with pytest.raises(ValueError, match="4 prompt_logprobs for 5 tokens"):
        parse_scores(document, 3, (5, 7))
    with pytest.raises(ValueError, match="no prompt_logprobs"):
        parse_scores({"choices": [{}]}, 3, (5, 7))


def test_streamed_tool_calls_are_joined_by_index() -> None:
    def delta(index: int, **function: str) -> dict[str, Any]:
        return {"choices": [{"delta": {"tool_calls": [{"index": index, "function": function}]}}]}

    parts = [
        delta(0, name="f", arguments=""),
        delta(0, arguments='{"a"'),
        delta(1, name="g"),
        delta(0, arguments=":1}"),
    ]
    answer = join_stream([*parts, {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}])
    assert answer.tool_calls == (("f", '{"a":1}'), ("g", ""))
    assert answer.finish_reason == "tool_calls"


def _event(**choice: Any) -> bytes:
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


def test_a_stream_is_whole_or_an_error() -> None:
    whole = _event(text="a") + _event(text="b", finish_reason="length") + b"data: [DONE]\n\n"
    cuts = [whole[n : n + 7] for n in range(0, len(whole), 7)]
    assert join_stream(read_events(iter(cuts))).text == "ab"
    for parts in ([_event(text="a")], [_event(text="a"), b'data: {"error": "x"}\n\n']):
        with pytest.raises(StreamError):
            read_events(iter(parts))

    def breaking() -> Iterator[bytes]:
        yield _event(text="a")
        raise ConnectionResetError("peer")

    with pytest.raises(StreamError, match="the stream broke: peer") as caught:
        read_events(breaking())
    assert caught.value.partial_text == "a"


class Runtime:
    """Both clients of a session whose endpoint streams one answer."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def client(self, service: str, **_: Any) -> Runtime:
        return self

    def describe_endpoint(self, EndpointName: str) -> dict[str, Any]:
        return {
            "EndpointArn": "arn",
            "EndpointConfigName": "c",
            "EndpointStatus": "InService",
            "EndpointName": EndpointName,
        }

    def invoke_endpoint_with_response_stream(self, **params: Any) -> dict[str, Any]:
        self.sent.append(params)
        body = _event(text="a", token_ids=[4], finish_reason="stop") + b"data: [DONE]\n\n"
        return {"Body": [{"PayloadPart": {"Bytes": body[:9]}}, {"PayloadPart": {"Bytes": body[9:]}}]}


def test_an_endpoint_is_streamed_with_its_token_ids() -> None:
    runtime = Runtime()
    engine = EndpointEngine(Session(runtime, "us-east-1"), "demo", "part")
    assert join_stream(engine.stream({"prompt": "x"})).ids == (4,)
    (sent,) = runtime.sent
    assert (sent["EndpointName"], sent["InferenceComponentName"]) == ("demo", "part")
    assert json.loads(sent["Body"])["stream"] is True


def test_fisher_against_known_values() -> None:
    assert statistics.fisher_greater(8, 10, 1, 6) == pytest.approx(0.0245, abs=1e-4)
    assert statistics.fisher_greater(0, 10, 5, 10) == pytest.approx(1.0)
    assert statistics.fisher_greater(3, 0, 0, 5) == 1.0


def test_powers_and_limits() -> None:
    assert statistics.z_limit() == pytest.approx(3.89, abs=0.01)
    assert statistics.shift_found(0.19 * 2000, 2000) == pytest.approx(0.05, abs=0.002)  # facts: 2,000 for 5%
    assert statistics.shift_found(0, 0) == math.inf
    assert statistics.rate_found(0) == 1.0
    assert statistics.rate_found(1000) == pytest.approx(0.0023, abs=1e-4)
    assert statistics.excess_found(0) == 32
    assert statistics.quantile([], 0.999) == 0.0
    assert [percent(x) for x in (0.00234, 0.12, 1.0)] == ["0.23%", "12%", "100%"]


def test_the_page_in_the_terminal() -> None:
    records = [
        CheckVerdict(True, "all alike", "any altered token").record("greedy", "a", "b"),
        CheckVerdict(False, "Z = 9", "a shift of 3%", {"z": 9}, ["seeded: Z = 9"]).record(
            "sampled", "a", "b"
        ),
        CheckRecord("tool-calls", "a", "b", None, "could not be decided: no parser", "none"),
    ]
    text = render_checks(records, Header("r", "verify", {}, {}, stand_in_weights=True))
    assert text.splitlines()[:5] == [
        "CHECK       RESULT",
        "greedy      pass       all alike",
        "sampled     FAIL       Z = 9",
        "                       - seeded: Z = 9",
        "tool-calls  undecided  could not be decided: no parser",
    ]
    assert "sampled  a shift of 3%" in text
    assert "stand-in" in text
    assert "sampled failed" in text
    assert "undecided: tool-calls" in render_checks(
        [records[0], records[2]], Header("r", "verify", {}, {}, stand_in_weights=False)
    )


def test_the_log_of_an_engine_is_named_with_its_place() -> None:
    local = Session(Runtime(), "us-east-1", LocalTarget("http://127.0.0.1:7070"))
    assert EndpointEngine(local, "demo").log_hint.endswith("peagle-sm logs demo --local-port 7070")
    assert "peagle-sm" not in UrlEngine("http://127.0.0.1:8000").log_hint
