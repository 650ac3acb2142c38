"""Model, config, endpoint and the end of its life, from the requests that boto3 would send."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from aws_cdk import CfnCondition, CfnResource, CfnTag, Fn
from aws_cdk import aws_sagemaker as sagemaker
from constructs import Construct

from peagle_sm.core.guard import names as guard_names
from peagle_sm.core.plan import tags
from peagle_sm.core.plan.plan import Plan, bodies
from stacks.planning import EXECUTION_ROLE
from stacks.properties import lacking, properties
from stacks.watched import instance_types

#: Seconds that CloudFormation waits for a provider; its default is an hour. Two attempts of the function fit:
#: Lambda tries an event again a minute after the function died.
SERVICE_TIMEOUT_S = 300


def stack_tags(plan: Plan) -> dict[str, str]:
    """Return the tags of everything in the stack: whose it is, and the spec's own.

    What changes with the spec (its hash, its minutes) stands on SageMaker's resources alone; on all, each
    change would rewrite every alarm.
    """
    planned = {tag["Key"]: tag["Value"] for tag in bodies(plan).endpoint["Tags"]}
    whose = {key: planned[key] for key in (tags.MANAGED_BY, tags.ENDPOINT, tags.STACK)}
    return {**whose, **plan.spec.tags}


def add_model(scope: Construct, plan: Plan) -> CfnResource:
    """Add the model: plain CloudFormation where it has every field, the guard's provider elsewhere.

    The two have ids of their own, since CloudFormation lets no resource change its type.
    """
    exact = bodies(plan).model
    if not lacking(sagemaker.CfnModel, exact):
        return sagemaker.CfnModel(scope, "Model", **_fields(sagemaker.CfnModel, exact))
    return _custom(
        scope,
        "PeagleModel",
        "Custom::PeagleModel",
        guard_names.EXPORT_MODEL_PROVIDER,
        {"ModelName": exact["ModelName"], "Payload": _with_role(exact)},
    )


def add_config(scope: Construct, plan: Plan, model: CfnResource) -> CfnResource:
    """Add the endpoint config; its name carries the spec's hash, so that a change makes a new one."""
    fields = _fields(sagemaker.CfnEndpointConfig, bodies(plan).config)
    config = sagemaker.CfnEndpointConfig(scope, "EndpointConfig", **fields)
    config.add_resource_dependency(model)
    return config


def add_endpoint(
    scope: Construct, plan: Plan, first: Sequence[CfnResource], is_on: CfnCondition
) -> sagemaker.CfnEndpoint:
    """Add the endpoint, to be created after all of ``first``, the end of its life among them."""
    fields = _fields(sagemaker.CfnEndpoint, bodies(plan).endpoint)
    if plan.spec.autoscaling is not None or plan.names.component is not None:
        # Without it each update resets the instance count to the config's, under whatever load there is.
        fields["retain_all_variant_properties"] = True
    endpoint = sagemaker.CfnEndpoint(scope, "Endpoint", **fields)
    endpoint.cfn_options.condition = is_on
    for resource in first:
        endpoint.add_resource_dependency(resource)
    return endpoint


def add_component(
    scope: Construct, plan: Plan, endpoint: CfnResource, is_on: CfnCondition
) -> CfnResource | None:
    """Add the inference component of an endpoint that may scale to zero; None for any other."""
    payload = bodies(plan).component
    if payload is None:
        return None
    fields = _fields(sagemaker.CfnInferenceComponent, payload)
    component = sagemaker.CfnInferenceComponent(scope, "Component", **fields)
    component.cfn_options.condition = is_on
    component.add_resource_dependency(endpoint)
    return component


def add_lifetime(scope: Construct, plan: Plan, is_on: CfnCondition) -> CfnResource:
    """Add the dead-man's switch: the schedules that end the endpoint's life, written before it begins."""
    lifetime = _custom(
        scope,
        "Lifetime",
        "Custom::PeagleLifetime",
        guard_names.EXPORT_LIFETIME_PROVIDER,
        {
            "EndpointName": plan.names.endpoint,
            "StackName": guard_names.endpoint_stack(plan.names.endpoint),
            "MaxLifetimeHours": tags.number(plan.spec.lifecycle.max_lifetime_hours),
            "ScheduleName": plan.names.schedule,
            "Nonce": plan.spec_hash,
            # Components block the deletion of their endpoint, so each gets a schedule of its own.
            **({"InferenceComponentNames": [plan.names.component]} if plan.names.component else {}),
            # SageMaker refuses another instance type while a policy is active; the provider does so first.
            **(_scaling(plan) if plan.spec.autoscaling and not plan.names.component else {}),
        },
    )
    lifetime.cfn_options.condition = is_on
    return lifetime


def _scaling(plan: Plan) -> dict[str, Any]:
    return {"ScalingInstanceTypes": instance_types(plan), "EndpointConfigName": plan.names.config}


def _custom(
    scope: Construct, name: str, type_name: str, provider: str, values: Mapping[str, Any]
) -> CfnResource:
    token = Fn.import_value(provider)
    asked = {"ServiceToken": token, "ServiceTimeout": SERVICE_TIMEOUT_S, **values}
    return CfnResource(scope, name, type=type_name, properties=asked)


def _fields(l1: type, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return a payload as arguments of an L1 class, the guard's role imported."""
    fields = properties(l1, payload)
    fields["tags"] = [CfnTag(key=tag["Key"], value=tag["Value"]) for tag in payload["Tags"]]
    if "execution_role_arn" in fields:
        fields["execution_role_arn"] = _role(fields["execution_role_arn"])
    return fields


def _role(arn: str) -> str:
    return Fn.import_value(guard_names.EXPORT_EXECUTION_ROLE) if arn == EXECUTION_ROLE else arn


def _with_role(payload: Mapping[str, Any]) -> str:
    """Return the payload as JSON; where the guard's role goes, CloudFormation puts its ARN in."""
    text = json.dumps(payload, sort_keys=True)
    if payload.get("ExecutionRoleArn") != EXECUTION_ROLE:
        return text
    before, _, after = text.partition(EXECUTION_ROLE)
    literal = [part.replace("${", "${!") for part in (before, after)]
    name = EXECUTION_ROLE.removeprefix("${").removesuffix("}")
    return Fn.sub(EXECUTION_ROLE.join(literal), {name: Fn.import_value(guard_names.EXPORT_EXECUTION_ROLE)})
