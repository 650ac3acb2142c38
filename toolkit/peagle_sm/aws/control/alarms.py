"""CloudWatch alarms: one thin function a call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peagle_sm.aws.session.errors import aws_errors
from peagle_sm.aws.session.session import Session


def put(session: Session, parameters: Mapping[str, Any]) -> None:
    """Send PutMetricAlarm: makes the alarm, or overwrites one of that name."""
    with aws_errors("PutMetricAlarm", session.local_url):
        session.client("cloudwatch").put_metric_alarm(**parameters)


def remove(session: Session, name: str) -> None:
    """Send DeleteAlarms; an alarm that is not there is no mistake."""
    with aws_errors("DeleteAlarms", session.local_url):
        session.client("cloudwatch").delete_alarms(AlarmNames=[name])
