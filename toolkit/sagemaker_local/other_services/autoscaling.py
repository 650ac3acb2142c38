"""Application Auto Scaling for SageMaker: components, targets that must exist, and target tracking's alarms.

Targets, policies and their alarms are kept and described; the alarms are evaluated. Nothing scales by itself:
instances and copies change only by an API call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

COPIES = "sagemaker:inference-component:DesiredCopyCount"
_MARK = "peagle_has_target"
_ENDPOINT = ("EndpointName", "VariantName")
_COMPONENT = ("InferenceComponentName",)
# Metric, statistic, period in seconds and dimensions of each predefined metric. Source: PredefinedMetricType
# in the Application Auto Scaling API reference.
_PREDEFINED: dict[str, tuple[str, str, int, tuple[str, ...]]] = {
    "SageMakerVariantInvocationsPerInstance": ("InvocationsPerInstance", "Sum", 60, _ENDPOINT),
    "SageMakerVariantConcurrentRequestsPerModelHighResolution": (
        "ConcurrentRequestsPerModel",
        "Maximum",
        10,
        _ENDPOINT,
    ),
    "SageMakerInferenceComponentInvocationsPerCopy": ("InvocationsPerCopy", "Sum", 60, _COMPONENT),
    "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution": (
        "ConcurrentRequestsPerCopy",
        "Maximum",
        10,
        _COMPONENT,
    ),
}


class _Dimension:
    """Extra member of moto's enumeration; only its value is read."""

    value = COPIES


def lay_sagemaker_scaling(has_target: Callable[[str], bool]) -> None:
    """Add SageMaker's rules to moto; ``has_target``: whether a resource exists."""
    from moto.applicationautoscaling import models, responses

    known: list[Any] = [each for each in models.ScalableDimensionValueSet if each.value != COPIES]
    for module in (models, responses):
        module.ScalableDimensionValueSet = [*known, _Dimension()]
    backend, policy = models.ApplicationAutoscalingBackend, models.FakeApplicationAutoscalingPolicy
    first = not hasattr(backend, _MARK)
    setattr(backend, _MARK, staticmethod(has_target))
    if first:
        _lay_targets(backend)
        _lay_policies(backend, policy)


def _lay_targets(backend: Any) -> None:
    from moto.applicationautoscaling.exceptions import AWSValidationException

    register, deregister = backend.register_scalable_target, backend.deregister_scalable_target

    def register_scalable_target(self: Any, namespace: str, r_id: str, *more: Any, **others: Any) -> Any:
        if namespace == "sagemaker" and not self.peagle_has_target(r_id):
            raise AWSValidationException(f"No SageMaker resource found for resource ID: {r_id}")
        return register(self, namespace, r_id, *more, **others)

    def deregister_scalable_target(self: Any, namespace: str, r_id: str, dimension: str) -> None:
        deregister(self, namespace, r_id, dimension)
        # "Deregistering a scalable target deletes the scaling policies that are associated with it."
        for key, policy in list(self.policies.items()):
            if (policy.service_namespace, policy.resource_id, policy.scalable_dimension) == (
                namespace,
                r_id,
                dimension,
            ):
                policy.delete_alarms(self.account_id, self.region_name)
                del self.policies[key]

    backend.register_scalable_target = register_scalable_target
    backend.deregister_scalable_target = deregister_scalable_target


def _lay_policies(backend: Any, policy: Any) -> None:
    create, put = policy.create_alarms, backend.put_scaling_policy

    def create_alarms(self: Any) -> None:
        create(self)
        if self.service_namespace == "sagemaker" and self.policy_type == "TargetTrackingScaling":
            self.alarms.extend(_tracking_alarms(self))

    def put_scaling_policy(self: Any, **asked: Any) -> Any:
        before = {
            key: list(known.alarms)
            for key, known in self.policies.items()
            if known.service_namespace == "sagemaker"
        }
        made = put(self, **asked)
        replaced = [alarm for key, old in before.items() if self.policies.get(key) is made for alarm in old]
        made_names = {alarm.name for alarm in made.alarms}
        from moto.cloudwatch.models import cloudwatch_backends

        names = [alarm.name for alarm in replaced if alarm.name not in made_names]
        cloudwatch_backends[self.account_id][self.region_name].delete_alarms(names)
        return made

    policy.create_alarms = create_alarms
    backend.put_scaling_policy = put_scaling_policy


def _tracking_alarms(policy: Any) -> list[Any]:
    """Create AlarmHigh (above the target, 3 periods) and AlarmLow (below 90% of it, 15 periods)."""
    from moto.cloudwatch.models import cloudwatch_backends

    cloudwatch = cloudwatch_backends[policy.account_id][policy.region_name]
    body = policy.target_tracking_scaling_policy_configuration
    target = float(body["TargetValue"])
    metric = _tracked(policy.resource_id, body)
    if metric is None:
        return []
    sides = [("AlarmHigh", "GreaterThanThreshold", target, 3)]
    if str(body.get("DisableScaleIn", False)).lower() != "true":
        sides.append(("AlarmLow", "LessThanThreshold", target * 0.9, 15))
    return [
        cloudwatch.put_metric_alarm(
            name=f"TargetTracking-{policy.resource_id}-{side}-{uuid4()}",
            comparison_operator=comparison,
            evaluation_periods=periods,
            threshold=threshold,
            description=f"DO NOT EDIT OR DELETE. For TargetTrackingScaling policy {policy.policy_arn}.",
            alarm_actions=[policy.policy_arn],
            **metric,
        )
        for side, comparison, threshold, periods in sides
    ]


def _tracked(resource_id: str, body: Any) -> dict[str, Any] | None:
    """Return the alarm's metric; None if not supported here (custom metric math)."""
    predefined = (body.get("PredefinedMetricSpecification") or {}).get("PredefinedMetricType")
    if predefined in _PREDEFINED:
        name, statistic, period, dimensions = _PREDEFINED[predefined]
        values = resource_id.split("/")[1::2]
        pairs = [{"Name": key, "Value": value} for key, value in zip(dimensions, values, strict=False)]
        return {
            "namespace": "AWS/SageMaker",
            "metric_name": name,
            "statistic": statistic,
            "period": period,
            "dimensions": pairs,
        }
    own = body.get("CustomizedMetricSpecification") or {}
    if "MetricName" not in own:
        return None
    return {
        "namespace": own.get("Namespace"),
        "metric_name": own["MetricName"],
        "statistic": own.get("Statistic"),
        "period": 60,
        "dimensions": own.get("Dimensions", []),
    }
