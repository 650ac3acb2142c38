"""Autoscaling and scaling to zero by boto3, over HTTP against the local SageMaker with scripted engines."""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from io import BytesIO
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from urllib3 import HTTPResponse

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import CredentialsError, EndpointFailed, Interrupted, PlanRefused
from peagle_sm.core.plan.tags_and_schedules import hard_schedule_name, schedule_name
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.service import Event, Pacing, delete, deploy, leftovers, pause, plan_for, resume, update
from peagle_sm.service.guard.keep import keep
from tests.local.serving import Server

_numbers = itertools.count(1)
Changes = Mapping[str, Any]
SCALING: Changes = {"autoscaling": {"max_instances": 3, "target_concurrency": 6, "scale_in_minutes": 15}}
TO_ZERO: Changes = {"lifecycle": {"idle": "scale-to-zero"}}
BOTH = pytest.mark.parametrize("changes", [SCALING, TO_ZERO], ids=["autoscaling", "scale-to-zero"])


@pytest.fixture
def pacing(local: Session) -> Pacing:
    return replace(Pacing.for_session(local), poll_s=0.05)


def _spec(changes: Changes, name: str | None = None, **script: str) -> EndpointSpec:
    env = {f"SCRIPT_{key.upper()}": value for key, value in script.items()}
    return EndpointSpec(
        name=name or f"scaled-{next(_numbers)}",
        model="tiny-code",
        speculation={"mode": "p-eagle", "num_speculative_tokens": 7},
        serving={"env": env},
        **changes,
    )


@dataclass
class Account:
    """What the account has for one endpoint, by AWS's own calls."""

    server: Server
    name: str

    def _ids(self) -> list[str]:
        return [f"endpoint/{self.name}/variant/AllTraffic", f"inference-component/{self.name}"]

    def targets(self) -> list[tuple[str, int, int]]:
        rows = self.server.client("application-autoscaling").describe_scalable_targets(
            ServiceNamespace="sagemaker", ResourceIds=self._ids()
        )["ScalableTargets"]
        return [(row["ResourceId"], row["MinCapacity"], row["MaxCapacity"]) for row in rows]

    def policies(self) -> dict[str, Any]:
        rows = self.server.client("application-autoscaling").describe_scaling_policies(
            ServiceNamespace="sagemaker"
        )["ScalingPolicies"]
        return {row["PolicyName"]: row for row in rows if row["ResourceId"] in self._ids()}

    def alarms(self) -> dict[str, Any]:
        rows = self.server.client("cloudwatch").describe_alarms()["MetricAlarms"]
        return {row["AlarmName"]: row for row in rows if self.name in row["AlarmName"]}

    def components(self) -> list[str]:
        rows = self.server.client("sagemaker").list_inference_components(EndpointNameEquals=self.name)
        return [row["InferenceComponentName"] for row in rows["InferenceComponents"]]

    def schedules(self) -> set[str]:
        rows = self.server.client("scheduler").list_schedules(NamePrefix=f"peagle-{self.name}-")["Schedules"]
        return {row["Name"] for row in rows}

    def everything(self) -> list[Any]:
        rows = self.server.client("sagemaker").list_endpoints(NameContains=self.name)["Endpoints"]
        billed = [row["EndpointName"] for row in rows if row["EndpointName"] == self.name]
        return [
            *billed,
            *self.targets(),
            *self.policies(),
            *self.alarms(),
            *self.components(),
            *self.schedules(),
        ]


def _serves(account: Account, changes: Changes) -> None:
    name = account.name
    if changes is SCALING:
        assert account.targets() == [(f"endpoint/{name}/variant/AllTraffic", 1, 3)]
        (policy,) = account.policies().values()
        tracking = policy["TargetTrackingScalingPolicyConfiguration"]
        assert (tracking["TargetValue"], tracking["ScaleInCooldown"]) == (6.0, 900)
        assert account.schedules() == {schedule_name(name)}
        assert account.components() == []
        return
    assert account.targets() == [(f"inference-component/{name}", 0, 1)]
    from_zero = account.policies()[f"peagle-{name}-from-zero"]
    assert account.alarms()[f"Peagle-{name}-from-zero"]["AlarmActions"] == [from_zero["PolicyARN"]]
    assert f"peagle-{name}-requests-in-flight" in account.policies()
    assert account.components() == [name]
    assert account.schedules() == {schedule_name(name), hard_schedule_name(name, 1)}


