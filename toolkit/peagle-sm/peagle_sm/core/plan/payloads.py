"""Exact requests of a deploy, and their changes in an update.

`requests_for` builds CreateModel, CreateEndpointConfig, CreateEndpoint and the lifetime schedule, in boto3's
names and in order. `changes` compares the payloads of an existing endpoint with the wanted ones, by field.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from peagle_sm.core.guard import scheduler_role
from peagle_sm.core.plan import tags_and_schedules as keys
from peagle_sm.core.plan.cost import cost_of
from peagle_sm.core.plan.environment import acceptance_namespace, environment
from peagle_sm.core.plan.memory import compute_requirements, copies_per_instance
from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.plan.scaling import VARIANT, component_request, component_tag, scaling_of, scaling_tag
from peagle_sm.core.plan.tags_and_schedules import (
    PAUSED,
    PREFIX,
    SCHEDULER_ROLE,
    SPEC_HASH,
    component_schedule,
    lifetime_schedule,
    schedule_name,
    shortened,
)

_POOL_WAIT_S = 1800
_DEFAULT_PUBLISH_S = 60


@dataclass(frozen=True)
class Request:
    """One call to AWS in boto3's names, as ("sagemaker", "create_model", {...})."""

    service: str
    operation: str
    parameters: dict[str, Any]

    @property
    def name(self) -> str:
        """Name of the resource that it creates."""
        own = "".join(word.capitalize() for word in self.operation.split("_")[1:])
        names = (f"{own}Name", "Name", "PolicyName", "AlarmName", "ResourceId")
        return next((str(self.parameters[name]) for name in names if name in self.parameters), "")


@dataclass(frozen=True)
class Names:
    """Names of everything that one deploy creates; ``component`` may be None.

    The component has the endpoint's name, so that a caller need not know the hash.
    """

    endpoint: str
    config: str
    model: str
    schedule: str
    component: str | None = None


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


def _has_agreement(draft: Draft, uri: str | None) -> bool:
    """Return whether the files are JumpStart's and have a licence agreement."""
    entry = draft.jumpstart
    if entry is None or not entry.gated or uri is None:
        return False
    return uri in (entry.target(draft.region), entry.draft(draft.region))


def _data_source(draft: Draft, uri: str | None) -> dict[str, Any]:
    source: dict[str, Any] = {"S3Uri": uri, "S3DataType": "S3Prefix", "CompressionType": "None"}
    if draft.spec.accept_eula and _has_agreement(draft, uri):
        source["ModelAccessConfig"] = {"AcceptEula": True}
    return source


def model_body(draft: Draft) -> dict[str, Any]:
    """Return the CreateModel request without name and tags; missing facts are None."""
    container: dict[str, Any] = {
        "Image": draft.image.uri if draft.image else None,
        "ModelDataSource": {"S3DataSource": _data_source(draft, draft.model_uri)},
        "Environment": environment(draft),
    }
    if draft.speculating and draft.head_beside_target is None:
        container["AdditionalModelDataSources"] = [
            {"ChannelName": draft.channel, "S3DataSource": _data_source(draft, draft.head_uri)}
        ]
    every = draft.spec.metrics.publish_seconds
    if draft.spec.metrics.detailed and every != _DEFAULT_PUBLISH_S:
        # Without it SageMaker reads /metrics on port 8080 once a minute, which is what the engine serves.
        container["ContainerMetricsConfig"] = {
            "MetricsEndpoints": [
                {"MetricsEndpointPath": "/metrics", "MetricPublishFrequencyInSeconds": every}
            ]
        }
    return {"PrimaryContainer": container, **_placed(draft)}


