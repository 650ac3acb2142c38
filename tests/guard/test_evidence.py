"""Traffic, quiet or unknown: what each gap in the metrics means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from peagle_guard.evidence import Series, Subject, judge, window_start
from peagle_guard.records import Kind, Lifecycle, Record
from tests.guard.fake_aws import MINUTE, START

NOW = START + timedelta(hours=3)
FROM = NOW - 30 * MINUTE


def minutes(
    first: int, last: int, value: float = 1.0, *, without: tuple[int, ...] = ()
) -> Mapping[datetime, float]:
    return {FROM + m * MINUTE: value for m in range(first, last) if m not in without}


def subject(
    *,
    invocations: Mapping[datetime, float] | None = None,
    concurrency: Mapping[datetime, float] | None = None,
    utilisation: Mapping[datetime, float] | None = None,
) -> Subject:
    return Subject(
        "variant AllTraffic",
        Series(invocations or {}),
        Series(concurrency or {}),
        Series(minutes(0, 30) if utilisation is None else utilisation),
    )


def kind(*subjects: Subject) -> Kind:
    return judge(subjects, FROM, NOW, FROM).kind


def test_utilisation_all_along_and_no_requests_is_quiet_up_to_the_last_point() -> None:
    for silent in ({}, minutes(0, 30, 0.0)):
        found = judge([subject(invocations=silent, concurrency=silent)], FROM, NOW, FROM)
        assert (found.kind, found.since, found.until) == (Kind.QUIET, FROM, NOW)


@pytest.mark.parametrize("minute", [0, 15, 29])
def test_one_request_anywhere_in_the_window_is_traffic(minute: int) -> None:
    one = {FROM + minute * MINUTE: 1.0}
    assert kind(subject(invocations=one)) is Kind.TRAFFIC
    assert kind(subject(concurrency=one)) is Kind.TRAFFIC
    assert kind(subject(), subject(invocations=one)) is Kind.TRAFFIC


def test_a_request_before_the_window_is_not_of_interest() -> None:
    assert kind(subject(invocations={FROM - MINUTE: 5.0})) is Kind.QUIET


@pytest.mark.parametrize(
    ("utilisation", "expected"),
    [
        ({}, Kind.UNKNOWN),
        (minutes(0, 24), Kind.QUIET),
        (minutes(0, 23), Kind.UNKNOWN),  # the last point is more than seven minutes old
        (minutes(1, 30), Kind.UNKNOWN),  # the beginning is missing
        (minutes(0, 30, without=(10,)), Kind.UNKNOWN),  # a request may be lost with it
        # A publisher's jitter: the samples of the missing minute stand beside it.
        ({**minutes(0, 30, without=(10,)), FROM + 11 * MINUTE: 2.0}, Kind.QUIET),
        ({**minutes(0, 30, without=(10,)), FROM + 9 * MINUTE: 2.0}, Kind.QUIET),
        ({**minutes(0, 30, without=(10, 12)), FROM + 11 * MINUTE: 2.0}, Kind.UNKNOWN),
        (minutes(0, 30, 2.0, without=(10,)), Kind.UNKNOWN),  # two instances, which is no jitter
        (minutes(0, 30, 0.0), Kind.QUIET),  # a machine that does nothing still reports
    ],
)
def test_gaps(utilisation: Mapping[datetime, float], expected: Kind) -> None:
    found = subject()
    assert kind(replace(found, utilisation=Series(utilisation))) is expected


def test_a_part_is_no_proof_of_quiet_but_is_of_traffic() -> None:
    part = replace(subject(), invocations=Series({}, whole=False))
    assert kind(part) is Kind.UNKNOWN
    assert kind(replace(subject(), utilisation=Series(minutes(0, 30), whole=False))) is Kind.UNKNOWN
    assert kind(part, subject(invocations=minutes(5, 6))) is Kind.TRAFFIC


def test_every_variant_needs_its_own_proof() -> None:
    assert kind(subject(), replace(subject(), utilisation=Series({}))) is Kind.UNKNOWN
    assert kind() is Kind.UNKNOWN
    assert kind(replace(subject(), utilisation=None)) is Kind.UNKNOWN
    assert kind(replace(subject(), utilisation=None), subject()) is Kind.QUIET


def test_late_shown_traffic_of_before_the_idle_time_only_shortens_the_quiet() -> None:
    late = subject(concurrency=minutes(3, 5), invocations=minutes(3, 4))
    idle_from = FROM + 5 * MINUTE
    found = judge([late, subject()], FROM, NOW, idle_from)
    assert (found.kind, found.since, found.until) == (Kind.QUIET, idle_from, NOW)
    assert judge([late, subject()], FROM, NOW, idle_from - MINUTE).kind is Kind.TRAFFIC


def test_the_window_is_of_whole_minutes_and_reaches_back_to_the_quiet_of_the_mark() -> None:
    lifecycle, record = Lifecycle(idle=15 * MINUTE), Record(name="chat")
    odd = NOW + timedelta(seconds=20)
    assert window_start(lifecycle, record, NOW) == NOW - 15 * MINUTE
    assert window_start(lifecycle, record, odd) == NOW - 14 * MINUTE
    marked = replace(record, quiet_since=NOW - 40 * MINUTE, marked_at=NOW - 25 * MINUTE)
    assert window_start(lifecycle, marked, odd) == NOW - 40 * MINUTE
    forgotten = replace(record, quiet_since=NOW - timedelta(days=3), marked_at=NOW - timedelta(days=3))
    assert window_start(lifecycle, forgotten, NOW) == NOW - 15 * MINUTE - timedelta(hours=6)
