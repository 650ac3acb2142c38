"""A call that has to end in time."""

from __future__ import annotations

import threading

import pytest

from peagle_sm.aws.streams.token_stream import CallTooLong, call_within


def test_a_call_in_time_returns_its_result_or_raises_its_error() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    assert call_within(60, lambda: 7, lambda late: None) == 7
    with pytest.raises(ZeroDivisionError):
        call_within(60, fail, lambda late: None)


def test_what_a_call_returns_too_late_is_discarded() -> None:
    go, discarded = threading.Event(), threading.Event()

    def call() -> str:
        assert go.wait(60)
        return "late"

    with pytest.raises(CallTooLong):
        call_within(0.01, call, lambda late: discarded.set())
    assert not discarded.is_set()
    go.set()
    assert discarded.wait(60)
