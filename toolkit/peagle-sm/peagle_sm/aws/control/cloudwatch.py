"""CloudWatch: an endpoint's container logs, and the rollback alarms of an update."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from peagle_sm.aws.control.sagemaker import component_names
from peagle_sm.aws.session.errors import is_taken
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import NotFound, PeagleError


@dataclass(frozen=True)
class LogLine:
    """One log line; ``stream`` is ``<variant>/<instance>``."""

    timestamp: datetime
    stream: str
    message: str


def group_of(endpoint: str, component: str | None = None) -> str:
    """Return the log group to which SageMaker writes the lines of an endpoint, or of its component."""
    return (
        f"/aws/sagemaker/InferenceComponents/{component}"
        if component
        else f"/aws/sagemaker/Endpoints/{endpoint}"
    )


def create(session: Session, group: str, days: int) -> bool:
    """Create a log group that keeps lines for ``days``; False if it already exists."""
    try:
        session.api("logs").create_log_group(logGroupName=group)
    except PeagleError as error:
        if is_taken(error):
            return False
        raise
    session.api("logs").put_retention_policy(logGroupName=group, retentionInDays=days)
    return True


def exists(session: Session, group: str) -> bool:
    """Return whether a log group exists."""
    groups = session.api("logs").rows("describe_log_groups", "logGroups", logGroupNamePrefix=group)
    return any(row["logGroupName"] == group for row in groups)


def remove(session: Session, group: str) -> None:
    """Delete a log group with all its lines.

    Raises:
        NotFound: the log group does not exist.
    """
    session.api("logs").delete_log_group(logGroupName=group)


def groups_with_lines(session: Session, endpoint: str) -> tuple[str, ...]:
    """Return the log groups that may have lines of an endpoint: its own, and those of its components.

    SageMaker writes the lines of a component's engine to the component's group. A component of peagle-sm has
    the endpoint's name, so its group is named here after the component is gone, too.
    """
    components = dict.fromkeys([endpoint])
    with suppress(PeagleError):
        components |= dict.fromkeys(component_names(session, endpoint))
    return (group_of(endpoint), *(group_of(endpoint, component) for component in components))


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


#: Matches the gate's lines with counts by slice: CloudWatch compares a member of a line that is JSON.
_COUNTED = "{ $.DriftingSlices >= 0 }"


def counted_lines(
    session: Session, endpoint: str, start: datetime, component: str | None = None
) -> Iterator[str]:
    """Yield the gate's lines with counts by slice, oldest first; none without a log group."""
    for message in _matching(session, endpoint, start, component, _COUNTED):
        if '"peagle_gate"' in message and '"counts"' in message:
            yield message


def canary_lines(
    session: Session, endpoint: str, start: datetime, component: str | None = None
) -> Iterator[str]:
    """Yield what the gate's canary logged, oldest first; none without a log group or a gate."""
    return _matching(session, endpoint, start, component, '"peagle_gate: canary:"')


def _matching(
    session: Session, endpoint: str, start: datetime, component: str | None, pattern: str
) -> Iterator[str]:
    """Yield the messages of an endpoint, or of its component, that match a pattern of CloudWatch."""
    group = group_of(endpoint, component)
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


def put_alarm(session: Session, parameters: Mapping[str, Any]) -> None:
    """Send PutMetricAlarm: create the alarm, or replace the one of that name."""
    session.api("cloudwatch").put_metric_alarm(**parameters)


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
    response = session.api("cloudwatch").get_metric_statistics(
        Namespace=namespace,
        MetricName=metric,
        Dimensions=[{"Name": name, "Value": value} for name, value in (dimensions or {}).items()],
        StartTime=since,
        EndTime=until or session.now(),
        Period=60,
        Statistics=[statistic],
    )
    return [float(point[statistic]) for point in response.get("Datapoints", [])]


def has_alarm(session: Session, name: str) -> bool:
    """Return whether an alarm exists."""
    return bool(session.api("cloudwatch").describe_alarms(AlarmNames=[name])["MetricAlarms"])


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


def remove_alarms(session: Session, names: Sequence[str]) -> None:
    """Send DeleteAlarms; a missing alarm is no error.

    "If you specify any incorrect alarm names, the alarms you specify with correct names are still deleted"
    (CloudWatch's API reference).
    """
    session.api("cloudwatch").delete_alarms(AlarmNames=list(names))