def _placed(draft: Draft) -> dict[str, Any]:
    """Return role and network: of the model, or of the config with a component."""
    security = draft.spec.security
    payload: dict[str, Any] = {
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
    if draft.scales_to_zero:
        least, most = draft.spec.instance_bounds
        variant["ManagedInstanceScaling"] = {
            "Status": "ENABLED",
            "MinInstanceCount": least,
            "MaxInstanceCount": most,
        }
    return variant


def _config(draft: Draft) -> dict[str, Any]:
    metrics = draft.spec.metrics
    payload: dict[str, Any] = {
        "ProductionVariants": [_variant(draft)],
        "MetricsConfig": {
            "EnableDetailedObservability": metrics.detailed,
            "MetricPublishFrequencyInSeconds": metrics.publish_seconds,
        },
    }
    if draft.scales_to_zero:
        payload |= _placed(draft)
    if draft.spec.security.kms_key_id is not None:
        payload["KmsKeyId"] = draft.spec.security.kms_key_id
    return payload


def spec_hash(draft: Draft) -> str:
    """Return a hash of both Create requests, without names and tags."""
    text = json.dumps([model_body(draft), _config(draft)], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def hashed_prefix(endpoint: str) -> str:
    """Return the name prefix of an endpoint's configs and models, before the hash."""
    return f"{shortened(endpoint, 54)}-"


def names_for(endpoint: str, digest: str, *, component: bool = False) -> Names:
    """Return the names of everything that a deploy with this hash creates."""
    hashed = hashed_prefix(endpoint) + digest[:8]
    return Names(
        endpoint=endpoint,
        config=hashed,
        model=hashed,
        schedule=schedule_name(endpoint),
        component=endpoint if component else None,
    )


def tags(draft: Draft, digest: str) -> list[dict[str, str]]:
    """Return the tags of all created resources, the spec's own tags last."""
    spec, lifecycle, cost = draft.spec, draft.spec.lifecycle, cost_of(draft)
    price = cost.usd_per_hour
    least, most = spec.instance_bounds
    ours = {
        keys.MANAGED_BY: keys.MANAGER,
        keys.ENDPOINT: spec.name,
        keys.SPEC_HASH: digest,
        keys.MODE: draft.mode,
        keys.INSTANCE_TYPE: draft.instance_types[0],
        keys.INSTANCE_COUNT: str(spec.placement.instance_count),
        keys.IDLE_MINUTES: str(lifecycle.idle_minutes),
        keys.GRACE_MINUTES: str(lifecycle.grace_minutes),
        keys.MAX_LIFETIME_HOURS: keys.number(lifecycle.max_lifetime_hours),
    }
    scaling = scaling_of(draft) if draft.context.stack is None else None
    every, tokens = spec.metrics.publish_seconds, draft.num_speculative_tokens
    set_only = {
        keys.NUM_SPECULATIVE_TOKENS: str(tokens) if draft.speculating and tokens else None,
        keys.INSTANCE_BOUNDS: f"{least}-{most}" if least != most else None,
        keys.LIFETIME_ROLE: "own" if _own_lifetime_role(draft) else None,
        keys.PUBLISH_SECONDS: str(every) if every != _DEFAULT_PUBLISH_S else None,
        keys.BUDGET_USD: None if lifecycle.budget_usd is None else keys.number(lifecycle.budget_usd),
        keys.USD_PER_HOUR: keys.number(price) if price else None,
        keys.PRICE_BOUND: "at-most" if price and cost.at_most else None,
        keys.HOURS: spec.hours,
        keys.STACK: draft.context.stack,
        keys.IDLE: lifecycle.idle if draft.scales_to_zero else None,
        keys.SCALING: None if scaling is None else scaling_tag(scaling),
        keys.COMPONENT: component_tag(_copies(draft), compute_requirements(draft))
        if scaling and draft.scales_to_zero
        else None,
    }
    ours |= {key: value for key, value in set_only.items() if value is not None}
    return [{"Key": key, "Value": value} for key, value in {**ours, **spec.tags}.items()]


def _own_lifetime_role(draft: Draft) -> bool:
    """Return whether the lifetime schedule's role is not the guard's."""
    role = (draft.scheduler_role_arn or "").rpartition("/")[2]
    return draft.context.stack is None and bool(role) and role != scheduler_role(draft.region)


def _schedule(draft: Draft) -> list[Request]:
    if draft.context.now is None or draft.context.stack is not None:
        return []  # a stack arms its own limit, as a resource that the endpoint depends on
    hours = timedelta(hours=draft.spec.lifecycle.max_lifetime_hours)
    expiry = draft.context.now.replace(microsecond=0) + hours
    parameters = lifetime_schedule(draft.spec.name, draft.region, draft.scheduler_role_arn, expiry)
    schedules = [parameters]
    if draft.scales_to_zero:
        schedules = [
            component_schedule(draft.spec.name, parameters, draft.spec.name),
            parameters,
        ]
    return [Request("scheduler", "create_schedule", schedule) for schedule in schedules]


def requests_for(draft: Draft, names: Names, digest: str) -> tuple[Request, ...]:
    """Return the requests in order: the lifetime schedule first.

    The endpoint never exists without its schedule. Empty if a fact that the payloads need is missing.
    """
    if draft.missing_fields:
        return ()
    marks = tags(draft, digest)
    config = _config(draft)
    model = {} if names.component else {"ModelName": names.model}
    variant = {**model, **config["ProductionVariants"][0]}
    requests = [
        *_schedule(draft),
        Request("sagemaker", "create_model", {"ModelName": names.model, **model_body(draft), "Tags": marks}),
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
    ]
    if names.component is not None:
        parameters = {**component(draft, names, variant), "Tags": marks}
        requests.append(Request("sagemaker", "create_inference_component", parameters))
    scaling = scaling_of(draft)
    return (*requests, *(Request(*call) for call in (scaling.calls() if scaling else ())))


def component(draft: Draft, names: Names, variant: Mapping[str, Any]) -> dict[str, Any]:
    """Return the CreateInferenceComponent request without tags, by ModelName."""
    return component_request(
        names.endpoint, names.model, variant, compute_requirements(draft), _copies(draft)
    )


def _copies(draft: Draft) -> int:
    return draft.spec.placement.instance_count * copies_per_instance(draft)


# Names and tags differ between any two plans; ARNs and times are AWS's own.
_NAMES = frozenset({"ModelName", "EndpointConfigName", "Tags"})
# What stands below these and is not asked for any more goes; elsewhere AWS fills in defaults of its own.
_WHOLE = (
    "Environment",
    "AdditionalModelDataSources",
    "VpcConfig",
    "InstancePools",
    "CapacityReservationConfig",
)

BAKING_S = 300
"""Seconds that the old fleet is kept, with the alarms active, after the traffic shift."""
LONGEST_UPDATE_S = 14400
"""MaximumExecutionTimeoutInSeconds (600 to 28800): each startup timeout may be an hour."""


@dataclass(frozen=True)
class Change:
    """One changed field; None means absent before, or afterwards."""

    field: str
    before: str | None
    after: str | None


def changes(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[Change, ...]:
    """Compare a described resource with its request; only requested fields count."""
    has, asked = dict(_flat(found)), dict(_flat(wanted))
    gone = [path for path in has if path not in asked and any(f"{part}." in path for part in _WHOLE)]
    differing = [path for path, value in asked.items() if has.get(path) != value]
    return tuple(Change(path, has.get(path), asked.get(path)) for path in sorted({*differing, *gone}))


def tag_changes(found: Mapping[str, str], wanted: Mapping[str, str]) -> tuple[Change, ...]:
    """Compare tags; of unrequested tags only peagle-sm's are removed."""
    told = {key: value for key, value in found.items() if key not in (PAUSED, SCHEDULER_ROLE)}
    gone = {key for key in told if key.startswith(PREFIX) and key not in wanted}
    keys = sorted({*gone, *(key for key, value in wanted.items() if told.get(key) != value)} - {SPEC_HASH})
    return tuple(Change(f"Tags.{key}", told.get(key), wanted.get(key)) for key in keys)


def stale_tags(found: Mapping[str, str], wanted: Mapping[str, str]) -> tuple[str, ...]:
    """Return the keys of peagle-sm's tags that the new spec lacks."""
    return tuple(sorted(key for key in found if key.startswith(PREFIX) and key not in wanted))


@dataclass(frozen=True)
class Canary:
    """Share of the new fleet that first serves alone, with the alarms on, and for how long."""

    percent: int
    seconds: int


def deployment_config(alarms: Sequence[str], canary: Canary | None = None) -> dict[str, Any]:
    """Return UpdateEndpoint's DeploymentConfig: all at once or by canary; alarms roll back."""
    routing: dict[str, Any] = {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": 0}
    if canary is not None:
        size = {"Type": "CAPACITY_PERCENT", "Value": canary.percent}
        routing = {"Type": "CANARY", "CanarySize": size, "WaitIntervalInSeconds": canary.seconds}
    return {
        "BlueGreenUpdatePolicy": {
            "TrafficRoutingConfiguration": routing,
            "TerminationWaitInSeconds": BAKING_S,
            "MaximumExecutionTimeoutInSeconds": LONGEST_UPDATE_S,
        },
        "AutoRollbackConfiguration": {"Alarms": [{"AlarmName": name} for name in alarms]},
    }


def update_alarm(endpoint: str) -> dict[str, Any]:
    """Return the PutMetricAlarm request of an update: any 5xx rolls it back."""
    return {
        "AlarmName": keys.alarm_names(endpoint)[0],
        "AlarmDescription": f"peagle-sm: undoes an update of endpoint {endpoint} whose engine fails requests",
        "Namespace": "AWS/SageMaker",
        "MetricName": "Invocation5XXErrors",
        "Dimensions": [
            {"Name": "EndpointName", "Value": endpoint},
            {"Name": "VariantName", "Value": VARIANT},
        ],
        "Statistic": "Sum",
        "Period": 60,
        "EvaluationPeriods": 1,
        "Threshold": 1.0,
        "ComparisonOperator": "GreaterThanOrEqualToThreshold",
        "TreatMissingData": "notBreaching",
    }


ACCEPTANCE_METRIC = "AcceptanceLength"  #: the gate's


def acceptance_alarm(endpoint: str, least_length: float) -> dict[str, Any]:
    """Return the PutMetricAlarm request of a promotion: a lower acceptance length rolls it back.

    The gate in this project's image writes the metric, without dimensions, in the endpoint's namespace. While
    two fleets serve, it is the mean of both. Without the gate there is no data, and the alarm stays silent.
    """
    return {
        "AlarmName": keys.alarm_names(endpoint)[1],
        "AlarmDescription": f"peagle-sm: undoes a promotion of endpoint {endpoint} whose head drafts worse",
        "Namespace": acceptance_namespace(endpoint),
        "MetricName": ACCEPTANCE_METRIC,
        "Statistic": "Average",
        "Period": 60,
        "EvaluationPeriods": 3,
        "DatapointsToAlarm": 3,
        "Threshold": round(least_length, 4),
        "ComparisonOperator": "LessThanThreshold",
        "TreatMissingData": "notBreaching",
    }


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, one in value.items():
            if key not in _NAMES:
                yield from _flat(one, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for number, one in enumerate(value):
            yield from _flat(one, f"{path}.{number}")
    elif (inner := _object(value)) is not None:  # a config within a variable: what differs in it is told
        yield from _flat(inner, path)
    else:
        yield path, value if isinstance(value, str) else json.dumps(value, default=str)


def _object(value: Any) -> dict[str, Any] | None:
    if not isinstance(value, str) or not value.startswith("{"):
        return None
    try:
        found = json.loads(value)
    except ValueError:
        return None
    return found if isinstance(found, dict) and found else None
