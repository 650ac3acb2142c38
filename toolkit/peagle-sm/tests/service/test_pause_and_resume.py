"""Turning an endpoint off and bringing it back: what goes, what stays, in which order, and with faults."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest

from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import (
    BillableLeft,
    EndpointFailed,
    GuardMissing,
    Interrupted,
    NotFound,
    PeagleError,
    PlanRefused,
)
from peagle_sm.core.guard import GUARD_STACK
from peagle_sm.core.resources.lifetime_schedule import LifetimeSchedule
from peagle_sm.core.resources.ordered import resumed
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.service import (
    Event,
    Pacing,
    ResumeOffer,
    delete,
    deploy,
    keep,
    list_endpoints,
    pause,
    plan_for,
    resume,
    status,
)
from tests.service.account import Account
from tests.service.aws_errors import denied, lost
from tests.service.setting import GUARDS_ROLE, ROLE, make_spec

SCHEDULE = "peagle-demo-lifetime"


def _deployed(aws: Account, **changes: Any) -> Session:
    session = aws.session()
    deploy(make_spec(**changes), session=session, pacing=aws.pacing())
    aws.calls.clear()
    return session


def _paused(aws: Account, **changes: Any) -> Session:
    session = _deployed(aws, **changes)
    pause("demo", session=session, pacing=aws.pacing())
    aws.calls.clear()
    return session


def test_pausing_deletes_what_costs_and_keeps_what_brings_it_back(aws: Account, pacing: Pacing) -> None:
    session = _deployed(aws)
    report = pause("demo", session=session, pacing=pacing)
    assert aws.kinds() == ["endpoint-config", "model"]
    assert [one.partition("/")[0] for one in report.kept] == ["endpoint-config", "model"]
    assert (report.was_off, report.stack, report.usd_per_hour) == (False, None, 4.2)
    sent = [call for call in aws.calls if call.startswith(("Delete", "Add", "Update"))]
    assert sent == ["AddTags", "UpdateItem", "DeleteEndpoint", "DeleteSchedule"]
    assert aws.item()["paused"] == {"BOOL": True}
    assert pause("demo", session=session, pacing=pacing).was_off
    assert aws.kinds() == ["endpoint-config", "model"]


def test_list_and_status_show_it_as_paused(aws: Account, pacing: Pacing) -> None:
    session = _paused(aws, hours="Mon-Fri 08:00-19:00 Europe/Berlin")
    (row,) = list_endpoints(session)
    assert (row.name, row.status, row.mode, row.instance_type) == (
        "demo",
        "Paused",
        "p-eagle",
        "ml.g7e.2xlarge",
    )
    assert (row.usd_per_hour, row.spent_usd, row.expires_at) == (4.2, None, None)
    assert (row.off_why, row.hours) == ("by hand", "Mon-Fri 08:00-19:00 Europe/Berlin")
    assert row.off_since is not None
    result = status("demo", session=session)
    assert result.summary == row
    assert result.config_name == result.config_asked
    assert result.warnings == (
        "it is off (by hand): it costs nothing; `peagle-sm resume demo --region us-east-1` turns it on",
    )


def test_resuming_arms_the_limit_anew_and_creates_the_same_endpoint(aws: Account, pacing: Pacing) -> None:
    session = _deployed(aws, tags={"team": "search"})
    before, tags = aws.endpoint(), aws.tags("endpoint", "demo")
    pause("demo", session=session, pacing=pacing)
    aws.sleep(3 * 3600)
    aws.calls.clear()
    at = aws.now()
    events: list[Event] = []
    offer = resume("demo", session=session, pacing=pacing, progress=events.append)
    rows = [call for call in aws.calls if call.startswith("Create")]
    assert rows == ["CreateSchedule", "CreateEndpoint"]
    assert aws.schedule()["StartDate"] == offer.expires_at == at + timedelta(hours=8)
    assert aws.schedule()["Target"]["RoleArn"] == ROLE
    after = aws.endpoint()
    assert before is not None
    assert after is not None
    assert after["EndpointConfigName"] == before["EndpointConfigName"]
    assert (after["EndpointStatus"], aws.tags("endpoint", "demo")) == ("InService", tags)
    phases = [event.phase for event in events if event.phase != "waiting"]
    assert phases == ["lifetime", "endpoint", "verify", "ready"]
    assert events[-1].spent_usd == pytest.approx(4.2 / 60)
    (row,) = list_endpoints(session)
    assert (row.status, row.off_why) == ("InService", None)
    aws.calls.clear()
    assert resume("demo", session=session, pacing=pacing).is_on
    assert not [call for call in aws.calls if call.startswith(("Create", "Update"))]
    assert aws.item()["paused"] == {"BOOL": False}


def test_a_resume_sends_the_requests_that_it_planned(aws: Account, pacing: Pacing) -> None:
    """The same endpoint as that of the deploy: its config, and its tags without those of the pause."""
    session = _deployed(aws)
    parameters = plan_for(make_spec(), session).parameters("create_endpoint")
    tags = {tag["Key"]: tag["Value"] for tag in parameters["Tags"]}
    paused = {**tags, "peagle-sm:paused": "2026-11-24T10:00:00+00:00", "peagle-sm:scheduler-role": ROLE}
    schedule = LifetimeSchedule(SCHEDULE, {"Name": SCHEDULE})
    planned = resumed("demo", parameters["EndpointConfigName"], paused, [schedule])
    assert [one.label for one in planned] == [f"schedule/{SCHEDULE}", "endpoint/demo"]
    assert planned[1].parameters == parameters


def test_the_price_is_shown_before_and_a_no_costs_nothing(aws: Account, pacing: Pacing) -> None:
    session = _paused(aws, lifecycle={"max_lifetime_hours": 4})
    shown: list[ResumeOffer] = []

    def no(offer: ResumeOffer) -> bool:
        shown.append(offer)
        return False

    with pytest.raises(PeagleError, match="Nothing was resumed"):
        resume("demo", session=session, pacing=pacing, confirm=no)
    assert (shown[0].usd_per_hour, shown[0].lifetime_hours, shown[0].max_usd) == (4.2, 4.0, 16.8)
    assert aws.kinds() == ["endpoint-config", "model"]
    resume("demo", session=session, pacing=pacing)
    with pytest.raises(PeagleError, match="Nothing was paused"):
        pause("demo", session=session, pacing=pacing, confirm=lambda row: False)
    assert aws.status() == "InService"


def test_the_most_that_a_resume_can_cost_is_with_all_instances(aws: Account, pacing: Pacing) -> None:
    session = _paused(aws, lifecycle={"max_lifetime_hours": 4})
    config = control.describe_endpoint_config(session, plan_for(make_spec(), session).names.config)
    assert config is not None
    control.add_tags(session, config.arn, {"peagle-sm:instance-bounds": "1-3"})
    offer = resume("demo", session=session, pacing=pacing)
    assert (offer.usd_per_hour, offer.max_usd) == (4.2, 50.4)


def test_deleting_a_paused_endpoint_removes_what_is_left(aws: Account, pacing: Pacing) -> None:
    session = _paused(aws)
    delete(["demo"], session=session, pacing=pacing)
    assert not aws.everything()
    assert aws.item() == {}


def test_deploying_a_paused_endpoints_spec_takes_up_what_is_kept(aws: Account, pacing: Pacing) -> None:
    session = _paused(aws)
    deploy(make_spec(), session=session, pacing=pacing)
    assert len(aws.names("endpoint-config")) == 1
    aws.remove_endpoint()
    assert list_endpoints(session)[0].status == "Orphaned"


def test_an_endpoint_that_the_guard_turned_off_says_why_and_comes_back(aws: Account, pacing: Pacing) -> None:
    session = _deployed(aws)
    (config,) = aws.names("endpoint-config")
    aws.remove_endpoint()
    aws.remove_schedules()
    gone_at = {"S": aws.start.isoformat()}
    aws.note(off_by={"S": "idle"}, gone_at=gone_at, config_name={"S": config})
    (row,) = list_endpoints(session)
    assert (row.status, row.off_why, row.off_since) == ("Paused", "idle", aws.start)
    resume("demo", session=session, pacing=pacing)
    assert aws.schedule()["Target"]["RoleArn"] == GUARDS_ROLE
    assert aws.status() == "InService"


def test_without_a_guard_a_resume_wants_that_spelled_out(aws: Account, pacing: Pacing) -> None:
    session = _paused(aws)
    with aws.no_guard():
        with pytest.raises(GuardMissing, match="Nothing was created"):
            resume("demo", session=session, pacing=pacing)
        assert not [call for call in aws.calls if call.startswith(("Create", "Update"))]
        resume("demo", session=session, pacing=pacing, unguarded=True)
    assert aws.status() == "InService"
    assert aws.schedules() == [SCHEDULE]


def test_a_limit_whose_role_went_with_the_guard_is_not_armed_again(aws: Account, pacing: Pacing) -> None:
    session = _paused(aws, scheduler_role_arn=GUARDS_ROLE)
    with aws.no_guard():
        with pytest.raises(PlanRefused, match="needs the guard's role") as caught:
            resume("demo", session=session, pacing=pacing, unguarded=True)
        assert "peagle-sm guard install --region us-east-1" in (caught.value.next_step or "")
        assert aws.status() is None
    resume("demo", session=session, pacing=pacing)
    assert aws.schedule()["Target"]["RoleArn"] == GUARDS_ROLE


@pytest.mark.parametrize("stack_status", [None, "DELETE_IN_PROGRESS", "ROLLBACK_COMPLETE"])
def test_without_the_guards_role_no_end_is_promised(
    aws: Account, pacing: Pacing, stack_status: str | None
) -> None:
    session = _deployed(aws, scheduler_role_arn=GUARDS_ROLE)
    assert list_endpoints(session)[0].expires_at == status("demo", session=session).summary.expires_at
    assert keep("demo", timedelta(hours=1), session=session, pacing=pacing).limit_acts
    if stack_status is not None:
        aws.stacks[GUARD_STACK] = stack_status
    with aws.no_guard() if stack_status is None else nullcontext():
        result = status("demo", session=session)
        assert (result.summary.expires_at, list_endpoints(session)[0].expires_at) == (None, None)
        warnings = " ".join(result.warnings)
        assert "nothing deletes the endpoint automatically; `peagle-sm guard install" in warnings
        assert not keep("demo", timedelta(hours=2), session=session, pacing=pacing).limit_acts
        with pytest.raises(PlanRefused, match="cannot be extended") as caught:
            keep("demo", timedelta(days=30), session=session, pacing=pacing)
        assert "peagle-sm guard install --region us-east-1" in (caught.value.next_step or "")
        assert "UpdateSchedule" not in aws.calls


def test_who_may_not_see_the_guards_stack_is_not_alarmed(aws: Account) -> None:
    session = _deployed(aws, scheduler_role_arn=GUARDS_ROLE)
    aws.before = lambda operation: denied(operation) if operation == "DescribeStacks" else None
    result = status("demo", session=session)
    assert result.summary.expires_at is not None
    assert not result.warnings


def test_a_resume_that_fails_leaves_it_paused(aws: Account, pacing: Pacing) -> None:
    session = _paused(aws)
    ping = "The primary container did not pass the ping health check."

    def fail(operation: str) -> dict[str, Any] | None:
        endpoint = aws.endpoint() if operation == "DescribeEndpoint" else None
        return {**endpoint, "EndpointStatus": "Failed", "FailureReason": ping} if endpoint else None

    def write_log(operation: str) -> None:
        if operation == "CreateEndpoint":
            aws.write_log("ValueError: no memory")

    aws.before, aws.after = fail, write_log
    with pytest.raises(EndpointFailed, match="did not pass the ping") as caught:
        resume("demo", session=session, pacing=pacing)
    assert caught.value.details["log_tail"] == ["ValueError: no memory"]
    assert aws.kinds() == ["endpoint-config", "model"]
    assert list_endpoints(session)[0].status == "Paused"


def test_nothing_foreign_and_nothing_absent_is_paused_or_resumed(aws: Account, session: Session) -> None:
    aws.foreign("theirs")
    for act in (pause, resume):
        with pytest.raises(PlanRefused, match="was not created by peagle-sm"):
            act("theirs", session=session, pacing=aws.pacing())
        with pytest.raises(NotFound, match="'nope' does not exist"):
            act("nope", session=session, pacing=aws.pacing())
    assert aws.everything() == ["endpoint/theirs"]


def test_a_config_without_its_model_is_not_resumed(aws: Account, pacing: Pacing) -> None:
    session = _paused(aws)
    (model,) = aws.names("model")
    aws.sagemaker.delete_model(ModelName=model)
    with pytest.raises(NotFound, match=r"its config demo-[0-9a-f]{8} or its model is missing"):
        resume("demo", session=session, pacing=pacing)


@pytest.mark.parametrize("command", ["deploy", "resume"])
def test_an_unclear_creation_that_nobody_may_look_at_is_named_as_left(aws: Account, command: str) -> None:
    """CreateEndpoint gave no answer but was carried out, and DescribeEndpoint is denied from then on."""
    session = _paused(aws) if command == "resume" else aws.session()
    began = len(aws.calls)
    acts: dict[str, Callable[[], object]] = {
        "deploy": lambda: deploy(make_spec(), session=session, pacing=aws.pacing()),
        "resume": lambda: resume("demo", session=session, pacing=aws.pacing()),
    }

    def created() -> bool:
        return "CreateEndpoint" in aws.calls[began:]

    aws.before = lambda operation: (
        denied(operation) if operation == "DescribeEndpoint" and created() else None
    )
    aws.after = lambda operation: lost(operation) if operation == "CreateEndpoint" else None
    with pytest.raises(BillableLeft) as raised:
        acts[command]()
    undo = "pause" if command == "resume" else "delete"
    assert f"peagle-sm {undo} demo --yes" in (raised.value.next_step or "")
    assert aws.status() is not None
    assert aws.schedules() == [SCHEDULE]


def test_ctrl_c_in_a_resume_leaves_it_off(aws: Account, spec: EndpointSpec, pacing: Pacing) -> None:
    session = _paused(aws)

    def press(event: Event) -> None:
        if event.phase == "waiting":
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="is off again, and can be resumed"):
        resume("demo", session=session, pacing=pacing, progress=press)
    assert aws.kinds() == ["endpoint-config", "model"]


def test_who_may_not_read_a_schedule_pauses_and_is_told_its_name(aws: Account, pacing: Pacing) -> None:
    """The endpoint's cost ends; the next `resume` arms the schedule anew."""
    session = _deployed(aws)
    aws.before = lambda operation: denied(operation) if operation == "GetSchedule" else None
    for _ in range(2):
        with pytest.raises(PeagleError, match="AWS did not confirm that these are gone") as caught:
            pause("demo", session=session, pacing=pacing)
        assert caught.value.exit_code == 1
        command = f"`aws scheduler delete-schedule --name {SCHEDULE} --region us-east-1`"
        assert command in (caught.value.next_step or "")
    assert aws.status() is None
    aws.before = lambda operation: None
    assert resume("demo", session=session, pacing=pacing).config
    assert aws.schedule()["StartDate"] > aws.now()