@BOTH
def test_a_plan_has_the_requests_that_a_deploy_sends(local: Session, changes: Changes) -> None:
    plan = plan_for(_spec(changes), local)
    assert not plan.refused, plan.findings
    lines = [(one.service, one.operation, one.name) for one in plan.requests]
    name = plan.names.endpoint
    if changes is SCALING:
        ids = [f"endpoint/{name}/variant/AllTraffic", f"peagle-{name}-requests-in-flight"]
    else:
        ids = [
            f"inference-component/{name}",
            f"peagle-{name}-requests-in-flight",
            f"peagle-{name}-from-zero",
            f"Peagle-{name}-from-zero",
        ]
        assert ("sagemaker", "create_inference_component", name) in lines
    assert [each for service, _, each in lines if service not in ("sagemaker", "scheduler", "logs")] == ids


@BOTH
def test_from_a_deploy_to_nothing(local: Session, server: Server, pacing: Pacing, changes: Changes) -> None:
    spec = _spec(changes, invoke="sse", chunks="3")
    account = Account(server, spec.name)
    endpoint = deploy(spec, session=local, pacing=pacing, unguarded=True)
    _serves(account, changes)
    with endpoint.stream(prompt="def f():", max_tokens=8) as stream:
        assert "".join(chunk.text for chunk in stream) == "token0 token1 token2 "
    pause(spec.name, session=local, pacing=pacing)
    assert account.everything() == []
    resume(spec.name, session=local, pacing=pacing, unguarded=True)
    _serves(account, changes)
    report = delete([spec.name], session=local, pacing=pacing)
    assert report.leftovers == ()
    assert account.everything() == []
    assert not [one for one in leftovers(local) if spec.name in one]


def test_an_update_of_autoscaling_alone_starts_nothing(
    local: Session, server: Server, pacing: Pacing
) -> None:
    spec = _spec(SCALING)
    account, sagemaker = Account(server, spec.name), server.client("sagemaker")
    with deploy(spec, session=local, pacing=pacing, unguarded=True):
        before = sagemaker.describe_endpoint(EndpointName=spec.name)
        more = {"autoscaling": {**SCALING["autoscaling"], "max_instances": 5, "target_concurrency": 4}}
        update(_spec(more, spec.name), session=local, pacing=pacing, unguarded=True)
        assert account.targets() == [(f"endpoint/{spec.name}/variant/AllTraffic", 1, 5)]
        (policy,) = account.policies().values()
        assert policy["TargetTrackingScalingPolicyConfiguration"]["TargetValue"] == 4.0
        update(_spec({}, spec.name), session=local, pacing=pacing, unguarded=True)
        assert account.targets() == []
        assert account.policies() == {}
        update(spec, session=local, pacing=pacing, unguarded=True)
        _serves(account, SCALING)
        after = sagemaker.describe_endpoint(EndpointName=spec.name)
        assert after["LastModifiedTime"] == before["LastModifiedTime"]
    assert account.everything() == []


def test_an_endpoint_that_scales_no_more_returns_to_its_number_of_instances(
    local: Session, server: Server, pacing: Pacing
) -> None:
    """Autoscaling had started two more: without it nothing ends them, and each is billed."""
    spec = _spec(SCALING)
    account, sagemaker = Account(server, spec.name), server.client("sagemaker")
    with deploy(spec, session=local, pacing=pacing, unguarded=True):
        sagemaker.update_endpoint_weights_and_capacities(
            EndpointName=spec.name,
            DesiredWeightsAndCapacities=[{"VariantName": "AllTraffic", "DesiredInstanceCount": 3}],
        )
        server.until(spec.name, "InService")
        update(_spec({}, spec.name), session=local, pacing=pacing, unguarded=True)
        (variant,) = server.until(spec.name, "InService")["ProductionVariants"]
        assert (variant["CurrentInstanceCount"], account.targets()) == (1, [])


