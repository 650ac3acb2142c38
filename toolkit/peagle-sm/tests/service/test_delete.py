"""Deletion by names and globs: only resources created by peagle-sm, in order, each checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import BillableLeft, CredentialsError, NotFound, PeagleError, PlanRefused
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.service import (
    Deletable,
    Event,
    Pacing,
    delete,
    deploy,
    leftovers,
    list_endpoints,
    status,
)
from tests.service.account import DELETE_S, Account
from tests.service.aws_errors import client_error, denied, throttled
from tests.service.setting import make_spec


def _deployed(aws: Account, *names: str) -> Session:
    session = aws.session()
    for name in names:
        deploy(make_spec(name), session=session, pacing=aws.pacing())
    return session


def test_everything_goes_in_order_and_is_proven_gone(aws: Account, pacing: Pacing) -> None:
    session = _deployed(aws, "demo")
    report = delete(["demo"], session=session, pacing=pacing)
    assert [one.split("/")[0] for one in report.deleted] == [
        "endpoint",
        "endpoint-config",
        "model",
        "schedule",
    ]
    assert report.leftovers == ()
    assert leftovers(session) == []
    assert not aws.everything()
    sent = [call for call in aws.calls if call.startswith("Delete")]
    assert sent == [
        "DeleteEndpoint",
        "DeleteEndpointConfig",
        "DeleteModel",
        "DeleteSchedule",
        "DeleteAlarms",
        "DeleteItem",
    ]


ALARMS = {"peagle-demo-update", "peagle-demo-acceptance"}


def _put_alarms(aws: Account, *names: str) -> None:
    for name in names:
        aws.server.client("cloudwatch").put_metric_alarm(
            AlarmName=name,
            MetricName="Invocations",
            Namespace="AWS/SageMaker",
            Statistic="Sum",
            Period=60,
            EvaluationPeriods=1,
            Threshold=1,
            ComparisonOperator="LessThanThreshold",
        )


def _alarms(aws: Account) -> set[str]:
    rows = aws.server.client("cloudwatch").describe_alarms()["MetricAlarms"]
    return {row["AlarmName"] for row in rows}


def test_the_alarms_of_a_killed_update_go_with_the_endpoint_and_after_it(
    aws: Account, pacing: Pacing
) -> None:
    session = _deployed(aws, "demo")
    _put_alarms(aws, *ALARMS, "peagle-demo-2-update", "billing")
    delete(["demo"], session=session, pacing=pacing)
    assert _alarms(aws) == {"peagle-demo-2-update", "billing"}
    _put_alarms(aws, *ALARMS)  # of a deletion that was killed near its end
    with pytest.raises(NotFound):
        delete(["demo"], session=session, pacing=pacing)
    assert not ALARMS & _alarms(aws)


GROUP = "/aws/sagemaker/Endpoints/demo"


def _groups(aws: Account) -> set[str]:
    rows = aws.server.client("logs").describe_log_groups(logGroupNamePrefix=GROUP)["logGroups"]
    return {row["logGroupName"] for row in rows}


def test_the_log_group_stays_and_the_command_that_deletes_it_is_shown(aws: Account, pacing: Pacing) -> None:
    session = _deployed(aws, "demo", "demo-2")
    assert delete(["demo"], session=session, pacing=pacing).logs_kept == (GROUP,)
    assert _groups(aws) == {GROUP, f"{GROUP}-2"}
    with pytest.raises(NotFound, match=f"only the log group {GROUP} of 'demo' is left") as caught:
        delete(["demo"], session=session, pacing=pacing)
    command = f"`aws logs delete-log-group --log-group-name {GROUP} --region us-east-1`"
    assert command in (caught.value.next_step or "")


def test_who_may_not_look_for_the_log_group_deletes_all_the_same(aws: Account, pacing: Pacing) -> None:
    session = _deployed(aws, "demo")
    aws.before = lambda operation: denied(operation) if "LogGroup" in operation else None
    assert delete(["demo"], session=session, pacing=pacing).logs_kept == ()
    assert not aws.everything()


def test_a_foreign_endpoint_is_refused_with_its_logs_and_alarms_and_no_glob_takes_it(
    aws: Account, pacing: Pacing
) -> None:
    session = _deployed(aws, "demo-mine")
    aws.foreign("demo")
    aws.server.client("logs").create_log_group(logGroupName=GROUP)
    _put_alarms(aws, *ALARMS)
    with pytest.raises(PlanRefused, match="was not created by peagle-sm"):
        delete(["demo"], session=session, pacing=pacing)
    delete(["demo*"], session=session, pacing=pacing)
    assert aws.everything() == ["endpoint/demo"]
    assert GROUP in _groups(aws)
    assert _alarms(aws) == ALARMS


def test_globs_take_what_matches_and_the_question_shows_it(aws: Account, pacing: Pacing) -> None:
    session = _deployed(aws, "demo-a", "demo-b", "other")
    shown: list[Deletable] = []

    def yes(rows: Sequence[Deletable]) -> bool:
        shown.extend(rows)
        return True

    report = delete(["demo-*", "demo-a"], session=session, pacing=pacing, confirm=yes)
    assert report.names == ("demo-a", "demo-b")
    assert [(row.name, row.status, len(row.resources)) for row in shown] == [
        ("demo-a", "InService", 4),
        ("demo-b", "InService", 4),
    ]
    assert [one.name for one in list_endpoints(session)] == ["other"]


def test_what_a_killed_run_left_without_an_endpoint_is_listed_and_goes(aws: Account, pacing: Pacing) -> None:
    session = _deployed(aws, "demo")
    aws.remove_endpoint()
    row = list_endpoints(session)[0]
    assert (row.name, row.status, len(row.resources)) == ("demo", "Orphaned", 3)
    with pytest.raises(NotFound, match="remaining resources: endpoint-config/demo-"):
        status("demo", session=session)
    delete(["demo"], session=session, pacing=pacing)
    assert not aws.everything()


def test_a_deletion_that_answers_200_and_does_nothing_is_repeated(aws: Account, pacing: Pacing) -> None:
    session = _deployed(aws, "demo")
    ignored: list[dict[str, Any]] = [{}, {}]
    aws.before = lambda operation: ignored.pop() if operation == "DeleteEndpoint" and ignored else None
    delete(["demo"], session=session, pacing=pacing)
    assert not aws.everything()


def test_a_deletion_that_is_answered_with_not_found_for_ever_ends_at_the_deadline(aws: Account) -> None:
    session = _deployed(aws, "demo")
    pacing = aws.pacing()
    began, before = aws.seconds, len(aws.calls)

    def fault(operation: str) -> BaseException | None:
        if operation != "DeleteEndpoint":
            return None
        assert aws.calls[before:].count("DeleteEndpoint") <= 100, "no pause between the calls"
        return client_error(operation, "ValidationException", 'Could not find endpoint "demo".')

    aws.before = fault
    with pytest.raises(BillableLeft, match="Endpoint demo may still be running and billed"):
        delete(["demo"], session=session, pacing=pacing)
    assert aws.calls[before:].count("DeleteEndpoint") <= pacing.delete_timeout_s / pacing.poll_s + 1
    assert pacing.delete_timeout_s <= aws.seconds - began <= pacing.delete_timeout_s + pacing.poll_s
    assert "schedule/peagle-demo-lifetime" in aws.everything()


def test_an_endpoint_that_will_not_go_is_named_with_the_command_and_keeps_its_limit(
    aws: Account, pacing: Pacing
) -> None:
    session = _deployed(aws, "demo", "easy")
    aws.held["demo"] = 1e9
    with pytest.raises(BillableLeft) as caught:
        delete(["demo", "easy"], session=session, pacing=pacing)
    assert caught.value.details["resources"] == ["endpoint/demo"]
    assert caught.value.next_step == "peagle-sm delete demo --yes --region us-east-1"
    assert "schedule/peagle-demo-lifetime" in aws.everything()
    assert not any("easy" in one for one in aws.everything())


def test_a_name_reused_by_somebody_else_while_waiting_is_not_deleted(aws: Account, pacing: Pacing) -> None:
    session = _deployed(aws, "demo")

    def reuse(operation: str) -> None:
        if operation == "DeleteEndpoint":
            aws.settle("demo")
            aws.foreign("demo")

    aws.after = reuse
    delete(["demo"], session=session, pacing=pacing)
    assert aws.everything() == ["endpoint/demo"]


def test_leaving_the_with_block_deletes_even_after_an_error(
    aws: Account, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    with pytest.raises(ZeroDivisionError), deploy(spec, session=session, pacing=pacing):
        raise ZeroDivisionError
    assert not aws.everything()
    with deploy(spec, session=session, pacing=pacing) as endpoint:
        endpoint.delete()
    assert not aws.everything()


@pytest.mark.parametrize(
    ("operation", "fault"),
    [
        ("ListModels", throttled),
        ("ListEndpointConfigs", throttled),
        ("DeleteItem", throttled),
        ("DeleteAlarms", denied),
    ],
)
def test_what_only_finds_or_tidies_up_blocks_no_deletion(
    aws: Account, pacing: Pacing, operation: str, fault: Callable[[str], BaseException]
) -> None:
    session = _deployed(aws, "demo-a", "demo-b", "demo-a-2")
    aws.before = lambda called: fault(called) if called == operation else None
    report = delete(["demo-a", "demo-b"], session=session, pacing=pacing)
    assert (report.names, report.leftovers) == (("demo-a", "demo-b"), ())
    assert len(aws.everything()) == 4, "a name is not taken for a longer one"


def test_deleting_an_endpoint_that_is_creating_says_why_it_waits_and_not_after(
    aws: Account, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    deploy(spec, session=session, pacing=pacing, wait=False)
    waiting = "waiting for endpoint demo to be deleted"
    events: list[Event] = []
    delete(["demo"], session=session, pacing=pacing, progress=events.append)
    assert aws.calls.count("DeleteEndpoint") > 1
    assert not aws.everything()
    by_name = {event.status: event.message for event in events if "to be deleted" in event.message}
    assert by_name == {
        "Creating": f"{waiting}: SageMaker does not delete it while it is Creating",
        "InService": waiting,
        "Deleting": waiting,
    }


def test_who_may_not_read_a_schedule_ends_the_cost_and_is_told_its_name(aws: Account, pacing: Pacing) -> None:
    session = _deployed(aws, "demo")
    aws.before = lambda operation: denied(operation) if operation == "GetSchedule" else None
    with pytest.raises(PeagleError, match=r"not confirmed.*: schedule/peagle-demo-lifetime \(") as caught:
        delete(["demo"], session=session, pacing=pacing)
    assert not isinstance(caught.value, BillableLeft | CredentialsError)
    assert aws.everything() == ["schedule/peagle-demo-lifetime"]
    assert caught.value.next_step == (
        "If it exists: `aws scheduler delete-schedule --name peagle-demo-lifetime --region us-east-1`."
    )
    # Alone it cannot be told from somebody else's.
    with pytest.raises(CredentialsError, match="GetSchedule"):
        delete(["demo"], session=session, pacing=pacing)


def test_an_endpoint_that_hangs_in_creating_delays_no_other_deletion(aws: Account, pacing: Pacing) -> None:
    session = _deployed(aws, "b", "c")
    deploy(make_spec("a-stuck"), session=session, pacing=pacing, wait=False)
    aws.held["a-stuck"] = aws.seconds + 500
    began, events = aws.seconds, list[Event]()
    report = delete(["a-stuck", "c", "b"], session=session, pacing=pacing, progress=events.append)
    gone = {event.resource: event.elapsed_s for event in events if event.status == "gone"}
    assert gone["endpoint/b"] == gone["endpoint/c"] <= DELETE_S + 15
    assert gone["endpoint/a-stuck"] >= 500
    assert aws.seconds - began < 560, "they were waited for one after the other"
    together = next(
        event.message for event in events if "2 endpoints" in event.message or "3" in event.message
    )
    assert "a-stuck is Creating" in together
    assert "b is" in together
    assert report.names == ("a-stuck", "c", "b")
    assert not aws.everything()


def test_ctrl_c_while_several_are_deleted_leaves_each_of_them_to_its_schedule(
    aws: Account, pacing: Pacing
) -> None:
    session = _deployed(aws, "c")
    (model,) = aws.names("model")
    for name in ("a", "b"):
        deploy(make_spec(name), session=session, pacing=pacing, wait=False)
        aws.held[name] = 5000.0

    def press(event: Event) -> None:
        if event.resource == "model/" + model and event.message.startswith("deleted"):
            raise KeyboardInterrupt

    with pytest.raises(BillableLeft) as caught:
        delete(["a", "b", "c"], session=session, pacing=pacing, progress=press)
    assert caught.value.details["resources"] == ["endpoint/a", "endpoint/b"]
    assert "peagle-sm delete a b c --yes" in (caught.value.next_step or "")
    for name in ("a", "b"):
        assert aws.schedule(name)["StartDate"] <= aws.now()
