"""Series are aggregates by minute: right statistics, and no growth with the traffic."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagemaker_local.cloudwatch.queries import metric_data
from sagemaker_local.cloudwatch.series import Aggregate, MetricSeries, SeriesKey

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
KEY = SeriesKey("N", "M", (("D", "x"),), "")


class Moment:
    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now


def datum(value: float, at: datetime = NOON, **more: Any) -> dict[str, Any]:
    return {
        "MetricName": "M",
        "Value": value,
        "Timestamp": at,
        "Dimensions": [{"Name": "D", "Value": "x"}],
        **more,
    }


@given(st.lists(st.floats(-1e9, 1e9).map(lambda value: round(value, 6)), min_size=1, max_size=50))
def test_an_aggregate_has_the_statistics_of_its_values(values: list[float]) -> None:
    aggregate = Aggregate()
    for value in values:
        aggregate.add(value)
    assert aggregate.statistic("SampleCount") == len(values)
    assert aggregate.statistic("Sum") == pytest.approx(sum(values))
    assert aggregate.statistic("Minimum") == min(values)
    assert aggregate.statistic("Maximum") == max(values)
    for percent in (1, 50, 90, 99, 100):
        exact = sorted(values)[max(0, -(-percent * len(values) // 100) - 1)]
        assert aggregate.statistic(f"p{percent}") == pytest.approx(exact, rel=0.011, abs=1e-9)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30), st.integers(0, 30))
def test_merging_parts_equals_the_whole(values: list[float], cut: int) -> None:
    whole, left, right = Aggregate(), Aggregate(), Aggregate()
    for place, value in enumerate(values):
        whole.add(value)
        (left if place < cut else right).add(value)
    left.merge(right)
    assert left.count == whole.count
    assert left.total == pytest.approx(whole.total)
    assert (left.minimum, left.maximum, left.bins.keys()) == (whole.minimum, whole.maximum, whole.bins.keys())


def test_memory_and_the_work_of_a_query_do_not_grow_with_the_traffic() -> None:
    series = MetricSeries(Moment())
    for request in range(20_000):
        series.put("N", [datum(1.0 + request % 7, NOON + timedelta(minutes=request % 180))])
    minutes = series._series[KEY._replace(unit="None")]
    assert len(minutes) == 180
    assert all(len(each.bins) <= 7 for each in minutes.values())
    periods = series.periods(KEY, NOON, NOON + timedelta(hours=3), 3600, any_unit=True)
    assert sum(each.count for _, each in periods) == 20_000


def test_data_older_than_15_days_is_dropped() -> None:
    moment = Moment()
    series = MetricSeries(moment)
    series.put("N", [datum(1.0)])
    moment.now += timedelta(days=14, hours=23)
    series.put("N", [datum(2.0, moment.now)])
    assert len(series._series[KEY._replace(unit="None")]) == 2
    moment.now += timedelta(hours=2)
    series.put("Other", [datum(2.0, moment.now)])
    assert len(series._series[KEY._replace(unit="None")]) == 1


def test_a_query_needs_the_exact_dimensions() -> None:
    series = MetricSeries(Moment())
    series.put("N", [datum(1.0), {"MetricName": "M", "Value": 5.0, "Timestamp": NOON}])
    end = NOON + timedelta(minutes=1)
    without = KEY._replace(dimensions=())
    assert [each.total for _, each in series.periods(KEY, NOON, end, 60, any_unit=True)] == [1.0]
    assert [each.total for _, each in series.periods(without, NOON, end, 60, any_unit=True)] == [5.0]


def test_values_counts_and_statistic_sets_are_added() -> None:
    series = MetricSeries(Moment())
    sets = {"SampleCount": 4, "Sum": 20, "Minimum": 1, "Maximum": 9}
    series.put(
        "N", [{**datum(0), "Values": [2.0, 3.0], "Counts": [3, 1]}, {**datum(0), "StatisticValues": sets}]
    )
    [(_, found)] = series.periods(KEY, NOON, NOON + timedelta(minutes=1), 60, any_unit=True)
    assert (found.count, found.total, found.minimum, found.maximum) == (8, 29, 1, 9)


def ask(series: MetricSeries, *queries: dict[str, Any], minutes: int = 4) -> dict[str, dict[int, float]]:
    answers = metric_data(series, queries, NOON, NOON + timedelta(minutes=minutes))
    return {
        f"{query['Id']}:{line.label}": {
            int((at - NOON).total_seconds() // 60): v for at, v in line.points.items()
        }
        for query, line in answers
    }


def stat(name: str, metric: str, statistic: str = "Sum", dimension: str = "x") -> dict[str, Any]:
    named = {"Namespace": "N", "MetricName": metric, "Dimensions": [{"Name": "D", "Value": dimension}]}
    return {"Id": name, "Label": name, "MetricStat": {"Metric": named, "Period": 60, "Stat": statistic}}


@pytest.fixture
def series() -> MetricSeries:
    metric_series = MetricSeries(Moment())
    for minute, (ran, failed) in enumerate([(4, None), (5, 2), (None, 3), (6, None)]):
        at = NOON + timedelta(minutes=minute)
        if ran is not None:
            metric_series.put("N", [{**datum(ran, at), "MetricName": "ran"}])
        if failed is not None:
            metric_series.put("N", [{**datum(failed, at), "MetricName": "failed"}])
    return metric_series


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("ran", {0: 4, 1: 5, 3: 6}),
        ("ran - failed", {1: 3}),
        ("ran - FILL(failed, 0)", {0: 4, 1: 3, 3: 6}),
        ("100 * failed / ran", {1: 40}),
        ("ran / 0", {}),
        ("-ran + 2 * 3 ^ 2", {0: 14, 1: 13, 3: 12}),
        ("ran + FILL(failed, 0) > 5", {0: 0, 1: 1, 3: 1}),
        ("IF(ran >= 5 AND FILL(failed, 0) < 1, 1, 0)", {0: 0, 1: 0, 3: 1}),
        ("IF(ran > 4, ran)", {1: 5, 3: 6}),
        ("5", {0: 5, 1: 5, 2: 5, 3: 5}),
    ],
)
def test_metric_math(series: MetricSeries, expression: str, expected: dict[int, float]) -> None:
    queries = (stat("ran", "ran"), stat("failed", "failed"), {"Id": "e", "Expression": expression})
    assert ask(series, *queries)["e:e"] == expected


def test_a_fill_of_a_metric_that_was_never_written_gives_nothing(series: MetricSeries) -> None:
    answers = ask(series, stat("never", "never"), {"Id": "e", "Expression": "FILL(never, 0)"})
    assert answers == {"never:never": {}, "e:e": {}}


def test_expressions_of_expressions_and_of_each_other(series: MetricSeries) -> None:
    chain = ({"Id": "b", "Expression": "a * 2"}, {"Id": "a", "Expression": "ran + 1"}, stat("ran", "ran"))
    assert ask(series, *chain)["b:b"] == {0: 10, 1: 12, 3: 14}
    with pytest.raises(ValueError, match="refer to each other"):
        ask(series, {"Id": "a", "Expression": "b"}, {"Id": "b", "Expression": "a"})


@pytest.mark.parametrize(
    "expression",
    [
        "ran +",
        "nothing",
        "ANOMALY_DETECTION_BAND(ran)",
        "(ran",
        "ran ~ 2",
        "IF(ran)",
        "FILL(ran, REPEAT)",
        "RATE(ran)",
        "SUM([ran, failed])",
        "SEARCH('{N,D} ran', 'Sum', 60)",
        "__import__('os').name",
        "[ran]",
    ],
)
def test_an_expression_that_is_not_served_is_refused(series: MetricSeries, expression: str) -> None:
    with pytest.raises(ValueError, match="Error in expression"):
        ask(series, stat("ran", "ran"), {"Id": "e", "Expression": expression})
