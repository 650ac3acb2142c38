"""SageMaker resources of an endpoint stack: model, config, endpoint, component, lifetime, autoscaling.

They are made from the requests that boto3 would send. boto3 writes `VolumeSizeInGB`, the CDK
`volume_size_in_gb`. `properties` matches the two by the parameters of the L1 class, nested ones too, so
that a field which CloudFormation lacks raises an error and is never dropped silently.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from aws_cdk import CfnCondition, CfnResource, CfnTag, Fn
from aws_cdk import aws_applicationautoscaling as autoscaling
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_sagemaker as sagemaker
from constructs import Construct

from peagle_sm.core import guard as guard_names
from peagle_sm.core.plan import tags_and_schedules as tags
from peagle_sm.core.plan.scaling import scaling_of
from peagle_sm.core.planning import Plan
from stacks.specs import EXECUTION_ROLE

_NESTED = re.compile(r"\b\w+\.(\w+Property)\b")
_THE_CONSTRUCTS_OWN = frozenset({"scope", "id"})


class Unsupported(ValueError):
    """Error: CloudFormation has no property for the field at ``path``, for example A.B.C."""

    def __init__(self, path: str) -> None:
        super().__init__(f"CloudFormation has no property for {path}")
        self.path = path


@cache
def known(l1: type, nested: str | None = None) -> Mapping[str, tuple[str, str | None]]:
    """Return field name, folded -> (the CDK's parameter, the nested type's name or None)."""
    owner: type = getattr(l1, nested) if nested else l1
    found = {}
    for name, parameter in inspect.signature(vars(owner)["__init__"]).parameters.items():
        if name != "self" and (nested or name not in _THE_CONSTRUCTS_OWN):
            inner = _NESTED.search(str(parameter.annotation))
            found[_folded(name)] = (name, inner.group(1) if inner else None)
    return found


def lacking(l1: type, payload: Mapping[str, Any]) -> list[str]:
    """Return the paths of all fields of the payload that CloudFormation has no property for."""
    return _lacking(l1, None, payload, "")


def properties(l1: type, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the payload as keyword arguments of an L1 class.

    Raises:
        Unsupported: CloudFormation lacks a field of the payload.
    """
    missing = lacking(l1, payload)
    if missing:
        raise Unsupported(missing[0])
    return _translated(l1, None, payload)


def _translated(l1: type, nested: str | None, payload: Mapping[str, Any]) -> dict[str, Any]:
    fields = known(l1, nested)
    return {
        parameter: _value(l1, inner, payload[name])
        for name in payload
        for parameter, inner in (fields[_folded(name)],)
    }


def _value(l1: type, inner: str | None, value: Any) -> Any:
    if inner is None:
        return value  # text, a number, or a map whose keys are the user's own, as in Environment
    if isinstance(value, list):
        return [getattr(l1, inner)(**_translated(l1, inner, item)) for item in value]
    return getattr(l1, inner)(**_translated(l1, inner, value))


def _lacking(l1: type, nested: str | None, payload: Mapping[str, Any], at: str) -> list[str]:
    fields, found = known(l1, nested), []
    for name, value in payload.items():
        entry = fields.get(_folded(name))
        if entry is None:
            found.append(at + name)
        elif entry[1] is not None:
            for item in value if isinstance(value, list) else [value]:
                found += _lacking(l1, entry[1], item, f"{at}{name}.")
    return found


def _folded(name: str) -> str:
    return name.replace("_", "").lower()


#: Seconds that CloudFormation waits for a provider; its default is an hour. Two attempts of the function fit:
#: Lambda tries an event again a minute after the function died.
SERVICE_TIMEOUT_S = 300


def stack_tags(plan: Plan) -> dict[str, str]:
    """Return the tags of all resources in the stack: peagle-sm's tags and the spec's own.

    Tags that change with the spec (its hash, its minutes) are only on SageMaker's resources; elsewhere each
    change would update every alarm.
    """
    planned = plan.tags()
    whose = {key: planned[key] for key in (tags.MANAGED_BY, tags.ENDPOINT, tags.STACK)}
    return {**whose, **plan.spec.tags}


def add_model(scope: Construct, plan: Plan) -> CfnResource:
    """Add the model by plain CloudFormation if it has every field, else by the guard's provider.

    The two have different logical ids, since CloudFormation does not allow a resource to change its type.
    """
    exact = plan.parameters("create_model")
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
    """Add the endpoint config; its name contains the spec's hash, so that a change creates a new one."""
    fields = _fields(sagemaker.CfnEndpointConfig, plan.parameters("create_endpoint_config"))
    config = sagemaker.CfnEndpointConfig(scope, "EndpointConfig", **fields)
    config.add_resource_dependency(model)
    return config


