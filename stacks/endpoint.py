"""Model, config, endpoint and the end of its life, from the requests that boto3 would send."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from aws_cdk import CfnCondition, CfnResource, Fn
from aws_cdk import aws_sagemaker as sagemaker
from constructs import Construct

from peagle_sm.core import guard_names, tags
from peagle_sm.core.payloads import schedule_name
from peagle_sm.core.records import Plan
from stacks.planning import EXECUTION_ROLE
from stacks.properties import lacking, properties


def request(plan: Plan, operation: str) -> dict[str, Any]:
    """Return the parameters of the plan's one request of this operation."""
    return next(entry.parameters for entry in plan.requests if entry.operation == operation)


def without_tags(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return a payload without its tags: a stack's tags stand on all that it holds."""
    return {name: value for name, value in payload.items() if name != "Tags"}


def stack_tags(plan: Plan) -> dict[str, str]:
    """Return the tags of everything in the stack: the plan's, and the stack that owns the endpoint."""
    planned = request(plan, "create_endpoint")["Tags"]
    owner = {tags.STACK: guard_names.endpoint_stack(plan.names.endpoint)}
    return {**owner, **{tag["Key"]: tag["Value"] for tag in planned}}


def add_model(scope: Construct, plan: Plan) -> CfnResource:
    """Add the model: plain CloudFormation where it has every field, the guard's provider elsewhere.

    The two have ids of their own, since CloudFormation lets no resource change its type.
    """
    payload = without_tags(request(plan, "create_model"))
    if not lacking(sagemaker.CfnModel, payload):
        fields = properties(sagemaker.CfnModel, payload)
        role = _role(payload["ExecutionRoleArn"])
        return sagemaker.CfnModel(scope, "Model", **{**fields, "execution_role_arn": role})
    exact = {**payload, "Tags": [{"Key": key, "Value": value} for key, value in stack_tags(plan).items()]}
    return _custom(
        scope,
        "PeagleModel",
        "Custom::PeagleModel",
        guard_names.EXPORT_MODEL_PROVIDER,
        {"ModelName": payload["ModelName"], "Payload": _with_role(exact)},
    )


def add_config(scope: Construct, plan: Plan, model: CfnResource) -> CfnResource:
    """Add the endpoint config; its name carries the spec's hash, so that a change makes a new one."""
    payload = without_tags(request(plan, "create_endpoint_config"))
    fields = properties(sagemaker.CfnEndpointConfig, payload)
    if "execution_role_arn" in fields:
        fields["execution_role_arn"] = _role(fields["execution_role_arn"])
    config = sagemaker.CfnEndpointConfig(scope, "EndpointConfig", **fields)
    config.add_resource_dependency(model)
    return config


def add_endpoint(
    scope: Construct, plan: Plan, first: Sequence[CfnResource], is_on: CfnCondition
) -> sagemaker.CfnEndpoint:
    """Add the endpoint, to be created after all of ``first``, the end of its life among them."""
    payload = without_tags(request(plan, "create_endpoint"))
    fields = properties(sagemaker.CfnEndpoint, payload)
    endpoint = sagemaker.CfnEndpoint(scope, "Endpoint", **fields)
    endpoint.cfn_options.condition = is_on
    for resource in first:
        endpoint.add_resource_dependency(resource)
    return endpoint


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
            "ScheduleName": schedule_name(plan.names.endpoint),
            "Nonce": plan.spec_hash,
        },
    )
    lifetime.cfn_options.condition = is_on
    return lifetime


def _custom(
    scope: Construct, name: str, type_name: str, provider: str, values: Mapping[str, str]
) -> CfnResource:
    token = Fn.import_value(provider)
    return CfnResource(scope, name, type=type_name, properties={"ServiceToken": token, **values})


def _role(arn: str) -> str:
    return Fn.import_value(guard_names.EXPORT_EXECUTION_ROLE) if arn == EXECUTION_ROLE else arn


def _with_role(payload: Mapping[str, Any]) -> str:
    """Return the payload as JSON; where the guard's role goes, CloudFormation puts its ARN in."""
    text = json.dumps(payload, sort_keys=True)
    if payload["ExecutionRoleArn"] != EXECUTION_ROLE:
        return text
    before, _, after = text.partition(EXECUTION_ROLE)
    literal = [part.replace("${", "${!") for part in (before, after)]
    name = EXECUTION_ROLE.removeprefix("${").removesuffix("}")
    return Fn.sub(EXECUTION_ROLE.join(literal), {name: Fn.import_value(guard_names.EXPORT_EXECUTION_ROLE)})
