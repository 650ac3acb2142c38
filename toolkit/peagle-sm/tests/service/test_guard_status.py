"""`guard status` and `guard sweep` for each state of the account."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from peagle_sm.aws.control.guard_resources import FunctionFault
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import NotFound, ServiceFault
from peagle_sm.service import Pacing
from peagle_sm.service.guard.status import GuardStatus, guard_status, shipped, sweep
from tests.service.guard_fakes import STACK_ID, TOPIC, FakeGuardAws, answered, throttled

CONFIRMED = {"Protocol": "email", "Endpoint": "ops@example.com", "SubscriptionArn": f"{TOPIC}:1"}


@pytest.fixture
def aws() -> FakeGuardAws:
    return FakeGuardAws()


@pytest.fixture
def session(aws: FakeGuardAws) -> Session:
    return Session.from_boto3(aws, clock=aws.clock.now)


@pytest.fixture
def pacing(aws: FakeGuardAws) -> Pacing:
    return Pacing(aws.clock.now, aws.clock.monotonic, aws.clock.sleep)


def _status(
    aws: FakeGuardAws, session: Session, key: str | None = None, version: str | None = None
) -> GuardStatus:
    mine = shipped()
    parameters = [{"ParameterKey": "AssetKey", "ParameterValue": key or mine.key}]
    outputs = {"Version": version or mine.version, "NoticesTopicArn": TOPIC}
    aws.stack = {
        "StackName": "PeagleGuard",
        "StackId": STACK_ID,
        "StackStatus": "CREATE_COMPLETE",
        "Parameters": parameters,
        "Outputs": [{"OutputKey": name, "OutputValue": value} for name, value in outputs.items()],
    }
    return guard_status(session)


def test_a_guard_in_good_health_has_no_warnings(aws: FakeGuardAws, session: Session) -> None:
    aws.swept(minutes_ago=3)
    aws.subscribers = [CONFIRMED]
    aws.items.append(
        {
            "pk": {"S": "endpoint#demo"},
            "quiet_since": {"S": "2026-11-20T07:40:00+00:00"},
            "paused": {"BOOL": False},
        }
    )
    status = _status(aws, session)
    assert (status.warnings, status.current) == ((), True)
    assert [(row.name, row.quiet_since is not None) for row in status.endpoints] == [("demo", True)]
    json.dumps(status.to_dict())


def test_what_is_wrong_is_said(aws: FakeGuardAws, session: Session) -> None:
    aws.swept(minutes_ago=40)
    aws.alarm_state, aws.letters = "ALARM", 2
    aws.subscribers = [{**CONFIRMED, "SubscriptionArn": "PendingConfirmation"}]
    message = " / ".join(_status(aws, session).warnings)
    for word in ("40 minutes ago", "peagle-guard-no-sweep: why", "2 undelivered", "no confirmed subscriber"):
        assert word in message


def test_each_endpoint_without_a_metric_of_its_requests_in_flight_is_warned_of(
    aws: FakeGuardAws, session: Session
) -> None:
    """One that is gone already has no streams to lose."""
    aws.swept(minutes_ago=3)
    aws.subscribers = [CONFIRMED]
    gone = {"gone_at": {"S": "2026-11-20T07:40:00+00:00"}}
    for name, more in (("demo", {}), ("gone", gone), ("other", {})):
        aws.items.append({"pk": {"S": f"endpoint#{name}"}, "streams_hidden": {"BOOL": True}, **more})
    aws.items.append({"pk": {"S": "endpoint#shown"}, "streams_hidden": {"BOOL": False}})
    warning = (
        "endpoint {}: CloudWatch has no metric of its requests in flight. The guard detects a stream longer "
        "than the grace period only by GPU use: set lifecycle.grace_minutes above your longest stream"
    )
    assert _status(aws, session).warnings == (warning.format("demo"), warning.format("other"))


def test_an_endpoint_whose_metrics_have_proven_nothing_for_two_hours_is_warned_of(
    aws: FakeGuardAws, session: Session
) -> None:
    aws.swept(minutes_ago=3)
    aws.subscribers = [CONFIRMED]
    gone = {"gone_at": {"S": "2026-11-20T07:40:00+00:00"}}
    for name, minutes, more in (("demo", 125, {}), ("gone", 300, gone), ("new", 115, {})):
        since = {"S": (session.now() - timedelta(minutes=minutes)).isoformat()}
        aws.items.append({"pk": {"S": f"endpoint#{name}"}, "unknown_since": since, **more})
    (warning,) = _status(aws, session).warnings
    assert warning.startswith("endpoint demo: for 2.1 hours its metrics have not shown whether it is idle")
    assert "`peagle-sm guard sweep --dry-run --region us-east-1`" in warning
    assert "`peagle-sm pause demo --region us-east-1`" in warning


def test_an_older_package_or_version_is_told(aws: FakeGuardAws, session: Session) -> None:
    assert not _status(aws, session, key="guard/0123456789abcdef.zip").current
    assert not _status(aws, session, version="0.0.1").current


def test_no_guard(session: Session, pacing: Pacing) -> None:
    with pytest.raises(NotFound, match="No guard is installed"):
        guard_status(session)


def test_a_sweep_carries_no_time_and_gives_what_the_function_answered(
    aws: FakeGuardAws, session: Session, pacing: Pacing
) -> None:
    row = {"name": "demo", "status": "InService", "evidence": "quiet", "action": "wait", "reason": "grace"}
    aws.answers = [answered({"time": "t", "endpoints": [row], "calls": {"ListEndpoints": 1}})]
    report = sweep(session, dry_run=True, pacing=pacing)
    assert json.loads(aws.request("invoke")["Payload"]) == {"dry_run": True}
    assert (report.endpoints, report.calls) == ((row,), {"ListEndpoints": 1})


def test_a_sweep_waits_for_the_one_that_is_running(
    aws: FakeGuardAws, session: Session, pacing: Pacing
) -> None:
    aws.answers = [throttled, throttled, answered({"time": "t", "endpoints": [], "calls": {}})]
    sweep(session, pacing=pacing)
    assert aws.calls.count("invoke") == 3
    aws.answers = [throttled] * 100
    with pytest.raises(ServiceFault, match="Rate Exceeded"):
        sweep(session, pacing=pacing)


def test_a_function_that_fails_is_quoted_with_its_trace(
    aws: FakeGuardAws, session: Session, pacing: Pacing
) -> None:
    failed = {"errorType": "SettingsError", "errorMessage": "not set: PEAGLE_TABLE", "stackTrace": ["line 1"]}
    aws.answers = [answered(failed, error="Unhandled")]
    with pytest.raises(FunctionFault, match="SettingsError: not set: PEAGLE_TABLE") as caught:
        sweep(session, pacing=pacing)
    assert caught.value.details["trace"] == ["line 1"]


@pytest.mark.parametrize("answer", [None, [1], "text"])
def test_an_answer_of_another_shape_is_a_fault_and_not_a_sweep(
    aws: FakeGuardAws, session: Session, pacing: Pacing, answer: object
) -> None:
    aws.answers = [answered(answer)]
    with pytest.raises(FunctionFault, match="expected a JSON object"):
        sweep(session, pacing=pacing)
