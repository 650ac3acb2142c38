"""`guard status` and `guard sweep` for each state of the account."""

from __future__ import annotations

import io
import json
from datetime import timedelta
from typing import Any

import pytest

from peagle_sm.aws.control.guard_resources import FunctionFault
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import NotFound, ServiceFault
from peagle_sm.core.guard import GUARD_STACK, TABLE
from peagle_sm.service import Pacing
from peagle_sm.service.guard.status import guard_status, shipped, sweep
from tests.service.account import Account
from tests.service.aws_errors import client_error
from tests.service.setting import ACCOUNT

TOPIC = f"arn:aws:sns:us-east-1:{ACCOUNT}:peagle-guard-notices"
CONFIRMED = {"Protocol": "email", "Endpoint": "ops@example.com", "SubscriptionArn": f"{TOPIC}:1"}


def _guard(
    aws: Account,
    alarm: str = "OK",
    letters: int = 0,
    subscriber: dict[str, str] = CONFIRMED,
    key: str | None = None,
    version: str | None = None,
) -> None:
    """Let AWS show the guard's resources; only its register is real."""
    outputs = {"Version": version or shipped().version, "NoticesTopicArn": TOPIC}
    stack = {
        "StackName": GUARD_STACK,
        "StackId": "1",
        "StackStatus": "CREATE_COMPLETE",
        "Parameters": [{"ParameterKey": "AssetKey", "ParameterValue": key or shipped().key}],
        "Outputs": [{"OutputKey": name, "OutputValue": value} for name, value in outputs.items()],
    }

    def answer(operation: str) -> dict[str, Any] | None:
        if operation == "DescribeAlarms":
            names = aws.sent[operation]["AlarmNames"]
            rows = [{"AlarmName": name, "StateValue": alarm, "StateReason": "why"} for name in names]
            return {"MetricAlarms": rows}
        answers: dict[str, dict[str, Any]] = {
            "DescribeStacks": {"Stacks": [stack]},
            "GetQueueUrl": {"QueueUrl": "https://sqs/letters"},
            "GetQueueAttributes": {"Attributes": {"ApproximateNumberOfMessages": str(letters)}},
            "ListSubscriptionsByTopic": {"Subscriptions": [subscriber]},
        }
        return answers.get(operation)

    aws.before = answer


def _swept(aws: Account, minutes_ago: float) -> None:
    moment = aws.now() - timedelta(minutes=minutes_ago)
    item = {"pk": {"S": "sweep"}, "last_sweep_at": {"S": moment.isoformat()}}
    aws.dynamodb.put_item(TableName=TABLE, Item=item)


def test_a_guard_in_good_health_has_no_warnings(aws: Account, session: Session) -> None:
    _guard(aws)
    _swept(aws, minutes_ago=3)
    aws.note(quiet_since={"S": aws.now().isoformat()}, paused={"BOOL": False})
    status = guard_status(session)
    assert (status.warnings, status.current) == ((), True)
    assert [(row.name, row.quiet_since is not None) for row in status.endpoints] == [("demo", True)]
    json.dumps(status.to_dict())


def test_what_is_wrong_is_said(aws: Account, session: Session) -> None:
    pending = {**CONFIRMED, "SubscriptionArn": "PendingConfirmation"}
    _guard(aws, alarm="ALARM", letters=2, subscriber=pending)
    _swept(aws, minutes_ago=40)
    message = " / ".join(guard_status(session).warnings)
    for word in ("40 minutes ago", "peagle-guard-no-sweep: why", "2 undelivered", "no confirmed subscriber"):
        assert word in message


def test_each_endpoint_without_a_metric_of_its_requests_in_flight_is_warned_of(
    aws: Account, session: Session
) -> None:
    """One that is gone already has no streams to lose."""
    _guard(aws)
    _swept(aws, minutes_ago=3)
    gone = {"gone_at": {"S": aws.now().isoformat()}}
    for name, more in (("demo", {}), ("gone", gone), ("other", {})):
        aws.note(name, streams_hidden={"BOOL": True}, **more)
    aws.note("shown", streams_hidden={"BOOL": False})
    warning = (
        "endpoint {}: CloudWatch has no metric of its requests in flight. The guard detects a stream longer "
        "than the grace period only by GPU use: set lifecycle.grace_minutes above your longest stream"
    )
    assert guard_status(session).warnings == (warning.format("demo"), warning.format("other"))


