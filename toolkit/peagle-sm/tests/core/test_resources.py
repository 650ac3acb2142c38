"""Order of the resources, and agreement of what a deploy sends with what a stack prints."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_sm.core.resources.log_group import LogGroup
from peagle_sm.core.resources.ordered import named
from peagle_sm.core.resources.resource import Request
from tests.core.support import AWS, GPT, STACK, breaches, plan_of

_EXTRA = {
    "plain": "",
    "scaled": "autoscaling: {max_instances: 3}\n",
    "scale-to-zero": "lifecycle: {idle: scale-to-zero}\nautoscaling: {max_instances: 3}\n"
    "placement: {instance_types: [ml.p6-b200.48xlarge]}\n",
}


@pytest.mark.parametrize("context", [AWS, STACK], ids=["deploy", "stack"])
@pytest.mark.parametrize("extra", _EXTRA.values(), ids=_EXTRA)
def test_each_resource_comes_after_what_it_needs_and_the_schedule_is_first(extra: str, context: Any) -> None:
    resources = plan_of(GPT, extra, context).resources
    labels = [resource.label for resource in resources]
    assert len(set(labels)) == len(labels)
    for place, resource in enumerate(resources):
        assert set(resource.needs) <= set(labels[:place])
    assert "lifetime" in resources[0].words
    for resource in resources:
        if resource.billed:
            before = labels[: labels.index(resource.label)]
            assert labels[0] in before


@given(
    st.booleans(),
    st.lists(st.sampled_from(["demo-1", "demo-2"]), unique=True),
    st.lists(st.sampled_from(["demo-3", "demo-4"]), unique=True),
)
def test_a_deletion_by_names_goes_backwards_and_ends_with_the_endpoints_own_schedule(
    to_zero: bool, configs: list[str], models: list[str]
) -> None:
    tags = {"peagle-sm:idle": "scale-to-zero"} if to_zero else {}
    kinds = [resource.kind for resource in reversed(named("demo", tags, configs, models))]
    order = (
        "alarm",
        "scalable-target",
        "inference-component",
        "endpoint",
        "endpoint-config",
        "model",
        "schedule",
    )
    assert kinds == sorted(kinds, key=order.index)
    assert named("demo", tags, configs, models)[0].name == "peagle-demo-lifetime"


def _refer(label: str, attribute: str | None) -> str:
    return f"<{label}{f'.{attribute}' if attribute else ''}>"


@pytest.mark.parametrize("extra", _EXTRA.values(), ids=_EXTRA)
def test_a_stack_prints_the_fields_that_a_deploy_sends(extra: str) -> None:
    """Beside references, letter case, and the one field of UpdateEndpoint, they are the same."""
    for resource in plan_of(GPT, extra, AWS).resources:
        if resource.kind == "schedule":
            continue
        sent: dict[str, Any] = {}
        for request in resource.create():
            sent |= request.parameters
        printed = resource.properties(_refer)
        printed.pop("RetainAllVariantProperties", None)
        if isinstance(resource, LogGroup):
            sent = {name[0].upper() + name[1:]: value for name, value in sent.items()}
        if resource.kind == "scaling-policy":
            assert printed.pop("ScalingTargetId") == _refer(resource.needs[0], None)
            for name in ("ServiceNamespace", "ResourceId", "ScalableDimension"):
                del sent[name]
        if resource.kind == "alarm":
            assert printed.pop("AlarmActions") == [_refer(resource.needs[0], "Arn")]
            del sent["AlarmActions"]
        assert printed == sent


@pytest.mark.parametrize("extra", _EXTRA.values(), ids=_EXTRA)
def test_every_call_of_every_kind_is_one_that_boto3_takes(extra: str) -> None:
    for resource in plan_of(GPT, extra, AWS).resources:
        update = resource.update()
        calls = [*resource.create(), resource.describe(), resource.delete(), *([update] if update else [])]
        assert [breaches(call) for call in calls] == [[]] * len(calls)


def test_a_request_as_a_command_of_the_aws_cli() -> None:
    parameters = {"ServiceNamespace": "sagemaker", "ResourceId": "endpoint/demo/variant/AllTraffic"}
    request = Request("application-autoscaling", "deregister_scalable_target", parameters)
    assert request.command == (
        "aws application-autoscaling deregister-scalable-target --service-namespace sagemaker "
        "--resource-id endpoint/demo/variant/AllTraffic"
    )
