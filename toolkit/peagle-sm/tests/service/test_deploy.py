"""What a deploy does when the name is free, taken, or half made already."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from itertools import count

import pytest
from hypothesis import given
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
from peagle_sm.service import Event, Pacing, deploy, plan_for
from tests.service.fakes import START, FakeAws, broken, denied, lost, throttled
from tests.service.setting import make_spec, pacing_of, session_of

SCHEDULE = "peagle-demo-lifetime"


def test_the_lifetime_limit_is_armed_before_anything_that_costs(
    aws: FakeAws, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    endpoint = deploy(spec, session=session, pacing=pacing)
    assert endpoint.name == "demo"
    created = [call for call in aws.calls if call.startswith("Create")]
    assert created == [
        "CreateSchedule",
        "CreateModel",
        "CreateEndpointConfig",
        "CreateLogGroup",
        "CreateEndpoint",
    ]
    assert aws.schedules[SCHEDULE]["StartDate"] == START + timedelta(hours=8)


def test_progress_tells_phase_time_status_and_spend(
    session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    events: list[Event] = []
    deploy(spec, session=session, pacing=pacing, progress=events.append)
    phases = [event.phase for event in events if event.phase != "waiting"]
    assert phases == ["check", "lifetime", "model", "config", "config", "endpoint", "verify", "ready"]
    assert [event.status for event in events if event.phase == "waiting"] == ["Creating"] * 4
    last = events[-1]
    assert last.elapsed_s == 60
    assert last.spent_usd == pytest.approx(4.2 / 60)


_GROUP = "/aws/sagemaker/Endpoints/demo"


def test_the_log_group_is_created_before_the_endpoint_since_its_role_may_not(
    aws: FakeAws, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    events: list[Event] = []
    deploy(spec, session=session, pacing=pacing, progress=events.append)
    assert aws.log_groups == {_GROUP}
    assert aws.calls.index("PutRetentionPolicy") < aws.calls.index("CreateEndpoint")
    lines = [event.message for event in events if event.resource == f"log-group/{_GROUP}"]
    assert lines == [f"log group {_GROUP} created; it keeps logs for 30 days"]


def test_a_log_group_that_is_there_is_used_as_it_is(
    aws: FakeAws, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    aws.log_groups.add(_GROUP)
    deploy(spec, session=session, pacing=pacing)
    assert "CreateLogGroup" in aws.calls
    assert "PutRetentionPolicy" not in aws.calls


@pytest.mark.parametrize("operation", ["CreateLogGroup", "PutRetentionPolicy"])
def test_who_may_not_create_log_groups_deploys_all_the_same_and_is_told(
    aws: FakeAws, session: Session, spec: EndpointSpec, pacing: Pacing, operation: str
) -> None:
    aws.before = lambda _, number, called: denied(called) if called == operation else None
    events: list[Event] = []
    deploy(spec, session=session, pacing=pacing, progress=events.append)
    (message,) = [event.message for event in events if "log group" in event.message]
    assert "not created, so log lines may be lost" in message
    assert events[-1].phase == "ready"


def test_the_plan_is_shown_and_a_no_creates_nothing(
    aws: FakeAws, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    shown: list[Plan] = []

    def no(plan: Plan) -> bool:
        shown.append(plan)
        return False

    with pytest.raises(Declined) as caught:
        deploy(spec, session=session, pacing=pacing, confirm=no)
    assert caught.value.exit_code == 3
    assert shown[0].usd_per_hour == 4.2
    assert not aws.everything()


def test_the_lifetime_counts_from_the_yes(aws: FakeAws, session: Session, pacing: Pacing) -> None:
    def after_lunch(plan: Plan) -> bool:
        aws.clock.sleep(3600)
        return True

    deploy(make_spec(), session=session, pacing=pacing, confirm=after_lunch)
    assert aws.schedules[SCHEDULE]["StartDate"] == START + timedelta(hours=9)


def test_a_refused_plan_creates_nothing(aws: FakeAws, session: Session, pacing: Pacing) -> None:
    spec = make_spec(placement={"instance_types": ["ml.nonsense.large"]})
    with pytest.raises(PlanRefused) as caught:
        deploy(spec, session=session, pacing=pacing)
    assert "ml.nonsense.large" in caught.value.message
    assert caught.value.next_step
    assert any(one["severity"] == "error" for one in caught.value.details["findings"])
    assert not aws.everything()


def test_a_failed_endpoint_is_explained_and_cleaned_up(
    aws: FakeAws, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    aws.outcome, aws.reason = "Failed", "The primary container did not pass the ping health check."
    aws.log_lines = ["ValueError: head does not match"]
    with pytest.raises(EndpointFailed) as caught:
        deploy(spec, session=session, pacing=pacing)
    assert caught.value.details["failure_reason"] == aws.reason
    assert caught.value.details["log_tail"] == aws.log_lines
    assert caught.value.next_step
    assert not aws.everything()


def test_an_endpoint_that_never_comes_up_is_not_left_running(
    aws: FakeAws, session: Session, spec: EndpointSpec
) -> None:
    aws.create_s = 3 * 3600
    patient = Pacing(aws.clock.now, aws.clock.monotonic, aws.clock.sleep, 60.0, 4 * 3600)
    with pytest.raises(EndpointFailed, match="not InService after 150 minutes"):
        deploy(spec, session=session, pacing=patient)
    assert not aws.everything()


def test_a_silent_rollback_is_seen(
    aws: FakeAws, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    def swap(_: FakeAws, number: int, operation: str) -> None:
        if operation == "CreateEndpoint":
            aws.endpoints["demo"].config = "demo-before"

    aws.after = swap
    with pytest.raises(EndpointFailed, match="runs config demo-before, not demo-"):
        deploy(spec, session=session, pacing=pacing)
    assert not aws.everything()


def test_wait_false_returns_while_creating(
    aws: FakeAws, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    deploy(spec, session=session, pacing=pacing, wait=False)
    assert aws.status(aws.endpoints["demo"]) == "Creating"


def test_a_foreign_endpoint_is_never_touched(
    aws: FakeAws, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    deploy(spec, session=session, pacing=pacing)
    aws.endpoints["demo"].tags = {"team": "other"}
    before = aws.everything()
    with pytest.raises(PlanRefused, match="was not created by peagle-sm"):
        deploy(spec, session=session, pacing=pacing)
    assert aws.everything() == before


def test_a_name_that_is_snatched_meanwhile_is_left_alone_and_not_scheduled_for_deletion(
    aws: FakeAws, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    def snatch(_: FakeAws, number: int, operation: str) -> None:
        if operation == "CreateEndpointConfig":
            name = next(iter(aws.configs))
            aws.client("sagemaker").create_endpoint(EndpointName="demo", EndpointConfigName=name)

    aws.after = snatch
    with pytest.raises(PlanRefused, match="belongs to another spec"):
        deploy(spec, session=session, pacing=pacing)
    assert aws.everything() == ["endpoint/demo"]


def test_another_spec_under_the_same_name_is_refused(
    aws: FakeAws, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    deploy(spec, session=session, pacing=pacing)
    other = make_spec(speculation={"mode": "p-eagle", "num_speculative_tokens": 5, "draft_head": "mine"})
    with pytest.raises(PlanRefused, match="another spec") as caught:
        deploy(other, session=session, pacing=pacing)
    assert "peagle-sm delete demo --region us-east-1" in (caught.value.next_step or "")
    assert len(aws.everything()) == 4


def test_a_lost_lifetime_limit_is_armed_again(
    aws: FakeAws, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    deploy(spec, session=session, pacing=pacing)
    aws.schedules.clear()
    deploy(spec, session=session, pacing=pacing)
    assert SCHEDULE in aws.schedules


def test_an_old_limit_never_meets_a_new_endpoint(
    aws: FakeAws, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    deploy(spec, session=session, pacing=pacing)
    aws.endpoints.clear()
    aws.clock.sleep(7 * 3600)
    deploy(spec, session=session, pacing=pacing)
    assert aws.schedules[SCHEDULE]["StartDate"] > START + timedelta(hours=14)


def test_what_a_stack_of_that_name_left_behind_never_meets_a_new_endpoint(
    aws: FakeAws, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    """The stack is gone; its endpoint was deleted by hand, so its schedules are still armed."""
    scheduler = aws.client("scheduler")
    left = {
        "": ("arn:aws:lambda:us-east-1:1:function:peagle-guard-switch", {"stack": "Peagle-demo"}),
        "-hard": ("arn:aws:scheduler:::aws-sdk:sagemaker:deleteEndpoint", {"EndpointName": "demo"}),
        "-hard-1": ("arn:aws:scheduler:::aws-sdk:sagemaker:deleteInferenceComponent", {}),
        "-hard-2": ("arn:aws:scheduler:::aws-sdk:sagemaker:deleteInferenceComponent", {}),
    }
    for suffix, (arn, event) in left.items():
        target = {"Arn": arn, "RoleArn": "role", "Input": json.dumps(event)}
        scheduler.create_schedule(Name=SCHEDULE + suffix, StartDate=START, Target=target)
    deploy(spec, session=session, pacing=pacing)
    assert list(aws.schedules) == [SCHEDULE]
    assert json.loads(aws.schedules[SCHEDULE]["Target"]["Input"]) == {"EndpointName": "demo"}


def test_each_attempt_for_capacity_has_its_lifetime_limit(
    aws: FakeAws, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    """Between two attempts the guard sees the endpoint gone, and removes the limit of the first."""

    def meanwhile(seconds: float) -> None:
        if aws.calls.count("CreateEndpoint") == 1 and not aws.endpoints:
            aws.schedules.clear()
            aws.outcome, aws.reason = "InService", None
        aws.clock.sleep(seconds)

    aws.outcome, aws.reason = "Failed", "InsufficientInstanceCapacity: no instances"
    deploy(spec, session=session, pacing=replace(pacing, sleep=meanwhile))
    assert aws.calls.count("CreateEndpoint") == 2
    assert list(aws.schedules) == [SCHEDULE]


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), denied("x")], ids=["Ctrl-C", "denied"])
@pytest.mark.parametrize("number", range(7))
def test_an_endpoint_in_service_survives_a_deploy_that_is_stopped(
    aws: FakeAws, session: Session, spec: EndpointSpec, pacing: Pacing, fault: BaseException, number: int
) -> None:
    deploy(spec, session=session, pacing=pacing)
    aws.calls.clear()
    calls = count()

    def stop(_: FakeAws, call: int, operation: str) -> BaseException | None:
        if operation == "GetProducts":  # a price only decorates
            return None
        return fault if next(calls) == number else None

    aws.before = stop
    with pytest.raises(PeagleError):
        deploy(spec, session=session_of(aws), pacing=pacing)
    assert len(aws.everything()) == 4
    assert aws.status(aws.endpoints["demo"]) == "InService"


def test_a_broken_progress_callback_cleans_up(
    aws: FakeAws, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    def broken_pipe(event: Event) -> None:
        if event.phase in ("waiting", "cleanup"):
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        deploy(spec, session=session, pacing=pacing, progress=broken_pipe)
    assert not aws.everything()


@pytest.mark.parametrize("after_s", [1, 10, 40, 100])
def test_a_creation_that_lands_after_ctrl_c_is_caught(
    aws: FakeAws, session: Session, spec: EndpointSpec, pacing: Pacing, after_s: float
) -> None:
    def cut(_: FakeAws, number: int, operation: str) -> BaseException | None:
        if operation != "CreateEndpoint" or aws.late:
            return None
        plan = plan_for(spec, session)
        parameters = plan.requests[-1].parameters
        # Under way when the key was pressed; SageMaker carries it out later, if the config is still there.
        create = aws.client("sagemaker").create_endpoint
        aws.late.append((aws.clock.seconds + after_s, lambda: create(**parameters)))
        aws.before = lambda _, call, operation: None
        return KeyboardInterrupt()

    aws.before = cut
    with pytest.raises(Interrupted):
        deploy(spec, session=session, pacing=pacing)
    aws.clock.sleep(200)
    assert not aws.everything()
    assert not aws.unguarded


SOME_FAULTS = {"lost": lost, "denied": denied, "broken": broken, "throttled": throttled}


@given(
    faults=st.dictionaries(
        st.integers(0, 40), st.tuples(st.sampled_from([*SOME_FAULTS, "ctrl-c"]), st.booleans()), max_size=6
    ),
    outcome=st.sampled_from(["InService", "Failed"]),
)
def test_whatever_goes_wrong_together_nothing_billable_stays_unnamed(
    faults: dict[int, tuple[str, bool]], outcome: str
) -> None:
    aws = FakeAws()
    aws.outcome = outcome

    def strike(late: bool) -> object:
        def fault(_: FakeAws, call: int, operation: str) -> BaseException | None:
            kind, when = faults.get(call, ("", late))
            # AWS never does what it denies.
            if not kind or (when and kind != "denied") != late:
                return None
            return KeyboardInterrupt() if kind == "ctrl-c" else SOME_FAULTS[kind](operation)

        return fault

    aws.before, aws.after = strike(False), strike(True)  # type: ignore[assignment]
    error = None
    try:
        deploy(make_spec(), session=session_of(aws), pacing=pacing_of(aws))
    except PeagleError as raised:
        error = raised
    if error is None:
        assert aws.status(aws.endpoints["demo"]) == "InService"
    elif isinstance(error, BillableLeft):
        assert "peagle-sm delete demo" in (error.next_step or "")
    else:
        assert not aws.endpoints
    guarded = SCHEDULE in aws.schedules
    assert guarded or not aws.endpoints
    assert not aws.unguarded
