"""Every kind against the local SageMaker over HTTP: created, described, replaced and deleted."""

from __future__ import annotations

import time

from peagle_sm.aws.control import executor
from peagle_sm.aws.session.session import Session
from peagle_sm.core.resources.alarm import Alarm
from peagle_sm.core.resources.resource import Resource
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.service import plan_for


def _settled(session: Session, resource: Resource) -> str | None:
    """The status once it no longer changes; None if it is gone."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        facts = executor.describe(session, resource)
        status = None if facts is None else str(facts[resource.status_field or ""])
        if status not in ("Creating", "Deleting"):
            return status
        time.sleep(0.05)
    raise AssertionError(f"{resource.label} is still {status}")


def test_every_kind_is_created_described_and_deleted_as_it_says(local: Session) -> None:
    spec = EndpointSpec(name="kinds", model="tiny-code", lifecycle={"idle": "scale-to-zero"})
    resources = plan_for(spec, local).resources
    assert {one.kind for one in resources} == {
        "schedule",
        "model",
        "endpoint-config",
        "log-group",
        "endpoint",
        "inference-component",
        "scalable-target",
        "scaling-policy",
        "alarm",
    }
    for resource in resources:
        if isinstance(resource, Alarm) and resource.parameters is not None:
            resource.parameters["AlarmActions"] = []  # AWS chooses the policy's ARN
        assert executor.describe(local, resource) is None, resource.label
        executor.create(local, resource)
        assert executor.describe(local, resource) is not None, resource.label
        if resource.status_field is not None:
            assert _settled(local, resource) == "InService"
        update = resource.update()
        if update is not None:
            executor.send(local, update)
    for resource in reversed(resources):
        executor.delete(local, resource)
        if resource.status_field is not None:
            assert _settled(local, resource) is None
        assert executor.describe(local, resource) is None, resource.label
        if resource.service not in ("cloudwatch",):  # DeleteAlarms succeeds for a missing alarm
            assert executor.delete(local, resource) is False, resource.label
