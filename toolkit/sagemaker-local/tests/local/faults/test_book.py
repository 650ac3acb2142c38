"""Which fault applies to which call, and how often; and the options of a fault."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagemaker_local.errors import InvalidRequest, NotFound
from sagemaker_local.faults import KINDS, OPERATIONS, FaultBook, ModelFailure, Refusal, parse, refusal_of


def book_with(*faults: dict[str, Any]) -> FaultBook:
    book = FaultBook()
    for fault in faults:
        book.add(parse(fault))
    return book


def test_a_fault_strikes_the_endpoints_of_its_glob_and_its_operation() -> None:
    book = book_with({"kind": "cut", "endpoint": "my-*", "operation": "stream"})
    assert book.strike("stream", "other") is None
    assert book.strike("invoke", "my-1") is None
    struck = book.strike("stream", "my-1")
    assert struck is not None
    assert struck.kind == "cut"


def test_without_an_operation_a_fault_applies_to_each_call_of_its_kind() -> None:
    book = book_with({"kind": "stream-error"})
    assert [name for name in OPERATIONS if book.strike(name, "e")] == ["stream"]


def test_a_fault_of_two_times_clears_itself_after_them() -> None:
    book = book_with({"kind": "throttle", "times": 2})
    assert [book.strike("invoke", "e") is not None for _ in range(3)] == [True, True, False]
    assert book.entries() == []


def test_the_oldest_fault_strikes_first() -> None:
    book = book_with({"kind": "throttle", "times": 1}, {"kind": "cut"})
    kinds = [strike.kind for _ in range(2) if (strike := book.strike("stream", "e"))]
    assert kinds == ["throttle", "cut"]


@given(st.integers(0, 1000), st.floats(0.2, 0.8))
def test_a_seed_repeats_its_draws_and_its_places(seed: int, probability: float) -> None:
    def run() -> list[float | None]:
        book = book_with({"kind": "split", "probability": probability, "seed": seed})
        strikes = (book.strike("stream", "e") for _ in range(20))
        return [None if strike is None else strike.chance.random() for strike in strikes]

    assert run() == run()


def test_a_probability_of_a_half_strikes_about_half_the_time() -> None:
    book = book_with({"kind": "split", "probability": 0.5, "seed": 7})
    assert 400 < sum(book.strike("stream", "e") is not None for _ in range(1000)) < 600


def test_faults_are_cleared_by_id_or_all() -> None:
    book = book_with({"kind": "cut"}, {"kind": "stall"}, {"kind": "split"})
    assert [entry.id for entry in book.clear(["f2"])] == ["f2"]
    with pytest.raises(NotFound, match="there is no fault 'f2'; existing faults: f1, f3"):
        book.clear(["f1", "f2"])
    assert [entry.fault.kind for entry in book.clear()] == ["cut", "split"]
    assert book.entries() == []


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({}, "unknown kind of fault: found None; allowed: cut, stall"),
        ({"kind": "cheese"}, "unknown kind of fault: found 'cheese'"),
        ({"kind": "cut", "seconds": 3}, "cut has no option 'seconds'"),
        ({"kind": "cut", "where": "there"}, "where has an invalid value: found 'there'; allowed: frame"),
        ({"kind": "cut", "times": 0}, "times has an invalid value: found 0; allowed: 1 or more"),
        ({"kind": "cut", "times": True}, "times has an invalid value: found True"),
        ({"kind": "cut", "clean": "yes"}, "clean has an invalid value: found 'yes'; allowed: true or false"),
        ({"kind": "stall", "seconds": -1}, "seconds has an invalid value: found -1; allowed: 0 to 3600"),
        ({"kind": "throttle", "status": 503}, "status has an invalid value: found 503; allowed: 400, 429"),
        ({"kind": "split", "probability": 2}, "probability has an invalid value: found 2; allowed: 0 to 1"),
        ({"kind": "split", "operation": "invoke"}, "allowed: stream, openai"),
    ],
)
def test_what_a_fault_may_not_be_told(raw: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        parse(raw)
    assert said in raised.value.message
    assert raised.value.next_step


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_fault_says_of_itself_can_be_read_again(kind: str) -> None:
    fault = parse({"kind": kind})
    assert parse(fault.to_dict()) == fault


def test_faults_that_stand_in_for_the_model() -> None:
    def said(**raw: Any) -> Any:
        return refusal_of(book_with(raw).strike("invoke", "e"))

    assert said(kind="throttle") == Refusal("ThrottlingException", None, 400)
    assert said(kind="throttle", status=429) == Refusal("ThrottlingException", "Rate exceeded", 429)
    assert said(kind="service-error").status == 500
    assert said(kind="service-error", code="ServiceUnavailable").status == 503
    assert said(kind="model-error", status=507, message="full") == ModelFailure(507, "full")
    assert said(kind="cut") is None
    assert refusal_of(None) is None
