"""Evaluation of alarms, as "How CloudWatch evaluates an alarm" and "treats missing data" describe it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from sagemaker_local.cloudwatch.queries import metric_data
from sagemaker_local.cloudwatch.series import MetricSeries

INITIAL_REASON = "Unchecked: Initial alarm creation"
# CloudWatch fetches more periods than it evaluates; its user guide's example has two more.
_MORE_PERIODS = 2
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "GreaterThanThreshold": operator.gt,
    "GreaterThanOrEqualToThreshold": operator.ge,
    "LessThanThreshold": operator.lt,
    "LessThanOrEqualToThreshold": operator.le,
}


_DAY_S = 86_400


def refusal(alarm: Mapping[str, Any]) -> str | None:
    """Return why PutMetricAlarm refuses a metric alarm; None if it takes it. The texts are ours.

    Source: PutMetricAlarm, CloudWatch API reference.
    """
    periods = int(alarm.get("EvaluationPeriods") or 1)
    wanted = int(alarm.get("DatapointsToAlarm") or 1)
    missing = alarm.get("TreatMissingData") or "missing"
    if wanted > periods:
        return f"DatapointsToAlarm is {wanted}; it must not be more than EvaluationPeriods, {periods}."
    if missing not in ("breaching", "notBreaching", "ignore", "missing"):
        return f"The value {missing} for parameter TreatMissingData is not supported."
    for member in ("AlarmActions", "OKActions", "InsufficientDataActions"):
        for action in alarm.get(member) or ():
            if not action.startswith("arn:"):
                return f"Invalid arn syntax: {action}"
    return None if alarm.get("Metrics") else _refusal_of_metric(alarm, periods)


def _refusal_of_metric(alarm: Mapping[str, Any], periods: int) -> str | None:
    if not alarm.get("MetricName"):
        return "An alarm needs MetricName or Metrics."
    if bool(alarm.get("Statistic")) == bool(alarm.get("ExtendedStatistic")):
        return "Specify either Statistic or ExtendedStatistic, but not both."
    period = int(alarm.get("Period") or 0)
    if period not in (10, 20, 30) and (period <= 0 or period % 60):
        return f"Period is {period}; allowed are 10, 20, 30 and multiples of 60."
    longest = _DAY_S if period < 3600 else 7 * _DAY_S
    if period * periods > longest:
        return f"Period times EvaluationPeriods is {period * periods} s; allowed are {longest} s."
    return None


def state_of(
    points: list[float | None],
    *,
    breaches: Callable[[float], bool],
    periods: int,
    wanted: int,
    missing: str,
    now: str,
) -> str:
    """Return OK, ALARM or INSUFFICIENT_DATA for the newest points, oldest first; None is a missing one.

    ``wanted`` of ``periods`` must breach; ``missing`` is TreatMissingData; ``now`` is the present state.
    """
    known = [(age, breaches(value)) for age, value in enumerate(reversed(points)) if value is not None]
    judged = [breach for _, breach in known[:periods]]
    lacking = periods - len(judged)
    breaching = sum(judged)
    if lacking > 0 and missing in ("breaching", "notBreaching"):
        return "ALARM" if breaching + (lacking if missing == "breaching" else 0) >= wanted else "OK"
    if breaching >= wanted:
        return "ALARM"
    if not all(judged) or (judged and lacking <= 0):
        return "OK"
    if missing == "ignore":
        return now
    if not judged:
        return "INSUFFICIENT_DATA"
    # A breach followed by missing points only: ALARM once it is as old as the points wanted.
    return "ALARM" if known[-1][0] >= wanted - 1 else "OK"


def evaluate(alarm: Any, series: MetricSeries, now: datetime) -> tuple[str, str] | None:
    """Return the state of one of moto's metric alarms and the reason; None if it is not served here."""
    comparison = _COMPARISONS.get(alarm.comparison_operator)
    if comparison is None or alarm.threshold is None:
        return None
    queries, returned = _queries(alarm)
    # Series are by minute, so a high-resolution alarm is evaluated by minute too.
    period = max([60, *(int(query["MetricStat"]["Period"]) for query in queries if "MetricStat" in query)])
    threshold = float(alarm.threshold)
    periods = int(alarm.evaluation_periods or 1)
    wanted = int(alarm.datapoints_to_alarm or periods)
    # The period that is still running is not evaluated.
    end = now.replace(second=0, microsecond=0)
    end -= timedelta(seconds=end.timestamp() % period) if period <= 3600 else timedelta()
    start = end - timedelta(seconds=period * (periods + _MORE_PERIODS))
    try:
        answers = metric_data(series, queries, start, end)
    except ValueError as error:
        return "INSUFFICIENT_DATA", str(error)
    line = next((line for query, line in answers if query["Id"] == returned), None)
    known = line.points if line is not None else {}
    grid = [start + timedelta(seconds=period * place) for place in range(periods + _MORE_PERIODS)]
    points = [known.get(at) for at in grid]
    state = state_of(
        points,
        breaches=lambda value: comparison(value, threshold),
        periods=periods,
        wanted=wanted,
        missing=alarm.treat_missing_data or "missing",
        now=alarm.state_value,
    )
    newest = [value for value in reversed(points) if value is not None][:periods]
    return state, _reason(state, newest, alarm.comparison_operator, threshold, periods)


