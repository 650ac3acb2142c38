"""The exact requests of a deploy, in boto3's names and in the order in which they are sent."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime, timedelta
from typing import Any

from peagle_sm.core.environment import environment
from peagle_sm.core.records import Names, Request
from peagle_sm.core.resolve import Draft

VARIANT = "AllTraffic"
_POOL_WAIT_S = 1800
_RATE = "rate(10 minutes)"
_GUARD_LASTS = timedelta(days=1)


def partition(region: str) -> str:
    """Return the ARN partition of a region."""
    prefixes = {"cn-": "aws-cn", "us-gov-": "aws-us-gov", "eusc-": "aws-eusc", "us-iso-": "aws-iso"}
    prefixes |= {"us-isob-": "aws-iso-b", "eu-isoe-": "aws-iso-e", "us-isof-": "aws-iso-f"}
    return next((name for prefix, name in prefixes.items() if region.startswith(prefix)), "aws")


def host_ami(draft: Draft) -> str | None:
    """Return the host AMI whose driver suits the image's CUDA and the GPUs; None leaves AWS's default."""
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


def _data_source(draft: Draft, uri: str | None) -> dict[str, Any]:
    source: dict[str, Any] = {"S3Uri": uri, "S3DataType": "S3Prefix", "CompressionType": "None"}
    if draft.spec.accept_eula:
        source["ModelAccessConfig"] = {"AcceptEula": True}
    return source


def _model(draft: Draft) -> dict[str, Any]:
    container: dict[str, Any] = {
        "Image": draft.image.uri if draft.image else None,
        "ModelDataSource": {"S3DataSource": _data_source(draft, draft.model_uri)},
        "Environment": environment(draft),
    }
    if draft.speculating:
        container["AdditionalModelDataSources"] = [
            {"ChannelName": draft.channel, "S3DataSource": _data_source(draft, draft.head_uri)}
        ]
    security = draft.spec.security
    payload: dict[str, Any] = {
        "PrimaryContainer": container,
        "ExecutionRoleArn": draft.role_arn,
        "EnableNetworkIsolation": security.network_isolation,
    }
    if security.vpc is not None:
        payload["VpcConfig"] = {
            "Subnets": list(security.vpc.subnet_ids),
            "SecurityGroupIds": list(security.vpc.security_group_ids),
        }
    return payload


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
    return variant


def _config(draft: Draft) -> dict[str, Any]:
    payload: dict[str, Any] = {"ProductionVariants": [_variant(draft)]}
    if draft.spec.security.kms_key_id is not None:
        payload["KmsKeyId"] = draft.spec.security.kms_key_id
    return payload


def spec_hash(draft: Draft) -> str:
    """Return 16 hex digits over what CreateModel and CreateEndpointConfig ask for, names and tags apart."""
    text = json.dumps([_model(draft), _config(draft)], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _shortened(name: str, limit: int) -> str:
    """Shorten a name to ``limit`` characters; a digest keeps two long names apart."""
    if len(name) <= limit:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: limit - 9].rstrip('-')}-{digest}"


def schedule_name(endpoint: str) -> str:
    """Return the name of the schedule that ends an endpoint's life (at most 64 characters)."""
    return f"peagle-{_shortened(endpoint, 64 - len('peagle--lifetime'))}-lifetime"


def names_for(endpoint: str, digest: str) -> Names:
    """Return the names of everything that a deploy of this endpoint with this hash makes."""
    hashed = f"{_shortened(endpoint, 54)}-{digest[:8]}"
    return Names(endpoint=endpoint, config=hashed, model=hashed, schedule=schedule_name(endpoint))


def _expiry(draft: Draft) -> datetime:
    now = draft.context.now.replace(microsecond=0)
    return now + timedelta(hours=draft.spec.lifecycle.max_lifetime_hours)


def tags(draft: Draft, digest: str) -> list[dict[str, str]]:
    """Return the tags of everything that is created, the spec's own last."""
    lifecycle = draft.spec.lifecycle
    ours = {
        "peagle-sm:managed-by": "peagle-sm",
        "peagle-sm:endpoint": draft.spec.name,
        "peagle-sm:spec-hash": digest,
        "peagle-sm:mode": draft.mode,
        "peagle-sm:idle-minutes": str(lifecycle.idle_minutes),
        "peagle-sm:grace-minutes": str(lifecycle.grace_minutes),
        "peagle-sm:expires": _expiry(draft).isoformat(timespec="seconds"),
    }
    return [{"Key": key, "Value": value} for key, value in {**ours, **draft.spec.tags}.items()]


def _schedule(draft: Draft, names: Names) -> dict[str, Any]:
    """A rate, not a single shot: one shot loses against an endpoint that is Creating or Updating.

    Without StartDate a rate fires at once.
    """
    expiry = _expiry(draft)
    return {
        "Name": names.schedule,
        "Description": f"peagle-sm: deletes endpoint {names.endpoint} at the end of its lifetime",
        "ScheduleExpression": _RATE,
        "StartDate": expiry,
        "EndDate": expiry + _GUARD_LASTS,
        "State": "ENABLED",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "ActionAfterCompletion": "DELETE",
        "Target": {
            "Arn": f"arn:{partition(draft.region)}:scheduler:::aws-sdk:sagemaker:deleteEndpoint",
            "RoleArn": draft.scheduler_role_arn,
            "Input": json.dumps({"EndpointName": names.endpoint}),
        },
    }


def requests_for(draft: Draft, names: Names, digest: str) -> tuple[Request, ...]:
    """Return the requests in order: the guard first, so that nothing ever runs without it.

    Empty when a fact is missing that the payloads cannot do without.
    """
    if draft.gaps:
        return ()
    marks = tags(draft, digest)
    config = _config(draft)
    variant = {"ModelName": names.model, **config["ProductionVariants"][0]}
    return (
        Request("scheduler", "create_schedule", _schedule(draft, names)),
        Request("sagemaker", "create_model", {"ModelName": names.model, **_model(draft), "Tags": marks}),
        Request(
            "sagemaker",
            "create_endpoint_config",
            {"EndpointConfigName": names.config, **config, "ProductionVariants": [variant], "Tags": marks},
        ),
        Request(
            "sagemaker",
            "create_endpoint",
            {"EndpointName": names.endpoint, "EndpointConfigName": names.config, "Tags": marks},
        ),
    )
