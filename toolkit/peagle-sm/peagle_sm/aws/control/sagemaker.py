"""SageMaker's control plane: one thin function per call.

A describe function returns None if the resource does not exist. The module covers endpoints, configs,
models, autoscaling, inference components (the models of an endpoint that hosts several, or that may scale to
zero), and the names of existing endpoints for "did you mean".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from itertools import islice
from typing import Any

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import NotFound, PeagleError

PAGE = 100  # maximum of ListEndpoints; its default is 10


@dataclass(frozen=True)
class EndpointFacts:
    """Result of DescribeEndpoint."""

    name: str
    arn: str
    status: str
    config_name: str
    created_at: datetime | None
    failure_reason: str | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def instance_count(self) -> int | None:
        """Number of running instances of all variants; None if not reported."""
        variants = self.raw.get("ProductionVariants") or []
        counts = [
            variant["CurrentInstanceCount"] for variant in variants if "CurrentInstanceCount" in variant
        ]
        return sum(counts) if counts else None

    @property
    def pending_config(self) -> str | None:
        """Config of an update in progress; None without one."""
        return (self.raw.get("PendingDeploymentSummary") or {}).get("EndpointConfigName")


@dataclass(frozen=True)
class ConfigFacts:
    """Result of DescribeEndpointConfig, with the first variant's instance."""

    name: str
    arn: str
    model_name: str | None
    instance_type: str | None
    instance_count: int | None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class ModelFacts:
    """Result of DescribeModel, with the primary container's image and environment."""

    name: str
    arn: str
    image: str | None
    environment: Mapping[str, str]
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def uri(self) -> str | None:
        """S3 address of the model's files; None without one, as for a model of the hub."""
        container = _container(self.raw)
        source = (container.get("ModelDataSource") or {}).get("S3DataSource") or {}
        return source.get("S3Uri") or container.get("ModelDataUrl")


@dataclass(frozen=True)
class Listed:
    """One row of a List call."""

    name: str
    arn: str
    status: str | None = None
    created_at: datetime | None = None


def set_instance_count(session: Session, endpoint: str, variant: str, count: int) -> None:
    """Send UpdateEndpointWeightsAndCapacities: the variant gets ``count`` instances."""
    session.api("sagemaker").update_endpoint_weights_and_capacities(
        EndpointName=endpoint,
        DesiredWeightsAndCapacities=[{"VariantName": variant, "DesiredInstanceCount": count}],
    )


def describe_endpoint(session: Session, name: str) -> EndpointFacts | None:
    """Return the endpoint's facts; None if it does not exist."""
    answer = session.api("sagemaker").find("describe_endpoint", EndpointName=name)
    if answer is None:
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
    """Return the endpoint config's facts; None if it does not exist."""
    answer = session.api("sagemaker").find("describe_endpoint_config", EndpointConfigName=name)
    if answer is None:
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
    """Return the model's facts; None if it does not exist."""
    answer = session.api("sagemaker").find("describe_model", ModelName=name)
    if answer is None:
        return None
    container = _container(answer)
    return ModelFacts(
        name=name,
        arn=answer["ModelArn"],
        image=container.get("Image"),
        environment=dict(container.get("Environment") or {}),
        raw=answer,
    )


def _container(model: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the container of a model, the first of several."""
    container: Mapping[str, Any] = model.get("PrimaryContainer") or (model.get("Containers") or [{}])[0]
    return container


def list_endpoints(session: Session) -> Iterator[Listed]:
    """List all endpoints, newest first."""
    return _listed(session, "endpoints", "Endpoint")


def list_endpoint_configs(
    session: Session, name_contains: str | None = None, pages: int | None = None
) -> Iterator[Listed]:
    """List endpoint configs, newest first: all pages, or the first ``pages``."""
    return _listed(session, "endpoint_configs", "EndpointConfig", name_contains, pages)


def list_models(
    session: Session, name_contains: str | None = None, pages: int | None = None
) -> Iterator[Listed]:
    """List models, newest first: all pages, or the first ``pages``."""
    return _listed(session, "models", "Model", name_contains, pages)


def _listed(
    session: Session, plural: str, kind: str, name_contains: str | None = None, pages: int | None = None
) -> Iterator[Listed]:
    asked: dict[str, Any] = {"MaxResults": PAGE, "SortBy": "CreationTime", "SortOrder": "Descending"}
    if name_contains:
        asked["NameContains"] = name_contains
    rows = session.api("sagemaker").rows(f"list_{plural}", f"{kind}s", **asked)
    for row in islice(rows, None if pages is None else pages * PAGE):
        name, arn = row[f"{kind}Name"], row[f"{kind}Arn"]
        yield Listed(name, arn, row.get(f"{kind}Status"), row.get("CreationTime"))


def tags_of(session: Session, arn: str) -> dict[str, str] | None:
    """Return a resource's tags; None if the resource does not exist."""
    try:
        rows = session.api("sagemaker").rows("list_tags", "Tags", ResourceArn=arn)
        return {tag["Key"]: tag["Value"] for tag in rows}
    except NotFound:
        return None


def add_tags(session: Session, arn: str, tags: Mapping[str, str]) -> None:
    """Add tags to a resource; existing keys get the new values."""
    session.api("sagemaker").add_tags(
        ResourceArn=arn, Tags=[{"Key": key, "Value": value} for key, value in tags.items()]
    )


def remove_tags(session: Session, arn: str, keys: Sequence[str]) -> None:
    """Remove tags from a resource; ignore missing keys."""
    session.api("sagemaker").delete_tags(ResourceArn=arn, TagKeys=list(keys))


def component_names(session: Session, endpoint: str) -> tuple[str, ...]:
    """Return the sorted names of an endpoint's inference components.

    Raises:
        CredentialsError: sagemaker:ListInferenceComponents is not allowed.
        ServiceFault: AWS returns an error, or does not answer.
    """
    request = {"EndpointNameEquals": endpoint, "MaxResults": PAGE}
    rows = session.api("sagemaker").rows("list_inference_components", "InferenceComponents", **request)
    return tuple(sorted(row["InferenceComponentName"] for row in rows))


def describe_component(session: Session, name: str) -> dict[str, Any] | None:
    """Return the answer of DescribeInferenceComponent; None if it does not exist."""
    return session.api("sagemaker").find("describe_inference_component", InferenceComponentName=name)


MOST_NAMES = 1000


def endpoint_names(session: Session) -> list[str]:
    """Return the names of the first thousand existing endpoints."""
    return [endpoint.name for endpoint in islice(list_endpoints(session), MOST_NAMES)]


def did_you_mean(session: Session, name: str) -> str:
    """Return " Did you mean 'x'?" with the nearest existing name, or an empty string.

    If the endpoints cannot be listed, it suggests nothing: the caller's own error matters more.
    """
    known: dict[str, str] = {}
    with suppress(PeagleError):
        known = {each.lower(): each for each in endpoint_names(session)}
    close = get_close_matches(name.lower(), known, n=1)
    return f" Did you mean {known[close[0]]!r}?" if close else ""
