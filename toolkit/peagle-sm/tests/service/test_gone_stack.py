"""`delete` removes the resources of a stack that no longer exists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import BillableLeft, PlanRefused
from peagle_sm.service import Deletable, Event, Pacing, delete, pause
from tests.service.account import Account, arn_of
from tests.service.aws_errors import client_error, denied, throttled
from tests.service.stacked import in_a_stack

SWITCH = "arn:aws:lambda:us-east-1:123456789012:function:peagle-guard-switch"


def _left_behind(aws: Account) -> Session:
    """Endpoint, config and model with the tag of a stack that is gone, and the stack's own schedules."""
    session = in_a_stack(aws)
    del aws.stacks["Peagle-demo"]
    aws.put_schedule("peagle-demo-lifetime", SWITCH, {"action": "off", "stack": "Peagle-demo"})
    target = "arn:aws:scheduler:::aws-sdk:sagemaker:deleteEndpoint"
    aws.put_schedule("peagle-demo-lifetime-hard", target, {"EndpointName": "demo"})
    return session


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("pattern", ["demo", "d*"])
def test_all_that_is_left_goes(aws: Account, pacing: Pacing, pattern: str, paused: bool) -> None:
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


def test_inference_components_go_before_their_endpoint_and_their_schedules_too(
    aws: Account, pacing: Pacing
) -> None:
    """SageMaker refuses to delete an endpoint that has one, and no stack is left that would."""
    session = _left_behind(aws)
    components = ["demo-1", "demo-2"]

    def answer(operation: str) -> dict[str, Any] | BaseException | None:
        if operation == "ListInferenceComponents":
            return {"InferenceComponents": [{"InferenceComponentName": name} for name in components]}
        name = aws.sent[operation].get("InferenceComponentName")
        if operation == "DescribeInferenceComponent" and name in components:
            return {"EndpointName": "demo", "InferenceComponentStatus": "InService"}
        if operation == "DeleteInferenceComponent":
            components.remove(str(name))
            return {}
        if operation == "DeleteEndpoint" and components:
            message = "Cannot delete endpoint with inference component associated."
            return client_error(operation, "ValidationException", message)
        return None

    aws.before = answer
    target = "arn:aws:scheduler:::aws-sdk:sagemaker:deleteInferenceComponent"
    aws.put_schedule("peagle-demo-lifetime-hard-1", target, {"InferenceComponentName": "demo-1"})
    delete(["demo"], session=session, pacing=pacing)
    assert not components
    assert not aws.everything()


def test_a_schedule_that_alone_is_left_goes(aws: Account, pacing: Pacing) -> None:
    session = _left_behind(aws)
    aws.remove_endpoint()
    (config,), (model,) = aws.names("endpoint-config"), aws.names("model")
    aws.sagemaker.delete_endpoint_config(EndpointConfigName=config)
    aws.sagemaker.delete_model(ModelName=model)
    report = delete(["demo"], session=session, pacing=pacing)
    assert report.leftovers == ()
    assert not aws.everything()


def test_what_is_deployed_again_during_the_question_stays(aws: Account, pacing: Pacing) -> None:
    """`cdk deploy` makes the stack anew while the prompt waits: its endpoint serves."""
    session = _left_behind(aws)
    before = aws.everything()

    def deployed_again(rows: Sequence[Deletable]) -> bool:
        aws.stacks["Peagle-demo"] = "CREATE_COMPLETE"
        return True

    with pytest.raises(PlanRefused, match="demo belongs to stack Peagle-demo"):
        delete(["demo"], session=session, pacing=pacing, confirm=deployed_again)
    assert aws.everything() == before


def test_ctrl_c_brings_the_limit_of_the_gone_stack_forward(aws: Account, pacing: Pacing) -> None:
    session = _left_behind(aws)

    def interrupted(operation: str) -> BaseException | None:
        first = operation == "DeleteEndpoint" and aws.calls.count(operation) == 1
        return KeyboardInterrupt() if first else None

    aws.before = interrupted
    with pytest.raises(BillableLeft, match="moved to now"):
        delete(["demo"], session=session, pacing=pacing)


@pytest.mark.parametrize("fault", [denied, throttled])
def test_a_stack_that_cannot_be_read_is_refused_with_the_reason(
    aws: Account, pacing: Pacing, fault: Any
) -> None:
    session = _left_behind(aws)
    before = aws.everything()
    aws.before = lambda operation: fault(operation) if operation == "DescribeStacks" else None
    with pytest.raises(PlanRefused, match="could not be read: DescribeStacks: ") as caught:
        delete(["demo"], session=session, pacing=pacing)
    assert "`peagle-sm pause demo --region us-east-1`" in (caught.value.next_step or "")
    assert aws.everything() == before


def test_a_stack_that_is_being_deleted_still_exists(aws: Account, pacing: Pacing) -> None:
    session = _left_behind(aws)
    aws.stacks["Peagle-demo"] = "DELETE_IN_PROGRESS"
    with pytest.raises(PlanRefused, match="demo belongs to stack Peagle-demo"):
        delete(["demo"], session=session, pacing=pacing)
    assert "DeleteEndpoint" not in aws.calls


def test_what_another_stack_owns_stays(aws: Account, pacing: Pacing) -> None:
    session = _left_behind(aws)
    (model,) = aws.names("model")
    tags = [{"Key": "peagle-sm:stack", "Value": "Peagle-other"}]
    aws.sagemaker.add_tags(ResourceArn=arn_of("model", model), Tags=tags)
    aws.stacks["Peagle-other"] = "CREATE_COMPLETE"
    delete(["demo"], session=session, pacing=pacing)
    assert aws.kinds() == ["model"]
