"""GetMetricData and GetMetricStatistics over the series: periods, statistics and metric math."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sagemaker_local.cloudwatch.expressions import Line, Scope, evaluate, names_in
from sagemaker_local.cloudwatch.series import Dimensions, MetricSeries, SeriesKey


def metric_data(
    series: MetricSeries, queries: Sequence[Mapping[str, Any]], start: datetime, end: datetime
) -> list[tuple[Mapping[str, Any], Line]]:
    """Answer queries as GetMetricData takes them: each with its time series, also with ReturnData false.

    Raises:
        ValueError: CloudWatch refuses the statistic, expression or reference, or it is not served here.
    """
    start = _whole_minute(start)
    lines: dict[str, Line] = {}
    waiting = {str(query["Id"]): query for query in queries}
    if len(waiting) < len(queries):
        raise ValueError("The values for parameter id in MetricDataQueries are not unique.")
    metrics = [query for query in queries if "MetricStat" in query]
    for query in metrics:
        lines[query["Id"]] = _measured(series, query, start, end)
        del waiting[query["Id"]]
    longest = max((line.period_s for line in lines.values()), default=300)
    while waiting:
        ready = [name for name, query in waiting.items() if not names_in(query["Expression"]) & set(waiting)]
        if not ready:
            raise ValueError(f"The expressions {', '.join(sorted(waiting))} refer to each other.")
        for name in ready:
            query = waiting.pop(name)
            scope = Scope(lines, start, end, int(query.get("Period") or longest))
            line = evaluate(query["Expression"], scope)
            lines[name] = Line(query.get("Label") or name, line.points, line.period_s)
    return [(query, lines[query["Id"]]) for query in queries]


def metric_statistics(
    series: MetricSeries,
    key: SeriesKey,
    start: datetime,
    end: datetime,
    period_s: int,
    statistics: Sequence[str],
) -> list[dict[str, Any]]:
    """Return the datapoints of GetMetricStatistics, oldest first."""
    units = {
        known.unit for known in series.keys(key.namespace, key.name) if known.dimensions == key.dimensions
    }
    unit = key.unit or (units.pop() if len(units) == 1 else "None")
    datapoints = []
    for at, aggregate in series.periods(key, _whole_minute(start), end, period_s, any_unit=key.unit == ""):
        point: dict[str, Any] = {"Timestamp": at.replace(tzinfo=None)}
        extended = {}
        for name in statistics:
            if name.startswith("p"):
                extended[name] = aggregate.statistic(name)
            else:
                point[name] = aggregate.statistic(name)
        if extended:
            point["ExtendedStatistics"] = extended
        datapoints.append({**point, "Unit": unit})
    return datapoints


def dimensions_of(given: Sequence[Mapping[str, str]] | None) -> Dimensions:
    """Return dimensions as a series has them."""
    return tuple(sorted((each["Name"], each["Value"]) for each in given or ()))


def _whole_minute(moment: datetime) -> datetime:
    # "Start time less than 15 days ago - Round down to the nearest whole minute" (API reference).
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return aware.replace(second=0, microsecond=0)


def _measured(series: MetricSeries, query: Mapping[str, Any], start: datetime, end: datetime) -> Line:
    stat = query["MetricStat"]
    metric, period, statistic = stat["Metric"], max(60, int(stat["Period"])), str(stat["Stat"])
    key = SeriesKey(
        metric["Namespace"],
        metric["MetricName"],
        dimensions_of(metric.get("Dimensions")),
        stat.get("Unit") or "",
    )
    periods = series.periods(key, start, end, period, any_unit=key.unit == "")
    points = {at: aggregate.statistic(statistic) for at, aggregate in periods}
    return Line(query.get("Label") or f"{key.name} {statistic}", points, period)
