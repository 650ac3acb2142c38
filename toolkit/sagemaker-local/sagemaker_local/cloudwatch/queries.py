"""GetMetricData and GetMetricStatistics over the series: periods, statistics, metric math and SEARCH."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sagemaker_local.cloudwatch.expressions import ExpressionError, Line, Scope, evaluate, names_in
from sagemaker_local.cloudwatch.series import Dimensions, MetricSeries, SeriesKey

# "a single SEARCH expression … can return at most 500 time series" (search expression syntax).
_MOST_FOUND = 500
_SEARCH_SCHEMA = re.compile(r"^\s*\{([^}]*)\}\s*(.*)$", re.DOTALL)
_SEARCH_TERM = re.compile(
    r'(?P<no>NOT\s+)?(?:(?P<property>[\w:.\-/]+)\s*=\s*)?(?:"(?P<exact>[^"]*)"|\((?P<any>[^)]*)\)|(?P<bare>[^\s()"=]+))'
)


def metric_data(
    series: MetricSeries, queries: Sequence[Mapping[str, Any]], start: datetime, end: datetime
) -> list[tuple[Mapping[str, Any], Line]]:
    """Answer queries as GetMetricData takes them: each with its time series, also with ReturnData false.

    Raises:
        ValueError: CloudWatch refuses the statistic, expression or reference, or it is not served here.
    """
    start = _whole_minute(start)
    lines: dict[str, list[Line]] = {}
    waiting = {str(query["Id"]): query for query in queries}
    if len(waiting) < len(queries):
        raise ValueError("The values for parameter id in MetricDataQueries are not unique.")
    metrics = [query for query in queries if "MetricStat" in query]
    for query in metrics:
        lines[query["Id"]] = [_measured(series, query, start, end)]
        del waiting[query["Id"]]
    of_metrics = [lines[query["Id"]][0] for query in metrics]
    while waiting:
        ready = [name for name, query in waiting.items() if not names_in(query["Expression"]) & set(waiting)]
        if not ready:
            raise ValueError(f"The expressions {', '.join(sorted(waiting))} refer to each other.")
        for name in ready:
            query = waiting.pop(name)
            period = int(query.get("Period") or max((line.period_s for line in of_metrics), default=300))
            known = {other: found[0] if len(found) == 1 else found for other, found in lines.items()}
            scope = Scope(known, of_metrics, start, end, period, _searcher(series, start, end))
            lines[name] = _labelled(query, evaluate(query["Expression"], scope))
    return [(query, line) for query in queries for line in lines[query["Id"]]]


def metric_statistics(
    series: MetricSeries,
    key: SeriesKey,
    start: datetime,
    end: datetime,
    period_s: int,
    statistics: Sequence[str],
) -> list[dict[str, Any]]:
    """Return the datapoints of GetMetricStatistics, oldest first."""
    units = {one.unit for one in series.keys(key.namespace, key.name) if one.dimensions == key.dimensions}
    unit = key.unit or (units.pop() if len(units) == 1 else "None")
    datapoints = []
    for at, found in series.periods(key, _whole_minute(start), end, period_s, any_unit=key.unit == ""):
        point: dict[str, Any] = {"Timestamp": at.replace(tzinfo=None)}
        extended = {}
        for name in statistics:
            if name.startswith("p"):
                extended[name] = found.statistic(name)
            else:
                point[name] = found.statistic(name)
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
    asked = query["MetricStat"]
    metric, period, statistic = asked["Metric"], max(60, int(asked["Period"])), str(asked["Stat"])
    key = SeriesKey(
        metric["Namespace"],
        metric["MetricName"],
        dimensions_of(metric.get("Dimensions")),
        asked.get("Unit") or "",
    )
    found = series.periods(key, start, end, period, any_unit=key.unit == "")
    points = {at: aggregate.statistic(statistic) for at, aggregate in found}
    return Line(query.get("Label") or f"{key.name} {statistic}", points, period)


def _labelled(query: Mapping[str, Any], lines: list[Line]) -> list[Line]:
    if len(lines) == 1 and not query["Expression"].strip().upper().startswith("SEARCH"):
        return [Line(query.get("Label") or str(query["Id"]), lines[0].points, lines[0].period_s)]
    return lines


def _searcher(series: MetricSeries, start: datetime, end: datetime) -> Any:
    def search(text: str, statistic: str, period_s: int) -> list[Line]:
        found = []
        for key in _searched(series, text)[:_MOST_FOUND]:
            periods = series.periods(key, start, end, period_s, any_unit=False)
            points = {at: aggregate.statistic(statistic) for at, aggregate in periods}
            label = " ".join([*(value for _, value in key.dimensions), key.name])
            found.append(Line(label, points, period_s))
        return found

    return search


def _searched(series: MetricSeries, text: str) -> list[SeriesKey]:
    """Find the series of a search: a schema in braces, then terms that must all match."""
    schema = _SEARCH_SCHEMA.match(text)
    namespace: str | None = None
    names: frozenset[str] | None = None
    terms = text
    if schema is not None:
        parts = [part.strip().strip('"') for part in schema.group(1).split(",")]
        namespace, names, terms = parts[0], frozenset(parts[1:]), schema.group(2)
    if re.search(r"\bOR\b", re.sub(r"\([^)]*\)", "", terms)):
        raise ExpressionError("SEARCH with OR outside parentheses is not supported by the local CloudWatch")
    wanted = [term for term in _SEARCH_TERM.finditer(terms) if term.group(0).upper() != "AND"]
    return [
        key
        for key in series.keys(namespace)
        if (names is None or frozenset(name for name, _ in key.dimensions) == names)
        and all(_matches(key, term) for term in wanted)
    ]


def _matches(key: SeriesKey, term: re.Match[str]) -> bool:
    known = {"Namespace": key.namespace, "MetricName": key.name, **dict(key.dimensions)}
    named = term.group("property")
    values = [known[named]] if named in known else [] if named else list(known.values())
    if term.group("any") is not None:
        choices = [
            choice.strip().strip('"')
            for choice in re.split(r"\bOR\b|\s+", term.group("any"))
            if choice.strip()
        ]
    else:
        choices = [str(term.group("exact") if term.group("exact") is not None else term.group("bare"))]
    exact = term.group("exact") is not None or '"' in (term.group("any") or "")
    hit = any(value == one if exact else one.lower() in value.lower() for value in values for one in choices)
    return hit is not bool(term.group("no"))
