"""Autoscaling of an endpoint: its target, policies, and the alarm that scales out from zero.

Without a component the variant's instances scale. With one its copies scale, and SageMaker's managed instance
scaling follows. A stack and `peagle-sm deploy` send the same requests. `resume` has no spec, so it reads the
settings from tags.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from peagle_sm.core.plan import tags_and_schedules as keys
from peagle_sm.core.plan.memory import copies_per_instance
from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.spec.endpoint_spec import AutoscalingSpec

VARIANT = "AllTraffic"
Call = tuple[str, str, dict[str, Any]]
"""Service, operation and parameters, in boto3's names."""
_SCALE_OUT_S = 60
_OF_VARIANT = "SageMakerVariantConcurrentRequestsPerModelHighResolution"
_OF_COPY = "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution"
_REQUIREMENTS = {
    "accelerators": ("NumberOfAcceleratorDevicesRequired", float),
    "cores": ("NumberOfCpuCoresRequired", float),
    "memory": ("MinMemoryRequiredInMb", int),
}


@dataclass(frozen=True)
class Scaling:
    """Autoscaling of an endpoint's instances, or of its component's copies.

    ``least`` and ``most`` count instances or copies, and ``target`` is the number of requests in flight for
    each of them.
    """

    endpoint: str
    component: str | None
    least: int
    most: int
    target: float
    scale_in_minutes: int

    @property
    def _on_target(self) -> dict[str, Any]:
        resource_id, dimension = scalable(self.endpoint, self.component)
        return {"ServiceNamespace": "sagemaker", "ResourceId": resource_id, "ScalableDimension": dimension}

    def register(self) -> dict[str, Any]:
        """Return the RegisterScalableTarget request."""
        return {**self._on_target, "MinCapacity": self.least, "MaxCapacity": self.most}

    def tracking(self) -> dict[str, Any]:
        """Return the PutScalingPolicy request of target tracking."""
        metric = _OF_VARIANT if self.component is None else _OF_COPY
        return {
            **self._on_target,
            "PolicyName": f"peagle-{self.endpoint}-requests-in-flight",
            "PolicyType": "TargetTrackingScaling",
            "TargetTrackingScalingPolicyConfiguration": {
                "PredefinedMetricSpecification": {"PredefinedMetricType": metric},
                "TargetValue": self.target,
                "ScaleInCooldown": self.scale_in_minutes * 60,
                "ScaleOutCooldown": _SCALE_OUT_S,
            },
        }

    def from_zero(self) -> dict[str, Any]:
        """Return the PutScalingPolicy request that adds the first copy."""
        return {
            **self._on_target,
            "PolicyName": f"peagle-{self.endpoint}-from-zero",
            "PolicyType": "StepScaling",
            "StepScalingPolicyConfiguration": {
                "AdjustmentType": "ChangeInCapacity",
                "MetricAggregationType": "Maximum",
                "Cooldown": _SCALE_OUT_S,
                "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}],
            },
        }

    def alarm(self, action: str | None = None) -> dict[str, Any]:
        """Return the PutMetricAlarm request: the first failed request triggers the policy ``action``.

        AWS chooses the policy's ARN; without ``action`` the request has a placeholder for it.
        """
        return {
            "AlarmName": keys.from_zero_alarm(self.endpoint),
            "AlarmDescription": "A request found no copy: this alarm triggers scale-out. No action needed.",
            "Namespace": "AWS/SageMaker",
            "MetricName": "NoCapacityInvocationFailures",
            "Dimensions": [{"Name": "InferenceComponentName", "Value": self.component}],
            "Statistic": "Maximum",
            "Period": 60,
            "EvaluationPeriods": 1,
            "Threshold": 1.0,
            "ComparisonOperator": "GreaterThanOrEqualToThreshold",
            "TreatMissingData": "missing",
            "AlarmActions": [action or policy_placeholder(self.from_zero()["PolicyName"])],
        }

    def calls(self) -> tuple[Call, ...]:
        """Return the requests in order."""
        service, put_policy = "application-autoscaling", "put_scaling_policy"
        requests: tuple[Call, ...] = (
            (service, "register_scalable_target", self.register()),
            (service, put_policy, self.tracking()),
        )
        if self.component is None:
            return requests
        return (
            *requests,
            (service, put_policy, self.from_zero()),
            ("cloudwatch", "put_metric_alarm", self.alarm()),
        )


