"""A tuning's endpoint with its arms as components, on the local SageMaker: it leaves nothing unnamed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest
from botocore.exceptions import ClientError

from peagle_bench.tune.arms import HostPlan, arm_spec, host_plan, hosted, label
from peagle_sm.aws.control import lifetime
from peagle_sm.aws.control.sagemaker import component_names, describe_component, describe_model
from peagle_sm.aws.session.session import LocalTarget, Session, make_session
from peagle_sm.core.errors import BillableLeft, EndpointFailed
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.service import Pacing, delete
from peagle_sm.service.inventory.resources import belongings_of
from peagle_sm.service.spec_to_plan import plan_for
from tests.local.serving import Server, eventually

_numbers = itertools.count(1)


@pytest.fixture
def session(server: Server) -> Session:
    return make_session(local=LocalTarget.from_status(server.status.to_dict()))


@pytest.fixture
def plan(session: Session) -> Callable[..., HostPlan]:
    """Plans an endpoint of its own name with two arms, whose engines do as the environment says."""

    def make(**environment: str) -> HostPlan:
        spec = EndpointSpec(name=f"hosted-{next(_numbers)}", model="tiny-code", serving={"env": environment})
        specs = {"none": arm_spec(spec, "none", None), label("p-eagle", 2): arm_spec(spec, "p-eagle", 2)}
        return host_plan(spec.name, {arm: plan_for(each, session) for arm, each in specs.items()})

    return make


def left(session: Session, plan: HostPlan) -> list[str]:
    found = list(belongings_of(session, plan.endpoint).resources)
    for arm in plan.arms.values():
        found += [arm.name] if describe_component(session, arm.name) is not None else []
        found += [arm.schedule["Name"]] if lifetime.get(session, arm.schedule["Name"]) is not None else []
        model = arm.model["ModelName"]
        found += [model] if describe_model(session, model) is not None else []
    return found


def clean_up(session: Session, plan: HostPlan) -> None:
    for arm in plan.arms.values():
        if describe_component(session, arm.name) is not None:
            session.client("sagemaker").delete_inference_component(InferenceComponentName=arm.name)
        session.client("scheduler").delete_schedule(Name=arm.schedule["Name"])
    eventually(lambda: not component_names(session, plan.endpoint))
    delete([plan.endpoint], session=session)
    assert left(session, plan) == []


def test_an_arm_that_does_not_start_takes_the_endpoint_and_the_other_arm_with_it(
    session: Session, plan: Callable[..., HostPlan]
) -> None:
    failing = plan(SCRIPT_PING="never", SCRIPT_EXIT_AFTER="0.1")
    with (
        pytest.raises(EndpointFailed, match=f"Inference component {failing.endpoint}-.* failed to start"),
        hosted(failing, session, unguarded=True),
    ):
        pass
    assert left(session, failing) == []


def test_ctrl_c_while_it_is_deleted_sets_every_schedule_to_now_and_names_what_may_remain(
    session: Session, plan: Callable[..., HostPlan]
) -> None:
    two, leaving = plan(), list[bool]()
    usual = Pacing.for_session(session)

    def sleep(seconds: float) -> None:
        if leaving:
            raise KeyboardInterrupt
        usual.sleep(seconds)

    with (
        pytest.raises(BillableLeft, match="interrupted") as error,
        hosted(two, session, unguarded=True, pacing=replace(usual, sleep=sleep)),
    ):
        leaving.append(True)
    names = [arm.name for arm in two.arms.values()]
    assert error.value.details["resources"] == [
        f"endpoint/{two.endpoint}",
        *(f"inference-component/{name}" for name in names),
    ]
    step = str(error.value.next_step)
    assert f"peagle-sm delete {two.endpoint} --yes" in step
    assert all(f"--inference-component-name {name}`" in step for name in names)
    for request in (*(arm.schedule for arm in two.arms.values()), two.schedule):
        limit = lifetime.get(session, request["Name"])
        assert limit is not None
        assert limit.expires_at is not None
        assert limit.expires_at <= session.now()
    clean_up(session, two)


def test_components_that_must_not_be_deleted_are_named_with_their_endpoint_and_keep_their_schedules(
    server: Server, session: Session, plan: Callable[..., HostPlan]
) -> None:
    def denied(**_: object) -> None:
        answer = {"Error": {"Code": "AccessDeniedException", "Message": "no"}}
        raise ClientError(answer, "DeleteInferenceComponent")  # type: ignore[arg-type]

    two, mine = plan(), make_session(local=LocalTarget.from_status(server.status.to_dict()))
    with pytest.raises(BillableLeft) as error, hosted(two, mine, unguarded=True):
        mine.client("sagemaker").meta.events.register(
            "before-call.sagemaker.DeleteInferenceComponent", denied
        )
    assert f"endpoint/{two.endpoint}" in error.value.details["resources"]
    for arm in two.arms.values():
        assert f"inference-component/{arm.name}" in error.value.details["resources"]
        assert lifetime.get(session, arm.schedule["Name"]) is not None
    clean_up(session, two)


def test_a_component_that_somebody_adds_to_its_endpoint_does_not_keep_the_endpoint(
    session: Session, plan: Callable[..., HostPlan]
) -> None:
    two = plan()
    with hosted(two, session, unguarded=True):
        added = {**two.arms["none"].component, "InferenceComponentName": f"{two.endpoint}-added", "Tags": []}
        session.client("sagemaker").create_inference_component(**added)
    assert left(session, two) == []
    assert describe_component(session, f"{two.endpoint}-added") is None
