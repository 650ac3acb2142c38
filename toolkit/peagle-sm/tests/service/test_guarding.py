"""A deploy refuses without a guard; with --unguarded it still creates the lifetime schedule."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import GuardMissing
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.service import Pacing, deploy, plan_for
from peagle_sm.service.inventory.guard_state import require_guard
from tests.service.account import Account
from tests.service.setting import make_spec


@pytest.mark.parametrize("status", [None, "ROLLBACK_COMPLETE", "CREATE_IN_PROGRESS", "DELETE_FAILED"])
def test_without_a_guard_that_works_a_deploy_refuses_before_anything_is_made(
    aws: Account, session: Session, spec: EndpointSpec, pacing: Pacing, status: str | None
) -> None:
    if status is not None:
        aws.stacks["PeagleGuard"] = status
    with (
        aws.no_guard() if status is None else nullcontext(),
        pytest.raises(GuardMissing) as caught,
    ):
        deploy(spec, session=session, pacing=pacing, confirm=lambda plan: pytest.fail("asked too early"))
    result = "is not installed" if status is None else f"does not work (its stack is {status})"
    assert caught.value.message == (
        f"The guard {result} in us-east-1: nothing would turn an idle endpoint off before its "
        "lifetime ends. Nothing was created."
    )
    assert (caught.value.next_step or "").startswith(
        "Install it once, for cents a month: `peagle-sm guard install --region us-east-1`."
    )
    assert (caught.value.exit_code, aws.everything()) == (3, [])


def test_on_the_local_sagemaker_a_guard_costs_nothing(aws: Account, local: Session) -> None:
    with aws.no_guard(), pytest.raises(GuardMissing) as caught:
        require_guard(local)
    wanted = f"Install it once: `peagle-sm guard install{local.command_flags()}`."
    assert (caught.value.next_step or "").startswith(wanted)


def test_unguarded_the_lifetime_limit_is_armed_all_the_same(
    aws: Account, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    with aws.no_guard():
        deploy(spec, session=session, pacing=pacing, unguarded=True)
    assert aws.schedules() == ["peagle-demo-lifetime"]


@pytest.mark.parametrize("status", ["UPDATE_COMPLETE", "UPDATE_IN_PROGRESS", "UPDATE_ROLLBACK_COMPLETE"])
def test_a_guard_that_is_updated_guards(
    aws: Account, session: Session, spec: EndpointSpec, pacing: Pacing, status: str
) -> None:
    aws.stacks["PeagleGuard"] = status
    assert deploy(spec, session=session, pacing=pacing).name == "demo"


def test_a_plan_for_a_stack_takes_the_guard_s_role(aws: Account, session: Session) -> None:
    spec = make_spec(autoscaling={"max_instances": 2}, execution_role_arn=None, scheduler_role_arn=None)
    plan = plan_for(spec, session, stack=True)
    assert not plan.refused
    assert plan.context.stack == "Peagle-demo"
    assert plan.requests[0].parameters["ExecutionRoleArn"] == (
        "arn:aws:iam::123456789012:role/peagle-execution-us-east-1"
    )
    assert not aws.everything()


def test_a_training_job_needs_a_guard(aws: Account, session: Session) -> None:
    aws.stacks["PeagleGuard"] = "UPDATE_COMPLETE"
    require_guard(session, training=True)
    aws.stacks.clear()
    message = "only SageMaker's own limits would stop a training job"
    with aws.no_guard(), pytest.raises(GuardMissing, match=message) as caught:
        require_guard(session, training=True)
    assert "`peagle-sm guard install --region us-east-1`" in (caught.value.next_step or "")
