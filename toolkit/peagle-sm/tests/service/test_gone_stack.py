"""`delete` removes the resources of a stack that no longer exists."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import BillableLeft, PlanRefused
from peagle_sm.service import Deletable, Event, Pacing, delete, pause
from tests.service.fakes import FakeAws, denied, throttled
from tests.service.stacked import in_a_stack

SWITCH = "arn:aws:lambda:us-east-1:123456789012:function:peagle-guard-switch"


def _left_behind(aws: FakeAws) -> Session:
    """Endpoint, config and model with the tag of a stack that is gone, and the stack's own schedules."""
    session = in_a_stack(aws)
    del aws.stacks["Peagle-demo"]
    _schedule(aws, "peagle-demo-lifetime", SWITCH, {"action": "off", "stack": "Peagle-demo"})
    target = "arn:aws:scheduler:::aws-sdk:sagemaker:deleteEndpoint"
    _schedule(aws, "peagle-demo-lifetime-hard", target, {"EndpointName": "demo"})
    return session


def _schedule(aws: FakeAws, name: str, target: str, sent: dict[str, Any]) -> None:
    aws.schedules[name] = {"Name": name, "Target": {"Arn": target, "Input": json.dumps(sent)}}


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("pattern", ["demo", "d*"])
def test_all_that_is_left_goes(aws: FakeAws, pacing: Pacing, pattern: str, paused: bool) -> None:
    session = _left_behind(aws)
    if paused:
        pause("demo", session=session, pacing=pacing)
        del aws.stacks["Peagle-demo"]
    requests: list[Deletable] = []
    events: list[Event] = []

    def yes(rows: Sequence[Deletable]) -> bool:
        requests.extend(rows)
        return True

    report = delete([pattern], session=session, pacing=pacing, confirm=yes, progress=events.append)
    assert [row.gone_stack for row in requests] == ["Peagle-demo"]
    assert "stack Peagle-demo no longer exists" in events[0].message
    assert not aws.everything()
    assert report.leftovers == ()
    assert "schedule/peagle-demo-lifetime" in report.deleted


def test_inference_components_go_before_their_endpoint(aws: FakeAws, pacing: Pacing) -> None:
    """SageMaker refuses to delete an endpoint that has one, and no stack is left that would."""
    session = _left_behind(aws)
    aws.components = ["demo-1", "demo-2"]
    delete(["demo"], session=session, pacing=pacing)
    assert not aws.components
    assert not aws.everything()


def test_the_schedules_of_its_components_go_too(aws: FakeAws, pacing: Pacing) -> None:
    session = _left_behind(aws)
    target = "arn:aws:scheduler:::aws-sdk:sagemaker:deleteInferenceComponent"
    _schedule(aws, "peagle-demo-lifetime-hard-1", target, {"InferenceComponentName": "demo-1"})
    delete(["demo"], session=session, pacing=pacing)
    assert not aws.everything()


def test_a_schedule_that_alone_is_left_goes(aws: FakeAws, pacing: Pacing) -> None:
    session = _left_behind(aws)
    for kind in (aws.endpoints, aws.configs, aws.models):
        kind.clear()
    report = delete(["demo"], session=session, pacing=pacing)
    assert report.leftovers == ()
    assert not aws.everything()


def test_what_is_deployed_again_during_the_question_stays(aws: FakeAws, pacing: Pacing) -> None:
    """`cdk deploy` makes the stack anew while the prompt waits: its endpoint serves."""
    session = _left_behind(aws)
    before = aws.everything()

    def deployed_again(rows: Sequence[Deletable]) -> bool:
        aws.stacks["Peagle-demo"] = "CREATE_COMPLETE"
        return True

    with pytest.raises(PlanRefused, match="demo belongs to stack Peagle-demo"):
        delete(["demo"], session=session, pacing=pacing, confirm=deployed_again)
    assert aws.everything() == before


def test_ctrl_c_brings_the_limit_of_the_gone_stack_forward(aws: FakeAws, pacing: Pacing) -> None:
    session = _left_behind(aws)
    request = 0

    def interrupted(_: FakeAws, number: int, operation: str) -> BaseException | None:
        nonlocal request
        request += operation == "DeleteEndpoint"
        return KeyboardInterrupt() if operation == "DeleteEndpoint" and request == 1 else None

    aws.before = interrupted
    with pytest.raises(BillableLeft, match="moved to now"):
        delete(["demo"], session=session, pacing=pacing)


@pytest.mark.parametrize("fault", [denied, throttled])
def test_a_stack_that_cannot_be_read_is_refused_with_the_reason(
    aws: FakeAws, pacing: Pacing, fault: Any
) -> None:
    session = _left_behind(aws)
    before = aws.everything()
    aws.before = lambda _, number, operation: fault(operation) if operation == "DescribeStacks" else None
    with pytest.raises(PlanRefused, match="could not be read: DescribeStacks: ") as caught:
        delete(["demo"], session=session, pacing=pacing)
    assert "`peagle-sm pause demo --region us-east-1`" in (caught.value.next_step or "")
    assert aws.everything() == before


def test_a_stack_that_is_being_deleted_still_exists(aws: FakeAws, pacing: Pacing) -> None:
    session = _left_behind(aws)
    aws.stacks["Peagle-demo"] = "DELETE_IN_PROGRESS"
    with pytest.raises(PlanRefused, match="demo belongs to stack Peagle-demo"):
        delete(["demo"], session=session, pacing=pacing)
    assert "DeleteEndpoint" not in aws.calls


def test_what_another_stack_owns_stays(aws: FakeAws, pacing: Pacing) -> None:
    session = _left_behind(aws)
    (model,) = aws.models.values()
    model.tags["peagle-sm:stack"] = "Peagle-other"
    aws.stacks["Peagle-other"] = "CREATE_COMPLETE"
    delete(["demo"], session=session, pacing=pacing)
    assert [one.partition("/")[0] for one in aws.everything()] == ["model"]
