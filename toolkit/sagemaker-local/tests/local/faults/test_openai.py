"""Faults on the OpenAI route, as the OpenAI SDK shows them."""

from __future__ import annotations

from functools import partial
from typing import Any

import openai
import pytest

from tests.local.faults.conftest import Add
from tests.local.openai_client import QUESTION, openai_client, script
from tests.local.serving import Server


@pytest.fixture
def add(add: Add) -> Add:
    """Sets a fault on the endpoint's OpenAI route."""
    return partial(add, operation="openai")


def read(server: Server, endpoint: str) -> tuple[str, Exception | None]:
    """The text of a streamed answer, and what the SDK raised after it."""
    text = ""
    try:
        stream = openai_client(server, endpoint).chat.completions.create(
            model="", messages=QUESTION, stream=True, extra_body=script(SCRIPT_INVOKE="chat", SCRIPT_CHUNKS=4)
        )
        for chunk in stream:
            text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
    except (openai.OpenAIError, ValueError) as error:
        return text, error
    return text, None


def test_a_cut_connection_is_an_error_of_the_connection(server: Server, endpoint: str, add: Add) -> None:
    add("cut", where="event", after_events=2)
    text, error = read(server, endpoint)
    assert text == "token0 token1 "
    assert isinstance(error, openai.APIConnectionError)


def test_a_cut_that_ends_properly_is_silent(server: Server, endpoint: str, add: Add) -> None:
    add("cut", where="event", after_events=2, clean=True)
    assert read(server, endpoint) == ("token0 token1 ", None)


@pytest.mark.parametrize("kind", ["split", "utf8-split", "stall"])
def test_other_parts_and_pauses_change_nothing(server: Server, endpoint: str, add: Add, kind: str) -> None:
    add(kind, **({"seconds": 0.1} if kind == "stall" else {}))
    assert read(server, endpoint) == ("token0 token1 token2 token3 ", None)


def test_damaged_bytes_cannot_be_decoded(server: Server, endpoint: str, add: Add) -> None:
    add("corrupt", after_events=2)
    text, error = read(server, endpoint)
    assert text == "token0 token1 "
    assert isinstance(error, UnicodeDecodeError)


def test_an_error_event_is_raised(server: Server, endpoint: str, add: Add) -> None:
    add("sse-error", message="out of memory", after_events=2)
    text, error = read(server, endpoint)
    assert text == "token0 token1 "
    assert isinstance(error, openai.APIError)
    assert error.message == "out of memory"


@pytest.mark.parametrize(
    ("kind", "options", "raised"),
    [
        ("throttle", {}, openai.RateLimitError),
        ("service-error", {"code": "ServiceUnavailable"}, openai.InternalServerError),
        ("model-error", {"status": 400, "message": "no such field"}, openai.BadRequestError),
    ],
)
def test_errors_before_the_answer(
    server: Server, endpoint: str, add: Add, kind: str, options: dict[str, Any], raised: type[Exception]
) -> None:
    add(kind, **options)
    text, error = read(server, endpoint)
    assert (text, type(error)) == ("", raised)
