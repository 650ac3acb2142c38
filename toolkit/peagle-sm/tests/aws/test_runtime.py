"""Bodies: exactly one of three, within the limit; and what the engine's refusals become."""

from __future__ import annotations

import io
import json
from typing import Any, NoReturn

import pytest
from botocore.exceptions import ClientError

from peagle_sm.aws.session.session import Session
from peagle_sm.aws.streams import runtime
from peagle_sm.core.errors import NotFound, ServiceFault, SpecError


class Runtime:
    """The sagemaker-runtime client: answers, or raises, what it was given; keeps what was sent."""

    region_name = "us-east-1"
    profile_name = "work"

    def __init__(self, answer: Any, described: dict[str, Any] | None = None) -> None:
        self.answer = answer
        self.described = described
        self.sent: list[dict[str, Any]] = []

    def client(self, service: str, **_: Any) -> Runtime:
        assert service in ("sagemaker-runtime", "sagemaker")
        return self

    def describe_endpoint(self, EndpointName: str) -> dict[str, Any]:
        if self.described is None:
            raise _error("ValidationException", f'Could not find endpoint "{EndpointName}".')
        return {"EndpointArn": "arn", "EndpointConfigName": "c", **self.described}

    def get_paginator(self, operation: str) -> NoReturn:
        raise _error("AccessDeniedException", f"not authorized to perform: {operation}")

    def invoke_endpoint(self, **params: Any) -> dict[str, Any]:
        self.sent.append(params)
        if isinstance(self.answer, Exception):
            raise self.answer
        meta = {"RequestId": "req-9"}
        return {"Body": io.BytesIO(json.dumps(self.answer).encode()), "ResponseMetadata": meta}


def _error(code: str, message: str, **more: Any) -> ClientError:
    answer: Any = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"RequestId": "req-9"}}
    answer |= more
    return ClientError(answer, "InvokeEndpoint")


def _body(**given: Any) -> dict[str, Any]:
    streamed = given.pop("streamed", False)
    request_body = runtime.request_body(
        given.pop("body", None),
        given.pop("prompt", None),
        given.pop("messages", None),
        given,
        streamed=streamed,
    )
    document: dict[str, Any] = json.loads(request_body)
    return document


def test_bodies() -> None:
    assert _body(prompt="a", max_tokens=3) == {"prompt": "a", "max_tokens": 3, "stream": False}
    messages = [{"role": "user", "content": "ä"}]
    assert _body(messages=messages, streamed=True) == {
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    whole = {"prompt": "a", "stream_options": {"continuous_usage_stats": True}}
    assert _body(body=whole, streamed=True)["stream_options"] == {
        "include_usage": True,
        "continuous_usage_stats": True,
    }
    assert "stream_options" not in _body(body=whole)


@pytest.mark.parametrize(
    ("given", "problem"), [({}, "nothing"), ({"prompt": "a", "body": {}}, "body and prompt")]
)
def test_exactly_one_of_three(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(SpecError, match=f"found {problem} to send; allowed: exactly one"):
        _body(**given)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"prompt": "a", "n": 2}, "1 prompt and n=2"),
        ({"body": {"prompt": ["a", "b"]}}, "2 prompts and n=1"),
        ({"body": {"prompt": [[1, 2], [3]], "n": 2}}, "2 prompts and n=2"),
    ],
)
def test_several_answers_cannot_be_streamed(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(
        SpecError, match=f"one answer: found {problem}; allowed: one prompt and n=1"
    ) as caught:
        _body(**given, streamed=True)
    assert "--no-stream" in (caught.value.next_step or "")
    assert _body(**given)["stream"] is False


@pytest.mark.parametrize("prompt", ["a", ["a"], [1, 2, 3], [[1, 2]], []])
def test_one_prompt_can_be_streamed(prompt: Any) -> None:
    assert _body(body={"prompt": prompt, "n": 1}, streamed=True)["prompt"] == prompt


@pytest.mark.parametrize("n", ["2", "1", 2.0, True, 0, -1, [1]])
def test_n_must_be_a_whole_number_in_a_stream(n: Any) -> None:
    """The engine reads "2", 2.0 and true as numbers."""
    with pytest.raises(SpecError, match=r"n: found .*; allowed: a whole number of at least 1"):
        _body(prompt="a", n=n, streamed=True)


def test_what_json_cannot_say() -> None:
    with pytest.raises(SpecError, match="cannot be written as JSON"):
        _body(prompt="a", stop={1, 2})


def test_half_a_character_cannot_be_sent() -> None:
    with pytest.raises(SpecError, match=r"found half a character, U\+D83D .*not UTF-8"):
        _body(prompt="a\ud83d")


def test_the_limit_is_checked_before_anything_is_sent() -> None:
    with pytest.raises(SpecError, match=r"has 6,291,50\d bytes; allowed: 6,291,456"):
        _body(prompt="x" * 6_291_474)
    client = Runtime({})
    with pytest.raises(SpecError, match="6,291,457 bytes"):
        runtime.invoke(Session.from_boto3(client), "demo", b"x" * 6_291_457)
    assert not client.sent


def test_a_whole_answer() -> None:
    answer = {
        "choices": [{"message": {"content": "4"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 1},
        "metrics": None,
    }
    ticks = iter([10.0, 10.5])
    got = runtime.invoke(Session.from_boto3(Runtime(answer)), "demo", b"{}", lambda: next(ticks))
    assert (got.text, got.finish_reason, got.request_id) == ("4", "stop", "req-9")
    assert (got.summary.total_ms, got.summary.otps, got.summary.ttft_ms) == (500, 2.0, None)


def test_an_answer_that_is_no_completion() -> None:
    with pytest.raises(ServiceFault, match="not an OpenAI completion") as caught:
        runtime.invoke(Session.from_boto3(Runtime({"predictions": []})), "demo", b"{}")
    assert caught.value.request_id == "req-9"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"object": "error", "message": "out of memory", "code": 500}, "out of memory"),
        ({"error": {"message": "out of memory"}}, "out of memory"),
        ({"detail": "out of memory"}, "out of memory"),
        ({"choices": [{"text": "a", "finish_reason": "abort"}]}, "abort"),
    ],
)
def test_an_answer_that_is_an_error(answer: dict[str, Any], words: str) -> None:
    with pytest.raises(ServiceFault, match=f"the engine did not complete the answer: {words}") as caught:
        runtime.invoke(Session.from_boto3(Runtime(answer)), "demo", b"{}")
    assert caught.value.request_id == "req-9"
    assert "peagle-sm logs demo" in (caught.value.next_step or "")


