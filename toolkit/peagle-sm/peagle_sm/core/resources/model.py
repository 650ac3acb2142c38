"""Model: image, weights and environment of the engine; it costs nothing.

CloudFormation's type lacks AdditionalModelDataSources (the draft head's channel) and ContainerMetricsConfig:
a stack makes such a model by the guard's provider, Custom::PeagleModel.
"""

from __future__ import annotations

from typing import Any

from peagle_sm.core.plan.environment import environment
from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.resources.resource import Resource

DEFAULT_PUBLISH_S = 60


class Model(Resource):
    """A model of SageMaker."""

    kind, words = "model", "model"
    noun, name_field, arn_field = "model", "ModelName", "ModelArn"
    rests = True
    cloudformation = "AWS::SageMaker::Model"
    template_id = "Model"


def model(name: str, draft: Draft, tags: list[dict[str, str]]) -> Model:
    """Return the model of a plan."""
    return Model(name, {"ModelName": name, **model_body(draft), "Tags": tags})


def model_body(draft: Draft) -> dict[str, Any]:
    """Return the CreateModel request without name and tags; missing facts are None."""
    container: dict[str, Any] = {
        "Image": draft.image.uri if draft.image else None,
        "ModelDataSource": {"S3DataSource": _data_source(draft, draft.model_uri)},
        "Environment": environment(draft),
    }
    has_files = draft.mode_facts.has_weights and not draft.drafts_inside_target
    if has_files and draft.head_beside_target is None:
        container["AdditionalModelDataSources"] = [
            {"ChannelName": draft.channel, "S3DataSource": _data_source(draft, draft.head_uri)}
        ]
    every = draft.spec.metrics.publish_seconds
    if draft.spec.metrics.detailed and every != DEFAULT_PUBLISH_S:
        # Without it SageMaker reads /metrics on port 8080 once a minute, which is what the engine serves.
        container["ContainerMetricsConfig"] = {
            "MetricsEndpoints": [
                {"MetricsEndpointPath": "/metrics", "MetricPublishFrequencyInSeconds": every}
            ]
        }
    return {"PrimaryContainer": container, **role_and_network(draft)}


def role_and_network(draft: Draft) -> dict[str, Any]:
    """Return the fields that a model has, and with a component the endpoint config, too."""
    security = draft.spec.security
    fields: dict[str, Any] = {
        "ExecutionRoleArn": draft.role_arn,
        "EnableNetworkIsolation": security.network_isolation,
    }
    if security.vpc is not None:
        fields["VpcConfig"] = {
            "Subnets": list(security.vpc.subnet_ids),
            "SecurityGroupIds": list(security.vpc.security_group_ids),
        }
    return fields


def _data_source(draft: Draft, uri: str | None) -> dict[str, Any]:
    source: dict[str, Any] = {"S3Uri": uri, "S3DataType": "S3Prefix", "CompressionType": "None"}
    if draft.spec.accept_eula and _has_agreement(draft, uri):
        source["ModelAccessConfig"] = {"AcceptEula": True}
    return source


def _has_agreement(draft: Draft, uri: str | None) -> bool:
    """Return whether the files are JumpStart's and have a licence agreement."""
    entry = draft.jumpstart
    if entry is None or not entry.gated or uri is None:
        return False
    return uri in (entry.target(draft.region), entry.draft(draft.region))
