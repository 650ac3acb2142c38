"""What the core's tests share: contexts, small specs, and botocore's own rules for a request."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any

from botocore.model import ListShape, MapShape, Shape, StructureShape
from botocore.session import Session
from botocore.validate import ParamValidator

from peagle_sm.core.catalog import Catalog, load_catalog
from peagle_sm.core.plan.resolve import Context
from peagle_sm.core.planning import Plan, make_plan
from peagle_sm.core.resources.resource import Request
from peagle_sm.core.spec.endpoint_spec import EndpointSpec, parse_spec
from peagle_sm.core.words import Finding


@dataclass(frozen=True)
class Bodies:
    """Parameters of a plan's calls to SageMaker; ``component`` is None if the endpoint runs the model."""

    model: dict[str, Any]
    config: dict[str, Any]
    endpoint: dict[str, Any]
    component: dict[str, Any] | None


def bodies(plan: Plan) -> Bodies:
    """What boto3 would send."""
    return Bodies(
        plan.parameters("create_model"),
        plan.parameters("create_endpoint_config"),
        plan.parameters("create_endpoint"),
        plan.parameters("create_inference_component") if plan.names.component else None,
    )


NOW = datetime(2026, 11, 20, 8, 30, 15, 123456, tzinfo=UTC)
ROLE = "arn:aws:iam::123456789012:role/peagle-execution-us-east-1"
SCHEDULER_ROLE = "arn:aws:iam::123456789012:role/peagle-scheduler"

AWS = Context("123456789012", "us-east-1", NOW)
STACK = Context(
    "123456789012", "us-east-1", role_arn=ROLE, scheduler_role_arn=SCHEDULER_ROLE, stack="Peagle-demo"
)
LOCAL = Context(
    "123456789012",
    "us-east-1",
    NOW,
    image_uris={
        "vllm-cpu": "123456789012.dkr.ecr.us-east-1.amazonaws.com/vllm:0.32.0-cpu",
        "vllm-cpu:0.30.0": "123456789012.dkr.ecr.us-east-1.amazonaws.com/vllm:0.30.0-cpu",
    },
    artifacts={
        "target": "s3://stand-in/target/",
        "eagle3": "s3://stand-in/eagle3/",
        "p-eagle": "s3://stand-in/p-eagle",
        "smollm2": "s3://smollm2/target/",
        "smollm2-135m-instruct/eagle3": "s3://smollm2/eagle3/",
        "smollm2-135m-instruct/p-eagle": "s3://smollm2/p-eagle/",
    },
    local=True,
    role_arn=ROLE,
    scheduler_role_arn=SCHEDULER_ROLE,
)

GPT = f"""
name: demo
model: gpt-oss-20b
execution_role_arn: {ROLE}
scheduler_role_arn: {SCHEDULER_ROLE}
"""
CONTAINER = f"""
name: demo
model: gpt-oss-20b
source: container
model_uri: s3://bucket/target/
head_uri: s3://bucket/head/
execution_role_arn: {ROLE}
scheduler_role_arn: {SCHEDULER_ROLE}
"""
TINY = """
name: demo
model: tiny-code
"""


def spec_of(base: str, extra: str = "") -> EndpointSpec:
    return parse_spec(base + extra)


def plan_of(base: str, extra: str = "", context: Context = AWS) -> Plan:
    return make_plan(spec_of(base, extra), context)


def found(plan: Plan, check: str) -> list[Finding]:
    return [finding for finding in plan.findings if finding.check == check]


@cache
def _model(service: str) -> Any:
    return Session().get_service_model(service)


def _breaches(shape: Shape, value: Any, path: str) -> Iterator[str]:
    """What botocore's ParamValidator leaves out: patterns, maximum lengths and enumerations."""
    meta = shape.metadata
    if isinstance(shape, StructureShape):
        for name, part in value.items():
            yield from _breaches(shape.members[name], part, f"{path}.{name}")
    elif isinstance(shape, ListShape):
        for index, part in enumerate(value):
            yield from _breaches(shape.member, part, f"{path}[{index}]")
    elif isinstance(shape, MapShape):
        for name, part in value.items():
            yield from _breaches(shape.key, name, f"{path}.{name} (key)")
            yield from _breaches(shape.value, part, f"{path}.{name}")
    if isinstance(value, str):
        # AWS writes Unicode classes, which re does not know; \w and \s cover them
        pattern = meta.get("pattern", "").replace("\\p{L}\\p{Z}\\p{N}", "\\w\\s")
        pattern = pattern.replace("\\uD800\\uDC00-\\uDBFF\\uDFFF", "\\U00010000-\\U0010FFFF")
        pattern = pattern.replace("\\p{Print}", "[ -~]")
        if pattern and not re.fullmatch(pattern, value):
            yield f"{path}: {value!r} does not match {pattern}"
        if value not in meta.get("enum", (value,)):
            yield f"{path}: {value!r} is not one of {meta['enum']}"
    if isinstance(value, str | list | dict) and len(value) > meta.get("max", len(value)):
        yield f"{path}: longer than {meta['max']}"
    if isinstance(value, int) and not isinstance(value, bool) and value > meta.get("max", value):
        yield f"{path}: more than {meta['max']}"


def breaches(request: Request) -> list[str]:
    """Say where a request breaks botocore's service model."""
    model = _model(request.service)
    operation = "".join(part.title() for part in request.operation.split("_"))
    shape = model.operation_model(operation).input_shape
    report = ParamValidator().validate(request.parameters, shape)
    if report.has_errors():
        return [report.generate_report()]
    return list(_breaches(shape, request.parameters, operation))


def gated_catalog() -> Catalog:
    """The catalogue with an agreement to accept for gpt-oss-20b in JumpStart."""
    catalog = load_catalog()
    entry = catalog.jumpstart["gpt-oss-20b"].model_copy(update={"gated": True})
    return catalog.model_copy(update={"jumpstart": {"gpt-oss-20b": entry}})