def test_an_answer_that_is_nested_too_deeply() -> None:
    client = Runtime({})
    client.invoke_endpoint = lambda **_: {  # type: ignore[method-assign]
        "Body": io.BytesIO(b"[" * 100_000),
        "ResponseMetadata": {},
    }
    with pytest.raises(ServiceFault, match="not an OpenAI completion"):
        runtime.invoke(Session.from_boto3(client), "demo", b"{}")


def test_an_endpoint_that_does_not_exist() -> None:
    error = _error("ValidationError", "Endpoint demo of account 123456789012 not found.")
    with pytest.raises(NotFound, match="endpoint 'demo' does not exist in us-east-1") as caught:
        runtime.invoke(Session.from_boto3(Runtime(error)), "demo", b"{}")
    assert (
        caught.value.next_step
        == "Run `peagle-sm list --profile work --region us-east-1` to see the existing endpoints."
    )


REASON = "The container failed its health check.\nINFO engine\nERROR no GPU"


@pytest.mark.parametrize(
    ("described", "block", "step"),
    [
        ({"EndpointStatus": "Creating"}, "", "Wait until it is InService: `peagle-sm wait demo"),
        ({"EndpointStatus": "Deleting"}, "", "Wait until it is gone: `peagle-sm wait demo --deleted"),
        ({"EndpointStatus": "InService"}, "", "Send the request again"),
        (
            {"EndpointStatus": "Failed", "FailureReason": REASON},
            "\nThe failure reason:\n  ERROR no GPU\n  The container failed its health check."
            "\n  (in full: --format json)",
            "It will not become InService by itself. Read its log with `peagle-sm logs demo",
        ),
    ],
)
def test_an_endpoint_that_is_not_in_service(described: dict[str, Any], block: str, step: str) -> None:
    error = _error("ValidationError", "Endpoint demo of account 123456789012 not found.")
    with pytest.raises(ServiceFault, match="endpoint 'demo' exists") as caught:
        runtime.invoke(Session.from_boto3(Runtime(error, described)), "demo", b"{}")
    assert caught.value.message.endswith(f"its status is {described['EndpointStatus']}.{block}")
    assert (caught.value.next_step or "").startswith(step)
    assert "demo --profile work --region us-east-1" in (caught.value.next_step or "").replace(
        "--deleted ", ""
    )
    assert caught.value.details["status"] == described["EndpointStatus"]


def test_the_engines_refusal_is_the_senders_error_in_the_engines_words() -> None:
    message = json.dumps({"error": {"message": "max_tokens must be at least 1, got 0.", "code": 400}})
    error = _error(
        "ModelError", "Received client error (400)", OriginalStatusCode=400, OriginalMessage=message
    )
    with pytest.raises(SpecError) as caught:
        runtime.invoke(Session.from_boto3(Runtime(error)), "demo", b"{}")
    assert str(caught.value).endswith("refuses the request (400): max_tokens must be at least 1, got 0.")


def test_the_engines_failure_is_a_fault_and_names_the_logs() -> None:
    error = _error(
        "ModelError", "Received server error (500)", OriginalStatusCode=500, OriginalMessage="EngineDead"
    )
    with pytest.raises(ServiceFault, match=r"failed \(500\): EngineDead") as caught:
        runtime.invoke(Session.from_boto3(Runtime(error)), "demo", b"{}")
    assert caught.value.code == "ModelError"
    assert "peagle-sm logs demo --profile work --region us-east-1" in (caught.value.next_step or "")


def test_every_choice_of_an_answer_is_returned_in_the_engines_order() -> None:
    document = {
        "choices": [
            {"index": 1, "text": "b", "finish_reason": "length"},
            {
                "index": 0,
                "text": "a",
                "finish_reason": "stop",
                "logprobs": {"tokens": ["a"], "token_logprobs": [-0.5], "top_logprobs": [{"a": -0.5}]},
            },
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 3, "total_tokens": 4},
    }
    answer = runtime.invoke(Session.from_boto3(Runtime(document)), "demo", b"{}")
    assert [(one.index, one.text, one.finish_reason) for one in answer.choices] == [
        (0, "a", "stop"),
        (1, "b", "length"),
    ]
    assert (answer.text, answer.others[0].text, answer.summary.output_tokens) == ("a", "b", 3)
    assert answer.choices[0].logprobs == answer.logprobs
    assert answer.logprobs[0].logprob == -0.5


@pytest.mark.parametrize("choices", [[], [{"index": "x", "text": "a"}], [{"text": "a"}, {}]])
def test_choices_of_another_form_are_no_answer(choices: list[Any]) -> None:
    with pytest.raises(ServiceFault, match="not an OpenAI completion"):
        runtime.invoke(Session.from_boto3(Runtime({"choices": choices})), "demo", b"{}")
