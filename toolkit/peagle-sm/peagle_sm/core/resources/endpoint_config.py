"""Endpoint config: the instances of an endpoint, and its model; it costs nothing."""

from __future__ import annotations

from typing import Any

from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.resources.model import Model, role_and_network
from peagle_sm.core.resources.naming import Names
from peagle_sm.core.resources.resource import Resource

VARIANT = "AllTraffic"
_POOL_WAIT_S = 1800


class EndpointConfig(Resource):
    """An endpoint config; never changed: another spec has another name."""

    kind, words = "endpoint-config", "endpoint config"
    noun, name_field, arn_field = "endpoint_config", "EndpointConfigName", "EndpointConfigArn"
    rests = True
    cloudformation = "AWS::SageMaker::EndpointConfig"
    template_id = "EndpointConfig"


def endpoint_config(names: Names, draft: Draft, tags: list[dict[str, str]]) -> EndpointConfig:
    """Return the endpoint config of a plan; with a component only that one names the model."""
    body = config_body(draft)
    model = {} if names.component else {"ModelName": names.model}
    variant = {**model, **body["ProductionVariants"][0]}
    parameters = {
        "EndpointConfigName": names.config,
        **body,
        "ProductionVariants": [variant],
        "Tags": tags,
    }
    return EndpointConfig(names.config, parameters, needs=(Model(names.model).label,))


def config_body(draft: Draft) -> dict[str, Any]:
    """Return the CreateEndpointConfig request without name, model and tags."""
    metrics = draft.spec.metrics
    body: dict[str, Any] = {
        "ProductionVariants": [_variant(draft)],
        "MetricsConfig": {
            "EnableDetailedObservability": metrics.detailed,
            "MetricPublishFrequencyInSeconds": metrics.publish_seconds,
        },
    }
    if draft.scales_to_zero:
        body |= role_and_network(draft)
    if draft.spec.security.kms_key_id is not None:
        body["KmsKeyId"] = draft.spec.security.kms_key_id
    return body


def _variant(draft: Draft) -> dict[str, Any]:
    placement = draft.spec.placement
    download_s = draft.jumpstart.download_timeout_s if draft.jumpstart else 3600
    variant: dict[str, Any] = {
        "VariantName": VARIANT,
        "InitialInstanceCount": placement.instance_count,
        "ModelDataDownloadTimeoutInSeconds": download_s,
        "ContainerStartupHealthCheckTimeoutInSeconds": draft.spec.startup_timeout_s,
        "RoutingConfig": {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"},
    }
    if len(draft.instance_types) == 1:
        variant["InstanceType"] = draft.instance_types[0]
    else:
        variant["InstancePools"] = [
            {"InstanceType": name, "Priority": rank}
            for rank, name in enumerate(draft.instance_types, start=1)
        ]
        variant["VariantInstanceProvisionTimeoutInSeconds"] = _POOL_WAIT_S
    ami = host_ami(draft)
    if ami is not None:
        variant["InferenceAmiVersion"] = ami
    if placement.capacity_reservation_arn is not None:
        variant["CapacityReservationConfig"] = {
            "CapacityReservationPreference": "capacity-reservations-only",
            "MlReservationArn": placement.capacity_reservation_arn,
        }
    if draft.scales_to_zero:
        least, most = draft.spec.instance_bounds
        variant["ManagedInstanceScaling"] = {
            "Status": "ENABLED",
            "MinInstanceCount": least,
            "MaxInstanceCount": most,
        }
    return variant


def host_ami(draft: Draft) -> str | None:
    """Return the host AMI that fits the image's CUDA and GPUs; None: AWS's default."""
    chosen = draft.spec.placement.inference_ami_version
    if chosen is not None or draft.image is None or draft.image.cuda is None:
        return chosen
    images = draft.catalog.images
    ami = images.ami_for_cuda.get(draft.image.cuda.partition(".")[0])
    facts = [draft.instance(name) for name in draft.instance_types]
    needed = max((entry.min_driver or 0 for entry in facts if entry), default=0)
    if ami is not None and images.amis[ami].driver < needed:
        return min((n for n, a in images.amis.items() if a.driver >= needed), default=ami)
    return ami