def test_a_component_is_replaced_and_not_updated_in_place(
    local: Session, server: Server, pacing: Pacing
) -> None:
    spec = _spec(TO_ZERO)
    account = Account(server, spec.name)
    changed = _spec(TO_ZERO, spec.name, chunks="2")
    with deploy(spec, session=local, pacing=pacing, unguarded=True):
        with pytest.raises(PlanRefused, match="does not change a component's model") as caught:
            update(changed, session=local, pacing=pacing, unguarded=True, strategy="in-place")
        assert "--strategy off-update-on" in (caught.value.next_step or "")
        _serves(account, TO_ZERO)
        update(changed, session=local, pacing=pacing, unguarded=True, strategy="off-update-on")
        _serves(account, TO_ZERO)
        component = server.client("sagemaker").describe_inference_component(InferenceComponentName=spec.name)
        wanted = plan_for(changed, local).names.model
        assert component["Specification"]["ModelName"] == wanted
        fixed = _spec({}, spec.name, chunks="2")
        update(fixed, session=local, pacing=pacing, unguarded=True, strategy="off-update-on")
        assert (account.targets(), account.components(), account.alarms()) == ([], [], {})
        assert account.schedules() == {schedule_name(spec.name)}
    assert account.everything() == []


@BOTH
def test_a_killed_deploy_is_completed_by_the_next(
    local: Session, server: Server, pacing: Pacing, changes: Changes
) -> None:
    spec = _spec(changes)
    account = Account(server, spec.name)
    with deploy(spec, session=local, pacing=pacing, unguarded=True):
        for resource_id, *_ in account.targets():
            kind = (
                "variant:DesiredInstanceCount"
                if changes is SCALING
                else "inference-component:DesiredCopyCount"
            )
            server.client("application-autoscaling").deregister_scalable_target(
                ServiceNamespace="sagemaker",
                ResourceId=resource_id,
                ScalableDimension=f"sagemaker:{kind}",
            )
        deploy(spec, session=local, pacing=pacing, unguarded=True)
        _serves(account, changes)
    assert account.everything() == []


def _refuse(session: Session, service: str, operation: str, codes: list[str | None]) -> None:
    """Answer the next calls with these errors, the last first; None lets a call pass."""

    def refuse(request: Any, **_: Any) -> AWSResponse | None:
        code = codes.pop() if codes else None
        if code is None:
            return None
        body = json.dumps({"__type": code, "message": f"{operation} is refused"}).encode()
        answer = HTTPResponse(BytesIO(body), preload_content=False)
        return AWSResponse(request.url, 400, HTTPHeaders(), answer)

    session.client(service).meta.events.register(f"before-send.*.{operation}", refuse)


def test_an_update_that_ends_half_way_leaves_both_schedules_at_the_old_end(
    local: Session, server: Server, pacing: Pacing
) -> None:
    """An endpoint with a component outlives its own schedule, and the component's was extended first."""
    spec = _spec(TO_ZERO)
    longer = _spec({"lifecycle": {"idle": "scale-to-zero", "max_lifetime_hours": 72}}, spec.name)
    scheduler = server.client("scheduler")
    with deploy(spec, session=local, pacing=pacing, unguarded=True):
        names = (schedule_name(spec.name), hard_schedule_name(spec.name, 1))
        before = [scheduler.get_schedule(Name=name)["StartDate"] for name in names]
        _refuse(local, "scheduler", "UpdateSchedule", ["AccessDeniedException", None])
        with pytest.raises(CredentialsError) as caught:
            update(longer, session=local, pacing=pacing, unguarded=True)
        assert [scheduler.get_schedule(Name=name)["StartDate"] for name in names] == before
        assert "second fleet" not in str(caught.value.next_step)


def test_a_target_that_is_not_visible_yet_is_waited_for(
    local: Session, server: Server, pacing: Pacing
) -> None:
    """AWS documents a brief delay after RegisterScalableTarget; an endpoint that serves must survive it."""
    refusals: list[str | None] = ["ObjectNotFoundException"] * 2
    _refuse(local, "application-autoscaling", "PutScalingPolicy", refusals)
    spec = _spec(SCALING)
    with deploy(spec, session=local, pacing=pacing, unguarded=True):
        assert refusals == []
        _serves(Account(server, spec.name), SCALING)


