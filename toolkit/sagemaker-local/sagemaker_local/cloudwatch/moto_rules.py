"""CloudWatch behind moto's protocols, with our own metric data and alarms."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from sagemaker_local.cloudwatch import alarms
from sagemaker_local.cloudwatch.queries import dimensions_of, metric_data, metric_statistics
from sagemaker_local.cloudwatch.series import MetricSeries, SeriesKey, percent_of

log = logging.getLogger(__name__)

_MOST_METRIC_QUERIES = 500
_STATISTICS = ("SampleCount", "Sum", "Average", "Minimum", "Maximum")


class CloudWatch:
    """The metrics of one account and region on the local clock, and the states of its alarms."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self.now = now
        self.series = MetricSeries(now)
        self._evaluated: int | None = None

    def evaluate_alarms(self, backend: Any, notify: Callable[[str, str, str], None]) -> list[str]:
        """Evaluate every metric alarm once a minute of the local clock; return the names that changed.

        ``notify`` publishes to an SNS topic: topic ARN, subject, message.
        """
        now = self.now()
        minute = int(now.timestamp() // 60)
        if minute == self._evaluated:
            return []
        self._evaluated = minute
        changed = []
        for alarm in list(backend.alarms.values()):
            if alarm.rule is not None:
                continue
            evaluated = alarms.evaluate(alarm, self.series, now)
            if evaluated is None or evaluated[0] == alarm.state_value:
                continue
            before = alarm.state_value
            alarm.update_state(evaluated[1], "{}", evaluated[0])
            alarm.state_updated_timestamp = now.replace(tzinfo=None)
            changed.append(alarm.name)
            if alarm.actions_enabled:
                _act(alarm, before, now, notify)
        return changed

    def lay(self) -> None:
        """Install this CloudWatch behind moto's; the last installed one serves the process."""
        from moto.cloudwatch.models import CloudWatchBackend
        from moto.cloudwatch.responses import CloudWatchResponse

        CloudWatchBackend.peagle = self
        if getattr(CloudWatchResponse, "peagle_rules", False):
            return
        _lay_backend(CloudWatchBackend)
        _lay_responses(CloudWatchResponse)
        CloudWatchResponse.peagle_rules = True


def _act(alarm: Any, before: str, now: datetime, notify: Callable[[str, str, str], None]) -> None:
    actions = {
        "ALARM": alarm.alarm_actions,
        "OK": alarm.ok_actions,
        "INSUFFICIENT_DATA": alarm.insufficient_data_actions,
    }[alarm.state_value]
    message = json.dumps(
        {
            "AlarmName": alarm.name,
            "AlarmDescription": alarm.description,
            "NewStateValue": alarm.state_value,
            "NewStateReason": alarm.state_reason,
            "StateChangeTime": now.isoformat(timespec="milliseconds"),
            "OldStateValue": before,
            "AlarmArn": alarm.alarm_arn,
        }
    )
    for action in actions or ():
        if ":sns:" in action:
            try:
                notify(action, f'{alarm.state_value}: "{alarm.name}"'[:100], message)
            except Exception:
                log.exception("alarm %s: notifying %s failed", alarm.name, action)


def _lay_backend(kind: Any) -> None:
    from moto.cloudwatch.exceptions import ValidationError
    from moto.cloudwatch.models import MetricDatumBase

    put_alarm = kind.put_metric_alarm

    def put_metric_data(self: Any, namespace: str, metric_data: list[dict[str, Any]]) -> None:
        for number, metric in enumerate(metric_data, 1):
            self._validate_parameters_put_metric_data(metric, number)
        self.peagle.series.put(namespace, metric_data)

    def get_metric_data(
        self: Any, queries: list[dict[str, Any]], start_time: datetime, end_time: datetime, scan_by: str = ""
    ) -> list[dict[str, Any]]:
        if start_time >= end_time:
            raise ValidationError("The parameter EndTime must be greater than StartTime.")
        for query in queries:
            if str(query.get("Expression", "")).lstrip().upper().startswith("SELECT"):
                raise ValidationError(
                    "Metrics Insights queries (SELECT) are not supported by the local CloudWatch."
                )
        try:
            answers = metric_data(self.peagle.series, queries, _aware(start_time), _aware(end_time))
        except ValueError as error:
            raise ValidationError(str(error)) from None
        results = []
        for answered, line in answers:
            if str(answered.get("ReturnData", True)).lower() == "false":
                continue
            times = sorted(line.points, reverse=scan_by != "TimestampAscending")
            results.append(
                {
                    "id": answered["Id"],
                    "label": line.label,
                    "timestamps": [at.replace(tzinfo=None) for at in times],
                    "values": [line.points[at] for at in times],
                    "status_code": "Complete",
                }
            )
        return results

    def get_filtered_metrics(
        self: Any, metric_name: str, namespace: str, dimensions: list[dict[str, str]]
    ) -> Any:
        wanted = [(each["Name"], each.get("Value")) for each in dimensions or ()]
        seen, metrics = set(), []
        for key in self.peagle.series.keys(namespace or None, metric_name or None):
            known = dict(key.dimensions)
            if key[:3] in seen or any(
                name not in known or value not in (None, known[name]) for name, value in wanted
            ):
                continue
            seen.add(key[:3])
            listed = [{"Name": name, "Value": value} for name, value in key.dimensions]
            metrics.append(MetricDatumBase(key.namespace, key.name, listed, None))
        return metrics

    def put_metric_alarm(self: Any, name: str, *more: Any, **others: Any) -> Any:
        # A new alarm has no data yet; a changed one keeps its state until it is evaluated.
        known = self.alarms.get(name)
        alarm = put_alarm(self, name, *more, **others)
        now = self.peagle.now().astimezone(UTC).replace(tzinfo=None)
        alarm.configuration_updated_timestamp = alarm.state_updated_timestamp = now
        alarm.state_value, alarm.state_reason = "INSUFFICIENT_DATA", alarms.INITIAL_REASON
        if known is not None:
            for field in (
                "state_value",
                "state_reason",
                "state_reason_data",
                "state_updated_timestamp",
                "history",
            ):
                setattr(alarm, field, getattr(known, field))
        return alarm

    kind.put_metric_data = put_metric_data
    kind.get_metric_data = get_metric_data
    kind.get_filtered_metrics = get_filtered_metrics
    kind.put_metric_alarm = put_metric_alarm


def _lay_responses(kind: Any) -> None:
    from moto.cloudwatch.exceptions import InvalidParameterCombination, InvalidParameterValue, ValidationError
    from moto.core.responses import ActionResult

    put, get, put_alarm = kind.put_metric_data, kind.get_metric_data, kind.put_metric_alarm

    def put_metric_alarm(self: Any) -> Any:
        wrong = None if self._get_param("AlarmRule") else alarms.refusal(self._get_params())
        if wrong is not None:
            raise ValidationError(wrong)
        return put_alarm(self)

    def put_metric_data(self: Any) -> Any:
        if str(self._get_param("Namespace")).startswith("AWS/"):
            raise InvalidParameterValue("The value AWS/ for parameter Namespace is invalid.")
        return put(self)

    def get_metric_data(self: Any) -> Any:
        if len(self._get_params().get("MetricDataQueries", [])) > _MOST_METRIC_QUERIES:
            raise ValidationError(
                f"The collection MetricDataQueries must not have a size greater than {_MOST_METRIC_QUERIES}."
            )
        return get(self)

    def get_metric_statistics(self: Any) -> Any:
        plain, extended = self._get_param("Statistics", []), self._get_param("ExtendedStatistics", [])
        if not plain and not extended:
            raise InvalidParameterCombination("Must specify either Statistics or ExtendedStatistics")
        start, end = self._get_param("StartTime"), self._get_param("EndTime")
        if start >= end:
            raise InvalidParameterValue("The parameter StartTime must be less than the parameter EndTime.")
        unknown = [name for name in plain if name not in _STATISTICS]
        if unknown:
            raise InvalidParameterValue(
                f"The value {unknown[0]} for parameter Statistics.member.1 is not supported."
            )
        for name in extended:
            try:
                percent_of(name)
            except ValueError as error:
                raise InvalidParameterValue(str(error)) from None
        key = SeriesKey(
            self._get_param("Namespace"),
            self._get_param("MetricName"),
            dimensions_of(self._get_param("Dimensions", [])),
            self._get_param("Unit") or "",
        )
        period = self._get_int_param("Period")
        points = metric_statistics(
            self.cloudwatch_backend.peagle.series,
            key,
            _aware(start),
            _aware(end),
            period,
            [*plain, *extended],
        )
        return ActionResult({"Label": key.name, "Datapoints": points})

    kind.put_metric_data = put_metric_data
    kind.get_metric_data = get_metric_data
    kind.get_metric_statistics = get_metric_statistics
    kind.put_metric_alarm = put_metric_alarm


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
