"""SageMaker's errors as OpenAI's."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_sm.core.errors import CredentialsError, ServiceFault
from peagle_sm.service.serving.upstream import of_aws, of_error

CASES: list[tuple[int, str, dict[str, Any], int, str, str | None]] = [
    (400, "ThrottlingException", {"Message": None}, 429, "rate_limit_error", "1"),
    (429, "ModelNotReadyException", {"Message": "loading"}, 429, "rate_limit_error", "1"),
    (
        400,
        "ValidationError",
        {"Message": "Inference Component has no capacity to process this request."},
        503,
        "server_error",
        "30",
    ),
    (
        400,
        "ValidationError",
        {"Message": "Endpoint x of account 1 not found."},
        404,
        "invalid_request_error",
        None,
    ),
    (400, "ValidationError", {"Message": "bad variant"}, 400, "invalid_request_error", None),
    (403, "ExpiredTokenException", {"message": "expired"}, 403, "permission_error", None),
    (403, "AccessDeniedException", {"Message": "may not"}, 403, "permission_error", None),
    (503, "ServiceUnavailable", {"Message": "x"}, 503, "server_error", None),
    (530, "InternalDependencyException", {"Message": "x"}, 502, "server_error", None),
]


@pytest.mark.parametrize(("status", "name", "body", "told", "kind", "wait"), CASES)
def test_what_sagemaker_answers(
    status: int, name: str, body: dict[str, Any], told: int, kind: str, wait: str | None
) -> None:
    problem = of_aws(status, {"x-amzn-errortype": name, "x-amzn-RequestId": "r"}, json.dumps(body).encode())
    assert (problem.status, problem.type) == (told, kind)
    headers = problem.all_headers()
    assert headers.get("Retry-After") == wait
    assert headers["x-amzn-RequestId"] == "r"
    assert json.loads(problem.body())["error"]["message"]


def test_an_engine_s_refusal_comes_with_its_own_status_and_words() -> None:
    original = {
        "error": {"message": "too long", "type": "BadRequestError", "param": "max_tokens", "code": 400}
    }
    body = {"Message": "Received…", "OriginalStatusCode": 400, "OriginalMessage": json.dumps(original)}
    problem = of_aws(424, {"x-amzn-errortype": "ModelError"}, json.dumps(body).encode())
    assert problem.status == 400
    assert json.loads(problem.body()) == {
        "error": {"message": "too long", "type": "BadRequestError", "param": "max_tokens", "code": "400"}
    }


def test_an_engine_that_did_not_answer_in_time_is_504() -> None:
    body = {"Message": "M", "OriginalStatusCode": 0, "OriginalMessage": "Your invocation timed out"}
    problem = of_aws(424, {"x-amzn-errortype": "ModelError"}, json.dumps(body).encode())
    assert (problem.status, problem.message) == (504, "Your invocation timed out")


@given(st.integers(400, 599), st.text(), st.binary() | st.text().map(str.encode))
def test_any_answer_becomes_an_error_that_can_be_sent(status: int, name: str, content: bytes) -> None:
    problem = of_aws(status, {"x-amzn-errortype": name}, content)
    assert 400 <= problem.status <= 599
    assert json.loads(problem.body())["error"]["type"]
    assert problem.event().endswith(b"\n\n")


def test_errors_of_this_side_say_what_to_do() -> None:
    problem = of_error(CredentialsError("expired.", next_step="Log in again."))
    assert (problem.status, problem.message) == (403, "expired. Log in again.")
    assert of_error(ServiceFault("x")).status == 502
