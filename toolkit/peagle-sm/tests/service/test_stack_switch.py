"""An endpoint of a stack: turned off and on by the guard's switch, never deleted behind the stack's back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from peagle_sm.core.errors import BillableLeft, EndpointFailed, PlanRefused
from peagle_sm.service import Pacing, delete, deploy, list_endpoints, pause, resume
from tests.service.account import Account
from tests.service.aws_errors import client_error
from tests.service.setting import make_spec
from tests.service.stacked import in_a_stack


def test_a_stacks_endpoint_is_turned_off_and_on_by_its_stack(aws: Account, pacing: Pacing) -> None:
    session = in_a_stack(aws)
    report = pause("demo", session=session, pacing=pacing)
    assert report.stack == "Peagle-demo"
    assert aws.status() is None
    assert "DeleteEndpoint" not in aws.calls
    (row,) = list_endpoints(session)
    assert (row.status, row.off_why, row.stack) == ("Paused", "by hand", "Peagle-demo")
    offer = resume("demo", session=session, pacing=pacing)
    assert (offer.stack, offer.usd_per_hour) == ("Peagle-demo", 4.2)
    assert aws.status() == "InService"
    assert not {"CreateEndpoint", "CreateSchedule"} & set(aws.calls)
    assert aws.calls.count("Invoke") == 2


def test_a_stack_that_rolls_back_is_not_turned_on_again_by_itself(aws: Account, pacing: Pacing) -> None:
    session = in_a_stack(aws)
    pause("demo", session=session, pacing=pacing)
    requests: list[str] = []

    def no_capacity(event: dict[str, Any]) -> dict[str, Any]:
        requests.append(event["action"])
        aws.stacks["Peagle-demo"] = "UPDATE_IN_PROGRESS"
        end = {"Peagle-demo": "UPDATE_ROLLBACK_COMPLETE"}
        aws.late.append((aws.seconds + 60, lambda: aws.stacks.update(end)))
        return {"state": "in-progress", "detail": "on"}

    aws.switch = no_capacity
    with pytest.raises(EndpointFailed, match="UPDATE_ROLLBACK_COMPLETE") as caught:
        resume("demo", session=session, pacing=pacing)
    assert "describe-stack-events --stack-name Peagle-demo" in (caught.value.next_step or "")
    assert requests == ["on"]


def test_a_switch_that_first_mends_its_stack_is_asked_again(aws: Account, pacing: Pacing) -> None:
    session = in_a_stack(aws)
    pause("demo", session=session, pacing=pacing)
    turn, answers = aws.switch, [{"state": "in-progress", "detail": "off first", "started": False}]
    assert turn is not None
    aws.switch = lambda event: answers.pop() if answers else turn(event)
    resume("demo", session=session, pacing=pacing)
    assert aws.status() == "InService"


@pytest.mark.parametrize("act", [pause, resume])
def test_what_the_switch_refuses_is_told_in_its_own_words(
    aws: Account, pacing: Pacing, act: Callable[..., object]
) -> None:
    session = in_a_stack(aws)
    if act is resume:
        pause("demo", session=session, pacing=pacing)
    aws.switch = lambda event: {"state": "refused", "detail": "not a stack of ours"}
    with pytest.raises(PlanRefused, match="not a stack of ours"):
        act("demo", session=session, pacing=pacing)
    aws.switch = None
    with pytest.raises(PlanRefused, match="without a guard: none is installed") as caught:
        act("demo", session=session, pacing=pacing)
    assert "peagle-sm guard install --region us-east-1" in (caught.value.next_step or "")


def test_an_endpoint_that_outlives_its_stacks_update_is_named(aws: Account, pacing: Pacing) -> None:
    session = in_a_stack(aws)
    aws.switch = lambda event: {"state": "done", "detail": "No updates are to be performed."}
    with pytest.raises(BillableLeft, match="may still be running") as caught:
        pause("demo", session=session, pacing=pacing)
    assert caught.value.next_step == "peagle-sm pause demo --yes --region us-east-1"


def test_a_stacks_endpoint_is_not_deleted_behind_its_back(aws: Account, pacing: Pacing) -> None:
    session = in_a_stack(aws)
    before = aws.everything()
    for pattern in ("demo", "*"):
        with pytest.raises(PlanRefused, match="demo belongs to stack Peagle-demo") as caught:
            delete([pattern], session=session, pacing=pacing)
        assert caught.value.next_step == (
            "To delete it: `cdk destroy Peagle-demo -c spec=FILE` with its spec. To stop the cost and keep "
            "the stack: `peagle-sm pause demo --region us-east-1`."
        )
    pause("demo", session=session, pacing=pacing)
    with pytest.raises(PlanRefused, match="belongs to stack"):
        delete(["demo"], session=session, pacing=pacing)
    assert aws.everything() == before[1:]


def test_no_deploy_takes_the_name_or_the_parts_of_a_stacks_endpoint(aws: Account, pacing: Pacing) -> None:
    session = in_a_stack(aws)
    pause("demo", session=session, pacing=pacing)
    before = aws.everything()
    with pytest.raises(PlanRefused, match="belongs to stack Peagle-demo") as caught:
        deploy(make_spec(), session=session, pacing=pacing)
    assert "peagle-sm resume demo --region us-east-1" in (caught.value.next_step or "")
    del aws.stacks["Peagle-demo"]  # a stack of another name may own them too
    with pytest.raises(PlanRefused, match="belongs to another spec"):
        deploy(make_spec(), session=session, pacing=pacing)
    assert aws.everything() == before


def test_ctrl_c_while_a_stack_is_turned_on_names_the_way_back(aws: Account, pacing: Pacing) -> None:
    session = in_a_stack(aws)
    pause("demo", session=session, pacing=pacing)
    aws.after = lambda operation: KeyboardInterrupt() if operation == "Invoke" else None
    with pytest.raises(BillableLeft, match="is still turning endpoint demo on") as caught:
        resume("demo", session=session, pacing=pacing)
    assert caught.value.next_step == "peagle-sm pause demo --yes --region us-east-1"


@pytest.mark.parametrize("act", [pause, resume, lambda name, **more: delete([name], **more)])
def test_no_other_endpoints_stack_is_turned(aws: Account, pacing: Pacing, act: Callable[..., object]) -> None:
    session = in_a_stack(aws)
    aws.tag({"peagle-sm:stack": "Peagle-work"})
    before = aws.everything()
    with pytest.raises(PlanRefused, match="names Peagle-work; allowed: Peagle-demo") as caught:
        act("demo", session=session, pacing=pacing)
    assert "aws sagemaker delete-tags --tag-keys peagle-sm:stack" in (caught.value.next_step or "")
    assert "Invoke" not in aws.calls
    assert aws.everything() == before


def test_a_switch_that_is_busy_is_asked_again(aws: Account, pacing: Pacing) -> None:
    session = in_a_stack(aws)
    busy = [client_error("Invoke", "TooManyRequestsException", "Rate Exceeded.", 429)]
    aws.before = lambda operation: busy.pop() if operation == "Invoke" and busy else None
    pause("demo", session=session, pacing=pacing)
    assert aws.calls.count("Invoke") == 2
