"""SageMaker's control plane: one thin function a call, None where the resource does not exist."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any

from peagle_sm.aws.session.errors import aws_errors
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import NotFound, PeagleError

PAGE = 100  # ListEndpoints gives 10 unless asked for more, and 100 at most.


@dataclass(frozen=True)
class EndpointFacts:
    """What DescribeEndpoint says."""

    name: str
    arn: str
    status: str
    config_name: str
    created_at: datetime | None
    failure_reason: str | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def instance_count(self) -> int | None:
        """How many instances run now, in all variants; None where SageMaker does not say."""
        variants = self.raw.get("ProductionVariants") or []
        counts = [one["CurrentInstanceCount"] for one in variants if "CurrentInstanceCount" in one]
        return sum(counts) if counts else None

    @property
    def pending_config(self) -> str | None:
        """The config that it is on its way to; None while nothing is under way."""
        return (self.raw.get("PendingDeploymentSummary") or {}).get("EndpointConfigName")


@dataclass(frozen=True)
class ConfigFacts:
    """What DescribeEndpointConfig says; the instance is that of the first variant."""

    name: str
    arn: str
    model_name: str | None
    instance_type: str | None
    instance_count: int | None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class ModelFacts:
    """What DescribeModel says; image and environment are those of the primary container."""

    name: str
    arn: str
    image: str | None
    environment: Mapping[str, str]
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Listed:
    """One row of a List call."""

    name: str
    arn: str
    status: str | None = None
    created_at: datetime | None = None


def create_model(session: Session, parameters: Mapping[str, Any]) -> None:
    """Send CreateModel once."""
    with aws_errors("CreateModel", session.local_url):
        session.creating_client("sagemaker").create_model(**parameters)


def create_endpoint_config(session: Session, parameters: Mapping[str, Any]) -> None:
    """Send CreateEndpointConfig once."""
    with aws_errors("CreateEndpointConfig", session.local_url):
        session.creating_client("sagemaker").create_endpoint_config(**parameters)


def create_endpoint(session: Session, parameters: Mapping[str, Any]) -> None:
    """Send CreateEndpoint once; from here on it costs money."""
    with aws_errors("CreateEndpoint", session.local_url):
        session.creating_client("sagemaker").create_endpoint(**parameters)


def update_endpoint(
    session: Session, name: str, config: str, deployment: Mapping[str, Any], *, retain: bool
) -> None:
    """Send UpdateEndpoint once; from here on a second fleet costs money until the first is gone.

    ``retain`` keeps the instance count that runs now instead of taking the config's.
    """
    with aws_errors("UpdateEndpoint", session.local_url):
        session.creating_client("sagemaker").update_endpoint(
            EndpointName=name,
            EndpointConfigName=config,
            DeploymentConfig=deployment,
            RetainAllVariantProperties=retain,
        )


def is_scalable(session: Session, endpoint: str, variant: str) -> bool:
    """Return whether Application Auto Scaling has the variant as a target; False if that cannot be read."""
    try:
        with aws_errors("DescribeScalableTargets", session.local_url):
            answer = session.client("application-autoscaling").describe_scalable_targets(
                ServiceNamespace="sagemaker", ResourceIds=[f"endpoint/{endpoint}/variant/{variant}"]
            )
    except PeagleError:
        return False  # SageMaker itself refuses what this would have refused
    return bool(answer["ScalableTargets"])


def describe_endpoint(session: Session, name: str) -> EndpointFacts | None:
    """Return the endpoint's facts, or None when there is none of that name."""
    try:
        with aws_errors("DescribeEndpoint", session.local_url):
            answer = session.client("sagemaker").describe_endpoint(EndpointName=name)
    except NotFound:
        return None
    return EndpointFacts(
        name=name,
        arn=answer["EndpointArn"],
        status=answer["EndpointStatus"],
        config_name=answer.get("EndpointConfigName", ""),
        created_at=answer.get("CreationTime"),
        failure_reason=answer.get("FailureReason") or None,
        raw=answer,
    )


def describe_endpoint_config(session: Session, name: str) -> ConfigFacts | None:
    """Return the endpoint config's facts, or None when there is none of that name."""
    try:
        with aws_errors("DescribeEndpointConfig", session.local_url):
            answer = session.client("sagemaker").describe_endpoint_config(EndpointConfigName=name)
    except NotFound:
        return None
    variant = (answer.get("ProductionVariants") or [{}])[0]
    pools = variant.get("InstancePools") or [{}]
    return ConfigFacts(
        name=name,
        arn=answer["EndpointConfigArn"],
        model_name=variant.get("ModelName"),
        instance_type=variant.get("InstanceType") or pools[0].get("InstanceType"),
        instance_count=variant.get("InitialInstanceCount"),
        raw=answer,
    )


