"""Traffic, quiet or unknown: what each gap in the metrics means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_guard.evidence import REQUEST_LAG, Series, Subject, Window, judge, window
from peagle_guard.records import Evidence, Kind, Lifecycle, Record
from tests.guard.by_hand import MINUTE, START

HOUR = timedelta(hours=1)
NOW = START + 3 * HOUR
FROM = NOW - 30 * MINUTE


def minutes(
    first: int, last: int, value: float = 1.0, *, without: tuple[int, ...] = ()
) -> Mapping[datetime, float]:
    return {FROM + m * MINUTE: value for m in range(first, last) if m not in without}


def subject(
    invocations: Mapping[datetime, float] | None = None,
    concurrency: Mapping[datetime, float] | None = None,
    *,
    utilisation: Mapping[datetime, float] | None = None,
) -> Subject:
    return Subject(
        "variant AllTraffic",
        Series(invocations or {}),
        Series(concurrency or {}),
        Series(minutes(0, 30) if utilisation is None else utilisation),
    )


def kind(*subjects: Subject) -> Kind:
    return judged(*subjects).kind


def judged(*subjects: Subject, idle_from: datetime = FROM, every: timedelta = MINUTE) -> Evidence:
    return judge(subjects, Window(FROM, idle_from, NOW, every))


def test_utilisation_all_along_and_no_requests_is_quiet_up_to_the_last_point() -> None:
    zeros = minutes(0, 30, 0.0)
    result = judged(subject(invocations=zeros, concurrency=zeros))
    assert (result.kind, result.since, result.until) == (Kind.QUIET, FROM, NOW)


@pytest.mark.parametrize("minute", [0, 15, 29])
def test_one_request_anywhere_in_the_window_is_traffic(minute: int) -> None:
    request = {FROM + minute * MINUTE: 1.0}
    assert kind(subject(invocations=request)) is Kind.TRAFFIC
    assert kind(subject(concurrency=request)) is Kind.TRAFFIC
    assert kind(subject(), subject(invocations=request)) is Kind.TRAFFIC


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
    result = subject()
    assert kind(replace(result, utilisation=Series(utilisation))) is expected


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
    result = judged(late, subject(), idle_from=idle_from)
    assert (result.kind, result.since) == (Kind.QUIET, idle_from)
    assert judged(late, subject(), idle_from=idle_from - MINUTE).kind is Kind.TRAFFIC


def test_the_window_is_of_whole_minutes_and_reaches_back_to_the_idle_time_before_the_mark() -> None:
    lifecycle, record = Lifecycle(idle=15 * MINUTE), Record(name="chat")
    odd = NOW + timedelta(seconds=20)
    assert window(lifecycle, record, NOW).start == NOW - 15 * MINUTE
    assert window(lifecycle, record, odd).start == NOW - 14 * MINUTE
    marked = replace(record, quiet_since=NOW - 4 * HOUR, marked_at=NOW - 25 * MINUTE)
    assert window(lifecycle, marked, odd).start == NOW - 40 * MINUTE
    forgotten = replace(record, quiet_since=NOW - 72 * HOUR, marked_at=NOW - 72 * HOUR)
    assert window(lifecycle, forgotten, NOW).start == NOW - 15 * MINUTE


@pytest.mark.parametrize("zeros", [True, False])
@pytest.mark.parametrize("lost", [(3,), (0, 1, 2, 3, 4), (2, 4)])
def test_what_was_lost_before_the_idle_time_only_shortens_the_quiet(
    lost: tuple[int, ...], zeros: bool
) -> None:
    written = minutes(0, 30, 0.0, without=lost) if zeros else {}
    both = subject(written, written, utilisation=minutes(0, 30, without=lost))
    end = FROM + (max(lost) + 1) * MINUTE
    result = judged(both, subject(), idle_from=end)
    assert (result.kind, result.since) == (Kind.QUIET, end)
    assert judged(both, subject(), idle_from=end - MINUTE).kind is Kind.UNKNOWN


def test_a_gap_before_the_newest_datapoint_is_not_yet_settled() -> None:
    """The next datapoint shows whether the newest holds two, so the start of the quiet does not move."""
    every = 4 * MINUTE
    newest = {FROM + m * MINUTE: 1.0 for m in (0, 4, 8, 12)} | {FROM + 20 * MINUTE: 2.0}
    idle_from = FROM + 21 * MINUTE
    assert judged(subject(utilisation=newest), idle_from=idle_from, every=every).kind is Kind.UNKNOWN
    settled = newest | {FROM + 24 * MINUTE: 1.0}
    assert judged(subject(utilisation=settled), idle_from=idle_from, every=every).since == FROM
    other = settled | {FROM + 20 * MINUTE: 1.0}
    result = judged(subject(utilisation=other), idle_from=idle_from, every=every)
    assert result.since == FROM + 20 * MINUTE


def test_utilisation_is_not_missed_where_the_requests_of_each_of_its_minutes_are_written() -> None:
    zeros, holed = minutes(0, 30, 0.0), minutes(0, 30, without=(0, 10, 11))
    assert judged(subject(zeros, utilisation=holed)).since == FROM
    assert kind(subject(minutes(0, 30, 0.0, without=(11,)), utilisation=holed)) is Kind.UNKNOWN
    # Where streams are not shown, zeros do not show that none was in flight.
    hidden = replace(subject(zeros, utilisation=holed), gpu=Series(minutes(0, 30, 0.0)))
    assert kind(hidden) is Kind.UNKNOWN


def test_a_lost_minute_of_a_gpu_that_shows_the_streams_is_unknown() -> None:
    holed = replace(subject(), gpu=Series(minutes(0, 30, 0.0, without=(10,))))
    assert kind(holed) is Kind.UNKNOWN
    assert judged(holed, idle_from=FROM + 11 * MINUTE).since == FROM + 11 * MINUTE
    stopped = replace(subject(), gpu=Series(minutes(0, 20, 0.0)))
    assert kind(stopped) is Kind.UNKNOWN


def test_zeros_that_stopped_before_the_idle_time_are_written_no_more() -> None:
    stopped = subject(minutes(-20, 2, 0.0), utilisation=minutes(-20, 30))
    within = Window(FROM - 20 * MINUTE, FROM + 2 * MINUTE, NOW + MINUTE)
    result = judge([stopped], within)
    assert (result.kind, result.since) == (Kind.QUIET, FROM + 2 * MINUTE)
    assert result.until == NOW + MINUTE - REQUEST_LAG
    assert judge([stopped], replace(within, idle_from=FROM)).kind is Kind.UNKNOWN


# --- the request metrics prove their own freshness ----------------------------------------------------


def test_without_a_datapoint_of_requests_quiet_is_known_up_to_their_longest_delay() -> None:
    result = judged(subject())
    assert (result.kind, result.until) == (Kind.QUIET, NOW - REQUEST_LAG)


@pytest.mark.parametrize("late", [0, 5, 24])
def test_zeros_prove_quiet_up_to_the_last_of_them(late: int) -> None:
    """Either series proves it: a later datapoint of the publisher shows that the earlier ones are there."""
    zeros = minutes(0, 30 - late, 0.0)
    for each in (subject(invocations=zeros), subject(concurrency=zeros), subject(zeros, zeros)):
        assert judged(each).until == NOW - late * MINUTE


def test_every_subject_must_be_fresh_but_a_variant_whose_components_carry_the_proof() -> None:
    zeros = minutes(0, 30, 0.0)
    fresh = subject(invocations=zeros)
    assert judged(fresh, subject()).until == NOW - REQUEST_LAG
    assert judged(fresh, replace(subject(), utilisation=None)).until == NOW


@pytest.mark.parametrize("hole", [(10,), (0,), tuple(range(3, 27))])
def test_a_hole_in_request_metrics_that_are_written_without_traffic_is_unknown(hole: tuple[int, ...]) -> None:
    zeros = {**minutes(0, 30, 0.0, without=hole), FROM - MINUTE: 0.0}
    result = judged(subject(invocations=zeros, concurrency=zeros))
    assert result.kind is Kind.UNKNOWN
    assert "request metrics are missing" in result.detail
    # What one series lacks the other may show.
    assert kind(subject(zeros, minutes(0, 30, 0.0))) is Kind.QUIET


def test_request_metrics_that_stopped_are_unknown() -> None:
    stopped = subject(invocations=minutes(0, 2, 0.0))
    assert kind(stopped) is Kind.UNKNOWN
    assert kind(subject(invocations=minutes(0, 4, 0.0))) is Kind.QUIET


# --- the interval of utilisation ----------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [60, 120, 180, 240, 300])
@pytest.mark.parametrize("phase", [0, 1, 4])
def test_utilisation_is_judged_by_its_own_interval(seconds: int, phase: int) -> None:
    every = timedelta(seconds=seconds)
    step = seconds // 60
    points = {FROM + m * MINUTE: 1.0 for m in range(phase % step, 30, step)}
    assert judged(subject(utilisation=points), every=every).kind is Kind.QUIET
    lost = sorted(points)[len(points) // 2]
    holed = {at: value for at, value in points.items() if at != lost}
    assert judged(subject(utilisation=holed), every=every).kind is Kind.UNKNOWN
    ended = {at: value for at, value in points.items() if at < NOW - 2 * every - 6 * MINUTE}
    assert judged(subject(utilisation=ended), every=every).kind is Kind.UNKNOWN


def test_a_datapoint_may_be_a_minute_off_its_interval() -> None:
    every = timedelta(seconds=300)
    points = {FROM + m * MINUTE: 1.0 for m in (0, 6, 10, 15, 21, 26)}
    assert judged(subject(utilisation=points), every=every).kind is Kind.QUIET


@given(st.integers(2, 27), st.sets(st.integers(1, 28), min_size=1), st.sampled_from([2.0, 3.0, 4.0]))
def test_no_lost_minute_counts_as_quiet_after_a_scale_out(out: int, lost: set[int], instances: float) -> None:
    """A minute beside a lost one has more samples there, but because of the new instances."""
    points = {FROM + m * MINUTE: instances if m >= out else 1.0 for m in range(30) if m not in lost}
    assert kind(replace(subject(), utilisation=Series(points))) is Kind.UNKNOWN


# --- streams ------------------------------------------------------------------------------------------


def test_traffic_tells_whether_requests_in_flight_are_shown() -> None:
    request = {FROM + 20 * MINUTE: 1.0}
    assert judged(subject()).streams_shown is None
    assert judged(subject(invocations=request)).streams_shown is False
    assert judged(subject(invocations=request, concurrency=request)).streams_shown is True
    before = {FROM - 5 * MINUTE: 1.0}
    assert judged(subject(invocations=before)).streams_shown is False


def test_where_streams_are_not_shown_a_working_gpu_is_traffic() -> None:
    idle = replace(subject(), gpu=Series(minutes(0, 30, 0.0)))
    assert kind(idle) is Kind.QUIET
    busy = {**minutes(0, 30, 0.0), FROM + 9 * MINUTE: 40.0}
    assert kind(replace(subject(), gpu=Series(busy))) is Kind.TRAFFIC
    assert kind(replace(idle, gpu=Series({}, whole=False))) is Kind.UNKNOWN


def test_requests_of_asynchronous_inference_must_be_shown() -> None:
    queued = replace(subject(), sparse=False)
    assert kind(queued) is Kind.UNKNOWN
    assert kind(replace(queued, concurrency=Series(minutes(0, 30, 0.0)))) is Kind.QUIET
    assert kind(replace(queued, concurrency=Series(minutes(0, 30, 1.0)))) is Kind.TRAFFIC


@pytest.mark.parametrize("seconds", [120, 300])
def test_with_enhanced_metrics_requests_have_the_interval_too(seconds: int) -> None:
    every = timedelta(seconds=seconds)
    points = {FROM + m * MINUTE: 0.0 for m in range(-seconds // 60, 30, seconds // 60)}
    counts = dict.fromkeys(points, 1.0)
    assert judged(subject(points, utilisation=counts), every=every).kind is Kind.QUIET
    lost = sorted(points)[len(points) // 2]
    holed = {at: value for at, value in points.items() if at != lost}
    assert judged(subject(holed, utilisation=counts), every=every).kind is Kind.UNKNOWN
    # A datapoint covers its interval: a request may have come at the end of it.
    request = {FROM - every + MINUTE: 1.0}
    assert judged(subject(request, utilisation=counts), every=every).kind is Kind.TRAFFIC