def _queries(alarm: Any) -> tuple[list[dict[str, Any]], str]:
    """Return the alarm's metrics as GetMetricData takes them, and the id of the one that is compared."""
    if not alarm.metric_data_queries:
        metric = {
            "Namespace": alarm.namespace,
            "MetricName": alarm.metric_name,
            "Dimensions": [{"Name": each.name, "Value": each.value} for each in alarm.dimensions],
        }
        stat = {
            "Metric": metric,
            "Period": alarm.period,
            "Stat": alarm.statistic or alarm.extended_statistic,
            "Unit": alarm.unit,
        }
        return [{"Id": "metric", "MetricStat": stat}], "metric"
    queries = []
    for given in alarm.metric_data_queries:
        query: dict[str, Any] = {"Id": given.id, "Period": given.period}
        if given.metric_stat is not None:
            metric = given.metric_stat.metric
            query["MetricStat"] = {
                "Metric": {
                    "Namespace": metric.namespace,
                    "MetricName": metric.metric_name,
                    "Dimensions": [{"Name": each.name, "Value": each.value} for each in metric.dimensions],
                },
                "Period": given.metric_stat.period,
                "Stat": given.metric_stat.stat,
                "Unit": given.metric_stat.unit,
            }
        else:
            query["Expression"] = given.expression
        queries.append(query)
    # ReturnData is true unless it is said to be false; an alarm has one that is true.
    shown = [given.id for given in alarm.metric_data_queries if str(given.return_data).lower() != "false"]
    return queries, str((shown or [queries[0]["Id"]])[0])


def _reason(state: str, newest: list[float], comparison: str, threshold: float, periods: int) -> str:
    if state == "INSUFFICIENT_DATA":
        return f"Insufficient Data: {periods} datapoint{'s were' if periods > 1 else ' was'} unknown."
    words = {"Gr": "greater than", "Le": "less than"}[comparison[:2]]
    words += " or equal to" if "OrEqual" in comparison else ""
    negated = "" if state == "ALARM" else " not"
    if not newest:
        treated = "Breaching" if state == "ALARM" else "NonBreaching"
        return (
            f"Threshold Crossed: no datapoints were received for {periods} "
            f"period{'s' if periods > 1 else ''} and missing datapoints were treated as [{treated}]."
        )
    values = ", ".join(f"{value:g}" for value in newest)
    were = f"datapoints [{values}] were" if len(newest) != 1 else f"datapoint [{values}] was"
    return f"Threshold Crossed: {len(newest)} {were}{negated} {words} the threshold ({threshold:g})."