def describe_model(session: Session, name: str) -> ModelFacts | None:
    """Return the model's facts, or None when there is none of that name."""
    try:
        with aws_errors("DescribeModel", session.local_url):
            answer = session.client("sagemaker").describe_model(ModelName=name)
    except NotFound:
        return None
    container = answer.get("PrimaryContainer") or (answer.get("Containers") or [{}])[0]
    return ModelFacts(
        name=name,
        arn=answer["ModelArn"],
        image=container.get("Image"),
        environment=dict(container.get("Environment") or {}),
        raw=answer,
    )


def list_endpoints(session: Session) -> Iterator[Listed]:
    """List endpoints, every page, newest first."""
    for row in _pages(session, "list_endpoints", "Endpoints"):
        yield Listed(row["EndpointName"], row["EndpointArn"], row["EndpointStatus"], row.get("CreationTime"))


def list_endpoint_configs(
    session: Session, name_contains: str | None = None, pages: int | None = None
) -> Iterator[Listed]:
    """List endpoint configs, newest first: every page, or the first ``pages``."""
    for row in _pages(session, "list_endpoint_configs", "EndpointConfigs", name_contains, pages):
        yield Listed(row["EndpointConfigName"], row["EndpointConfigArn"], None, row.get("CreationTime"))


def list_models(
    session: Session, name_contains: str | None = None, pages: int | None = None
) -> Iterator[Listed]:
    """List models, newest first: every page, or the first ``pages``."""
    for row in _pages(session, "list_models", "Models", name_contains, pages):
        yield Listed(row["ModelName"], row["ModelArn"], None, row.get("CreationTime"))


def _pages(
    session: Session,
    operation: str,
    key: str,
    name_contains: str | None = None,
    pages: int | None = None,
) -> Iterator[dict[str, Any]]:
    asked: dict[str, Any] = {"MaxResults": PAGE, "SortBy": "CreationTime", "SortOrder": "Descending"}
    if name_contains:
        asked["NameContains"] = name_contains
    with aws_errors(operation, session.local_url):
        found = session.client("sagemaker").get_paginator(operation).paginate(**asked)
        for page in islice(found, pages):
            yield from page[key]


def tags_of(session: Session, arn: str) -> dict[str, str] | None:
    """Return a resource's tags, or None when the resource is gone."""
    try:
        with aws_errors("ListTags", session.local_url):
            pages = session.client("sagemaker").get_paginator("list_tags").paginate(ResourceArn=arn)
            return {tag["Key"]: tag["Value"] for page in pages for tag in page["Tags"]}
    except NotFound:
        return None


def add_tags(session: Session, arn: str, tags: Mapping[str, str]) -> None:
    """Put tags on a resource; those with the same keys are overwritten."""
    with aws_errors("AddTags", session.local_url):
        session.client("sagemaker").add_tags(
            ResourceArn=arn, Tags=[{"Key": key, "Value": value} for key, value in tags.items()]
        )


def remove_tags(session: Session, arn: str, keys: Sequence[str]) -> None:
    """Take tags off a resource; keys that it does not have are no mistake."""
    with aws_errors("DeleteTags", session.local_url):
        session.client("sagemaker").delete_tags(ResourceArn=arn, TagKeys=list(keys))


def delete_endpoint(session: Session, name: str) -> None:
    """Send DeleteEndpoint; its answer proves nothing: describe until the endpoint is gone.

    Raises:
        NotFound: there is no such endpoint.
        ServiceFault: refused, for example while Creating (see `aws.errors.is_refused_now`).
    """
    with aws_errors("DeleteEndpoint", session.local_url):
        session.client("sagemaker").delete_endpoint(EndpointName=name)


def delete_endpoint_config(session: Session, name: str) -> None:
    """Send DeleteEndpointConfig."""
    with aws_errors("DeleteEndpointConfig", session.local_url):
        session.client("sagemaker").delete_endpoint_config(EndpointConfigName=name)


def delete_model(session: Session, name: str) -> None:
    """Send DeleteModel."""
    with aws_errors("DeleteModel", session.local_url):
        session.client("sagemaker").delete_model(ModelName=name)