def policy_placeholder(policy: str) -> str:
    """Return the placeholder for a policy's ARN, which AWS chooses."""
    return f"<ARN of policy {policy}>"


def scalable(endpoint: str, component: str | None) -> tuple[str, str]:
    """Return resource id and dimension of the scalable target of an endpoint, or of its component."""
    if component is not None:
        return f"inference-component/{component}", "sagemaker:inference-component:DesiredCopyCount"
    return f"endpoint/{endpoint}/variant/{VARIANT}", "sagemaker:variant:DesiredInstanceCount"


def scaling_of(draft: Draft) -> Scaling | None:
    """Return the autoscaling of a spec; None if its instance count is fixed."""
    settings, spec = draft.spec.autoscaling, draft.spec
    least, most = spec.instance_bounds
    if draft.scales_to_zero:
        settings = settings or AutoscalingSpec(max_instances=spec.placement.instance_count)
        copies = copies_per_instance(draft)
        per_copy = settings.target_concurrency / copies
        return Scaling(spec.name, spec.name, 0, most * copies, per_copy, settings.scale_in_minutes)
    if settings is None:
        return None
    return Scaling(spec.name, None, least, most, settings.target_concurrency, settings.scale_in_minutes)


def scaling_tag(scaling: Scaling) -> str:
    """Return the value of the tag from which `scaling_from` reads the settings: ``1-4 8 10``."""
    return f"{scaling.least}-{scaling.most} {scaling.target!r} {scaling.scale_in_minutes}"


def scaling_from(endpoint: str, tags: Mapping[str, str]) -> Scaling | None:
    """Return the autoscaling that an endpoint's tags describe; None without the tag, or if it is invalid."""
    try:
        bounds, target, minutes = tags[keys.SCALING].split()
        least, _, most = bounds.partition("-")
        component = endpoint if keys.COMPONENT in tags else None
        return Scaling(endpoint, component, int(least), int(most), float(target), int(minutes))
    except (KeyError, ValueError):
        return None


def component_tag(copies: int, needs: Mapping[str, Any]) -> str:
    """Return the value of the tag with a component's size: ``copies=2 accelerators=1.0 memory=1024``."""
    sizes = {word: needs[name] for word, (name, _) in _REQUIREMENTS.items() if name in needs}
    return " ".join(f"{word}={value}" for word, value in {"copies": copies, **sizes}.items())


def component_from(
    endpoint: str, model: str, variant: Mapping[str, Any], tags: Mapping[str, str]
) -> dict[str, Any] | None:
    """Return the CreateInferenceComponent request that the tags describe, without tags; None without one."""
    sizes = dict(word.split("=", 1) for word in tags.get(keys.COMPONENT, "").split() if "=" in word)
    if "copies" not in sizes:
        return None
    needs = {name: kind(sizes[word]) for word, (name, kind) in _REQUIREMENTS.items() if word in sizes}
    return component_request(endpoint, model, variant, needs, int(sizes["copies"]))


def component_request(
    endpoint: str, model: str, variant: Mapping[str, Any], needs: Mapping[str, Any], copies: int
) -> dict[str, Any]:
    """Return the CreateInferenceComponent request without tags; the component has the endpoint's name."""
    timeouts = ("ModelDataDownloadTimeoutInSeconds", "ContainerStartupHealthCheckTimeoutInSeconds")
    return {
        "InferenceComponentName": endpoint,
        "EndpointName": endpoint,
        "VariantName": variant["VariantName"],
        "Specification": {
            "ModelName": model,
            "StartupParameters": {key: variant[key] for key in timeouts if key in variant},
            "ComputeResourceRequirements": dict(needs),
        },
        "RuntimeConfig": {"CopyCount": copies},
    }
