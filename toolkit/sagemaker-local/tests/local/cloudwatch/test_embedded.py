"""Metrics embedded in log lines: the specification's own rules."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagemaker_local.clock import LocalClock
from sagemaker_local.cloudwatch.embedded import embedded_metrics
from sagemaker_local.cloudwatch.series import MetricSeries, SeriesKey

NOW = datetime(2026, 11, 24, 12, 0, tzinfo=UTC)
CLOCK = LocalClock(lambda: NOW)


def line(dimensions: list[list[str]], metrics: list[dict[str, Any]], **members: Any) -> str:
    directive = {"Namespace": "n", "Dimensions": dimensions, "Metrics": metrics}
    stamp = round(NOW.timestamp() * 1000)
    return json.dumps({"_aws": {"Timestamp": stamp, "CloudWatchMetrics": [directive]}, **members})


def test_values_and_dimensions_are_members_of_the_line() -> None:
    text = line([[], ["Slice"]], [{"Name": "Drafts", "Unit": "Count"}], Drafts=[3, 4], Slice="script: han")
    series = MetricSeries(lambda: NOW)
    for namespace, data in embedded_metrics(text, CLOCK):
        series.put(namespace, data)
    for dimensions in ((), (("Slice", "script: han"),)):
        key = SeriesKey("n", "Drafts", dimensions, "Count")
        ((_, found),) = series.periods(key, NOW, NOW.replace(minute=1), 60, any_unit=False)
        assert (found.statistic("Sum"), found.statistic("SampleCount")) == (7, 2)


def test_a_containers_time_is_that_of_the_local_clock_when_it_was_stamped() -> None:
    clock, late = LocalClock(lambda: NOW + timedelta(seconds=5)), NOW + timedelta(seconds=10)
    clock.advance(3600)  # after the container wrote NOW
    written = line([[]], [{"Name": "Drafts"}], Drafts=1)
    later = written.replace(str(round(NOW.timestamp() * 1000)), str(round(late.timestamp() * 1000)))
    stamps = [
        datum["Timestamp"]
        for text in (written, later)
        for _, data in embedded_metrics(text, clock)
        for datum in data
    ]
    assert stamps == [NOW, late + timedelta(hours=1)]


@pytest.mark.parametrize(
    "text",
    [
        "INFO: an ordinary line",
        "{not JSON",
        '{"CloudWatchMetrics": 1}',
        '["CloudWatchMetrics"]',
        line([["Slice"]], [{"Name": "Drafts"}], Drafts=1),  # the dimension has no value
        line([[]], [{"Name": "Drafts"}]),  # the metric has none
        line([[]], [{"Name": "Drafts"}], Drafts=True),
        line([[]], [{"Name": "Drafts"}], Drafts=[1] * 101),
        "prefix " + line([[]], [{"Name": "Drafts"}], Drafts=1),
    ],
)
def test_what_the_specification_does_not_define_is_no_metric(text: str) -> None:
    assert [datum for _, data in embedded_metrics(text, CLOCK) for datum in data] == []


@given(st.text() | st.dictionaries(st.text(), st.integers() | st.text()).map(json.dumps))
def test_any_line_is_read(text: str) -> None:
    assert list(embedded_metrics(text, CLOCK)) == []