def test_an_endpoint_whose_metrics_have_proven_nothing_for_two_hours_is_warned_of(
    aws: Account, session: Session
) -> None:
    _guard(aws)
    _swept(aws, minutes_ago=3)
    gone = {"gone_at": {"S": aws.now().isoformat()}}
    for name, minutes, more in (("demo", 125, {}), ("gone", 300, gone), ("new", 115, {})):
        since = {"S": (session.now() - timedelta(minutes=minutes)).isoformat()}
        aws.note(name, unknown_since=since, **more)
    (warning,) = guard_status(session).warnings
    assert warning.startswith("endpoint demo: for 2.1 hours its metrics have not shown whether it is idle")
    assert "`peagle-sm guard sweep --dry-run --region us-east-1`" in warning
    assert "`peagle-sm pause demo --region us-east-1`" in warning


@pytest.mark.parametrize("older", [{"key": "guard/0123456789abcdef.zip"}, {"version": "0.0.1"}])
def test_an_older_package_or_version_is_told(aws: Account, session: Session, older: dict[str, Any]) -> None:
    _guard(aws, **older)
    assert not guard_status(session).current


def test_no_guard(aws: Account, session: Session) -> None:
    with aws.no_guard(), pytest.raises(NotFound, match="No guard is installed"):
        guard_status(session)


BUSY = client_error("Invoke", "TooManyRequestsException", "Rate Exceeded.", 429)


def _invoked(aws: Account, document: object, busy: int = 0, **more: str) -> None:
    """Let the function answer, after some calls that found it running."""

    def answer(operation: str) -> dict[str, Any] | BaseException | None:
        if operation != "Invoke":
            return None
        if aws.calls.count(operation) <= busy:
            return BUSY
        return {"Payload": io.BytesIO(json.dumps(document).encode()), **more}

    aws.before = answer


def test_a_sweep_carries_no_time_and_gives_what_the_function_answered(
    aws: Account, session: Session, pacing: Pacing
) -> None:
    row = {"name": "demo", "status": "InService", "evidence": "quiet", "action": "wait", "reason": "grace"}
    _invoked(aws, {"time": "t", "endpoints": [row], "calls": {"ListEndpoints": 1}})
    report = sweep(session, dry_run=True, pacing=pacing)
    assert json.loads(aws.sent["Invoke"]["Payload"]) == {"dry_run": True}
    assert (report.endpoints, report.calls) == ((row,), {"ListEndpoints": 1})


def test_a_sweep_waits_for_the_one_that_is_running(aws: Account, session: Session, pacing: Pacing) -> None:
    _invoked(aws, {"time": "t", "endpoints": [], "calls": {}}, busy=2)
    sweep(session, pacing=pacing)
    assert aws.calls.count("Invoke") == 3
    _invoked(aws, {}, busy=200)
    with pytest.raises(ServiceFault, match="Rate Exceeded"):
        sweep(session, pacing=pacing)


def test_a_function_that_fails_is_quoted_with_its_trace(
    aws: Account, session: Session, pacing: Pacing
) -> None:
    failed = {"errorType": "SettingsError", "errorMessage": "not set: PEAGLE_TABLE", "stackTrace": ["line 1"]}
    _invoked(aws, failed, FunctionError="Unhandled")
    with pytest.raises(FunctionFault, match="SettingsError: not set: PEAGLE_TABLE") as caught:
        sweep(session, pacing=pacing)
    assert caught.value.details["trace"] == ["line 1"]


@pytest.mark.parametrize("answer", [None, [1], "text"])
def test_an_answer_of_another_shape_is_a_fault_and_not_a_sweep(
    aws: Account, session: Session, pacing: Pacing, answer: object
) -> None:
    _invoked(aws, answer)
    with pytest.raises(FunctionFault, match="expected a JSON object"):
        sweep(session, pacing=pacing)
