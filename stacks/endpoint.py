"""Resources of an endpoint stack: the plan's own list, printed as CloudFormation.

Each resource has the properties that its kind gives (`peagle_sm.core.resources`). A field that CloudFormation
lacks stops the synthesis and is never dropped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from aws_cdk import CfnCondition, CfnResource, Fn, RemovalPolicy
from constructs import Construct

from peagle_sm.core import guard as guard_names
from peagle_sm.core.plan import tags_and_schedules as keys
from peagle_sm.core.planning import Plan
from peagle_sm.core.resources.lifetime_schedule import StackLifetime
from peagle_sm.core.resources.log_group import LogGroup
from peagle_sm.core.resources.model import Model
from peagle_sm.core.resources.resource import Resource
from stacks.schemas import Unsupported, lacking, property_tree
from stacks.specs import EXECUTION_ROLE

#: Seconds that CloudFormation waits for a provider; its default is an hour. Two attempts of the function fit:
#: Lambda tries an event again a minute after the function died.
SERVICE_TIMEOUT_S = 300


def stack_tags(plan: Plan) -> dict[str, str]:
    """Return the tags of all resources in the stack: peagle-sm's tags and the spec's own.

    Tags that change with the spec (its hash, its minutes) are only on SageMaker's resources; elsewhere each
    change would update every alarm.
    """
    planned = plan.tags()
    whose = {key: planned[key] for key in (keys.MANAGED_BY, keys.ENDPOINT, keys.STACK)}
    return {**whose, **plan.spec.tags}


def add_resources(scope: Construct, plan: Plan, is_on: CfnCondition) -> dict[str, CfnResource]:
    """Add the plan's resources in order; return them by the name of their kind.

    Those that do not rest while the endpoint is off exist only with ``is_on``.
    """
    shared = stack_tags(plan)
    added: dict[str, CfnResource] = {}
    for resource in plan.resources:
        references: set[str] = set()

        def refer(label: str, attribute: str | None, references: set[str] = references) -> Any:
            references.add(label)
            return added[label].ref if attribute is None else added[label].get_att(attribute)

        properties = resource.properties(refer)
        construct = _print(scope, resource, properties, shared)
        if not resource.rests:
            construct.cfn_options.condition = is_on
        if isinstance(resource, LogGroup):
            construct.apply_removal_policy(RemovalPolicy.DESTROY)
        for label in resource.needs:
            if label not in references:
                construct.add_resource_dependency(added[label])
        added[resource.label] = construct
    return {resource.kind: added[resource.label] for resource in plan.resources}


def _print(
    scope: Construct, resource: Resource, properties: dict[str, Any], shared: Mapping[str, str]
) -> CfnResource:
    if isinstance(resource, StackLifetime):
        provider = guard_names.EXPORT_LIFETIME_PROVIDER
        return _custom(scope, resource.logical_id, resource.cloudformation, provider, properties)
    if isinstance(resource, Model) and lacking(resource.cloudformation, properties):
        # With a logical id of its own, since CloudFormation does not allow a resource to change its type.
        values = {"ModelName": resource.name, "Payload": _with_role(properties)}
        return _custom(scope, "PeagleModel", "Custom::PeagleModel", guard_names.EXPORT_MODEL_PROVIDER, values)
    if properties.get("ExecutionRoleArn") == EXECUTION_ROLE:
        properties["ExecutionRoleArn"] = Fn.import_value(guard_names.EXPORT_EXECUTION_ROLE)
    return add_checked(scope, resource.logical_id, resource.cloudformation, properties, shared)


def add_checked(
    scope: Construct, logical_id: str, type_name: str, properties: Mapping[str, Any], tags: Mapping[str, str]
) -> CfnResource:
    """Add a resource with exactly these properties; ``tags`` if its type has tags, unless it has its own.

    Raises:
        Unsupported: CloudFormation lacks a property.
    """
    missing = lacking(type_name, properties)
    if missing:
        raise Unsupported(f"CloudFormation's {type_name} has no property {missing[0]}")
    values = dict(properties)
    if "Tags" in property_tree(type_name):
        own = {tag["Key"]: tag["Value"] for tag in properties.get("Tags", ())} or tags
        values["Tags"] = [{"Key": key, "Value": own[key]} for key in sorted(own)]
    return CfnResource(scope, logical_id, type=type_name, properties=values)


def _custom(
    scope: Construct, logical_id: str, type_name: str, provider: str, values: Mapping[str, Any]
) -> CfnResource:
    fixed = {"ServiceToken": Fn.import_value(provider), "ServiceTimeout": SERVICE_TIMEOUT_S}
    return CfnResource(scope, logical_id, type=type_name, properties={**fixed, **values})


def _with_role(payload: Mapping[str, Any]) -> str:
    """Return the payload as JSON in which CloudFormation inserts the ARN of the guard's role."""
    text = json.dumps(payload, sort_keys=True)
    if payload.get("ExecutionRoleArn") != EXECUTION_ROLE:
        return text
    before, _, after = text.partition(EXECUTION_ROLE)
    literal = [part.replace("${", "${!") for part in (before, after)]
    name = EXECUTION_ROLE.removeprefix("${").removesuffix("}")
    return Fn.sub(EXECUTION_ROLE.join(literal), {name: Fn.import_value(guard_names.EXPORT_EXECUTION_ROLE)})