def add_endpoint(
    scope: Construct, plan: Plan, first: Sequence[CfnResource], is_on: CfnCondition
) -> sagemaker.CfnEndpoint:
    """Add the endpoint, created after all of ``first``, including its lifetime schedules."""
    fields = _fields(sagemaker.CfnEndpoint, plan.parameters("create_endpoint"))
    if plan.spec.autoscaling is not None or plan.names.component is not None:
        # Without it each update resets the instance count to the config's, whatever the load is.
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
    if plan.names.component is None:
        return None
    fields = _fields(sagemaker.CfnInferenceComponent, plan.parameters("create_inference_component"))
    component = sagemaker.CfnInferenceComponent(scope, "Component", **fields)
    component.cfn_options.condition = is_on
    component.add_resource_dependency(endpoint)
    return component


def add_lifetime(scope: Construct, plan: Plan, is_on: CfnCondition) -> CfnResource:
    """Add the lifetime schedules, which delete the endpoint; they are created before it."""
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
            # Components block the deletion of their endpoint, so each has its own schedule.
            **({"InferenceComponentNames": [plan.names.component]} if plan.names.component else {}),
            # SageMaker refuses another instance type while a scaling policy is active; the provider checks
            # this first.
            **(_scaling(plan) if plan.spec.autoscaling and not plan.names.component else {}),
        },
    )
    lifetime.cfn_options.condition = is_on
    return lifetime


def _scaling(plan: Plan) -> dict[str, Any]:
    return {"ScalingInstanceTypes": list(plan.draft.instance_types), "EndpointConfigName": plan.names.config}


def _custom(
    scope: Construct, name: str, type_name: str, provider: str, values: Mapping[str, Any]
) -> CfnResource:
    token = Fn.import_value(provider)
    asked = {"ServiceToken": token, "ServiceTimeout": SERVICE_TIMEOUT_S, **values}
    return CfnResource(scope, name, type=type_name, properties=asked)


def _fields(l1: type, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return a payload as arguments of an L1 class, with the guard's role imported."""
    fields = properties(l1, payload)
    fields["tags"] = [CfnTag(key=tag["Key"], value=tag["Value"]) for tag in payload["Tags"]]
    if "execution_role_arn" in fields:
        fields["execution_role_arn"] = _role(fields["execution_role_arn"])
    return fields


def _role(arn: str) -> str:
    return Fn.import_value(guard_names.EXPORT_EXECUTION_ROLE) if arn == EXECUTION_ROLE else arn


def _with_role(payload: Mapping[str, Any]) -> str:
    """Return the payload as JSON in which CloudFormation inserts the ARN of the guard's role."""
    text = json.dumps(payload, sort_keys=True)
    if payload.get("ExecutionRoleArn") != EXECUTION_ROLE:
        return text
    before, _, after = text.partition(EXECUTION_ROLE)
    literal = [part.replace("${", "${!") for part in (before, after)]
    name = EXECUTION_ROLE.removeprefix("${").removesuffix("}")
    return Fn.sub(EXECUTION_ROLE.join(literal), {name: Fn.import_value(guard_names.EXPORT_EXECUTION_ROLE)})


def add_scaling(scope: Construct, plan: Plan, after: CfnResource, is_on: CfnCondition) -> list[CfnResource]:
    """Add autoscaling target and policies if the spec scales; ``after`` is the endpoint or component."""
    scaling = scaling_of(plan.draft)
    if scaling is None:
        return []
    fields = properties(autoscaling.CfnScalableTarget, scaling.register())
    target = autoscaling.CfnScalableTarget(scope, "ScalableTarget", **fields)
    target.add_resource_dependency(after)
    resources = [target, _policy(scope, "ScalingPolicy", scaling.tracking(), target)]
    if scaling.component is not None:
        policy = _policy(scope, "FromZeroPolicy", scaling.from_zero(), target)
        fields = properties(cloudwatch.CfnAlarm, scaling.alarm(policy.attr_arn))
        resources += [policy, cloudwatch.CfnAlarm(scope, "FromZeroAlarm", **fields)]
    for resource in resources:
        resource.cfn_options.condition = is_on
    return resources


def _policy(
    scope: Construct, name: str, payload: Mapping[str, Any], target: autoscaling.CfnScalableTarget
) -> autoscaling.CfnScalingPolicy:
    of_policy = {key: value for key, value in payload.items() if key not in _OF_THE_TARGET}
    fields = properties(autoscaling.CfnScalingPolicy, {**of_policy, "ScalingTargetId": target.ref})
    return autoscaling.CfnScalingPolicy(scope, name, **fields)


# CloudFormation takes the target's id in their place.
_OF_THE_TARGET = ("ServiceNamespace", "ResourceId", "ScalableDimension")
