"""Stacks synthesised once for all tests, and what CloudFormation would make of their templates."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from aws_cdk import App

from peagle_sm.core.planning import Plan
from peagle_sm.core.spec.endpoint_spec import EndpointSpec, parse_spec
from peagle_sm.service.spec_to_plan import load_spec
from stacks.endpoint_stack import EndpointStack
from stacks.specs import StandIns, plan_for

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.yaml"))
REGION = "us-east-1"
ACCOUNT = "111122223333"
EMAIL = "team@example.com"
EXPORTS = {
    "PeagleGuard-ExecutionRoleArn": f"arn:aws:iam::{ACCOUNT}:role/peagle-execution-{REGION}",
    "PeagleGuard-ModelProviderArn": f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:peagle-guard-model",
    "PeagleGuard-LifetimeProviderArn": f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:peagle-guard-lifetime",
}
PSEUDO = {"AWS::Region": REGION, "AWS::AccountId": ACCOUNT, "AWS::Partition": "aws"}

_BASE = """
model: qwen3-coder-30b-a3b-instruct
source: container
model_uri: s3://team/qwen3-coder/
head_uri: s3://team/qwen3-coder/p-eagle/
placement: {region: us-east-1, instance_types: [ml.g7e.2xlarge]}
"""

# What no example shows.
FURTHER = {
    "scaling": _BASE + "autoscaling: {max_instances: 3, target_concurrency: 6, scale_in_minutes: 15}",
    "zero": _BASE + "lifecycle: {idle: scale-to-zero, max_lifetime_hours: 200}",
    "everything": """
model: gpt-oss-20b
placement:
  region: us-east-1
  instance_types: [ml.p5.48xlarge, ml.p5en.48xlarge]
serving: {data_parallel_size: 8}
security:
  vpc: {subnet_ids: [subnet-1, subnet-2], security_group_ids: [sg-1]}
metrics: {publish_seconds: 10}
lifecycle: {max_lifetime_hours: 12, idle_minutes: 20}
tags: {team: search, cost centre: "42"}
accept_eula: true
hours: Mon-Fri 08:00-19:00 Europe/Berlin
""",
    "five": """
model: tiny-code
speculation: {mode: p-eagle, num_speculative_tokens: 5}
""",
    "keyed": """
model: tiny-code
placement: {instance_types: [ml.m7i.2xlarge], instance_count: 2}
speculation: {mode: p-eagle, num_speculative_tokens: 1}
security: {kms_key_id: alias/ours, network_isolation: false}
""",
}


def stand_ins() -> StandIns:
    """What cdk.json says of the small stand-in models."""
    return StandIns(**json.loads((ROOT / "cdk.json").read_text())["context"]["stand_ins"])


@cache
def specs() -> dict[str, EndpointSpec]:
    """Every example and the further specs, by endpoint name."""
    read = [load_spec(path) for path in EXAMPLES]
    read += [parse_spec(f"name: {name}\n{text}") for name, text in FURTHER.items()]
    return {spec.name: spec for spec in read}


def plan_of(name: str) -> Plan:
    """The plan that the stack of an endpoint was made from."""
    return plan_for(specs()[name], REGION, stand_ins())


@cache
def _texts() -> dict[str, str]:
    app = App(analytics_reporting=False)
    for name in specs():
        EndpointStack(app, plan_of(name), EMAIL)
    return {stack.stack_name: json.dumps(stack.template) for stack in app.synth().stacks}


def template(name: str) -> dict[str, Any]:
    """The template of an endpoint's stack, a copy of its own for each caller."""
    document = json.loads(_texts()[f"Peagle-{name}"])
    assert isinstance(document, dict)
    return document


def one_template(spec: EndpointSpec) -> dict[str, Any]:
    """The template of a stack that only one test needs."""
    app = App(analytics_reporting=False)
    EndpointStack(app, plan_for(spec, REGION, stand_ins()), EMAIL)
    document = json.loads(json.dumps(app.synth().stacks[0].template))
    assert isinstance(document, dict)
    return document


def evaluated(template: dict[str, Any], state: str = "on") -> dict[str, Any]:
    """Return the resources that exist with EndpointState ``state``, their functions replaced by values."""
    values: dict[str, Any] = {**PSEUDO, "EndpointState": state}
    truths = {name: _value(given, values) for name, given in template["Conditions"].items()}
    existing = {
        name: resource
        for name, resource in template["Resources"].items()
        if "Condition" not in resource or truths[resource["Condition"]]
    }
    values |= {name: f"<{name}>" for name in existing}
    return {
        name: {**resource, "Properties": _value(resource.get("Properties", {}), values)}
        for name, resource in existing.items()
    }


def outputs(template: dict[str, Any]) -> dict[str, Any]:
    """Return the outputs of a template by name."""
    return {name: _value(given["Value"], PSEUDO) for name, given in template["Outputs"].items()}


def _value(given: Any, values: dict[str, Any]) -> Any:
    if isinstance(given, list):
        return [_value(item, values) for item in given]
    if not isinstance(given, dict):
        return given
    match list(given.items()):
        case [("Ref", name)]:
            return values[name]
        case [("Fn::GetAtt", [name, attribute])]:
            return f"{values[name]}.{attribute}"
        case [("Fn::ImportValue", name)]:
            return EXPORTS[name]
        case [("Fn::Equals", [left, right])]:
            return _value(left, values) == _value(right, values)
        case [("Fn::Join", [between, parts])]:
            return between.join(_value(part, values) for part in parts)
        case [("Fn::Sub", str(text))]:
            return _substituted(text, values)
        case [("Fn::Sub", [text, more])]:
            return _substituted(text, {**values, **_value(more, values)})
        case _:
            unknown = [key for key in given if key.startswith("Fn::")]
            assert not unknown, f"this evaluation does not know {unknown}"
            return {key: _value(item, values) for key, item in given.items()}


def _substituted(text: str, values: dict[str, Any]) -> str:
    filled = re.sub(r"\$\{([^!][^}]*)\}", lambda match: str(values[match[1]]), text)
    return filled.replace("${!", "${")
