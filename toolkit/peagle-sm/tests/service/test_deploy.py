"""What a deploy does when the name is free, taken, or half made already."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import (
    BillableLeft,
    Declined,
    EndpointFailed,
    Interrupted,
    PeagleError,
    PlanRefused,
)
from peagle_sm.core.planning import Plan
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.service import Event, Pacing, delete, deploy, plan_for
from peagle_sm.service.lifecycle.existing import Survey
from tests.local.serving import Server
from tests.service.account import Account, WatchedBoto3, arn_of
from tests.service.aws_errors import broken, denied, lost, throttled
from tests.service.setting import make_spec

SCHEDULE = "peagle-demo-lifetime"
TYPE = "ml.g7e.2xlarge"
BROKEN = {"SCRIPT_EXIT_LINE": "ValueError: no such head"}


def test_the_limit_is_armed_first_and_progress_reports_phase_time_status_and_spend(
    aws: Account, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    events: list[Event] = []
    deploy(spec, session=session, pacing=pacing, progress=events.append)
    phases = [event.phase for event in events if event.phase != "waiting"]
    assert phases == ["check", "lifetime", "model", "config", "config", "endpoint", "verify", "ready"]
    created = [call.removeprefix("Create") for call in aws.calls if call.startswith("Create")]
    assert created == ["Schedule", "Model", "EndpointConfig", "LogGroup", "Endpoint"]
    assert [event.status for event in events if event.phase == "waiting"] == ["Creating"] * 4
    last = events[-1]
    assert last.elapsed_s == 60
    assert last.spent_usd == pytest.approx(4.2 / 60)


_GROUP = "/aws/sagemaker/Endpoints/demo"


def test_the_log_group_is_created_before_the_endpoint_since_its_role_may_not(
    aws: Account, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    events: list[Event] = []
    deploy(spec, session=session, pacing=pacing, progress=events.append)
    logs = aws.server.client("logs")
    (group,) = logs.describe_log_groups(logGroupNamePrefix=_GROUP)["logGroups"]
    assert (group["logGroupName"], group["retentionInDays"]) == (_GROUP, 30)
    assert aws.calls.index("PutRetentionPolicy") < aws.calls.index("CreateEndpoint")
    lines = [event.message for event in events if event.resource == f"log-group/{_GROUP}"]
    assert lines == [f"log group {_GROUP} created; it keeps logs for 30 days"]
    delete(["demo"], session=session, pacing=pacing)
    aws.calls.clear()
    deploy(spec, session=session, pacing=pacing)
    assert "CreateLogGroup" in aws.calls
    assert "PutRetentionPolicy" not in aws.calls, "the group that is there is used as it is"


@pytest.mark.parametrize("operation", ["CreateLogGroup", "PutRetentionPolicy"])
def test_who_may_not_create_log_groups_deploys_all_the_same_and_is_told(
    aws: Account, session: Session, spec: EndpointSpec, pacing: Pacing, operation: str
) -> None:
    aws.before = lambda called: denied(called) if called == operation else None
    events: list[Event] = []
    deploy(spec, session=session, pacing=pacing, progress=events.append)
    (message,) = [event.message for event in events if "log group" in event.message]
    assert "not created, so log lines may be lost" in message
    assert events[-1].phase == "ready"


def test_the_lifetime_counts_from_the_yes(aws: Account, session: Session, pacing: Pacing) -> None:
    def after_lunch(plan: Plan) -> bool:
        aws.sleep(3600)
        return True

    deploy(make_spec(), session=session, pacing=pacing, confirm=after_lunch)
    assert aws.schedule()["StartDate"] == aws.start + timedelta(hours=9)


def test_an_endpoint_that_never_comes_up_is_not_left_running(
    aws: Account, session: Session, spec: EndpointSpec
) -> None:
    def sleep(seconds: float) -> None:
        aws.seconds += seconds  # SageMaker's own limit would end it on the server, so its time stands still
        if aws.seconds > 3 * 3600:
            aws.settle("demo")

    patient = replace(aws.pacing(poll_s=60.0), sleep=sleep, delete_timeout_s=4 * 3600)
    with pytest.raises(EndpointFailed, match="not InService after 150 minutes"):
        deploy(spec, session=session, pacing=patient)
    assert not aws.everything()


def test_a_silent_rollback_is_seen(
    aws: Account, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    """SageMaker says InService, with the config of before."""

    def swap(operation: str) -> dict[str, Any] | None:
        endpoint = aws.endpoint() if operation == "DescribeEndpoint" else None
        return {**endpoint, "EndpointConfigName": "demo-before"} if endpoint else None

    aws.before = swap
    with pytest.raises(EndpointFailed, match="runs config demo-before, not demo-"):
        deploy(spec, session=session, pacing=pacing)
    assert not aws.names("endpoint")


def test_a_foreign_endpoint_is_never_touched(
    aws: Account, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    deploy(spec, session=session, pacing=pacing)
    marks = list(aws.tags("endpoint", "demo"))
    aws.sagemaker.delete_tags(ResourceArn=arn_of("endpoint", "demo"), TagKeys=marks)
    before = aws.everything()
    with pytest.raises(PlanRefused, match="was not created by peagle-sm"):
        deploy(spec, session=session, pacing=pacing)
    assert aws.everything() == before


def test_a_name_that_is_snatched_meanwhile_is_left_alone_and_not_scheduled_for_deletion(
    aws: Account, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    def snatch(operation: str) -> None:
        if operation == "CreateEndpointConfig":
            (config,) = aws.names("endpoint-config")
            aws.sagemaker.create_endpoint(EndpointName="demo", EndpointConfigName=config)

    aws.after = snatch
    with pytest.raises(PlanRefused, match="belongs to another spec"):
        deploy(spec, session=session, pacing=pacing)
    assert aws.everything() == ["endpoint/demo"]


def test_another_spec_under_the_same_name_is_refused(
    aws: Account, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    deploy(spec, session=session, pacing=pacing)
    other = make_spec(speculation={"mode": "p-eagle", "num_speculative_tokens": 5, "draft_head": "mine"})
    with pytest.raises(PlanRefused, match="another spec") as caught:
        deploy(other, session=session, pacing=pacing)
    assert "peagle-sm delete demo --region us-east-1" in (caught.value.next_step or "")
    assert len(aws.everything()) == 4


def test_a_lost_lifetime_limit_is_armed_again(
    aws: Account, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    deploy(spec, session=session, pacing=pacing)
    aws.remove_schedules()
    deploy(spec, session=session, pacing=pacing)
    assert aws.schedules() == [SCHEDULE]


def test_an_old_limit_never_meets_a_new_endpoint(
    aws: Account, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    deploy(spec, session=session, pacing=pacing)
    aws.remove_endpoint()
    aws.sleep(7 * 3600)
    deploy(spec, session=session, pacing=pacing)
    assert aws.schedule()["StartDate"] > aws.start + timedelta(hours=14)


def test_what_a_stack_of_that_name_left_behind_never_meets_a_new_endpoint(
    aws: Account, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    """The stack is gone; its endpoint was deleted by hand, so its schedules are still armed."""
    left = {
        "": ("arn:aws:lambda:us-east-1:123456789012:function:peagle-guard-switch", {"stack": "Peagle-demo"}),
        "-hard": ("arn:aws:scheduler:::aws-sdk:sagemaker:deleteEndpoint", {"EndpointName": "demo"}),
        "-hard-1": ("arn:aws:scheduler:::aws-sdk:sagemaker:deleteInferenceComponent", {}),
    }
    for suffix, (arn, event) in left.items():
        aws.put_schedule(SCHEDULE + suffix, arn, event)
    deploy(spec, session=session, pacing=pacing)
    assert aws.schedules() == [SCHEDULE]
    assert json.loads(aws.schedule()["Target"]["Input"]) == {"EndpointName": "demo"}


def test_each_attempt_for_capacity_has_its_lifetime_limit(
    aws: Account, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    """Between two attempts the guard sees the endpoint gone, and removes the limit of the first."""

    def meanwhile(seconds: float) -> None:
        if aws.calls.count("CreateEndpoint") == 1 and aws.status() is None:
            aws.remove_schedules()
            aws.instances(TYPE, None)
        aws.sleep(seconds)

    aws.instances(TYPE, 0)
    deploy(spec, session=session, pacing=replace(pacing, sleep=meanwhile))
    assert aws.calls.count("CreateEndpoint") == 2
    assert aws.schedules() == [SCHEDULE]


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), denied("x")], ids=["Ctrl-C", "denied"])
@pytest.mark.parametrize("number", range(0, 7, 2))
def test_an_endpoint_in_service_survives_a_deploy_that_is_stopped(
    aws: Account, session: Session, spec: EndpointSpec, pacing: Pacing, fault: BaseException, number: int
) -> None:
    deploy(spec, session=session, pacing=pacing)
    aws.calls.clear()
    calls = count()

    def stop(operation: str) -> BaseException | None:
        if operation == "GetProducts":  # a price only decorates
            return None
        return fault if next(calls) == number else None

    aws.before = stop
    with pytest.raises(PeagleError):
        deploy(spec, session=aws.session(), pacing=pacing)
    aws.before = lambda operation: None
    assert len(aws.everything()) == 4
    assert aws.status() == "InService"


def test_a_broken_progress_callback_cleans_up(
    aws: Account, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    def broken_pipe(event: Event) -> None:
        if event.phase in ("waiting", "cleanup"):
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        deploy(spec, session=session, pacing=pacing, progress=broken_pipe)
    assert not aws.everything()


@pytest.mark.parametrize("after_s", [1, 10, 40, 100])
def test_a_creation_that_lands_after_ctrl_c_is_caught(
    aws: Account, session: Session, spec: EndpointSpec, pacing: Pacing, after_s: float
) -> None:
    plan = plan_for(spec, session)
    create = plan.parameters("create_endpoint")

    def cut(operation: str) -> BaseException | None:
        if operation != "CreateEndpoint" or aws.late:
            return None
        # Under way when the key was pressed; SageMaker carries it out later, if the config is still there.
        aws.late.append((aws.seconds + after_s, lambda: aws.sagemaker.create_endpoint(**create)))
        aws.before = lambda operation: None
        return KeyboardInterrupt()

    aws.before = cut
    with pytest.raises(Interrupted):
        deploy(spec, session=session, pacing=pacing)
    aws.sleep(200)
    assert not aws.everything()


def test_a_deploy_of_what_is_in_service_asks_nothing_and_says_that_nothing_was_created(
    aws: Account, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    deploy(spec, session=session, pacing=pacing)
    requests: list[Plan] = []
    states: list[str] = []
    lines: list[Event] = []

    def confirm(plan: Plan) -> bool:
        requests.append(plan)
        return True

    def again(spec: EndpointSpec) -> None:
        deploy(
            spec,
            session=session,
            pacing=pacing,
            confirm=confirm,
            surveyed=lambda existing: states.append(existing.state),
            progress=lines.append,
        )

    again(spec)
    assert (requests, states) == ([], ["live"])
    assert lines[-1].message == "endpoint demo is already in service with this spec: nothing was created"
    again(make_spec(lifecycle={"max_lifetime_hours": 8, "idle_minutes": 20}))
    assert lines[-1].message.endswith(
        ". The spec has other tags (peagle-sm:idle-minutes): "
        "`peagle-sm update SPEC --region us-east-1` writes them"
    )
    aws.remove_schedules()
    again(spec)
    assert len(requests) == 1


def test_what_served_and_is_gone_before_the_call_is_asked_about(
    aws: Account, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    """A slow preflight: the plan is made again, and the endpoint is gone."""
    deploy(spec, session=session, pacing=pacing)

    def slow(plan: Plan) -> None:
        aws.sleep(120)

    def gone(existing: Survey) -> None:
        assert existing.state == "live"
        aws.remove_endpoint()

    with pytest.raises(Declined):
        deploy(
            spec, session=session, pacing=pacing, confirm=lambda plan: False, preflight=slow, surveyed=gone
        )
    assert aws.status() is None


SOME_FAULTS = {"lost": lost, "denied": denied, "broken": broken, "throttled": throttled}


@settings(max_examples=settings().max_examples // 2, suppress_health_check=list(HealthCheck))
@given(
    faults=st.dictionaries(
        st.integers(0, 40), st.tuples(st.sampled_from([*SOME_FAULTS, "ctrl-c"]), st.booleans()), max_size=6
    ),
    fails=st.booleans(),
)
def test_whatever_goes_wrong_together_nothing_billable_stays_unnamed(
    server: Server, boto3: WatchedBoto3, faults: dict[int, tuple[str, bool]], fails: bool
) -> None:
    aws = Account(server, boto3)

    def strike(late: bool) -> Callable[[str], BaseException | None]:
        def fault(operation: str) -> BaseException | None:
            kind, when = faults.get(len(aws.calls) - 1, ("", late))
            # AWS never does what it denies.
            if not kind or (when and kind != "denied") != late:
                return None
            return KeyboardInterrupt() if kind == "ctrl-c" else SOME_FAULTS[kind](operation)

        return fault

    aws.before, aws.after = strike(False), strike(True)
    error = None
    try:
        deploy(make_spec(env=BROKEN if fails else None), session=aws.session(), pacing=aws.pacing())
    except PeagleError as raised:
        error = raised
    status, schedules = aws.status(), aws.schedules()
    aws.clear()
    if error is None:
        assert status == "InService"
    elif isinstance(error, BillableLeft):
        assert "peagle-sm delete demo" in (error.next_step or "")
    else:
        assert status is None
    assert status is None or schedules == [SCHEDULE]
