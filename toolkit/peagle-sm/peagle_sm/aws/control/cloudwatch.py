"""CloudWatch: an endpoint's container logs and metrics."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from peagle_sm.aws.control.sagemaker import component_names
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import NotFound, PeagleError
from peagle_sm.core.resources.log_group import log_group_name


@dataclass(frozen=True)
class LogLine:
    """One log line; ``stream`` is ``<variant>/<instance>``."""

    timestamp: datetime
    stream: str
    message: str


def groups_with_lines(session: Session, endpoint: str) -> tuple[str, ...]:
    """Return the log groups that may have lines of an endpoint: its own, and those of its components.

    SageMaker writes the lines of a component's engine to the component's group. A component of peagle-sm has
    the endpoint's name, so its group is named here after the component is gone, too.
    """
    components = dict.fromkeys([endpoint])
    with suppress(PeagleError):
        components |= dict.fromkeys(component_names(session, endpoint))
    return (log_group_name(endpoint), *(log_group_name(endpoint, component) for component in components))


def tail(session: Session, endpoint: str, limit: int = 100, start: datetime | None = None) -> list[LogLine]:
    """Return the last ``limit`` lines of all streams, oldest first.

    The list is empty if there is no log group yet. ``start`` leaves out the lines of an earlier endpoint of
    the same name: the group remains after the endpoint.
    """
    lines: list[LogLine] = []
    for group in groups_with_lines(session, endpoint):
        with suppress(NotFound):
            lines += _tail(session, group, limit, start)
    return sorted(lines, key=lambda line: line.timestamp)[-limit:]


def since(session: Session, endpoint: str, start: datetime) -> Iterator[tuple[str, LogLine]]:
    """Yield (event id, line) from ``start`` on, group by group; ids detect repeats."""
    begins = int(start.timestamp() * 1000)
    for group in groups_with_lines(session, endpoint):
        with suppress(NotFound):
            for event in session.api("logs").rows(
                "filter_log_events", "events", logGroupName=group, startTime=begins
            ):
                yield str(event.get("eventId", "")), _line(event, event.get("logStreamName", ""))


def matching_lines(
    session: Session, endpoint: str, start: datetime, component: str | None, pattern: str
) -> Iterator[str]:
    """Yield the messages of an endpoint, or of its component, that match a pattern of CloudWatch.

    Oldest first; none without a log group.
    """
    group = log_group_name(endpoint, component)
    begins = int(start.timestamp() * 1000)
    try:
        for event in session.api("logs").rows(
            "filter_log_events", "events", logGroupName=group, startTime=begins, filterPattern=pattern
        ):
            yield str(event["message"])
    except NotFound:
        return


def _tail(session: Session, group: str, limit: int, start: datetime | None) -> list[LogLine]:
    window = {} if start is None else {"startTime": int(start.timestamp() * 1000)}
    streams = session.api("logs").describe_log_streams(
        logGroupName=group, orderBy="LastEventTime", descending=True
    )
    lines: list[LogLine] = []
    for stream in streams.get("logStreams", []):
        name = stream["logStreamName"]
        got = session.api("logs").get_log_events(
            logGroupName=group, logStreamName=name, limit=min(limit, 10_000), startFromHead=False, **window
        )
        lines += [_line(event, name) for event in got.get("events", [])]
    return lines


def _line(event: dict[str, Any], stream: str) -> LogLine:
    moment = datetime.fromtimestamp(event["timestamp"] / 1000, UTC)
    return LogLine(moment, stream, str(event["message"]).rstrip("\n"))


def metric_minutes(
    session: Session,
    namespace: str,
    metric: str,
    since: datetime,
    until: datetime | None = None,
    *,
    statistic: str = "Average",
    dimensions: Mapping[str, str] | None = None,
) -> list[float]:
    """Return a statistic of each minute that has data since a moment, until now or another, in no order."""
    points = _datapoints(session, namespace, metric, since, until, statistic, dimensions, 60)
    return [value for _, value in points]


def _datapoints(
    session: Session,
    namespace: str,
    metric: str,
    since: datetime,
    until: datetime | None,
    statistic: str,
    dimensions: Mapping[str, str] | None,
    period_s: int,
) -> list[tuple[datetime, float]]:
    response = session.api("cloudwatch").get_metric_statistics(
        Namespace=namespace,
        MetricName=metric,
        Dimensions=[{"Name": name, "Value": value} for name, value in (dimensions or {}).items()],
        StartTime=since,
        EndTime=until or session.now(),
        Period=period_s,
        Statistics=[statistic],
    )
    return [(point["Timestamp"], float(point[statistic])) for point in response.get("Datapoints", [])]


def invocations(session: Session, dimensions: Mapping[str, str], since: datetime, until: datetime) -> float:
    """Return how many requests a variant or a component got in the minutes of a period."""
    begins = since.replace(second=0, microsecond=0)
    return math.fsum(
        metric_minutes(
            session,
            "AWS/SageMaker",
            "Invocations",
            begins,
            until,
            statistic="Sum",
            dimensions=dimensions,
        )
    )


def invocations_by_hour(
    session: Session, dimensions: Mapping[str, str], since: datetime, until: datetime
) -> dict[datetime, float]:
    """Return the requests to a variant or a component in each hour that had any."""
    begins = since.replace(second=0, microsecond=0)
    return dict(_datapoints(session, "AWS/SageMaker", "Invocations", begins, until, "Sum", dimensions, 3600))