def test_what_a_deletion_was_refused_goes_with_the_next_one(
    local: Session, server: Server, pacing: Pacing
) -> None:
    """Endpoint and config are gone by then, and only the name shows the alarm, which is billed."""
    spec = _spec(TO_ZERO)
    plan, account = plan_for(spec, local), Account(server, spec.name)
    alarm = plan.parameters("put_metric_alarm") | {"AlarmActions": []}
    server.client("cloudwatch").put_metric_alarm(**alarm)
    assert list(account.alarms()) == [f"Peagle-{spec.name}-from-zero"]
    delete([spec.name], session=local, pacing=pacing, missing_ok=True)
    assert account.everything() == []


@pytest.mark.parametrize("last", ["lifetime", "model"])
def test_a_deploy_that_was_killed_before_its_config_leaves_no_schedule_to_a_deletion(
    local: Session, server: Server, pacing: Pacing, last: str
) -> None:
    """Only tags show that an endpoint has a component, and nothing has them yet."""
    spec = _spec(TO_ZERO)
    plan, account = plan_for(spec, local), Account(server, spec.name)
    for request in plan.requests:
        if request.operation == "create_schedule":
            server.client("scheduler").create_schedule(**request.parameters)
    if last == "model":
        server.client("sagemaker").create_model(**plan.parameters("create_model"))
    assert len(account.schedules()) == 2
    delete([spec.name], session=local, pacing=pacing)
    assert account.everything() == []


def _on_phase(phase: str, status: str | None, act: Callable[[], None]) -> Callable[[Event], None]:
    left = [act]

    def note(event: Event) -> None:
        if event.phase == phase and status in (None, event.status) and left:
            left.pop()()

    return note


@BOTH
@pytest.mark.parametrize("how", ["error", "ctrl-c"])
def test_a_failure_half_way_leaves_nothing(
    local: Session, server: Server, pacing: Pacing, changes: Changes, how: str
) -> None:
    spec = _spec(changes)
    account = Account(server, spec.name)

    def fail() -> None:
        if how == "ctrl-c":
            os.kill(os.getpid(), signal.SIGINT)
        else:
            raise ValueError("the callback fails")

    progress = _on_phase("scaling", None, fail)
    with pytest.raises(Interrupted if how == "ctrl-c" else ValueError):
        deploy(spec, session=local, pacing=pacing, unguarded=True, progress=progress)
    assert account.everything() == []
    assert not [one for one in leftovers(local) if spec.name in one]


def test_a_component_that_fails_is_a_failed_deploy_and_leaves_nothing(
    local: Session, server: Server, pacing: Pacing
) -> None:
    spec = _spec(TO_ZERO, ping="never", exit_after="0.1", exit_line="ValueError: no such head")
    account = Account(server, spec.name)
    with pytest.raises(EndpointFailed, match="no such head") as caught:
        deploy(spec, session=local, pacing=pacing, unguarded=True)
    assert any("no such head" in line for line in caught.value.details["log_tail"])
    assert account.everything() == []
    assert not [one for one in leftovers(local) if spec.name in one]


def test_a_lease_moves_the_schedule_of_the_component_too(
    local: Session, server: Server, pacing: Pacing
) -> None:
    spec = _spec(TO_ZERO)
    scheduler = server.client("scheduler")
    with deploy(spec, session=local, pacing=pacing, unguarded=True):
        keep(spec.name, timedelta(days=2), session=local, pacing=pacing)
        names = (schedule_name(spec.name), hard_schedule_name(spec.name, 1))
        first, second = (scheduler.get_schedule(Name=name)["StartDate"] for name in names)
        assert first == second


@BOTH
def test_what_scales_is_waited_for(local: Session, pacing: Pacing, changes: Changes) -> None:
    with pytest.raises(PlanRefused, match="must wait"):
        deploy(_spec(changes), session=local, pacing=pacing, unguarded=True, wait=False)
